"""A zone controller's files: its private loads, and the set-points a run leaves it."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from itertools import count, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hushgrid.grid_cases import load
from hushgrid.grid_cases.setpoints import COLUMNS, Row, released_keys, setpoints
from hushgrid.grid_cases.variables import DC_FLOWS
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.types import Document, Vector
from hushgrid.node.durable import write_file
from hushgrid.node.problems.kind import SiteOutcome
from hushgrid.node.problems.power_flow.device import Zone, capacities, model_of
from hushgrid.node.problems.power_flow.horizon import read_profiles, units_at
from hushgrid.node.problems.power_flow.question import LOAD_BOUND
from hushgrid.node.problems.power_flow.section import HorizonPlan, StorageUnit, ZoneData, ZonesPlan
from hushgrid.node.schema.durations import UNITS, moment
from hushgrid.node.schema.sections import Adjacency, Loaded

HOUR_S = UNITS["h"]


def read_loads(path: Path, buses: tuple[int, ...], base_mva: float) -> list[float]:
    """A zone's loads from its CSV (bus, p_mw, q_mvar): p of each bus in order, then q, in p.u."""
    expected = f"a row bus,p_mw,q_mvar for each of the buses {', '.join(map(str, buses))}"
    most = LOAD_BOUND * base_mva
    p: dict[int, float] = {}
    q: dict[int, float] = {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.reader(file)
            if [c.strip() for c in next(reader, [])] != ["bus", "p_mw", "q_mvar"]:
                raise InputError(f"{path}:1: found another header, expected bus,p_mw,q_mvar")
            for row in reader:
                if not row:
                    continue
                try:
                    bus, active, reactive = int(row[0]), float(row[1]), float(row[2])
                except (ValueError, IndexError):
                    # The row itself is private: only its place is said.
                    raise InputError(f"{path}:{reader.line_num}: found a malformed row, expected {expected}") from None
                if bus in p or bus not in buses or not most >= abs(active) or not most >= abs(reactive):
                    raise InputError(
                        f"{path}:{reader.line_num}: found bus {bus} (again, foreign, or a load beyond all bounds), "
                        f"expected {expected}"
                    )
                p[bus], q[bus] = active / base_mva, reactive / base_mva
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or 'not CSV text'}, expected {expected}") from None
    if missing := [b for b in buses if b not in p]:
        raise InputError(f"{path}: found no bus {missing[0]}, expected {expected}")
    return [p[b] for b in buses] + [q[b] for b in buses]


#: p.u.; by how much a recovered dispatch may pass a limit: its solver's own accuracy.
WITHIN = 1e-6


class Dispatched(NamedTuple):
    """What a zone's controller is to do, or why it is not."""

    periods: list[list[Row]]  #: of a snapshot one
    source: str  #: ac | relaxed
    first: int = 1  #: the number of the first period
    wrong: str | None = None  #: the limit of the zone that it passes

    @property
    def rows(self) -> list[Row]:
        """Those of the first period: what counts now."""
        return self.periods[0]


def dispatched(zone: Zone, outcome: Mapping[str, Vector], problem: ZonesPlan | None = None) -> Dispatched:
    """Of a run at least cost the recovered dispatch, if there is one. One that passes a limit of the zone is not
    taken. Over a horizon, that of `problem`, storage's rows stand behind those of each period.
    """
    plan = problem.horizon if problem else None
    units = units_at(problem, zone.model.buses) if problem else []
    T, first = (plan.left, plan.first) if plan else (1, 1)
    n, (released, z) = zone.model.n, (outcome.get("released", np.zeros(0)), outcome["z"])
    stored = [_stored(units, each) for each in np.moveaxis(z[T * n :].reshape(3, T, len(units)), 1, 0)]
    if not released.size:
        each = [setpoints(zone.case, zone.model.keys, values) for values in z[: T * n].reshape(T, n)]
        return Dispatched([rows + more for rows, more in zip(each, stored, strict=True)], "relaxed", first)
    keys, wrong, periods = released_keys(zone.case, zone.layout), list[str](), list[list[Row]]()
    for t, (values, more) in enumerate(zip(released.reshape(T, -1), stored, strict=True), first):
        periods.append(setpoints(zone.case, keys, values, "ac") + more)
        if why := beyond_limits(zone, dict(zip(keys, values.tolist(), strict=True))):
            wrong.append(f"period {t}: {why}" if plan else why)
    return Dispatched(periods, "ac", first, wrong[0] if wrong else None)


def _stored(units: Sequence[StorageUnit], values: Vector) -> list[Row]:
    """What each of these storage units does in a period: (3, K) charging and discharging MW, energy MWh."""
    kinds = (("charge", "MW"), ("discharge", "MW"), ("energy", "MWh"))
    return [
        (kind, unit.name, float(value), measure, k, unit.bus, "", "", "plan")
        for (kind, measure), row in zip(kinds, values, strict=True)
        for k, (unit, value) in enumerate(zip(units, row, strict=True), 1)
    ]


