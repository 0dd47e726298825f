"""The horizon of a plan: from a scenario's tables, and as the zone step has it."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import TypeVar

import numpy as np

from hushgrid.grid_cases.case import Case
from hushgrid.grid_cases.zone.horizon import SNAPSHOT, Horizon, Storage
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.types import Index, Vector
from hushgrid.node.problems.power_flow.section import PERIODS, HorizonPlan, HorizonProblem, StorageUnit, ZonesPlan

PROFILES = ("period", "bus", "p_mw", "q_mvar")
STORAGE = ("name", "bus", "p_mw", "e_mwh", "eta", "cost", "e_start", "e_end")
OF_GENERATORS = ("period", "gen", "value")
RAMPS = ("gen", "per_hour")
RESERVE = ("period", "zone", "mw")
WITHIN = 1e-6  #: MWh and a share of it: how exactly a plan keeps the limits of storage
NEAR = 1e-5  #: p.u.; by how much a dispatch may pass a limit of generation: its solver's own accuracy
Key = TypeVar("Key", int, str)


def horizon_of(problem: ZonesPlan, case: Case) -> Horizon:
    """A plan's horizon on its case: the periods from its first on; a snapshot where it has none.

    What goes before is met as far as it can be: a generator that its availability leaves less than its ramp would be
    is there at once, and storage that cannot reach its last energy any more ends as full as it gets.
    Raises InputError where plan and case do not fit.
    """
    plan = problem.horizon
    if plan is None:
        return SNAPSHOT
    _check(plan, problem, case)
    passed, T, generators = plan.first - 1, plan.left, case.generators
    place = {str(row + 1): k for k, row in enumerate(generators.rows.tolist())}

    def table(rows: Mapping[str, Sequence[float]]) -> np.ndarray:
        values = np.ones((T if rows else 0, len(generators)))
        for number, each in rows.items():
            values[:, place[number]] = each[passed:]
        return values

    ramp = np.full(len(generators) if plan.ramps else 0, np.inf)
    for number, share in plan.ramps.items():
        ramp[place[number]] = share
    columns = zip(*((u.bus, u.p_mw, u.e_mwh, u.eta, u.cost, u.e_start, u.e_end) for u in plan.storage), strict=True)
    storage = Storage(*(np.array(column) for column in columns)) if plan.storage else SNAPSHOT.storage
    if plan.energy:
        start = np.minimum(plan.energy, storage.e_mwh)
        most = start + T * plan.hours * storage.eta * storage.p_mw
        storage = replace(storage, e_start=start, e_end=np.minimum(storage.e_end, np.minimum(most, storage.e_mwh)))
    reserve = {zone: np.array(each[passed:]) for zone, each in plan.reserve.items()}
    prices = table(plan.price)
    horizon = Horizon(T, plan.hours, storage, ramp, table(plan.availability), prices, reserve, first=plan.first)
    if not plan.before:
        return horizon
    before, every = np.array([plan.before[number] for number in place]) / case.base_mva, np.arange(len(generators))
    steps, most = horizon.steps_of(case, every), horizon.available(case, every)[0]
    return replace(horizon, before=np.clip(before, generators.p_min - steps, most + steps))


def _check(plan: HorizonPlan, problem: ZonesPlan, case: Case) -> None:
    """Raises InputError unless every row is of an element of the case, of all periods, and can be met."""
    known, numbers = (
        set(case.buses.numbers.tolist()),
        {str(row + 1): k for k, row in enumerate(case.generators.rows.tolist())},
    )
    for unit in plan.storage:
        where = f"horizon.storage: {unit.name}"
        if unit.bus not in known:
            raise InputError(f"{where}: found bus {unit.bus}, expected a bus of {case.name}")
        if not (unit.e_start <= unit.e_mwh and unit.e_end <= unit.e_mwh):
            raise InputError(
                f"{where}: found e_start {unit.e_start:g}, e_end {unit.e_end:g}, expected at most e_mwh {unit.e_mwh:g}"
            )
        reach = unit.e_start + plan.periods * plan.hours * unit.eta * unit.p_mw
        if unit.e_end > reach * (1 + 1e-12):
            raise InputError(
                f"{where}: found e_end {unit.e_end:g}, expected at most {reach:g} MWh, what it reaches from e_start"
            )
    _check_beginning(plan, case, numbers)
    for key in ("ramps", "availability", "price"):
        for number in getattr(plan, key):
            if number not in numbers:
                raise InputError(f"horizon.{key}: found gen {number}, expected a generator in service of {case.name}")
    for key in ("availability", "price", "reserve"):
        for name, each in getattr(plan, key).items():
            if len(each) != plan.periods:
                raise InputError(f"horizon.{key}: {name}: found {len(each)} periods, expected {plan.periods}")
    for number, shares in plan.availability.items():
        low, high = (getattr(case.generators, key)[numbers[number]] for key in ("p_min", "p_max"))
        for t, share in enumerate(shares, 1):
            if not 0 <= share <= 1 or share * high < low - 1e-12:
                raise InputError(
                    f"horizon.availability: gen {number}, period {t}: found {share:g}, expected 0 to 1, and no "
                    "less than its p_min"
                )
    if foreign := [zone for zone in plan.reserve if zone not in problem.zones]:
        raise InputError(
            f"horizon.reserve: found zone {foreign[0]}, expected one of {', '.join(sorted(problem.zones))}"
        )


def _check_beginning(plan: HorizonPlan, case: Case, numbers: Mapping[str, int]) -> None:
    """Raises InputError unless storage and generators can be where the plan begins."""
    if plan.energy and len(plan.energy) != len(plan.storage):
        raise InputError(f"horizon.energy: found {len(plan.energy)} energies, expected {len(plan.storage)}")
    for unit, energy in zip(plan.storage, plan.energy, strict=False):
        if energy > unit.e_mwh * (1 + WITHIN) + WITHIN:
            raise InputError(f"horizon.energy: {unit.name}: found {energy:g} MWh, expected at most {unit.e_mwh:g}")
    if not plan.before:
        return
    if plan.before.keys() != numbers.keys():
        raise InputError(f"horizon.before: found {len(plan.before)} generators, expected the {len(numbers)} in service")
    for number, k in numbers.items():
        low, high = (getattr(case.generators, key)[k] * case.base_mva for key in ("p_min", "p_max"))
        if not low - NEAR * case.base_mva <= plan.before[number] <= high + NEAR * case.base_mva:
            raise InputError(
                f"horizon.before: gen {number}: found {plan.before[number]:g} MW, expected {low:g} to {high:g}"
            )


def over(positions: Index, size: int, periods: int) -> Index:
    """Positions among `size` entries, in each of so many periods."""
    within: Index = (np.arange(periods)[:, None] * size + positions).ravel()
    return within


def keys_over(keys: Sequence[str], horizon: Horizon, storage: Sequence[str] = ()) -> list[str]:
    """Names of entries in each period: of a snapshot their own, else pg:0@1, pg:0@2 ..., and those of storage after."""
    if horizon.first == horizon.periods == 1 and not len(horizon.storage):
        return list(keys)
    periods = range(horizon.first, horizon.first + horizon.periods)
    each = [f"{key}@{t}" for t in periods for key in keys]
    return each + [
        f"{kind}:{name}@{t}" for kind in ("charge", "discharge", "energy") for t in periods for name in storage
    ]


def units_at(problem: ZonesPlan, buses: Sequence[int]) -> list[StorageUnit]:
    """The storage units at these buses, in the plan's order."""
    units = problem.horizon.storage if problem.horizon else ()
    return [unit for unit in units if unit.bus in set(buses)]


