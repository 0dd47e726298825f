"""A power-system case: buses, generators and lines in per unit, checked once, then read-only.

The public part is everything but the loads: the network, its limits and its costs. A zone's loads `p_d`, `q_d` are
what the zones keep private, so `public_digest` and the zone models never depend on them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from hushgrid.grid_cases.elements import parts
from hushgrid.grid_cases.elements.parts import Capability, Coordinates, DcLines, PowerFactors, ReactiveCosts
from hushgrid.grid_cases.elements.parts import CostLines as CostLines
from hushgrid.grid_cases.elements.table import Floats as Floats
from hushgrid.grid_cases.elements.table import Ints as Ints
from hushgrid.grid_cases.elements.table import Table as Table
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.types import Document


@dataclass(frozen=True, slots=True, eq=False)
class Buses(Table):
    numbers: Ints  #: the case's own bus numbers, ascending
    p_d: Floats  #: active load, p.u. (private)
    q_d: Floats  #: reactive load, p.u. (private)
    g_s: Floats  #: shunt conductance, p.u. (active power drawn at 1 p.u. voltage)
    b_s: Floats  #: shunt susceptance, p.u. (reactive power given at 1 p.u. voltage)
    v_min: Floats  #: lowest voltage magnitude, p.u.
    v_max: Floats  #: highest voltage magnitude, p.u.
    base_kv: Floats  #: nominal voltage, kV; nothing is computed with it


@dataclass(frozen=True, slots=True, eq=False)
class Generators(Table):
    rows: Ints  #: 0-based row of mpc.gen, the element id (out-of-service rows are left out)
    bus: Ints  #: bus number
    p_min: Floats  #: p.u., may be -inf
    p_max: Floats  #: p.u., may be inf
    q_min: Floats  #: p.u., may be -inf
    q_max: Floats  #: p.u., may be inf
    cost_2: Floats  #: $/h per p.u.^2; the three are NaN where there is no polynomial cost of degree <= 2
    cost_1: Floats  #: $/h per p.u.
    cost_0: Floats  #: $/h


@dataclass(frozen=True, slots=True, eq=False)
class Lines(Table):
    rows: Ints  #: 0-based row of mpc.branch, the element id (out-of-service rows are left out)
    from_bus: Ints  #: bus number
    to_bus: Ints  #: bus number
    r: Floats  #: series resistance, p.u.
    x: Floats  #: series reactance, p.u.
    b: Floats  #: total charging susceptance, p.u.
    rate: Floats  #: thermal limit of |S| at either end, p.u.; 0: none
    tap: Floats  #: turns ratio, 1 for a line
    shift: Floats  #: phase shift, rad
    angle_min: Floats  #: lowest angle difference from - to, rad; -inf: none
    angle_max: Floats  #: highest angle difference from - to, rad; inf: none


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One power system. Construction checks it: InputError says in one line what is wrong and where."""

    name: str
    base_mva: float  #: MVA of 1 p.u.
    buses: Buses
    generators: Generators
    lines: Lines
    piecewise: CostLines = parts.NO_COST_LINES  #: of the generators that have such a cost and no polynomial
    reactive: ReactiveCosts = parts.NO_REACTIVE_COSTS
    reactive_lines: CostLines = parts.NO_COST_LINES  #: of generators whose reactive power has such a cost
    capability: Capability = parts.NO_CAPABILITY
    power_factors: PowerFactors = parts.NO_POWER_FACTORS
    dc_lines: DcLines = parts.NO_DC_LINES
    dc_cost_lines: CostLines = parts.NO_COST_LINES  #: of the dc lines that have such a cost and no polynomial
    constraints: tuple[str, ...] = ()  #: fields of the file with constraints and costs of the user's own: not modelled
    omitted: tuple[str, ...] = ()  #: what of the file is no part of the case, in words
    coordinates: Coordinates = parts.NO_COORDINATES  #: of every bus, or of none

    def __post_init__(self) -> None:
        _check(self)

    def __repr__(self) -> str:
        parts = (f"{len(self.buses)} buses", f"{len(self.generators)} generators", f"{len(self.lines)} lines")
        return f"Case({self.name}: {', '.join(parts)})"

    def without_loads(self) -> Case:
        """The public part of the case: the same with p_d = q_d = 0."""
        zero = np.zeros(len(self.buses))
        return replace(self, buses=replace(self.buses, p_d=zero, q_d=zero))

    def public_digest(self) -> str:
        """SHA-256 (hex) of everything that is modelled, except the loads p_d, q_d and the nominal voltages."""
        digest = hashlib.sha256(f"hushgrid case 1 {self.name} {self.base_mva.hex()}".encode())
        tables: list[Table] = [self.buses, self.generators, self.lines]
        tables += [self.piecewise] if len(self.piecewise) else []
        for name in (name for held in parts.WITHOUT.values() for name in held if name != "constraints"):
            if len(getattr(self, name)):
                digest.update(f" {name}".encode())
                tables.append(getattr(self, name))
        for table in tables:
            for column in fields(table):
                if column.name not in ("p_d", "q_d", "base_kv"):
                    values = getattr(table, column.name)
                    digest.update(f" {column.name} {len(values)} ".encode())
                    digest.update(values.astype(values.dtype.newbyteorder("<")).tobytes())
        return digest.hexdigest()

    def without(self, ignored: Iterable[str]) -> Case:
        """The case without these parts (`parts.WITHOUT`)."""
        empty = {name: table for word in ignored for name, table in parts.WITHOUT[word].items()}
        return replace(self, **empty) if empty else self

    def held_parts(self) -> dict[str, str]:
        """What the case holds beside buses, generators and lines: by the word of each part, in words."""
        numbers = {
            "reactive-costs": np.union1d(self.reactive.generator, self.reactive_lines.generator).size,
            "capability-curves": np.unique(self.capability.generator).size,
            "dc-lines": len(self.dc_lines),
            "dispatchable-loads": len(self.power_factors),
            "constraints": len(self.constraints),
        }
        phrases = {
            "reactive-costs": "reactive costs of {} generator{}",
            "capability-curves": "capability curves of {} generator{}",
            "dc-lines": "{} dc line{}",
            "dispatchable-loads": "the power factor of {} dispatchable load{}",
            "constraints": "constraints or costs of the user's own "
            f"({', '.join(f'mpc.{k}' for k in self.constraints)})",
        }
        return {part: phrases[part].format(count, "s" * (count > 1)) for part, count in numbers.items() if count}

    def left_out(self, ignored: Iterable[str]) -> list[str]:
        """What the case holds and its model has not, if these parts are left out: a line each."""
        owned, lines = set(ignored), [f"{what}: left out" for what in self.omitted]
        for part, what in self.held_parts().items():
            if part in owned:
                lines.append(f"{what}: left out (ignore: {part})")
            elif part in parts.NOT_MODELLED:
                lines.append(f"{what}: not modelled")
        return lines

    def without_cost(self) -> Ints:
        """Positions of the generators with neither a polynomial cost of degree <= 2 nor a piecewise-linear one."""
        known = ~np.isnan(self.generators.cost_2)
        known[self.piecewise.generator] = True
        return np.flatnonzero(~known)

    def index(self, numbers: Ints) -> Ints:
        """Positions in `buses` of these bus numbers (which must exist)."""
        return np.searchsorted(self.buses.numbers, numbers).astype(np.int64)