def keep_setpoints(
    zone: Zone, outcome: Mapping[str, Vector], path: Path, problem: ZonesPlan | None = None
) -> str | None:
    """What the zone's controller is to do now, as CSV, replaced whole; over a horizon also NAME.day.csv, the periods
    from this one on. Returns what is to be said of it, or None. Raises OSError if the disk fails.

    What is not taken leaves what was there before.
    """
    dispatch = dispatched(zone, outcome, problem)
    if dispatch.wrong:
        return f"the dispatch of the coordinator is not taken, {path.name} stays as it was: {dispatch.wrong}"
    if problem and problem.horizon and problem.horizon.periods > 1:
        day = [(t, *row) for t, rows in enumerate(dispatch.periods, dispatch.first) for row in rows]
        _write(day_file(path), day, ("period", *COLUMNS))
    _write(path, dispatch.rows)
    return None


def day_file(setpoints: Path) -> Path:
    """The table of the day beside a file of set-points."""
    return setpoints.with_name(f"{setpoints.name.removesuffix('setpoints.csv')}day.csv")


def site_setpoints(
    zone: Zone, outcome: Mapping[str, Vector], problem: ZonesPlan | None = None, now: float = 0.0
) -> SiteOutcome:
    """The same for other programs: what all generators of a bus are to give, MW and MVAr, and its voltage, p.u. Over a
    horizon of this period, and what storage is to do, then the same of the later periods, and the tariff of the day.

    now: the time of this machine's clock, s.
    """
    dispatch = dispatched(zone, outcome, problem)
    if dispatch.wrong:
        return SiteOutcome({}, why=f"the dispatch of the coordinator is not taken: {dispatch.wrong}")
    document: Document = {"source": dispatch.source, **_of_buses(zone, dispatch.rows)}
    if problem is None or problem.horizon is None:
        return SiteOutcome(document)
    spans = spans_of(problem.horizon, now)
    units = units_at(problem, zone.model.buses)
    each: list[Document] = [
        {
            "period": t,
            "valid_from": start,
            "valid_until": end,
            **_of_buses(zone, rows),
            **({"storage": _of_storage(units, rows)} if units else {}),
        }
        for t, (start, end), rows in zip(count(dispatch.first), spans, dispatch.periods, strict=False)
    ]
    return SiteOutcome(document | each[0] | {"day": each[1:]}, tariff=_tariff(zone, outcome, units, spans))


def spans_of(horizon: HorizonPlan, now: float) -> list[tuple[str, str]]:
    """When each period of a plan begins and ends, UTC. By the coordinator's clock if it and this machine's agree to
    within a period; else the first begins now.
    """
    length = horizon.hours * HOUR_S
    start = horizon.began + (horizon.first - 1) * length
    if abs(now - start) > length:
        start = now
    ends = [moment(start + k * length) for k in range(horizon.left + 1)]
    return list(pairwise(ends))


def _tariff(
    zone: Zone, outcome: Mapping[str, Vector], units: Sequence[StorageUnit], spans: Sequence[tuple[str, str]]
) -> Document:
    """What a kWh costs at each bus in each period, and how many kW the plan serves there."""
    T, n, nb = len(spans), zone.model.n, len(zone.model.buses)
    z, base = outcome["z"], zone.case.base_mva
    price = outcome["duals"].reshape(T, -1)[:, :nb] / 1e3
    served = np.stack([-(zone.model.A @ each)[:nb] for each in z[: T * n].reshape(T, n)]) * base
    flows = z[T * n :].reshape(3, T, len(units))
    for k, unit in enumerate(units):
        served[:, zone.model.buses.index(unit.bus)] -= flows[0, :, k] - flows[1, :, k]

    def over_time(values: Vector) -> list[Document]:
        return [
            {"start": start, "end": end, "value": round(value, 6) + 0.0}
            for (start, end), value in zip(spans, values.tolist(), strict=True)
        ]

    kilowatts = np.maximum(served, 0.0) * 1e3
    return {
        "format": 1,
        "unit": "$/kWh",
        "limit_unit": "kW",
        "buses": {
            str(bus): {"prices": over_time(price[:, k]), "limits": over_time(kilowatts[:, k])}
            for k, bus in enumerate(zone.model.buses)
        },
    }


def _of_buses(zone: Zone, rows: Sequence[Row]) -> Document:
    """Set-points of one period by bus, and those of the ends of dc lines."""
    buses: dict[int, dict[str, float | int]] = {}
    for row in rows:
        if row[0] in ("p_g", "q_g"):
            here = buses.setdefault(int(row[5]), {"bus": int(row[5]), "mw": 0.0, "mvar": 0.0})
            here["mw" if row[0] == "p_g" else "mvar"] += row[2]
    for row in rows:
        if row[0] == "v" and int(row[5]) in buses:
            buses[int(row[5])]["pu"] = row[2]
    terminals = _terminals(zone, rows)
    return {"setpoints": [buses[bus] for bus in sorted(buses)], **({"dc_lines": terminals} if terminals else {})}


