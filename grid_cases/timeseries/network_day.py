"""A day of a network of pandapower: its loads, its storage and what its generators can give, period by period.

Time series are read from `net.profiles`, in SimBench's form (an element's `profile` names a column that its power is
multiplied by) or as frames of MW with an element's index as column (`load_p_mw`), and from ConstControl controllers
whose data source is a frame. What has no series stays as it is. Generation that nobody controls is a negative load.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from hushgrid.grid_cases.case import Case, Floats, Ints
from hushgrid.grid_cases.pandapower import Places, converted, in_order
from hushgrid.grid_cases.pandapower_writing import Net
from hushgrid.kernels.errors import InputError

#: SimBench's tables by element, and the column of a quantity of the profile of a name.
_SIMBENCH = {"load": ("load",), "sgen": ("renewables", "powerplants"), "gen": ("powerplants", "renewables")}
_COLUMNS = {("load", "p_mw"): "{}_pload", ("load", "q_mvar"): "{}_qload", ("sgen", "p_mw"): "{}", ("gen", "p_mw"): "{}"}
_DRAWS = {"load": 1.0, "sgen": -1.0}  #: elements that are part of a bus's load, and the sign of their power
EFFICIENCY, COST = 0.95, 0.5  #: of storage that says nothing: each way, and $/MWh each way


@dataclass(frozen=True, slots=True, eq=False)
class NetworkDay:
    """T periods of a network."""

    case: Case  #: its loads are the means over the day; storage is none of them
    loads: Floats  #: (T, buses, 2) MW and MVAr
    storage: list[tuple[str, int, float, float, float, float, float, float]]  #: rows as storage.csv has them
    available: Mapping[int, Floats]  #: (T,) shares of the largest power, by a generator's number from 1
    grids: Ints  #: numbers of the generators that are external grids


def day_of(net: Net, name: str, day: int, periods: int, hours: float, where: str) -> NetworkDay:
    """Day `day` (from 0) of a network's series, as means over `periods` periods of `hours`. Raises InputError."""
    net = in_order(net)
    storage = net.storage[net.storage.in_service] if len(net.storage) else net.storage
    net.storage["in_service"] = False
    case, places = converted(net, name, where)
    series = _Series(net, day, periods, hours, where)
    loads = np.zeros((periods, len(case.buses), 2))
    for element, sign in _DRAWS.items():
        for index, row in net[element].iterrows():
            at = places.bus(int(row["bus"]))
            controlled = bool(row["controllable"]) if "controllable" in row else False
            if not row["in_service"] or at is None or (controlled and places.generator(element, index) is not None):
                continue
            place = int(case.index(np.array([at]))[0])
            for k, quantity in enumerate(("p_mw", "q_mvar")):
                loads[:, place, k] += sign * float(row["scaling"]) * series.of(element, index, row, quantity)
    loads += _constant(case, net, places)
    available = dict(_available(net, places, series, case))
    mean = loads.mean(axis=0) / case.base_mva
    case = replace(case, buses=replace(case.buses, p_d=mean[:, 0], q_d=mean[:, 1]))
    places_of = {index: places.bus(int(row["bus"])) for index, row in storage.iterrows()}
    units = [_unit(storage.loc[index], index, at) for index, at in places_of.items() if at is not None]
    grids = sorted(number for (element, _), number in places.generators.items() if element == "ext_grid")
    return NetworkDay(case, loads, units, available, np.array(grids, np.int64))


def _constant(case: Case, net: Net, places: Places) -> Floats:
    """(buses, 2) what the conversion counts as load beside loads and generation: motors, wards and others, MW, MVAr."""
    whole = np.column_stack([case.buses.p_d, case.buses.q_d]) * case.base_mva
    for element, sign in _DRAWS.items():
        for index, row in net[element].iterrows():
            bus = places.bus(int(row["bus"]))
            if row["in_service"] and bus is not None and places.generator(element, index) is None:
                at = int(case.index(np.array([bus]))[0])
                whole[at] -= sign * float(row["scaling"]) * np.array([row["p_mw"], row["q_mvar"]], np.float64)
    return np.where(np.abs(whole) > 1e-9, whole, 0.0)


def _available(net: Net, places: Places, series: _Series, case: Case) -> Iterator[tuple[int, Floats]]:
    """The share of its largest power that a generator with a series can give."""
    numbers = case.generators.rows + 1
    for element in ("gen", "sgen"):
        for index, row in net[element].iterrows():
            number = places.generator(element, index)
            if number is None or not series.has(element, index, row):
                continue
            k = int(np.flatnonzero(numbers == number)[0])
            most, least = (getattr(case.generators, key)[k] * case.base_mva for key in ("p_max", "p_min"))
            if np.isfinite(most) and most > 0:
                given = series.of(element, index, row, "p_mw") * float(row["scaling"])
                yield number, np.clip(given / most, max(least / most, 0.0), 1.0)


