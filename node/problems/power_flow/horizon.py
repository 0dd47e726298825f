"""The horizon of a plan: from a scenario's tables, and as the zone step has it."""

from __future__ import annotations

import csv
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from math import isfinite, nan
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
Read = TypeVar("Read")  #: a row, or what several say of an element


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


#: Within which the numbers of a table must be, by its column; those in POSITIVE are above the first.
LIMITS: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(("p_mw", "e_mwh", "e_start", "e_end", "cost", "mw"), (0.0, 1e6)),
    **{"eta": (0.0, 1.0), "per_hour": (0.0, 1e3), "availability": (0.0, 1.0), "price": (-1e4, 1e4)},
}
POSITIVE = ("eta", "per_hour")


def read_horizon(section: HorizonProblem, case: Case) -> HorizonPlan:
    """The public tables of a scenario's horizon. Raises InputError, which names key, file and line."""
    T = section.periods

    def of(key: str, read: Callable[[Path], dict[str, Read]]) -> dict[str, Read]:
        """What the file of a key says; nothing if there is none."""
        file = getattr(section, key)
        if file is None:
            return {}
        try:
            return read(Path(file))
        except InputError as error:
            raise InputError(f"horizon.{key}: {error}") from None

    def of_generators(key: str) -> dict[str, tuple[float, ...]]:
        return of(key, lambda path: _by_period(path, OF_GENERATORS, T, key, _generator))

    ramps = section.ramps
    if isinstance(ramps, float | int):
        each = {str(row + 1): float(ramps) for row in case.generators.rows.tolist()}
    else:
        each = of("ramps", _ramps)
    return HorizonPlan(
        T,
        section.hours,
        tuple(of("storage", _units).values()),
        each,
        of_generators("availability"),
        of_generators("price"),
        of("reserve", lambda path: _by_period(path, RESERVE, T, "mw", str)),
    )


def _generator(cell: str) -> str:
    """The number of a generator as a plan has it. Raises ValueError if it is no whole number."""
    return str(int(cell))


def _rows(path: Path, columns: Sequence[str]) -> list[tuple[int, list[str]]]:
    """(line, cells) of a CSV file with these columns; a mark of UTF-8 at its beginning is passed over."""
    expected = ",".join(columns)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            if [cell.strip() for cell in next(reader, [])] != list(columns):
                raise InputError(f"{path}:1: found another header, expected {expected}")
            rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or 'not CSV text'}, expected {expected}") from None
    for line, row in rows:
        if len(row) != len(columns):
            raise InputError(f"{path}:{line}: found {len(row)} cells, expected {expected}")
    return rows


def _number(where: str, cell: str, column: str) -> float:
    """Of a cell, within the limits of its column. `where`: its file and line."""
    low, high = LIMITS[column]
    try:
        value = float(cell)
    except ValueError:
        value = nan
    if not low <= value <= high or (value == low and column in POSITIVE):
        least = f"above {low:g}, at most" if column in POSITIVE else f"{low:g} to"
        raise InputError(f"{where}: {column}: found {cell[:40]!r}, expected {least} {high:g}")
    return value


def _whole(where: str, cell: str, column: str) -> int:
    """A bus or a generator."""
    try:
        return int(cell)
    except ValueError:
        raise InputError(f"{where}: {column}: found {cell[:40]!r}, expected a whole number") from None


def _ramps(path: Path) -> dict[str, float]:
    each = dict[str, float]()
    for line, (gen, share) in _rows(path, RAMPS):
        number = str(_whole(f"{path}:{line}", gen, "gen"))
        if number in each:
            raise InputError(f"{path}:{line}: found gen {number} again, expected a row a generator")
        each[number] = _number(f"{path}:{line}", share, "per_hour")
    return each


def _units(path: Path) -> dict[str, StorageUnit]:
    """By name."""
    units = dict[str, StorageUnit]()
    for line, (name, bus, *cells) in _rows(path, STORAGE):
        where = f"{path}:{line}"
        if name in units or not 0 < len(name) <= 64:
            raise InputError(f"{where}: name: found {name[:70]!r}, expected one a unit, of 1 to 64 characters")
        values = (_number(where, cell, column) for cell, column in zip(cells, STORAGE[2:], strict=True))
        units[name] = StorageUnit(name, _whole(where, bus, "bus"), *values)
    return units


def _by_period(
    path: Path, columns: Sequence[str], T: int, quantity: str, key: Callable[[str], str]
) -> dict[str, tuple[float, ...]]:
    """T values by element; a missing period is an error. quantity: whose limits hold."""
    values: dict[str, dict[int, float]] = {}
    for line, (period, element, cell) in _rows(path, columns):
        where, t = f"{path}:{line}", 0
        try:
            name = key(element)
        except ValueError:
            raise InputError(f"{where}: {columns[1]}: found {element[:40]!r}, expected a whole number") from None
        if period.isdecimal():
            t = int(period)
        if not 1 <= t <= T or t in values.get(name, {}):
            raise InputError(f"{where}: found period {period[:12]} of {columns[1]} {name}, expected 1 to {T}, once")
        values.setdefault(name, {})[t] = _number(where, cell, quantity)
    for name, each in values.items():
        if missing := [t for t in range(1, T + 1) if t not in each]:
            raise InputError(f"{path}: found no period {missing[0]} of {columns[1]} {name}, expected 1 to {T}")
    return {name: tuple(each[t] for t in range(1, T + 1)) for name, each in values.items()}


def read_profiles(
    path: Path, buses: tuple[int, ...], base_mva: float, periods: int | None, others: Container[int] = ()
) -> Vector:
    """(T 2 nb,) p.u.: a zone's loads from its CSV (period, bus, p_mw, q_mvar), period by period, p then q of its buses.

    periods: T; None: as many as the file has. others: buses whose rows are passed over. Raises InputError; a row is
    private, so only its place and what is wrong with it are said.
    """
    at, values = {bus: k for k, bus in enumerate(buses)}, dict[tuple[int, int], tuple[float, float]]()
    for line, row in _rows(path, PROFILES):
        try:
            t, bus, p, q = int(row[0]), int(row[1]), float(row[2]), float(row[3])
        except ValueError:
            raise InputError(f"{path}:{line}: found a malformed row, expected {','.join(PROFILES)}") from None
        wrong = (
            (bus not in at and bus not in others, "a bus of another zone" if not others else "a bus that is none"),
            (not 1 <= t <= (periods or PERIODS), f"a period that is none of 1 to {periods or PERIODS}"),
            ((t, bus) in values, "the same period and bus again"),
            (not isfinite(p + q), "no number"),
        )
        if found := next((words for is_so, words in wrong if is_so), ""):
            raise InputError(f"{path}:{line}: found {found}, expected a row for each period and bus of the zone")
        values[t, bus] = p, q
    T = periods or max((t for t, _ in values), default=1)
    d = np.zeros((T, 2, len(buses)))
    for t in range(1, T + 1):
        for bus, k in at.items():
            if (t, bus) not in values:
                raise InputError(f"{path}: found no period {t} of bus {bus}, expected 1 to {T} of each bus of the zone")
            d[t - 1, :, k] = values[t, bus]
    return d.ravel() / base_mva
