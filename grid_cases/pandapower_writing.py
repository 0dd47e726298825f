"""From a case, or a dispatch, to a network of pandapower; `grid_cases.pandapower` offers it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrid.grid_cases.case import Case, Floats
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.types import DocumentView

Net = Any  #: a network of pandapower, which has no types, or what it is made of


def to_pandapower(case: Case, p_g: Floats | None = None, q_g: Floats | None = None, v: Floats | None = None) -> Net:
    """The case as a pandapower network, a bus's number as its index.

    p_g, q_g: set-points of the generators, shape (generators,), p.u. v: voltages of the buses, shape (buses,), p.u.
    Without them each generator takes the same share of its range, q = 0 and v = 1. The generator with the largest limit
    is the external grid. Charging of transformers is written as shunts at their ends, which is the same circuit. What
    pandapower does not have is lost: limits of angle differences, the constant part of a piecewise-linear cost, and
    what `held_parts` names. Raises InputError if pandapower is not installed, or does not work with this pandas.
    """
    check_installed(case.name)
    from pandapower.converter.pypower.from_ppc import from_ppc

    tables = _tables(case, p_g, q_g, v)
    try:
        with quiet():
            net = from_ppc(tables, f_hz=50, check_costs=False)
    except TypeError as error:  # pandapower 3.5.6 with pandas 3: no element can be made
        import pandas

        found = f"pandas {pandas.__version__}, with which pandapower makes no network ({line(error)})"
        raise InputError(f"{case.name}: found {found}, expected the pandas that pandapower asks for") from None
    where = case.coordinates
    for number, x, y in zip(where.bus.tolist(), where.x.tolist(), where.y.tolist(), strict=True):
        net.bus.loc[number, "geo"] = json.dumps({"type": "Point", "coordinates": [x, y]})
    net.ext_grid["controllable"] = True  # an optimal power flow may then choose its voltage too
    return net


Row = DocumentView
Rows = Sequence[Row]  #: of a table of `dispatch`
#: What each frame of `net.profiles` holds: an element's table and column there.
SERIES = (
    *(("load", "p_mw"), ("load", "q_mvar"), ("storage", "p_mw")),
    *(("ext_grid", "vm_pu"), ("gen", "p_mw"), ("gen", "vm_pu"), ("sgen", "p_mw"), ("sgen", "q_mvar")),
)


def solved(case: Case, tables: Mapping[str, Rows], period: int | None = None) -> Net:
    """A dispatch as a pandapower network after its power flow: the tables of `dispatch`, MW, MVAr and p.u.

    The load of a bus is what reaches it and does not leave it: generation less the flows into its lines and shunts, and
    less what its storage takes, which is an element of its own. Over a horizon the network is that of `period` (from
    1), and `net.profiles` has a frame of all periods for each of SERIES, such as `load_p_mw`, whose columns are the
    elements' indices. Raises InputError if pandapower is not installed, or its power flow finds no solution.
    """
    check_installed(case.name)
    import pandapower

    times = sorted({int(row["period"]) for row in tables["buses"]}) if period is not None else []
    each = [_Setting.of(case, tables, t) for t in times] or [_Setting.of(case, tables, None)]
    now = each[0 if period is None else times.index(period)]
    buses = replace(case.buses, p_d=np.zeros(len(case.buses)), q_d=np.zeros(len(case.buses)))
    net = to_pandapower(replace(case, buses=buses), now.p_g, now.q_g, now.v)
    loaded = np.any([np.abs(one.load).max(axis=1) > SMALLEST for one in each], axis=0)
    numbers = case.buses.numbers[loaded].tolist()
    pandapower.create_loads(net, numbers, *(now.load[loaded].T * case.base_mva), name=[f"bus {n}" for n in numbers])
    for unit, (bus, power) in now.storage.items():  # of its capacity and its charge the tables say nothing
        pandapower.create_storage(net, bus, power, np.nan, name=unit)
    if times:
        net.profiles = _profiles(case, net, loaded, each)
    try:
        with quiet():
            pandapower.runpp(net, calculate_voltage_angles=True, init="dc", trafo_loading="power")
    except Exception as error:  # of its own kinds
        raise InputError(f"{case.name}: {line(error)}, expected a dispatch with a power flow") from None
    return net


SMALLEST = 1e-9  #: p.u. of a load that is one


@dataclass(frozen=True, slots=True, eq=False)
class _Setting:
    """A network in one period, p.u.; storage by its name: its bus, and what it takes, MW."""

    p_g: Floats
    q_g: Floats
    v: Floats
    load: Floats  #: (buses, 2)
    storage: Mapping[str, tuple[int, float]]

    @classmethod
    def of(cls, case: Case, tables: Mapping[str, Rows], period: int | None) -> _Setting:
        base, number = case.base_mva, case.index
        generation, buses, lines, storage = (
            [row for row in tables.get(name, ()) if row.get("period") == period]
            for name in ("generation", "buses", "lines", "storage")
        )
        p_g, q_g = (np.array([row[key] for row in generation], float) / base for key in ("p_mw", "q_mvar"))
        v = np.zeros(len(case.buses))
        v[number(np.array([row["bus"] for row in buses], np.int64))] = [row["v_pu"] for row in buses]
        load = np.column_stack([-case.buses.g_s * v**2, case.buses.b_s * v**2])
        np.add.at(load, number(case.generators.bus), np.column_stack([p_g, q_g]))
        for bus, p, q in (("from", "p_from", "q_from"), ("to", "p_to", "q_to")):
            ends = number(np.array([row[bus] for row in lines], np.int64))
            np.subtract.at(load, ends, np.array([(row[p], row[q]) for row in lines], float).reshape(-1, 2) / base)
        units = {str(row["storage"]): (int(row["bus"]), row["charge_mw"] - row["discharge_mw"]) for row in storage}
        for at, power in units.values():
            load[number(np.array([at], np.int64)), 0] -= power / base
        return cls(p_g, q_g, v, load, units)


def _profiles(case: Case, net: Net, loaded: NDArray[np.bool_], each: Sequence[_Setting]) -> dict[str, Net]:
    """A frame of every period, from 1, for each of SERIES that the network has elements of."""
    from pandas import DataFrame, RangeIndex

    lookup, base, places = net._from_ppc_lookups["gen"], case.base_mva, case.index(case.generators.bus)
    columns: dict[tuple[str, str], dict[int, list[float]]] = {key: {} for key in SERIES}
    for k, bus in enumerate(np.flatnonzero(loaded).tolist()):
        for q, quantity in enumerate(("p_mw", "q_mvar")):
            columns["load", quantity][k] = [one.load[bus, q] * base for one in each]
    for k, unit in enumerate(each[0].storage):
        columns["storage", "p_mw"][k] = [one.storage[unit][1] for one in each]
    for k, (element, index) in enumerate(zip(lookup.element_type, lookup.element, strict=True)):
        values = {
            "p_mw": [one.p_g[k] * base for one in each],
            "q_mvar": [one.q_g[k] * base for one in each],
            "vm_pu": [one.v[places[k]] for one in each],
        }
        for quantity, series in values.items():
            if (element, quantity) in columns:
                columns[element, quantity][int(index)] = series
    periods = RangeIndex(1, len(each) + 1, name="period")
    return {f"{element}_{quantity}": DataFrame(of, periods) for (element, quantity), of in columns.items() if of}


def write(net: Net, path: Path) -> None:
    """A network file of pandapower. Raises InputError if it cannot be written."""
    import pandapower

    try:
        pandapower.to_json(net, str(path))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}, expected a file that can be written") from None


def _tables(case: Case, p_g: Floats | None, q_g: Floats | None, v: Floats | None) -> dict[str, Net]:
    """MATPOWER's tables of a case, with its bus numbers."""
    mva, buses, generators, lines = case.base_mva, case.buses, case.generators, case.lines
    places = case.index(generators.bus)
    p_g = _even_share(case) if p_g is None else np.asarray(p_g)
    q_g = np.zeros(len(generators)) if q_g is None else np.asarray(q_g)
    v = np.clip(1.0, buses.v_min, buses.v_max) if v is None else np.asarray(v)
    kind = np.ones(len(buses))
    kind[places] = 2
    if len(places):
        capacity = np.bincount(places, weights=np.minimum(generators.p_max, 1e6), minlength=len(buses))
        kind[int(np.argmax(capacity))] = 3
    zero, one = np.zeros(len(buses)), np.ones(len(buses))
    volts = np.where(buses.base_kv > 0, buses.base_kv, 1.0)
    i, j = case.index(lines.from_bus), case.index(lines.to_bus)
    transformer = (lines.tap != 1) | (lines.shift != 0)
    charging = np.where(transformer, lines.b / 2, 0)  # pandapower's transformers have none
    b_s = buses.b_s.copy()
    np.add.at(b_s, i, charging / lines.tap**2)
    np.add.at(b_s, j, charging)
    bus = [buses.numbers, kind, buses.p_d * mva, buses.q_d * mva, buses.g_s * mva, b_s * mva, one, v, zero, volts, one]
    limits = [np.clip(limit, -1e9, 1e9) for limit in (generators.q_max * mva, generators.q_min * mva)]
    p_limits = [np.clip(limit, -1e9, 1e9) for limit in (generators.p_max * mva, generators.p_min * mva)]
    full = np.full(len(generators), mva)
    gen = [generators.bus, p_g * mva, q_g * mva, *limits, v[places], full, np.ones(len(generators)), *p_limits]
    # pandapower's converter wants the tap at the side of higher voltage: the same transformer, from its other end.
    turned = transformer & (volts[i] < volts[j])
    ends = np.where(turned, [lines.to_bus, lines.from_bus], [lines.from_bus, lines.to_bus])
    tap = np.where(turned, 1 / lines.tap, lines.tap)
    r, x = np.where(turned, [lines.r * lines.tap**2, lines.x * lines.tap**2], [lines.r, lines.x])
    rate, shift = lines.rate * mva, np.rad2deg(np.where(turned, -lines.shift, lines.shift))
    branch = [*ends, r, x, np.where(transformer, 0, lines.b), rate, rate, rate, np.where(transformer, tap, 0), shift]
    branch += [np.ones(len(lines)), np.full(len(lines), -360.0)]
    return {
        "version": 2,
        "baseMVA": mva,
        "bus": np.column_stack([*bus, buses.v_max, buses.v_min]).astype(np.float64),
        "gen": np.column_stack([*gen, np.zeros((len(generators), 11))]).astype(np.float64),
        "branch": np.column_stack([*branch, np.full(len(lines), 360.0)]).astype(np.float64),
        "gencost": _gencost(case),
    }