# --- files ---


def read_horizon(section: HorizonProblem, case: Case) -> HorizonPlan:
    """The public tables of a scenario's horizon, Raises InputError, which names file and line."""
    T = section.periods
    storage = tuple(_units(Path(section.storage))) if section.storage else ()
    ramps = section.ramps
    if isinstance(ramps, float | int):
        each = {str(row + 1): float(ramps) for row in case.generators.rows.tolist()}
    else:
        each = {} if ramps is None else {str(int(gen)): value for gen, value in _numbers(Path(ramps), RAMPS)}
    tables = {
        key: {str(gen): tuple(values) for gen, values in _by_period(Path(file), OF_GENERATORS, T, int).items()}
        for key in ("availability", "price")
        if (file := getattr(section, key))
    }
    reserve = _by_period(Path(section.reserve), RESERVE, T, str) if section.reserve else {}
    availability, price = (tables.get(key, {}) for key in ("availability", "price"))
    sums = {zone: tuple(values) for zone, values in reserve.items()}
    return HorizonPlan(T, section.hours, storage, each, availability, price, sums)


def _rows(path: Path, columns: Sequence[str]) -> list[tuple[int, list[str]]]:
    """(line, cells) of a CSV file with these columns."""
    expected = ",".join(columns)
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.reader(file)
            if [cell.strip() for cell in next(reader, [])] != list(columns):
                raise InputError(f"{path}:1: found another header, expected {expected}")
            rows = [(reader.line_num, row) for row in reader if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or 'not CSV text'}, expected {expected}") from None
    for line, row in rows:
        if len(row) != len(columns):
            raise InputError(f"{path}:{line}: found {len(row)} cells, expected {expected}")
    return rows