def loads(case: Case, buses: tuple[int, ...]) -> Floats:
    """The private data of a zone: d = (p_d, q_d) of its buses in the order given, shape (2 len(buses),), p.u."""
    places = case.index(np.array(buses, np.int64))
    return np.concatenate([case.buses.p_d[places], case.buses.q_d[places]])


def facts(case: Case) -> Document:
    """Counts, and sums in MW and MVAr."""
    base, lines = case.base_mva, case.lines
    p_max = case.generators.p_max.sum() * base
    return {
        "case": case.name,
        "base_mva": base,
        "buses": len(case.buses),
        "lines": len(lines),
        "transformers": int(np.sum((lines.tap != 1) | (lines.shift != 0))),
        "limited_lines": int(np.sum(lines.rate > 0)),
        "generators": len(case.generators),
        "polynomial_costs": int(np.sum(~np.isnan(case.generators.cost_2))),
        "piecewise_costs": len(np.unique(case.piecewise.generator)),
        "generation_mw": float(p_max) if np.isfinite(p_max) else None,
        "loaded_buses": int(np.sum((case.buses.p_d != 0) | (case.buses.q_d != 0))),
        "load_mw": float(case.buses.p_d.sum() * base),
        "load_mvar": float(case.buses.q_d.sum() * base),
        "parts": case.held_parts(),
        "not_modelled": [word for word in case.held_parts() if word in parts.NOT_MODELLED],
        "left_out": list(case.omitted),
        "digest": case.public_digest(),
    }


