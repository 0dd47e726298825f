"""Networks of pandapower and SimBench, in and out, by pandapower's own converters (extras `pandapower`, `simbench`).

A network file (.json) names Python classes that pandapower makes again as it reads: read only files you trust.
SimBench's data are under the ODbL 1.0, its code under the BSD licence (simbench.de): nothing of it comes with hushgrid.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from hushgrid.grid_cases.case import Case, Floats, Ints
from hushgrid.grid_cases.elements.parts import NO_COORDINATES, Coordinates
from hushgrid.grid_cases.matpower_parser import Value
from hushgrid.grid_cases.pandapower_writing import Net, check_installed, line, quiet, solved, to_pandapower, write
from hushgrid.grid_cases.tables import from_fields
from hushgrid.kernels.errors import InputError

__all__ = ["from_pandapower", "read", "solved", "to_pandapower", "write"]

SIMBENCH = "simbench:"  #: before one of its codes: simbench:1-MV-rural--0-sw
LICENCE = "SimBench (simbench.de), Open Database License 1.0 (ODbL); code BSD-3-Clause"
#: Columns of yes and no, and what an entry without a value stands for.
_FLAGS = {"controllable": False, "in_service": True, "slack": False, "closed": True, "reactive_capability_curve": False}
_CONTROLLED = ("ext_grid", "gen", "dcline")  #: whose `controllable` is yes unless they say no
_UNLIMITED = 1e9 * (1 - 1e-9)  #: MW or MVAr by which pandapower says that there is no limit
_NO_RATING = 1e4  #: p.u. of a line, above which a rating stands for none
_UNKNOWN = ("bus_dc", "branch_dc", "tcsc", "svc", "ssc", "vsc", "source_dc")  #: tables of devices that a case has not
_ASYMMETRIC = ("branch_r_asym", "branch_x_asym", "branch_g_asym", "branch_b_asym")
_TYPE, _REFERENCE, _ISOLATED = 1, 3, 4  #: column of bus types, and two of them


def read(name: str) -> Case:
    """The case in a network file that pandapower wrote (`pandapower.to_json`), or of a code of SimBench.

    Raises InputError if pandapower is not installed, cannot read the file, or the network holds what a case cannot.
    """
    return (
        _of_code(name) if name.startswith(SIMBENCH) else from_pandapower(open_network(name, "case"), title(name), name)
    )


def title(name: str) -> str:
    """A case's name: a file's without its ending, or a code of SimBench."""
    return name.removeprefix(SIMBENCH) if name.startswith(SIMBENCH) else Path(name).stem


def _of_network(name: str) -> Case:
    return from_pandapower(open_network(name, "case"), title(name), name)


@lru_cache(maxsize=4)
def _of_code(name: str) -> Case:
    """SimBench reads all of its networks for one of them: ten seconds."""
    return _of_network(name)


def from_pandapower(net: Net, name: str, where: str | None = None) -> Case:
    """The case of a pandapower network: its elements in service, transformers as pandapower's power flow sees them.

    A bus has pandapower's index as its number; buses joined by closed switches are one, under the lowest index. Rows of
    generators and lines count them in the order of pandapower's conversion. Of several islands the largest with an
    external grid is kept, and the case names the others. A generator without limits gives from 0 to its rated power
    (sn_mva, or p_mw if it has none), or takes as much if its p_mw is negative, and as much reactive power either way.
    An external grid without limits gives and takes what the lines and transformers at its bus may carry together,
    anything if one of them has no rating. The network itself is left as it is. Raises InputError.
    """
    return converted(net, name, where or name)[0]


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Where the elements of a network are in its case."""

    buses: Mapping[int, int]  #: the case's number of each bus that it holds
    generators: Mapping[tuple[str, int], int]  #: the number, from 1, of each generator that it holds

    def bus(self, index: int) -> int | None:
        return self.buses.get(index)

    def generator(self, element: str, index: int) -> int | None:
        return self.generators.get((element, index))


