"""MATPOWER's tables (mpc.bus, gen, branch, gencost, dcline) made a case, whoever wrote them.

Source: MATPOWER User's Manual, Appendix B (Data File Format), version 2.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hushgrid.grid_cases.case import Buses, Case, CostLines, Floats, Generators, Ints, Lines
from hushgrid.grid_cases.elements import gencost
from hushgrid.grid_cases.elements.parts import (
    NO_COST_LINES,
    NO_DC_LINES,
    NO_REACTIVE_COSTS,
    Capability,
    DcLines,
    PowerFactors,
    ReactiveCosts,
)
from hushgrid.grid_cases.matpower_parser import NOTED, Value
from hushgrid.kernels.errors import InputError

#: Fewest columns of each matrix that is read.
COLUMNS = {"bus": 13, "gen": 10, "branch": 11, "gencost": 4, "dcline": 17, "dclinecost": 4}
PMAX, PMIN, PC1, QC2MAX = 8, 9, 10, 15  #: columns of mpc.gen


def from_fields(fields: dict[str, Value], name: str, where: str) -> Case:
    """The case in the fields of a file or of a program that knows MATPOWER's tables. Raises InputError."""
    with np.errstate(all="ignore"):  # absurd numbers overflow to inf, and the case's own check names them
        return _case(fields, name, where)


def _case(fields: dict[str, Value], name: str, where: str) -> Case:
    version = fields.get("version")
    if version is None or version.scalar not in ("2", 2.0):
        line = f":{version.line}" if version else ""
        text = repr(version.scalar) if version else "none"
        raise InputError(f"{where}{line}: found mpc.version {text}, expected '2' (MATPOWER format version 2)")
    base = fields.get("baseMVA")
    if base is None or not isinstance(base.scalar, float):
        raise InputError(f"{where}{f':{base.line}' if base else ''}: found no number mpc.baseMVA, expected MVA")
    if not (math.isfinite(base.scalar) and base.scalar > 0):
        raise InputError(f"{where}:{base.line}: found mpc.baseMVA = {base.scalar}, expected a positive number")
    mva = base.scalar
    bus = _matrix(fields, "bus", where)
    gen = _matrix(fields, "gen", where)
    branch = _matrix(fields, "branch", where)
    for field, matrix, columns in (("bus", bus, [0, 1]), ("gen", gen, [0, 7]), ("branch", branch, [0, 1, 10])):
        _whole_numbers(fields[field], matrix, columns, field, where)

    bus = bus[bus[:, 1] != 4]  # type 4: isolated, out of service with all that hangs on it
    bus = bus[np.argsort(bus[:, 0], kind="stable")]
    isolated = np.setdiff1d(_matrix(fields, "bus", where)[:, 0], bus[:, 0])
    gen_rows = np.flatnonzero((gen[:, 7] > 0) & ~np.isin(gen[:, 0], isolated))
    line_rows = np.flatnonzero((branch[:, 10] > 0) & ~np.isin(branch[:, :2], isolated).any(axis=1))
    polynomials, piecewise = _costs(fields, len(gen), gen_rows, mva, where)
    reactive, reactive_lines = _reactive_costs(fields, len(gen), gen_rows, mva, where)
    dc_lines, dc_cost_lines = _dc_lines(fields, isolated, mva, where)
    gen, branch, places = gen[gen_rows], branch[line_rows], _places(fields["gen"], where)
    return Case(
        name,
        mva,
        Buses(
            numbers=bus[:, 0].astype(np.int64),
            p_d=bus[:, 2] / mva,
            q_d=bus[:, 3] / mva,
            g_s=bus[:, 4] / mva,
            b_s=bus[:, 5] / mva,
            v_min=bus[:, 12],
            v_max=bus[:, 11],
            base_kv=bus[:, 9],
        ),
        Generators(
            rows=gen_rows.astype(np.int64),
            bus=gen[:, 0].astype(np.int64),
            p_min=gen[:, 9] / mva,
            p_max=gen[:, 8] / mva,
            q_min=gen[:, 4] / mva,
            q_max=gen[:, 3] / mva,
            cost_2=polynomials[:, 0],
            cost_1=polynomials[:, 1],
            cost_0=polynomials[:, 2],
        ),
        _lines(branch, line_rows, mva),
        piecewise,
        reactive,
        reactive_lines,
        _capability(gen, mva, [places[k] for k in gen_rows.tolist()]),
        _power_factors(gen),
        dc_lines,
        dc_cost_lines,
        tuple(name for name in NOTED if name in fields),
    )