def _check(case: Case) -> None:
    def refuse(wrong: NDArray[np.bool_], table: str, ids: Ints, actual: str, expected: str) -> None:
        if wrong.any():
            raise InputError(
                f"case {case.name}: {table} {ids[np.flatnonzero(wrong)[0]]}: {actual}, expected {expected}"
            )

    buses, generators, lines = case.buses, case.generators, case.lines
    if not (np.isfinite(case.base_mva) and case.base_mva > 0):
        raise InputError(f"case {case.name}: baseMVA: found {case.base_mva}, expected a positive number")
    if not len(buses):
        raise InputError(f"case {case.name}: found no bus in service, expected at least one")
    steps = np.diff(buses.numbers, prepend=buses.numbers[0] - 1)
    refuse(steps == 0, "bus", buses.numbers, "found twice", "each number once")
    refuse(steps < 0, "bus", buses.numbers, "found out of order", "ascending numbers")
    may_be_infinite = {"rate", "angle_min", "angle_max", "p_min", "p_max", "q_min", "q_max"}
    may_be_nan = {"cost_2", "cost_1", "cost_0"}
    for kind, table, ids in (
        ("bus", buses, buses.numbers),
        ("generator row", generators, generators.rows),
        ("branch row", lines, lines.rows),
    ):
        for column in fields(table):
            values = getattr(table, column.name)
            if column.name in may_be_infinite:
                refuse(np.isnan(values), kind, ids, f"found {column.name} = NaN", "a number")
            elif column.name in may_be_nan:
                refuse(np.isinf(values), kind, ids, f"found {column.name} infinite", "a finite number")
            else:
                refuse(~np.isfinite(values), kind, ids, f"found {column.name} not finite", "a finite number")
    refuse(buses.v_min < 0, "bus", buses.numbers, "found v_min < 0", "v_min >= 0")
    refuse(buses.v_min > buses.v_max, "bus", buses.numbers, "found v_min > v_max", "v_min <= v_max")
    gens = "generator row"
    refuse(~np.isin(generators.bus, buses.numbers), gens, generators.rows, "found an unknown bus", "a bus in service")
    for quantity in ("p", "q"):
        low, high = getattr(generators, f"{quantity}_min"), getattr(generators, f"{quantity}_max")
        refuse(low > high, gens, generators.rows, f"found {quantity}_min > {quantity}_max", "min <= max")
        refuse((low == np.inf) | (high == -np.inf), gens, generators.rows, f"found no {quantity} allowed", "finite")
    piecewise = case.piecewise
    no_such = (piecewise.generator < 0) | (piecewise.generator >= len(generators))
    refuse(no_such, "piecewise cost of generator", piecewise.generator, "found no such generator", "its position")
    for name in ("slope", "intercept"):
        values = getattr(piecewise, name)
        rows = generators.rows[piecewise.generator]
        refuse(~np.isfinite(values), gens, rows, f"found a {name} of its cost not finite", "a finite number")
    twice = ~np.isnan(generators.cost_2) & np.isin(np.arange(len(generators)), piecewise.generator)
    refuse(twice, gens, generators.rows, "found a polynomial and a piecewise-linear cost", "one of them")
    _check_parts(case, refuse)
    for end in ("from_bus", "to_bus"):
        actual = f"found an unknown {end.replace('_', ' ')}"
        refuse(~np.isin(getattr(lines, end), buses.numbers), "branch row", lines.rows, actual, "a bus in service")
    refuse(lines.from_bus == lines.to_bus, "branch row", lines.rows, "found both ends at one bus", "two buses")
    refuse((lines.r == 0) & (lines.x == 0), "branch row", lines.rows, "found r = x = 0", "a series impedance")
    refuse(lines.tap <= 0, "branch row", lines.rows, "found a tap ratio <= 0", "a positive ratio (0 in the file: 1)")
    refuse(lines.rate < 0, "branch row", lines.rows, "found a thermal limit < 0", "MVA >= 0 (0: none)")
    refuse(lines.angle_min > lines.angle_max, "branch row", lines.rows, "found angmin > angmax", "angmin <= angmax")
    reached = _component(case)
    refuse(~reached, "bus", buses.numbers, f"not connected to bus {buses.numbers[0]}", "a connected network")


def _check_parts(case: Case, refuse: Callable[[NDArray[np.bool_], str, Ints, str, str], None]) -> None:
    dc, gens = case.dc_lines, case.generators
    for name in ("reactive", "reactive_lines", "capability", "power_factors", "dc_cost_lines"):
        table = getattr(case, name)
        count, kind = (len(dc), "dc line") if name == "dc_cost_lines" else (len(gens), "generator")
        wrong = (table.generator < 0) | (table.generator >= count)
        refuse(wrong, f"{name} of {kind}", table.generator, f"found no such {kind}", "its position")
        for column in fields(table)[1:]:
            values, may_be_nan = getattr(table, column.name), column.name.startswith("cost_")
            wrong = np.isinf(values) if may_be_nan else ~np.isfinite(values)
            refuse(wrong, f"{name} of {kind}", table.generator, f"found {column.name} not finite", "a finite number")
    rows = "dcline row"
    for end in ("from_bus", "to_bus"):
        unknown = ~np.isin(getattr(dc, end), case.buses.numbers)
        refuse(unknown, rows, dc.rows, f"found an unknown {end.replace('_', ' ')}", "a bus in service")
    for low, high in (("p_min", "p_max"), ("q_from_min", "q_from_max"), ("q_to_min", "q_to_max")):
        empty = ~(getattr(dc, low) <= getattr(dc, high))
        refuse(empty, rows, dc.rows, f"found {low} > {high}, or no number", "min <= max")
    refuse(~np.isfinite(dc.loss_0), rows, dc.rows, "found loss0 not finite", "MW")
    refuse(~(np.abs(dc.loss_1) < 1), rows, dc.rows, "found loss1 beyond 1", "a share of the flow")
    refuse(dc.from_bus == dc.to_bus, rows, dc.rows, "found both ends at one bus", "two buses")


def _component(case: Case) -> NDArray[np.bool_]:
    """Which buses a path of lines joins to the first one."""
    ends = case.index(np.stack([case.lines.from_bus, case.lines.to_bus]))
    reached = np.zeros(len(case.buses), np.bool_)
    reached[0] = True
    while True:
        grown = ends[:, reached[ends].any(axis=0)]
        if reached[grown].all():
            return reached
        reached[grown] = True
