"""`hushgrid case day`: from a network of pandapower or SimBench to the files of a scenario over one day."""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from hushgrid.grid_cases import archive
from hushgrid.grid_cases.case import Case, Floats
from hushgrid.grid_cases.pandapower import LICENCE, SIMBENCH, open_network, title
from hushgrid.grid_cases.partition import Zones, partition
from hushgrid.grid_cases.timeseries.network_day import COST, EFFICIENCY, NetworkDay, day_of
from hushgrid.kernels.errors import InputError
from hushgrid.node.problems.power_flow.horizon import OF_GENERATORS, PROFILES, STORAGE

Row = Sequence[str | int | float]

#: What energy from an external grid costs in each hour of the day, as a factor of its price: a made-up tariff.
TARIFF = np.array(
    [
        *(0.8, 0.75, 0.7, 0.7, 0.75, 0.9, 1.1, 1.3, 1.3, 1.15, 1.0, 0.85),
        *(0.8, 0.75, 0.8, 0.9, 1.1, 1.4, 1.6, 1.55, 1.4, 1.2, 1.0, 0.9),
    ]
)
PRICE, STEEPER = 50.0, 12.0  #: $/MWh; how much dearer a MWh is where a generator serves the day's highest load
TIMES = 10.0  #: as much as the day's highest load is what a generator without limits gives
SCENARIO = """\
# A day ahead on {title}: day {day} of its time series, {periods} periods of {hours:g} h.
# {licence}
hushgrid: 1
name: {name}
problem:
  kind: zones
  case: case.npz
  zones: {zones}
  objective: cost
  # only buses that draw or give power on that day carry noise: which those are is public
  loads: {{nonzero: {mask}}}
  horizon: {{{horizon}}}
algorithm: {{name: consensus-admm, rounds: 200}}
privacy:
  mode: input
  # a house's whole day: 20 kWh, whatever its shape
  adjacency: {{day: {{energy_mwh: 0.02, power_factor: 0.97}}}}
  epsilon: 1
  release: totals
run: {{stop: {{tolerance: 1.0e-4, patience: 3}}}}
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("case", metavar="CASE", help="a pandapower .json file, or a code of SimBench: simbench:1-MV-rural--0-sw")
    add("--out", metavar="DIR", type=Path, required=True, help="the directory to write")
    add("--day", metavar="N", type=int, default=0, help="which day of the time series, from 0 [0]")
    add("--periods", metavar="T", type=int, default=24, help="periods that the day is cut into [24]")
    add("--zones", metavar="N", type=int, default=4, help="the number of zones [4]")
    add(
        "--storage",
        metavar="N,MW,MWH",
        help="more storage: so many units a zone, at its largest mean loads, each of this power and energy [none]",
    )
    add("--voltage", metavar="LOW,HIGH", help="limits of every bus, p.u. [the network's own]")
    add(
        "--cost",
        metavar="C1,C2",
        help="$/MWh and $/MW²h of generators without a cost [50, and 12 $/MWh more at the day's highest load]",
    )


def day(options: argparse.Namespace) -> str:
    """Write the directory of a scenario; what it holds, in words. Raises InputError before anything is written."""
    name, T, where = options.case, options.periods, f"case: {options.case}"
    if not (name.startswith(SIMBENCH) or name.endswith(".json")):
        raise InputError(f"case: found {name!r}, expected a pandapower .json file or {SIMBENCH}CODE")
    for key, value, low, high in (
        ("day", options.day, 0, 10**6),
        ("periods", T, 1, 200),
        ("zones", options.zones, 1, 10**4),
    ):
        if not low <= value <= high:
            raise InputError(f"--{key}: found {value}, expected {low} to {high}")
    if (options.out / "scenario.yaml").exists():
        raise InputError(f"--out {options.out}: found a scenario in it, expected another directory")
    more = _numbers("--storage", options.storage, 3)
    limits, cost = _numbers("--voltage", options.voltage, 2), _numbers("--cost", options.cost, 2)
    seen = day_of(open_network(name, "case"), title(name), options.day, T, 24 / T, where)
    case = _limited(_capped(_priced(_based(seen), seen, cost), seen), limits)
    zones = partition(case, options.zones)
    units = [*seen.storage, *(_added(seen, case, zones, more) if more else ())]
    tables = dict(_tables(seen, case, units))
    label = f"{title(name)}-day{options.day}"
    horizon = [f"periods: {T}", f"hours: {24 / T:g}", *(f"{key}: {key}.csv" for key in tables)]
    text = SCENARIO.format(
        title=title(name),
        day=options.day,
        periods=T,
        hours=24 / T,
        licence=f"Data: {LICENCE}." if name.startswith(SIMBENCH) else f"Made of {Path(name).name}.",
        name="".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in label)[:64],
        zones=options.zones,
        mask=_mask(seen),
        horizon=", ".join(horizon),
    )
    _write(options.out, case.without_loads(), tables, text)
    served = seen.loads[:, :, 0].sum(axis=1)
    lines = [
        f"wrote {options.out}: {case.name}, {len(case.buses)} buses in {len(zones)} zones, {T} periods of {24 / T:g} h",
        f"  load less generation that nobody controls: {served.min():.3g} to {served.max():.3g} MW",
        f"  storage: {len(units)} units of {sum(float(unit[3]) for unit in units):.3g} MWh",
        *([] if T == 1 or np.ptp(seen.loads, axis=0).any() else ["  no time series: all periods are alike"]),
        *(f"  left out: {what}" for what in case.omitted),
        *([f"  data: {LICENCE}"] if name.startswith(SIMBENCH) else []),
        f"  hushgrid run {options.out / 'scenario.yaml'}",
    ]
    return "\n".join(lines)


def _mask(seen: NetworkDay) -> str:
    """The buses with loads. The case itself has none: it is public, and means of a day would tell of it."""
    numbers = seen.case.buses.numbers
    p, q = (numbers[np.abs(seen.loads[:, :, k]).max(axis=0) > 0].tolist() for k in (0, 1))
    return f"{{p: {p}, q: {q}}}"


def _numbers(option: str, text: str | None, count: int) -> list[float]:
    if text is None:
        return []
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        values = []
    if len(values) != count or not all(math.isfinite(value) and value >= 0 for value in values):
        raise InputError(f"{option}: found {text[:40]!r}, expected {count} numbers >= 0 with commas between")
    return values


def _peak(seen: NetworkDay) -> float:
    """MW that generators serve at most, and not less than a kW."""
    return max(float(np.abs(seen.loads[:, :, 0].sum(axis=1)).max()), 1e-3)


def _based(seen: NetworkDay) -> Case:
    """The case on a base of the power of ten that is nearest to the day's highest load."""
    case, base = seen.case, 10.0 ** round(math.log10(_peak(seen)))
    ratio = case.base_mva / base
    buses, g, lines = case.buses, case.generators, case.lines
    return replace(
        case,
        base_mva=base,
        buses=replace(
            buses, p_d=buses.p_d * ratio, q_d=buses.q_d * ratio, g_s=buses.g_s * ratio, b_s=buses.b_s * ratio
        ),
        generators=replace(
            g,
            p_min=g.p_min * ratio,
            p_max=g.p_max * ratio,
            q_min=g.q_min * ratio,
            q_max=g.q_max * ratio,
            cost_2=g.cost_2 / ratio**2,
            cost_1=g.cost_1 / ratio,
        ),
        lines=replace(lines, r=lines.r / ratio, x=lines.x / ratio, b=lines.b * ratio, rate=lines.rate * ratio),
        piecewise=replace(case.piecewise, slope=case.piecewise.slope / ratio),
    )


