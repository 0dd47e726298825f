"""From a network of pandapower or SimBench to the files of a scenario over its days."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hushgrid.grid_cases import archive
from hushgrid.grid_cases.case import Case, Floats
from hushgrid.grid_cases.pandapower import LICENCE, SIMBENCH, open_network, title
from hushgrid.grid_cases.partition import Zones, partition
from hushgrid.grid_cases.timeseries.network_day import COST, EFFICIENCY, NetworkDay, day_of
from hushgrid.kernels.errors import InputError
from hushgrid.node.problems.power_flow.horizon import OF_GENERATORS, PROFILES, STORAGE

Row = Sequence[str | int | float]
Rows = tuple[Sequence[str], Sequence[Row]]  #: columns, and rows
Tables = Mapping[str, Sequence[Rows]]  #: by their key: one of all days, or one a day

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
# A day ahead on {title}: {days} of its time series, {periods} periods of {hours:g} h.
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


class Wanted(NamedTuple):
    """What the days are made with."""

    day: int = 0  #: the first one, from 0
    days: int = 1
    periods: int = 24
    zones: int = 4
    storage: Sequence[float] = ()  #: more of it: units a zone, MW and MWh of each
    voltage: Sequence[float] = ()  #: limits of every bus, p.u.; (): the network's own
    cost: Sequence[float] = ()  #: $/MWh and $/MW^2h of generators without a cost; (): `PRICE` and `STEEPER`
    iron: bool = True  #: what transformers lose without a load counts, as in pandapower


class Made(NamedTuple):
    """What was written."""

    case: Case
    zones: Zones
    served: Floats  #: (days T,) MW of load less generation that nobody controls
    units: list[Row]  #: of storage
    still: bool  #: there are no time series: all periods are alike


def write(network: str, wanted: Wanted, out: Path) -> Made:
    """The directory of a scenario over days of a pandapower file or a code of SimBench.

    Raises InputError before anything is written.
    """
    T, net, where = wanted.periods, open_network(network, "case"), f"case: {network}"
    if not wanted.iron:
        net.trafo["pfe_kw"] = net.trafo3w["pfe_kw"] = 0.0
    each = [day_of(net, title(network), wanted.day + k, T, 24 / T, where) for k in range(wanted.days)]
    seen = replace(each[0], loads=np.concatenate([one.loads for one in each]))
    case = _limited(_capped(_priced(_based(seen), seen, wanted.cost), seen), wanted.voltage)
    zones = partition(case, wanted.zones)
    units = [*seen.storage, *(_added(seen, case, zones, wanted.storage) if wanted.storage else ())]
    tables = dict(_tables(each, case, units))
    last = wanted.day + wanted.days - 1
    label = f"{title(network)}-day{wanted.day}" + (f"-{last}" if wanted.days > 1 else "")
    text = SCENARIO.format(
        title=title(network),
        days=f"day {wanted.day}" if wanted.days == 1 else f"days {wanted.day} to {last}",
        periods=T,
        hours=24 / T,
        licence=f"Data: {LICENCE}." if network.startswith(SIMBENCH) else f"Made of {Path(network).name}.",
        name="".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in label)[:64],
        zones=wanted.zones,
        mask=_mask(seen),
        horizon=", ".join([f"periods: {T}", f"hours: {24 / T:g}", *_named(tables)]),
    )
    _write(out, case.without_loads(), tables, text)
    still = seen.loads.shape[0] > 1 and not np.ptp(seen.loads, axis=0).any()
    return Made(case, zones, seen.loads[:, :, 0].sum(axis=1), units, still)


def _named(tables: Tables) -> Iterator[str]:
    """The keys of a horizon: a table of several days is named by `{day}`."""
    for key, days in tables.items():
        yield f"{key}: {key}.csv" if len(days) == 1 else f'{key}: "{key}-{{day}}.csv"'


def _mask(seen: NetworkDay) -> str:
    """The buses with loads. The case itself has none: it is public, and means of a day would tell of it."""
    numbers = seen.case.buses.numbers
    p, q = (numbers[np.abs(seen.loads[:, :, k]).max(axis=0) > 0].tolist() for k in (0, 1))
    return f"{{p: {p}, q: {q}}}"


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


def _tables(each: Sequence[NetworkDay], case: Case, units: list[Row]) -> Iterator[tuple[str, list[Rows]]]:
    """The tables of the horizon by their key, one of all days or one a day: columns, and rows."""
    numbers, first = case.buses.numbers.tolist(), each[0]
    T = len(first.loads)
    yield "profiles", [(PROFILES, _profiles(one, numbers)) for one in each]
    if units:
        yield "storage", [(STORAGE, units)]
    if first.available:
        yield "availability", [(OF_GENERATORS, _by_period(one.available)) for one in each]
    if len(first.grids):
        hours = ((np.arange(T) + 0.5) * 24 / T).astype(np.int64)
        yield "price", [(OF_GENERATORS, _by_period({int(gen): TARIFF[hours] for gen in first.grids}))]


def _profiles(seen: NetworkDay, numbers: Sequence[int]) -> list[Row]:
    loads = seen.loads.round(9) + 0.0
    return [(t + 1, bus, *loads[t, k].tolist()) for t in range(len(loads)) for k, bus in enumerate(numbers)]


def _by_period(values: Mapping[int, Floats]) -> list[Row]:
    return [(t + 1, gen, round(value, 9)) for gen, each in values.items() for t, value in enumerate(each.tolist())]


def _write(out: Path, case: Case, tables: Tables, scenario: str) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        archive.write(case, out / "case.npz")
        for key, days in tables.items():
            for day, (columns, rows) in enumerate(days, 1):
                name = f"{key}.csv" if len(days) == 1 else f"{key}-{day}.csv"
                with (out / name).open("w", newline="", encoding="utf-8") as file:
                    csv.writer(file, lineterminator="\n").writerows([columns, *rows])
        (out / "scenario.yaml").write_text(scenario, encoding="utf-8")
    except OSError as error:
        raise InputError(f"--out: {error.filename or out}: {error.strerror}, expected a directory") from None