def converted(net: Net, name: str, where: str) -> tuple[Case, Places]:
    """`from_pandapower`, and where the network's elements are."""
    ppc, net = _converted(net, where)
    bus, gen, branch = (np.array(np.real(ppc[table]), np.float64) for table in ("bus", "gen", "branch"))
    mva = float(ppc["baseMVA"])
    _refuse_unknown(ppc, where)
    # The conductance of iron in transformers stands beside the branches: half at each end, as a shunt.
    conductance = np.array(ppc.get("branch_g", np.zeros(0)))
    if len(conductance):
        g = (conductance if len(conductance) == len(branch) else conductance[ppc["internal"]["branch_is"]]) * mva / 2
        ends = branch[:, :2].astype(np.int64)
        np.add.at(bus[:, 4], ends[:, 0], g / np.where(branch[:, 8] == 0, 1, branch[:, 8]) ** 2)
        np.add.at(bus[:, 4], ends[:, 1], g)
    numbers = _numbers(net, len(bus))
    _keep_largest_island(bus, gen, branch)
    omitted = tuple(_islands_left_out(bus, gen, branch, numbers))
    bus[:, 0] = numbers
    gen[:, 0] = numbers[gen[:, 0].astype(np.int64)]
    branch[:, :2] = numbers[branch[:, :2].astype(np.int64)]
    branch[branch[:, 5] > _NO_RATING * mva, 5] = 0
    _limit_grids(gen, branch)
    tables = {"bus": bus[:, :13], "gen": gen[:, :10], "branch": branch[:, :13]}
    if len(net.poly_cost) or len(net.pwl_cost):  # else pandapower's own 1 $/MWh for every generator
        tables["gencost"] = np.nan_to_num(np.real(ppc["gencost"]))
    fields = {field: Value(0, rows=[(0, row) for row in table.tolist()]) for field, table in tables.items()}
    head = {"version": Value(0, scalar="2"), "baseMVA": Value(0, scalar=mva)}
    case = from_fields(head | fields, name, where)
    case = replace(case, omitted=omitted, coordinates=_coordinates(net, case))
    return case, _places(net, case, numbers)


def _places(net: Net, case: Case, numbers: Ints) -> Places:
    lookup, held = net._pd2ppc_lookups["bus"], set(case.buses.numbers.tolist())
    rows = {index: int(numbers[lookup[index]]) for index in net.bus.index.tolist() if 0 <= lookup[index] < len(numbers)}
    in_service, generators = set((case.generators.rows + 1).tolist()), dict[tuple[str, int], int]()
    for element, (first, last) in net._gen_order.items():
        table = net[element.removesuffix("_controllable")]
        mine = table.index[net._is_elements[element]] if element in net._is_elements else table.index
        for index, number in zip(mine.tolist(), range(first + 1, last + 1), strict=False):
            if number in in_service:
                generators[element.removesuffix("_controllable"), index] = number
    return Places({index: number for index, number in rows.items() if number in held}, generators)


def _converted(net: Net, where: str) -> tuple[dict[str, Net], Net]:
    """pandapower's tables for an optimal power flow, and the copy of the network they were made from."""
    check_installed(where)
    from pandapower.converter.pypower.to_ppc import to_ppc

    if len(net.dcline) and net.dcline.in_service.any():
        raise InputError(f"{where}: found dc lines in net.dcline, expected none (a MATPOWER file may have them)")
    if not len(net.ext_grid) and not (len(net.gen) and net.gen.slack.any()):
        raise InputError(f"{where}: found no external grid in net.ext_grid, expected one")
    try:
        net = in_order(net)
        _limit(net)
        with quiet():
            return to_ppc(net, init="flat", mode="opf", trafo_model="t", take_slack_vm_limits=False), net
    except Exception as error:
        raise InputError(f"{where}: pandapower cannot convert it ({line(error)}), expected another network") from None