def _even_share(case: Case) -> Floats:
    """Active powers that serve the load, each generator at the same share of its range. Without a limit: 0."""
    g = case.generators
    low = np.where(np.isfinite(g.p_min), g.p_min, 0.0)
    span = np.where(np.isfinite(g.p_max), g.p_max, low) - low
    wanted = case.buses.p_d.sum() - low.sum()
    return np.asarray(low + span * (np.clip(wanted / span.sum(), 0, 1) if span.sum() > 0 else 0))


def _gencost(case: Case) -> Floats:
    """mpc.gencost of the case's costs: points of each piecewise-linear one between its generator's limits."""
    g, mva = case.generators, case.base_mva
    points = dict[int, Floats]()
    for k in np.unique(case.piecewise.generator).tolist():
        mine = case.piecewise.generator == k
        slope, intercept = case.piecewise.slope[mine], case.piecewise.intercept[mine]
        bends = (intercept[:-1] - intercept[1:]) / (slope[1:] - slope[:-1])
        low = max(g.p_min[k], -1e4)
        high = max(min(g.p_max[k], 1e4), low + 1e-3)
        p = np.unique([low, *bends[(bends > low) & (bends < high)], high])
        points[k] = np.column_stack([p * mva, (slope * p[:, None] + intercept).max(axis=1)]).ravel()
    width = max((len(row) for row in points.values()), default=3)
    table = np.zeros((len(g), 4 + width))
    table[:, [0, 3]] = 2, 3
    table[:, 4:7] = np.nan_to_num(np.column_stack([g.cost_2 / mva**2, g.cost_1 / mva, g.cost_0]))
    for k, row in points.items():  # the converter wants as many points of each, and passes over those that are NaN
        table[k, [0, 3]] = 1, width // 2
        table[k, 4:] = np.pad(row, (0, width - len(row)), constant_values=np.nan)
    return table


def check_installed(where: str) -> None:
    """Raises InputError unless pandapower can be imported."""
    try:
        import pandapower  # noqa: F401
    except ImportError:
        raise InputError(
            f"{where}: found no module pandapower, expected it for its networks (pip install 'hushgrid[pandapower]')"
        ) from None


@contextmanager
def quiet() -> Iterator[None]:
    """Without pandapower's remarks on limits and costs that it fills in."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(before)


def line(error: Exception) -> str:
    """What an error says, on one line."""
    return " ".join(str(error).split())[:200] or type(error).__name__
