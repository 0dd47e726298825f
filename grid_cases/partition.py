"""Zones of a case: balanced, connected, with few lines between them.

Greedy growth from spread-out seeds, then boundary moves in the manner of Kernighan-Lin and Fiduccia-Mattheyses
(1970, 1982) that keep every zone connected. Integer arithmetic and fixed tie-breaking only: every device finds the
same zones on any machine, so a partition never has to be sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from hushgrid.grid_cases.case import Case, Ints
from hushgrid.kernels.errors import InputError

Zones = dict[str, tuple[int, ...]]  #: z1, z2, ... -> ascending bus numbers

_STARTS = 12  #: growths tried, from different first seeds
_PASSES = 8  #: refinement passes at most; each stops early when it gains nothing


def partition(case: Case, zones: int) -> Zones:
    """`zones` connected zones of about equal size with few tie lines; z1 holds the lowest bus number, and so on.

    Deterministic. Raises InputError unless 1 <= zones <= number of buses.
    """
    n = len(case.buses)
    if isinstance(zones, bool) or not isinstance(zones, int) or not 1 <= zones <= n:
        raise InputError(f"zones: found {zones!r}, expected a whole number from 1 to {n} (the buses of {case.name})")
    graph = _graph(case)
    far = _distances(graph, max(range(n), key=lambda v: (max(_distances(graph, v)), -v)))
    order = sorted(range(n), key=lambda v: (-far[v], v))
    firsts = [order[k * n // _STARTS] for k in range(_STARTS)] if zones > 1 else order[:1]
    best = min(
        (_refined(graph, _grown(graph, zones, first), zones) for first in dict.fromkeys(firsts)), key=_Split.score
    )
    return _named(case, best.of)


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
    of = [int(owner[int(bus)][1:]) - 1 for bus in case.buses.numbers]
    for zone in range(len(lists)):
        members = [v for v in range(n) if of[v] == zone]
        inside = _distances(graph, members[0], set(members))
        cut_off = [v for v in members if inside[v] < 0]
        if cut_off:
            a, b = (int(case.buses.numbers[v]) for v in (members[0], cut_off[0]))
            raise InputError(
                f"zones.z{zone + 1}: bus {b} is not connected to bus {a} inside the zone, expected a connected zone"
            )
    return {f"z{k + 1}": tuple(sorted(buses)) for k, buses in enumerate(lists)}


def tie_lines(case: Case, zones: Zones) -> Ints:
    """The rows (of mpc.branch) of the lines that join two zones, ascending."""
    of = {bus: name for name, buses in zones.items() for bus in buses}
    ends = zip(case.lines.from_bus.tolist(), case.lines.to_bus.tolist(), strict=True)
    return case.lines.rows[[of[i] != of[j] for i, j in ends]]


Graph = list[dict[int, int]]  # position of a bus -> {neighbour: number of lines}


def _graph(case: Case) -> Graph:
    graph: Graph = [{} for _ in range(len(case.buses))]
    for i, j in zip(case.index(case.lines.from_bus).tolist(), case.index(case.lines.to_bus).tolist(), strict=True):
        graph[i][j] = graph[i].get(j, 0) + 1
        graph[j][i] = graph[j].get(i, 0) + 1
    return [dict(sorted(neighbours.items())) for neighbours in graph]


def _distances(graph: Graph, start: int, among: set[int] | None = None) -> list[int]:
    """Hops from `start` to every bus, by way of `among` only; -1 where unreached."""
    hops = [-1] * len(graph)
    hops[start] = 0
    queue = deque([start])
    while queue:
        v = queue.popleft()
        for u in graph[v]:
            if hops[u] < 0 and (among is None or u in among):
                hops[u] = hops[v] + 1
                queue.append(u)
    return hops


class _Split:
    """An assignment of every bus to a zone, with its sizes and cut kept current."""

    def __init__(self, graph: Graph, of: list[int], zones: int) -> None:
        self.graph, self.of = graph, of
        self.size = [of.count(zone) for zone in range(zones)]
        self.cut = sum(k for v, ns in enumerate(graph) for u, k in ns.items() if v < u and of[u] != of[v])
        # Within a fifth of the mean size, rounded outwards.
        self.low, self.high = max(1, 4 * len(graph) // (5 * zones)), -(-6 * len(graph) // (5 * zones))

    def score(self) -> tuple[int, int, int]:
        """Lower is better: buses beyond the size limits, then lines cut, then spread of the sizes."""
        beyond = sum(max(0, self.low - s) + max(0, s - self.high) for s in self.size)
        return beyond, self.cut, sum(s * s for s in self.size)

    def move(self, v: int, zone: int) -> None:
        old = self.of[v]
        self.cut += sum(k * ((self.of[u] == old) - (self.of[u] == zone)) for u, k in self.graph[v].items())
        self.size[old] -= 1
        self.size[zone] += 1
        self.of[v] = zone

    def may_leave(self, v: int) -> bool:
        """Whether the zone of v stays connected, and not empty, without v."""
        near = [u for u in self.graph[v] if self.of[u] == self.of[v]]
        if len(near) < 2:
            return self.size[self.of[v]] > 1
        zone, wanted = self.of[v], set(near[1:])
        seen, queue = {v, near[0]}, deque(near[:1])
        while queue and wanted:
            for u in self.graph[queue.popleft()]:
                if u not in seen and self.of[u] == zone:
                    seen.add(u)
                    wanted.discard(u)
                    queue.append(u)
        return not wanted


def _grown(graph: Graph, zones: int, first: int) -> list[int]:
    """Zones grown one bus at a time, the smallest first, from seeds as far from each other as can be."""
    seeds, nearest = [first], _distances(graph, first)
    while len(seeds) < zones:
        seeds.append(max(range(len(graph)), key=lambda v: (nearest[v], -v)))
        nearest = [min(a, b) for a, b in zip(nearest, _distances(graph, seeds[-1]), strict=True)]
    of = [-1] * len(graph)
    frontier: list[set[int]] = [set() for _ in seeds]
    size = [0] * zones

    def take(v: int, zone: int) -> None:
        of[v] = zone
        size[zone] += 1
        for each in frontier:
            each.discard(v)
        frontier[zone].update(u for u in graph[v] if of[u] < 0)

    for zone, seed in enumerate(seeds):
        take(seed, zone)
    while any(frontier):
        zone = min((z for z in range(zones) if frontier[z]), key=lambda z: (size[z], z))
        # The bus with the most lines into the zone against lines to buses still free.
        take(
            max(
                sorted(frontier[zone]),
                key=lambda v: sum(k * ((of[u] == zone) - (of[u] < 0)) for u, k in graph[v].items()),
            ),
            zone,
        )
    return of


def _refined(graph: Graph, of: list[int], zones: int) -> _Split:
    """Passes of the best allowed boundary move, each bus once, kept up to the best point seen."""
    split = _Split(graph, of, zones)
    for _ in range(_PASSES):
        start, moved, done = split.score(), set[int](), list[tuple[int, int]]()
        best, keep = start, 0
        while True:
            move = _best_move(split, moved)
            if move is None or len(done) > keep + 12:  # a dozen moves without a gain: no hill worth climbing
                break
            v, zone = move
            done.append((v, split.of[v]))
            split.move(v, zone)
            moved.add(v)
            if split.score() < best:
                best, keep = split.score(), len(done)
        for v, zone in reversed(done[keep:]):
            split.move(v, zone)
        if best == start:
            break
    return split


def _best_move(split: _Split, moved: set[int]) -> tuple[int, int] | None:
    candidates = []
    for v, neighbours in enumerate(split.graph):
        targets = {split.of[u] for u in neighbours} - {split.of[v]}
        if v in moved or not targets:
            continue
        for zone in sorted(targets):
            old = split.of[v]
            split.move(v, zone)
            candidates.append((split.score(), v, zone))
            split.move(v, old)
    for _, v, zone in sorted(candidates):
        if split.may_leave(v):
            return v, zone
    return None


def _named(case: Case, of: list[int]) -> Zones:
    members: dict[int, list[int]] = {}
    for bus, zone in zip(case.buses.numbers.tolist(), of, strict=True):
        members.setdefault(zone, []).append(bus)
    return {f"z{k + 1}": tuple(buses) for k, buses in enumerate(members.values())}