def _limit(net: Net) -> None:
    """Limits for the buses and generators that have none, as `from_pandapower` says."""
    for column, none in (("min_vm_pu", 0.0), ("max_vm_pu", 2.0)):  # as pandapower takes them
        if column not in net.bus:
            net.bus[column] = none
        net.bus[column] = net.bus[column].fillna(none)
    for table in (net.gen, net.sgen):
        if not len(table) or "controllable" not in table:
            continue
        power = table.p_mw.to_numpy(np.float64)
        rated = table.sn_mva.to_numpy(np.float64) if "sn_mva" in table else np.full(len(table), np.nan)
        size = np.where(np.isfinite(rated) & (rated > 0), rated, np.abs(power))
        takes = power < 0
        usual = {
            "min_p_mw": np.where(takes, -size, 0.0),
            "max_p_mw": np.where(takes, 0.0, size),
            "min_q_mvar": -size,
            "max_q_mvar": size,
        }
        for column, values in usual.items():
            limits = table[column].to_numpy(np.float64) if column in table else np.full(len(table), np.nan)
            table[column] = np.where(np.isnan(limits) & table.controllable, values, limits)


def _limit_grids(gen: Floats, branch: Floats) -> None:
    """Limits for the external grids that have none, as `from_pandapower` says, by bus numbers; else infinite."""
    columns = [3, 4, 8, 9]  # q most and least, p most and least
    for row in gen:
        unlimited = np.abs(row[columns]) >= _UNLIMITED
        ratings = branch[(branch[:, 10] > 0) & (branch[:, :2] == row[0]).any(axis=1), 5]
        size = float(ratings.sum()) if ratings.size and np.all(ratings > 0) else np.inf
        row[columns] = np.where(unlimited, np.copysign(size, row[columns]), row[columns])


def _components(bus: Floats, branch: Floats) -> Ints:
    """The lowest row of the buses that lines in service join to each bus, (buses,); rows, not numbers."""
    ends, island = branch[branch[:, 10] > 0, :2].astype(np.int64), np.arange(len(bus))
    while True:
        least = island.copy()
        for a, b in ((0, 1), (1, 0)):
            np.minimum.at(least, ends[:, a], island[ends[:, b]])
        least = least[least]
        if np.array_equal(least, island):
            return island
        island = least


def _keep_largest_island(bus: Floats, gen: Floats, branch: Floats) -> None:
    """Buses outside of the largest island with a reference bus become isolated; so pandapower's own type says."""
    there = bus[:, _TYPE] != _ISOLATED
    island = _components(bus, branch)
    supplied = np.unique(island[there & (bus[:, _TYPE] == _REFERENCE)])
    if not supplied.size:
        return
    sizes = np.bincount(island[there], minlength=len(bus))[supplied]
    bus[island != supplied[np.argmax(sizes)], _TYPE] = _ISOLATED


def _islands_left_out(bus: Floats, gen: Floats, branch: Floats, numbers: Ints) -> Iterator[str]:
    """What each island that is not kept holds, in words."""
    island, out = _components(bus, branch), bus[:, _TYPE] == _ISOLATED
    for one in np.unique(island[out]).tolist():
        mine = np.flatnonzero(island == one)
        size, load = len(mine), float(bus[mine, 2].sum())
        supplied = int(np.isin(gen[gen[:, 7] > 0, 0].astype(np.int64), mine).sum())
        buses = f"island of {size} buses (lowest {numbers[mine].min()})" if size > 1 else f"bus {numbers[mine[0]]}"
        yield f"{buses} apart from the rest, with {load:.3g} MW of load and {supplied} generators"


def _coordinates(net: Net, case: Case) -> Coordinates:
    """Where the buses are, by net.bus.geo (a GeoJSON point); none if a bus that is drawn has none.

    The open end of a line, which is no bus of pandapower's, is drawn just before the bus that it would reach.
    """
    if "geo" not in net.bus:
        return NO_COORDINATES
    points = {index: _point(text) for index, text in net.bus.geo.items()}
    known = {index: point for index, point in points.items() if point is not None}
    for number in case.buses.numbers.tolist():
        if number in points or number in known:
            continue
        at = (case.lines.from_bus == number) | (case.lines.to_bus == number)
        others = np.where(case.lines.from_bus == number, case.lines.to_bus, case.lines.from_bus)[at].tolist()
        around = [known[other] for other in others if other in known]
        if around:
            known[number] = (sum(x for x, _ in around) / len(around), sum(y for _, y in around) / len(around))
    numbers = case.buses.numbers.tolist()
    if not all(number in known for number in numbers):
        return NO_COORDINATES
    x, y = np.array([known[number] for number in numbers], np.float64).T
    return Coordinates(case.buses.numbers, x, y)


