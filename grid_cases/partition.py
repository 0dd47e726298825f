"""Zones of a case: balanced, connected, with few lines between them.

The program's own are found by the multilevel method of `multilevel`. Integer arithmetic and fixed tie-breaking only:
every device finds the same zones on any machine, so a partition never has to be sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from hushgrid.grid_cases.case import Case, Ints
from hushgrid.grid_cases.case import Lines as Elements
from hushgrid.grid_cases.elements.parts import DcLines
from hushgrid.grid_cases.multilevel import Lines, distances, split
from hushgrid.kernels.errors import InputError

Zones = dict[str, tuple[int, ...]]  #: z1, z2, ... -> ascending bus numbers


def partition(case: Case, zones: int) -> Zones:
    """`zones` connected zones of about equal size with few tie lines; z1 holds the lowest bus number, and so on.

    Deterministic. Raises InputError unless 1 <= zones <= number of buses.
    """
    n = len(case.buses)
    if isinstance(zones, bool) or not isinstance(zones, int) or not 1 <= zones <= n:
        raise InputError(f"zones: found {zones!r}, expected a whole number from 1 to {n} (the buses of {case.name})")
    return _named(case, split(_graph(case), zones))


def explicit(case: Case, lists: Sequence[Iterable[int]] | Mapping[str, Iterable[int]]) -> Zones:
    """Zones given as lists of bus numbers, checked: every bus in exactly one zone, every zone connected, none empty.

    A mapping must name them z1, z2, ...; z1 is the first list. Raises InputError naming the zone and the bus.
    """
    if isinstance(lists, Mapping):
        expected = [f"z{k + 1}" for k in range(len(lists))]
        if set(lists) != set(expected):
            raise InputError(f"zones: found names {', '.join(map(str, lists))}, expected {', '.join(expected)}")
        lists = [lists[name] for name in expected]
    n = len(case.buses)
    if not 1 <= len(lists) <= n:
        raise InputError(f"zones: found {len(lists)} lists, expected 1 to {n} (the buses of {case.name})")
    known = set(case.buses.numbers.tolist())
    owner: dict[int, str] = {}
    for k, buses in enumerate(lists):
        name = f"z{k + 1}"
        if not isinstance(buses, list | tuple):
            raise InputError(f"zones.{name}: found {buses!r}, expected a list of bus numbers")
        for bus in buses:
            if isinstance(bus, bool) or not isinstance(bus, int) or bus not in known:
                raise InputError(f"zones.{name}: found bus {bus!r}, expected a bus number of {case.name}")
            if bus in owner:
                raise InputError(f"zones.{name}: found bus {bus}, already in {owner[bus]}; expected each bus once")
            owner[bus] = name
        if name not in owner.values():
            raise InputError(f"zones.{name}: found no bus, expected at least one")
    missing = sorted(known - set(owner))
    if missing:
        raise InputError(f"zones: bus {missing[0]} of {case.name} is in no zone, expected each bus in one")
    graph = _graph(case)
    part_of = [int(owner[int(bus)][1:]) - 1 for bus in case.buses.numbers]
    for zone in range(len(lists)):
        members = [v for v in range(n) if part_of[v] == zone]
        inside = distances(graph, members[0], set(members))
        cut_off = [v for v in members if inside[v] < 0]
        if cut_off:
            a, b = (int(case.buses.numbers[v]) for v in (members[0], cut_off[0]))
            raise InputError(
                f"zones.z{zone + 1}: bus {b} is not connected to bus {a} inside the zone, expected a connected zone"
            )
    return {f"z{k + 1}": tuple(sorted(buses)) for k, buses in enumerate(lists)}


def tie_lines(case: Case, zones: Zones) -> Ints:
    """The rows (of mpc.branch) of the lines that join two zones, ascending."""
    return case.lines.rows[between(case.lines, zones)]


def between(lines: Elements | DcLines, zones: Zones) -> NDArray[np.bool_]:
    """Which of these lines join two zones, shape (lines,)."""
    zone_of = {bus: name for name, buses in zones.items() for bus in buses}
    ends = zip(lines.from_bus.tolist(), lines.to_bus.tolist(), strict=True)
    return np.array([zone_of[i] != zone_of[j] for i, j in ends], np.bool_)


def without_generator(case: Case, zones: Zones) -> list[str]:
    """The zones in which no generator stands: all their power comes over tie lines."""
    supplied = set(case.generators.bus.tolist())
    return [name for name, buses in zones.items() if supplied.isdisjoint(buses)]


def _graph(case: Case) -> Lines:
    lines: Lines = [{} for _ in range(len(case.buses))]
    for i, j in zip(case.index(case.lines.from_bus).tolist(), case.index(case.lines.to_bus).tolist(), strict=True):
        lines[i][j] = lines[i].get(j, 0) + 1
        lines[j][i] = lines[j].get(i, 0) + 1
    return [dict(sorted(neighbours.items())) for neighbours in lines]


def _named(case: Case, part_of: list[int]) -> Zones:
    members: dict[int, list[int]] = {}
    for bus, zone in zip(case.buses.numbers.tolist(), part_of, strict=True):
        members.setdefault(zone, []).append(bus)
    return {f"z{k + 1}": tuple(buses) for k, buses in enumerate(members.values())}