def _lines(branch: Floats, rows: Ints, mva: float) -> Lines:
    angle_min, angle_max = _angle_limits(branch)
    return Lines(
        rows=rows.astype(np.int64),
        from_bus=branch[:, 0].astype(np.int64),
        to_bus=branch[:, 1].astype(np.int64),
        r=branch[:, 2],
        x=branch[:, 3],
        b=branch[:, 4],
        rate=np.where(np.isposinf(branch[:, 5]), 0.0, branch[:, 5] / mva),
        tap=np.where(branch[:, 8] == 0, 1.0, branch[:, 8]),
        shift=np.deg2rad(branch[:, 9]),
        angle_min=angle_min,
        angle_max=angle_max,
    )


def _capability(gen: Floats, mva: float, where: list[str]) -> Capability:
    """The sides of each generator's capability curve that its own limits do not imply; Pc1 = Pc2 is no curve."""
    rows = list[tuple[int, float, float, float]]()
    known = gen.shape[1] > QC2MAX
    for k in np.flatnonzero(gen[:, PC1] != gen[:, PC1 + 1]).tolist() if known else ():
        p1, p2, low1, high1, low2, high2 = gen[k, PC1 : QC2MAX + 1].tolist()
        if not (np.isfinite([p1, p2, low1, high1, low2, high2]).all() and p1 < p2):
            raise InputError(
                f"{where[k]}: found a capability curve from Pc1 {p1:g} to Pc2 {p2:g}, expected ascending MW"
            )
        for sign, q1, q2, limit in ((1.0, high1, high2, float(gen[k, 3])), (-1.0, low1, low2, float(gen[k, 4]))):
            slope = (q2 - q1) / (p2 - p1)
            ends = [q1 + slope * (p - p1) for p in gen[k, [PMIN, PMAX]].tolist()] if slope else [q1]
            if any(sign * q < sign * limit for q in ends):  # sign (q - slope p) <= sign (q1 - slope p1)
                rows.append((k, -sign * slope, sign, sign * (q1 - slope * p1) / mva))
    columns = np.array(rows, np.float64).reshape(-1, 4).T
    return Capability(columns[0].astype(np.int64), *columns[1:])


def _power_factors(gen: Floats) -> PowerFactors:
    """Generators from some p < 0 to 0 are dispatchable loads: q follows p where one of its limits is 0, to the
    other.
    """
    q_max, q_min = gen[:, 3], gen[:, 4]
    loads = np.flatnonzero((gen[:, PMIN] < 0) & (gen[:, PMAX] == 0) & ((q_max == 0) != (q_min == 0)))
    loads = loads[np.isfinite(gen[loads][:, [3, 4, PMIN]]).all(axis=1)]
    return PowerFactors(loads, (q_max + q_min)[loads] / gen[loads, PMIN])


def _dc_lines(fields: dict[str, Value], isolated: Floats, mva: float, where: str) -> tuple[DcLines, CostLines]:
    if "dcline" not in fields or not fields["dcline"].rows:
        return NO_DC_LINES, NO_COST_LINES
    table = _matrix(fields, "dcline", where)
    _whole_numbers(fields["dcline"], table, [0, 1, 2], "dcline", where)
    rows = np.flatnonzero((table[:, 2] > 0) & ~np.isin(table[:, :2], isolated).any(axis=1))
    polynomials, lines = np.zeros((len(rows), 3)), NO_COST_LINES
    if "dclinecost" in fields:
        costs, value = _matrix(fields, "dclinecost", where), fields["dclinecost"]
        if len(costs) != len(table):
            raise InputError(f"{where}:{value.line}: found {len(costs)} rows in mpc.dclinecost, expected {len(table)}")
        polynomials, lines = gencost.read(costs, rows, mva, _places(value, where))
    dc = table[rows]
    low, high, loss_0, loss_1 = dc[:, 9], dc[:, 10], dc[:, 15], dc[:, 16]
    with np.errstate(divide="ignore", invalid="ignore"):  # limits of a flow backwards hold at the second bus
        ends = [np.where(limit >= 0, limit, (limit + loss_0) / (1 - loss_1)) / mva for limit in (low, high)]
    numbers = (dc[:, 0].astype(np.int64), dc[:, 1].astype(np.int64))
    limits = (dc[:, k] / mva for k in (11, 12, 13, 14))
    columns: list[Any] = [*numbers, *ends, *limits, loss_0 / mva, loss_1, *polynomials.T]
    return DcLines(rows.astype(np.int64), *columns), lines