def _point(text: Net) -> tuple[float, float] | None:
    """(x, y) of a GeoJSON point."""
    try:
        x, y = json.loads(text)["coordinates"][:2]
        point = float(x), float(y)
    except (TypeError, ValueError, KeyError, IndexError):
        return None
    return point if np.isfinite(point).all() else None


def _refuse_unknown(ppc: dict[str, Net], where: str) -> None:
    for table in _UNKNOWN:
        if len(ppc.get(table, ())):
            raise InputError(f"{where}: found elements in {table}, expected a network of alternating current without")
    for column in _ASYMMETRIC:
        if np.any(ppc.get(column, 0)):
            raise InputError(f"{where}: found {column}, expected branches that are the same from both ends")


def _numbers(net: Net, count: int) -> Net:
    """The bus number of each row of the converted table: the lowest index of its buses, or a number above all."""
    lookup = net._pd2ppc_lookups["bus"]
    numbers = np.full(count, -1, np.int64)
    for index in sorted(net.bus.index[net.bus.in_service], reverse=True):
        if 0 <= lookup[index] < count:
            numbers[lookup[index]] = index
    inner = np.flatnonzero(numbers < 0)  # star points of transformers with three windings, open ends of lines
    numbers[inner] = int(net.bus.index.max()) + 1 + np.arange(len(inner))
    return numbers


def open_network(name: str, where: str) -> Net:
    """The network in pandapower's file of this path, or of SimBench's code. Raises InputError, which names `where`."""
    return _simbench(name.removeprefix(SIMBENCH), where) if name.startswith(SIMBENCH) else _of_file(Path(name), where)


def _of_file(path: Path, where: str) -> Net:
    check_installed(str(path))
    import pandapower

    if not path.is_file():
        raise InputError(f"{where}: {str(path)!r}: found no such file, expected a network file of pandapower")
    try:
        with quiet():
            net = pandapower.from_json(str(path))
    except Exception as error:  # whatever its decoder and the classes it makes can raise
        raise InputError(f"{where}: {path}: {line(error)}, expected a network file of pandapower") from None
    if not isinstance(net, pandapower.pandapowerNet):
        raise InputError(f"{where}: {path}: found {type(net).__name__}, expected a network file of pandapower")
    return net


def _simbench(code: str, where: str) -> Net:
    try:
        import simbench
    except ImportError:
        raise InputError(
            f"{where}: {SIMBENCH}{code}: found no module simbench, expected it (pip install 'hushgrid[simbench]')"
        ) from None
    if code not in simbench.collect_all_simbench_codes():
        raise InputError(
            f"{where}: found {SIMBENCH}{code[:60]}, expected a code of SimBench such as {SIMBENCH}1-MV-rural--0-sw"
        )
    try:
        with quiet():
            return simbench.get_simbench_net(code)
    except Exception as error:
        raise InputError(f"{where}: {SIMBENCH}{code}: {line(error)}, expected a network of SimBench") from None


def in_order(net: Net) -> Net:
    """A copy whose columns hold what pandapower computes with: yes or no where flags are, numbers where numbers are."""
    from pandas import DataFrame, to_numeric

    net = deepcopy(net)
    for name, table in list(net.items()):
        if not isinstance(table, DataFrame) or name.startswith("_") or name.startswith("res_"):
            continue
        for column in table.columns:
            if column in _FLAGS:
                usual = True if column == "controllable" and name in _CONTROLLED else _FLAGS[column]
                missing = table[column].isna().to_numpy()
                values = np.where(missing, usual, table[column].to_numpy(dtype=object))
                table[column] = values.astype(np.bool_)
            elif table[column].dtype == object and str(column).endswith(("_mw", "_mvar", "_mva", "_pu", "_percent")):
                table[column] = to_numeric(table[column], errors="coerce").astype(np.float64)
    return net