def _of_storage(units: Sequence[StorageUnit], rows: Sequence[Row]) -> list[Document]:
    """What storage gives (below zero: takes), MW, and what it holds at the end of the period, MWh."""
    flows = {(row[0], row[1]): row[2] for row in rows if row[0] in ("charge", "discharge", "energy")}
    return [
        {
            "name": unit.name,
            "bus": unit.bus,
            "mw": flows["discharge", unit.name] - flows["charge", unit.name],
            "mwh": flows["energy", unit.name],
        }
        for unit in units
    ]


def _terminals(zone: Zone, rows: Sequence[Row]) -> list[dict[str, float | int]]:
    """Of each end of a dc line at a bus of the zone: the row of the line from 1, the bus, MW and MVAr into the line."""
    ends: dict[tuple[int, int], dict[str, float | int]] = {}
    for row in rows:
        if row[0].startswith("dc_"):
            _, kind, end = row[0].split("_")
            bus = int(row[6 if end == "F" else 7])
            if bus in zone.layout.buses:
                terminal = ends.setdefault((int(row[4]), bus), {"dcline": int(row[4]), "bus": bus})
                terminal["mw" if kind == "p" else "mvar"] = row[2]
    return [ends[key] for key in sorted(ends)]


def beyond_limits(zone: Zone, values: Mapping[str, float]) -> str | None:
    """The first limit of the zone that these generations (pg:0, qg:0), voltages (v:4) and ends of dc lines (dc_pF:0),
    p.u., pass; None if none is."""
    g, buses, layout, dc = zone.case.generators, zone.case.buses, zone.layout, zone.case.dc_lines
    limits = {}
    for k in layout.generators.tolist():
        limits[f"pg:{g.rows[k]}"] = (g.p_min[k], g.p_max[k])
        limits[f"qg:{g.rows[k]}"] = (g.q_min[k], g.q_max[k])
    for k in zone.case.index(np.array(layout.buses, np.int64)).tolist():
        limits[f"v:{buses.numbers[k]}"] = (buses.v_min[k], buses.v_max[k])
    low_dc, high_dc = dc.flow_limits()
    for k in layout.dc.tolist():
        each = {f"{kind}:{dc.rows[k]}": (low_dc[k, i], high_dc[k, i]) for i, kind in enumerate(DC_FLOWS)}
        limits |= {key: limit for key, limit in each.items() if key in values}
    for key, (low, high) in limits.items():
        if not low - WITHIN <= values[key] <= high + WITHIN:
            return f"found {key} = {values[key]:g} p.u., expected {low:g} to {high:g}"
    sides, factors = zone.case.capability, zone.case.power_factors
    for kind, table, lines in (
        ("capability curve", sides, zip(sides.p, sides.q, sides.most, strict=True)),
        ("power factor", factors, zip(-factors.ratio, np.ones(len(factors)), np.zeros(len(factors)), strict=True)),
    ):
        for k, (a, b, most) in zip(table.generator.tolist(), lines, strict=True):
            if k in layout.generators:
                beyond = a * values[f"pg:{g.rows[k]}"] + b * values[f"qg:{g.rows[k]}"] - most
                if (beyond if table is sides else abs(beyond)) > WITHIN:
                    return f"found pg:{g.rows[k]}, qg:{g.rows[k]} off its {kind} by {beyond:g} p.u., expected within"
    return None


def _write(path: Path, rows: Sequence[Sequence[object]], columns: Sequence[str] = COLUMNS) -> None:
    text = io.StringIO(newline="")
    csv.writer(text).writerows([columns, *rows])
    write_file(path, text.getvalue().encode())


def zone_of(
    node: str,
    data: ZoneData,
    path: str,
    adjacency: Adjacency | None = None,
    pinned: Loaded | None = None,
    *,
    loaded: bool = True,
) -> Zone:
    """The device's zone: its public model and its private loads, which are zero unless `loaded`."""
    case = load(data.case).without(data.ignore).without_loads()
    buses = tuple(sorted(data.zone))
    if not buses or len(set(buses)) != len(buses):
        raise InputError(f"{path}: data.zone: found {data.zone}, expected this zone's bus numbers, each once")
    known = set(case.buses.numbers.tolist())
    if foreign := [b for b in buses if b not in known]:
        raise InputError(f"{path}: data.zone: found bus {foreign[0]}, expected buses of {case.name}")
    if loaded and data.loads is None and data.profiles is None:
        raise InputError(f"{path}: data.loads: missing, expected a CSV file of bus, p_mw, q_mvar (or a source)")
    d = np.zeros(2 * len(buses))
    if loaded and data.profiles:
        d = read_profiles(Path(data.profiles), buses, case.base_mva, None)
    elif loaded and data.loads:
        d = np.array(read_loads(Path(data.loads), buses, case.base_mva))
    contracts = capacities(adjacency, case, buses)
    model = model_of(node, data.case, buses, Path(data.model) if data.model else None, data.ignore)
    zone = Zone(node, case, model, d, data.solver, pinned, contracts, data.ignore)
    zone.hours = (data.hours or 24 / zone.periods) if data.profiles else 1.0
    return zone
