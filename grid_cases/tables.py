"""MATPOWER's tables (mpc.bus, gen, branch, gencost) made a case, whoever wrote them.

Source: MATPOWER User's Manual, Appendix B (Data File Format), version 2.
"""

from __future__ import annotations

import math

import numpy as np

from hushgrid.grid_cases import gencost
from hushgrid.grid_cases.case import NO_COST_LINES, Buses, Case, CostLines, Floats, Generators, Ints, Lines
from hushgrid.grid_cases.matpower_parser import Value
from hushgrid.kernels.errors import InputError

COLUMNS = {"bus": 13, "gen": 10, "branch": 11, "gencost": 4}  #: fewest columns of each matrix that is read


def from_fields(found: dict[str, Value], name: str, where: str) -> Case:
    """The case in the fields of a file or of a program that knows MATPOWER's tables. Raises InputError."""
    with np.errstate(all="ignore"):  # absurd numbers overflow to inf, and the case's own check names them
        return _case(found, name, where)


def _case(found: dict[str, Value], name: str, where: str) -> Case:
    version = found.get("version")
    if version is None or version.scalar not in ("2", 2.0):
        line = f":{version.line}" if version else ""
        shown = repr(version.scalar) if version else "none"
        raise InputError(f"{where}{line}: found mpc.version {shown}, expected '2' (MATPOWER format version 2)")
    base = found.get("baseMVA")
    if base is None or not isinstance(base.scalar, float):
        raise InputError(f"{where}{f':{base.line}' if base else ''}: found no number mpc.baseMVA, expected MVA")
    if not (math.isfinite(base.scalar) and base.scalar > 0):
        raise InputError(f"{where}:{base.line}: found mpc.baseMVA = {base.scalar}, expected a positive number")
    mva = base.scalar
    bus = _matrix(found, "bus", where)
    gen = _matrix(found, "gen", where)
    branch = _matrix(found, "branch", where)
    for field, matrix, columns in (("bus", bus, [0, 1]), ("gen", gen, [0, 7]), ("branch", branch, [0, 1, 10])):
        _whole_numbers(found[field], matrix, columns, field, where)

    bus = bus[bus[:, 1] != 4]  # type 4: isolated, out of service with all that hangs on it
    bus = bus[np.argsort(bus[:, 0], kind="stable")]
    isolated = np.setdiff1d(_matrix(found, "bus", where)[:, 0], bus[:, 0])
    gen_rows = np.flatnonzero((gen[:, 7] > 0) & ~np.isin(gen[:, 0], isolated))
    line_rows = np.flatnonzero((branch[:, 10] > 0) & ~np.isin(branch[:, :2], isolated).any(axis=1))
    polynomials, piecewise = _costs(found, len(gen), gen_rows, mva, where)
    gen, branch = gen[gen_rows], branch[line_rows]
    angle_min, angle_max = _angle_limits(branch)
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
        Lines(
            rows=line_rows.astype(np.int64),
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
        ),
        piecewise,
    )


def _matrix(found: dict[str, Value], field: str, where: str) -> Floats:
    value = found.get(field)
    if value is None or value.rows is None:
        at = f"{where}:{value.line}" if value else where
        raise InputError(f"{at}: found no matrix mpc.{field}, expected one (MATPOWER format version 2)")
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
    found: dict[str, Value], generators: int, in_service: Ints, mva: float, where: str
) -> tuple[Floats, CostLines]:
    """(c2, c1, c0) of each generator in service in $/h of p.u., NaN where there is none, and the piecewise costs."""
    if "gencost" not in found:
        return np.full((len(in_service), 3), np.nan), NO_COST_LINES
    table, value = _matrix(found, "gencost", where), found["gencost"]
    if len(table) not in (generators, 2 * generators):  # the second half, if any, is for reactive power
        raise InputError(
            f"{where}:{value.line}: found {len(table)} rows in mpc.gencost, expected {generators}, "
            f"or {2 * generators} with reactive costs"
        )
    return gencost.read(table, in_service, mva, [f"{where}:{line}" for line, _ in value.rows or []])


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