def _unit(row: Net, index: int, bus: int) -> tuple[str, int, float, float, float, float, float, float]:
    """A row of storage.csv. Energy below `min_e_mwh` is none that can be used."""

    def number(column: str, otherwise: float) -> float:
        value = float(row[column]) if column in row and np.isfinite(row[column]) else otherwise
        return value

    least = number("min_e_mwh", 0.0)
    energy = number("max_e_mwh", 0.0) - least
    power = max(number("max_p_mw", 0.0), number("sn_mva", 0.0), abs(number("p_mw", 0.0)))
    start = float(np.clip(number("soc_percent", 50.0) / 100 * (energy + least) - least, 0.0, energy))
    eta = number("efficiency_percent", 100 * EFFICIENCY) / 100
    return f"storage{index}", bus, power, energy, eta, COST, start, start


class _Series:
    """The time series of a network over one day."""

    def __init__(self, net: Net, day: int, periods: int, hours: float, where: str) -> None:
        self._profiles = net.get("profiles") or {}
        self._controlled = dict(_controllers(net))
        self._day, self._periods, self._hours, self._where = day, periods, hours, where
        self._seen: dict[int, Floats] = {}

    def has(self, element: str, index: int, row: Net) -> bool:
        return self._column(element, index, row, "p_mw") is not None

    def of(self, element: str, index: int, row: Net, quantity: str) -> Floats:
        """(T,) MW or MVAr, without the element's scaling."""
        usual = float(row[quantity]) if quantity in row and np.isfinite(row[quantity]) else 0.0
        column = self._column(element, index, row, quantity)
        if column is None:
            return np.full(self._periods, usual)
        values, step, relative = column
        return self._means(values, step) * (usual if relative else 1.0)

    def _column(self, element: str, index: int, row: Net, quantity: str) -> tuple[Net, float, bool] | None:
        """A series, the hours of its steps, and whether it is a factor of the element's own power."""
        if (element, index, quantity) in self._controlled:
            return self._controlled[element, index, quantity], self._step(None), False
        frame = self._profiles.get(f"{element}_{quantity}")
        if frame is not None:
            for column in (index, str(index)):
                if column in frame.columns:
                    return frame[column], self._step(frame), False
        name = row.get("profile")
        if not isinstance(name, str) or (element, quantity) not in _COLUMNS:
            return None
        column = _COLUMNS[element, quantity].format(name)
        for table in _SIMBENCH[element]:
            frame = self._profiles.get(table)
            if frame is not None and column in frame.columns:
                return frame[column], self._step(frame), True
        return None

    def _step(self, frame: Net) -> float:
        """Hours of a row: what the column `time` says, else those of a period."""
        if frame is None or "time" not in frame.columns or len(frame) < 2:
            return self._hours
        from pandas import to_datetime

        first, second = to_datetime(frame["time"].iloc[:2], dayfirst=True)
        return float((second - first).total_seconds()) / 3600

    def _means(self, series: Net, step: float) -> Floats:
        """(T,) of the chosen day."""
        values = series.to_numpy(np.float64)
        rows, each = round(24 / step), self._hours / step
        if abs(each - round(each)) > 1e-9 or each < 1:
            raise InputError(
                f"{self._where}: found series of {step:g} h a row, expected rows that make up periods of "
                f"{self._hours:g} h"
            )
        begin, end = self._day * rows, self._day * rows + self._periods * round(each)
        if end > len(values):
            raise InputError(
                f"{self._where}: found series of {len(values) / rows:g} days, expected day {self._day} (from 0) in them"
            )
        part = values[begin:end]
        if not np.isfinite(part).all():
            raise InputError(f"{self._where}: found a row without a number in series {series.name!r}, expected MW")
        means: Floats = part.reshape(self._periods, -1).mean(axis=1)
        return means


def _controllers(net: Net) -> Iterator[tuple[tuple[str, int, str], Net]]:
    """Series by element, index and quantity, of controllers that set elements to a frame's columns."""
    table = net.get("controller")
    for control in table.object[table.in_service] if table is not None and len(table) else ():
        frame = getattr(getattr(control, "data_source", None), "df", None)
        element, quantity = getattr(control, "element", None), getattr(control, "variable", None)
        if frame is None or element not in ("load", "sgen", "gen", "storage") or quantity is None:
            continue
        factor = float(getattr(control, "scale_factor", 1.0) or 1.0)
        indices, names = (
            np.atleast_1d(np.asarray(part, object)) for part in (control.element_index, control.profile_name)
        )
        for index, name in zip(indices.tolist(), names.tolist(), strict=False):
            if name in frame.columns:
                yield (element, int(index), quantity), frame[name] * factor