def _matrix(fields: dict[str, Value], field: str, where: str) -> Floats:
    value = fields.get(field)
    if value is None or value.rows is None:
        place = f"{where}:{value.line}" if value else where
        raise InputError(f"{place}: found no matrix mpc.{field}, expected one (MATPOWER format version 2)")
    width = len(value.rows[0][1]) if value.rows else COLUMNS[field]
    if width < COLUMNS[field]:
        line = value.rows[0][0]
        raise InputError(f"{where}:{line}: found {width} columns in mpc.{field}, expected at least {COLUMNS[field]}")
    for line, row in value.rows:
        if len(row) != width:
            raise InputError(f"{where}:{line}: found {len(row)} numbers in a row of mpc.{field}, expected {width}")
    return np.array([row for _, row in value.rows], np.float64).reshape(-1, width)


def _whole_numbers(value: Value, matrix: Floats, columns: list[int], field: str, where: str) -> None:
    """Bus numbers, types and states must be whole and small enough to be exact."""
    part = matrix[:, columns]
    wrong = ~(np.isfinite(part) & (part == np.round(part)) & (np.abs(part) < 2**53))
    if wrong.any():
        row, column = (int(k) for k in np.argwhere(wrong)[0])
        line = value.rows[row][0] if value.rows else value.line
        raise InputError(
            f"{where}:{line}: found {part[row, column]} in column {columns[column] + 1} of mpc.{field}, "
            "expected a whole number"
        )


def _costs(
    fields: dict[str, Value], generators: int, in_service: Ints, mva: float, where: str
) -> tuple[Floats, CostLines]:
    """(c2, c1, c0) of each generator in service in $/h of p.u., NaN where there is none, and the piecewise costs."""
    if "gencost" not in fields:
        return np.full((len(in_service), 3), np.nan), NO_COST_LINES
    table, value = _matrix(fields, "gencost", where), fields["gencost"]
    if len(table) not in (generators, 2 * generators):  # the second half, if any, is for reactive power
        raise InputError(
            f"{where}:{value.line}: found {len(table)} rows in mpc.gencost, expected {generators}, "
            f"or {2 * generators} with reactive costs"
        )
    return gencost.read(table[:generators], in_service, mva, _places(value, where))


def _reactive_costs(
    fields: dict[str, Value], generators: int, in_service: Ints, mva: float, where: str
) -> tuple[ReactiveCosts, CostLines]:
    """The second half of mpc.gencost, if there is one, without the generators whose reactive power is free."""
    table = _matrix(fields, "gencost", where)[generators:] if "gencost" in fields else np.zeros((0, 4))
    if not len(table):
        return NO_REACTIVE_COSTS, NO_COST_LINES
    polynomials, lines = gencost.read(table, in_service, mva, _places(fields["gencost"], where)[generators:])
    costed = np.setdiff1d(np.flatnonzero(np.any(polynomials != 0, axis=1)), lines.generator)
    return ReactiveCosts(costed, *polynomials[costed].T), lines


def _places(value: Value, where: str) -> list[str]:
    """The place of each row of a matrix in its file."""
    return [f"{where}:{line}" for line, _ in value.rows or []]


def _angle_limits(branch: Floats) -> tuple[Floats, Floats]:
    """Columns ANGMIN, ANGMAX in rad; absent, both 0, or at 90 degrees and beyond (as the usual 360): no limit."""
    none = np.full(len(branch), np.inf)
    if branch.shape[1] < 13:
        return -none, none
    low, high = branch[:, 11], branch[:, 12]
    both_zero = (low == 0) & (high == 0)
    return (
        np.where(both_zero | (low <= -90), -np.inf, np.deg2rad(low)),
        np.where(both_zero | (high >= 90), np.inf, np.deg2rad(high)),
    )
