"""Cases that hold more than buses, generators and lines: MATPOWER's own, and two loads that are dispatched."""

from __future__ import annotations

import random
from dataclasses import fields

import numpy as np

from hushgrid.grid_cases import load
from hushgrid.grid_cases.case import Case
from hushgrid.grid_cases.zone.model import ZoneModel
from tests.support.paths import VECTORS

CASES = VECTORS / "cases"
#: Least cost of the AC network, $/h: MATPOWER's case30Q and t_case9_opfv2 (by PYPOWER 5.1.21), t_case9_dcline and
#: case9_loads by `rectangular_opf`, the last by PYPOWER too. Of the relaxation: what this program has found.
AC = {"case30Q": 623.006, "t_case9_opfv2": 6621.7376, "t_case9_dcline": 6518.8943, "case9_loads": 4849.0726}
RELAXED = {"case30Q": 607.588, "t_case9_opfv2": 6520.538, "t_case9_dcline": 6512.561, "case9_loads": 4818.228}
NAMES = list(AC)
#: Zones that every dc line of t_case9_dcline joins.
ZONES9 = [[1, 4, 5], [30, 6, 7], [2, 8, 9]]
ZONES30 = [
    [1, 2, 3, 4, 5, 6, 7, 8, 28],
    [9, 10, 11, 16, 17, 18, 19, 20, 21, 22],
    [12, 13, 14, 15, 23, 24, 25, 26, 27, 29, 30],
]


def path(name: str) -> str:
    return str(CASES / f"{name}.m")


def text(name: str) -> str:
    return (CASES / f"{name}.m").read_text()


# --- Random zones of a case: connected, some of a single bus, some buses the end of ties to several other zones ---


def random_zones(case: Case, zones: int, seed: int, singles: int = 0) -> list[list[int]]:
    """`zones` connected zones that grow from random buses at random speeds; `singles` of them have one bus.

    A zone of one bus takes none whose loss would cut its neighbours off from their own zone.
    """
    rng = random.Random(seed)
    around: dict[int, set[int]] = {bus: set() for bus in case.buses.numbers.tolist()}
    for i, j in zip(case.lines.from_bus.tolist(), case.lines.to_bus.tolist(), strict=True):
        around[i].add(j)
        around[j].add(i)
    grown = max(zones - singles, 1)
    zone_of = {bus: k for k, bus in enumerate(rng.sample(sorted(around), grown))}
    speed = [rng.uniform(0.2, 1.0) for _ in range(grown)]
    while len(zone_of) < len(around):
        edge = [
            (bus, zone_of[at])
            for bus in sorted(around)
            if bus not in zone_of
            for at in sorted(around[bus] & set(zone_of))
        ]
        bus, k = rng.choices(edge, weights=[speed[k] for _, k in edge])[0]
        zone_of[bus] = k
    buses = sorted(around)
    rng.shuffle(buses)
    for bus in buses:
        if grown == zones:
            break
        rest = {b for b, k in zone_of.items() if k == zone_of[bus] and b != bus}
        if rest and _connected(rest, around):
            zone_of[bus], grown = grown, grown + 1
    return [sorted(b for b, k in zone_of.items() if k == zone) for zone in range(grown)]


def triple_points(case: Case, zones: list[list[int]]) -> list[int]:
    """The buses that are the end of lines to two or more other zones."""
    zone_of = {bus: k for k, buses in enumerate(zones) for bus in buses}
    others: dict[int, set[int]] = {bus: set() for bus in zone_of}
    for i, j in zip(case.lines.from_bus.tolist(), case.lines.to_bus.tolist(), strict=True):
        if zone_of[i] != zone_of[j]:
            others[i].add(zone_of[j])
            others[j].add(zone_of[i])
    return [bus for bus, seen in others.items() if len(seen) >= 2]


def _connected(buses: set[int], around: dict[int, set[int]]) -> bool:
    reached, fresh = set[int](), {min(buses)}
    while fresh:
        reached |= fresh
        fresh = set().union(*(around[bus] for bus in fresh)) & buses - reached
    return reached == buses


# --- Zones of case14 and their models ---

CASE14 = load("case14")
ZONES14 = [[1, 2, 3, 4, 5], [7, 8, 9, 10, 14], [6, 11, 12, 13]]


def same(a: ZoneModel, b: ZoneModel) -> bool:
    def plain(value):
        return value.toarray().tolist() if hasattr(value, "toarray") else np.asarray(value).tolist()

    return all(plain(getattr(a, part.name)) == plain(getattr(b, part.name)) for part in fields(ZoneModel))