def _priced(case: Case, seen: NetworkDay, cost: Sequence[float]) -> Case:
    """Costs for the generators that have none."""
    linear, square = cost or (PRICE, float(f"{STEEPER / _peak(seen):.0e}"))
    g, free = case.generators, np.zeros(len(case.generators), np.bool_)
    free[case.without_cost()] = True
    square, linear = square * case.base_mva**2, linear * case.base_mva
    cost_2, cost_1, cost_0 = (
        np.where(free, *pair) for pair in ((square, g.cost_2), (linear, g.cost_1), (0.0, g.cost_0))
    )
    return replace(case, generators=replace(g, cost_2=cost_2, cost_1=cost_1, cost_0=cost_0))


def _capped(case: Case, seen: NetworkDay) -> Case:
    """Generators without limits give and take ten times the day's highest load: costs are scaled by what they can."""
    most, g = TIMES * _peak(seen) / case.base_mva, case.generators
    p_min, p_max, q_min, q_max = (
        np.where(np.isfinite(limit), limit, np.clip(limit, -most, most))
        for limit in (g.p_min, g.p_max, g.q_min, g.q_max)
    )
    return replace(case, generators=replace(g, p_min=p_min, p_max=p_max, q_min=q_min, q_max=q_max))


def _limited(case: Case, limits: Sequence[float]) -> Case:
    if not limits:
        return case
    low, high = (np.full(len(case.buses), limit) for limit in limits)
    return replace(case, buses=replace(case.buses, v_min=low, v_max=high))


def _added(seen: NetworkDay, case: Case, zones: Zones, more: Sequence[float]) -> Iterable[Row]:
    """Storage at the largest mean loads of each zone, the lower number first where two are equal; half full."""
    count, power, energy = int(more[0]), more[1], more[2]
    mean = seen.loads[:, :, 0].mean(axis=0)
    for buses in zones.values():
        here = np.array(sorted(buses), np.int64)
        order = np.argsort(-mean[case.index(here)], kind="stable")[:count]
        for bus in here[order].tolist():
            yield f"added{bus}", bus, power, energy, EFFICIENCY, COST, energy / 2, energy / 2


def _tables(
    seen: NetworkDay, case: Case, units: Sequence[Row]
) -> Iterable[tuple[str, tuple[Sequence[str], list[Row]]]]:
    """The tables of the horizon by their key: columns, and rows."""
    T, numbers = len(seen.loads), case.buses.numbers.tolist()
    loads = seen.loads.round(9) + 0.0
    profiles: list[Row] = [(t + 1, bus, *loads[t, k].tolist()) for t in range(T) for k, bus in enumerate(numbers)]
    yield "profiles", (PROFILES, profiles)
    if units:
        yield "storage", (STORAGE, [tuple(unit) for unit in units])
    if seen.available:
        yield "availability", (OF_GENERATORS, _by_period(seen.available))
    if len(seen.grids):
        hours = ((np.arange(T) + 0.5) * 24 / T).astype(np.int64)
        yield "price", (OF_GENERATORS, _by_period({int(gen): TARIFF[hours] for gen in seen.grids}))


def _by_period(values: Mapping[int, Floats]) -> list[Row]:
    return [(t + 1, gen, round(value, 9)) for gen, each in values.items() for t, value in enumerate(each.tolist())]


def _write(out: Path, case: Case, tables: dict[str, tuple[Sequence[str], list[Row]]], scenario: str) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        archive.write(case, out / "case.npz")
        for key, (columns, rows) in tables.items():
            with (out / f"{key}.csv").open("w", newline="", encoding="utf-8") as file:
                csv.writer(file, lineterminator="\n").writerows([columns, *rows])
        (out / "scenario.yaml").write_text(scenario, encoding="utf-8")
    except OSError as error:
        raise InputError(f"--out: {error.filename or out}: {error.strerror}, expected a directory") from None