def _number(path: Path, line: int, cell: str, columns: Sequence[str]) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = float("nan")
    if not isfinite(value):
        raise InputError(f"{path}:{line}: found {cell[:40]!r}, expected a number ({','.join(columns)})")
    return value


def _numbers(path: Path, columns: Sequence[str]) -> list[list[float]]:
    return [[_number(path, line, cell, columns) for cell in row] for line, row in _rows(path, columns)]


def _units(path: Path) -> list[StorageUnit]:
    units = list[StorageUnit]()
    for line, (name, *cells) in _rows(path, STORAGE):
        bus, p, e, eta, cost, start, end = (_number(path, line, cell, STORAGE) for cell in cells)
        if not (bus == int(bus) and min(p, e, cost, start, end) >= 0 and 0 < eta <= 1):
            raise InputError(f"{path}:{line}: found {name!r}, expected a bus, powers and energies >= 0, eta in (0, 1]")
        if name in [unit.name for unit in units] or not name:
            raise InputError(f"{path}:{line}: found storage {name!r} again, expected a name a unit")
        units.append(StorageUnit(name, int(bus), p, e, eta, cost, start, end))
    return units


def _by_period(path: Path, columns: Sequence[str], T: int, key: Callable[[str], Key]) -> dict[Key, list[float]]:
    """T values by element; a missing period is an error."""
    values: dict[Key, dict[int, float]] = {}
    for line, (period, element, cell) in _rows(path, columns):
        t = _number(path, line, period, columns)
        try:
            name = key(element.strip())
        except ValueError:
            raise InputError(f"{path}:{line}: found {element[:40]!r}, expected {columns[1]}") from None
        if t != int(t) or not 1 <= t <= T or t in values.get(name, {}):
            raise InputError(
                f"{path}:{line}: found period {period[:12]} of {columns[1]} {name}, expected 1 to {T}, once"
            )
        values.setdefault(name, {})[int(t)] = _number(path, line, cell, columns)
    for name, each in values.items():
        if missing := [t for t in range(1, T + 1) if t not in each]:
            raise InputError(f"{path}: found no period {missing[0]} of {columns[1]} {name}, expected 1 to {T}")
    return {name: [each[t] for t in range(1, T + 1)] for name, each in values.items()}


def read_profiles(
    path: Path, buses: tuple[int, ...], base_mva: float, periods: int | None, others: bool = False
) -> Vector:
    """(T 2 nb,) p.u.: a zone's loads from its CSV (period, bus, p_mw, q_mvar), period by period, p then q of its buses.

    periods: T; None: as many as the file has. `others`: rows of other buses are passed over. Raises InputError; a row
    is private, so only its place is said.
    """
    at, values = {bus: k for k, bus in enumerate(buses)}, dict[tuple[int, int], tuple[float, float]]()
    for line, row in _rows(path, PROFILES):
        try:
            t, bus, p, q = int(row[0]), int(row[1]), float(row[2]), float(row[3])
        except ValueError:
            raise InputError(f"{path}:{line}: found a malformed row, expected {','.join(PROFILES)}") from None
        if others and bus not in at:
            continue
        if bus not in at or not 1 <= t <= (periods or PERIODS) or (t, bus) in values or not isfinite(p + q):
            raise InputError(
                f"{path}:{line}: found a row again, of another zone's bus, of no period or without numbers, "
                "expected a row for each period and bus of the zone"
            )
        values[t, bus] = p, q
    T = periods or max((t for t, _ in values), default=1)
    d = np.zeros((T, 2, len(buses)))
    for t in range(1, T + 1):
        for bus, k in at.items():
            if (t, bus) not in values:
                raise InputError(f"{path}: found no period {t} of bus {bus}, expected 1 to {T} of each bus of the zone")
            d[t - 1, :, k] = values[t, bus]
    return d.ravel() / base_mva
