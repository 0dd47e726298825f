"""Random zones of a case: connected, some of a single bus, some buses the end of ties to several other zones."""

from __future__ import annotations

import random

from hushgrid.grid_cases.case import Case


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
