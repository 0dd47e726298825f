"""A graph split into connected parts of about equal weight with few lines between them, by a multilevel method.

Sources: G. Karypis, V. Kumar, A fast and high quality multilevel scheme for partitioning irregular graphs (1998):
vertices joined over heavy lines level by level, a split of the smallest graph, refinement on the way back.
C. Fiduccia, R. Mattheyses (1982): a pass moves every vertex at most once, and keeps the best point it has seen.
P. Sanders, C. Schulz, Distributed evolutionary graph partitioning (2012): two splits are combined by joining only
vertices that both leave together.

Integers and fixed tie-breaking only, so that every machine finds the same split.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import NamedTuple

Lines = list[dict[int, int]]  #: vertex -> {neighbour: number of lines}, ascending, the same in both directions

_SPLITS = 12  #: splits kept, each from a start of its own
_COMBINED = 36  #: pairs of them combined, one after the other
_STALE = 12  #: combined in a row without a new split among those kept, after which no more are tried
_GROWN = 8  #: splits of the smallest graph at most, of which the best is refined
_SMALLEST = 10  #: vertices a part, below which a graph is not made smaller
_PASSES = 10  #: of refinement on each level at most; a pass without gain is the last
_PATIENCE = 40  #: moves without a gain before a pass ends
_SLACK = 15  #: per cent of the mean weight by which a part may pass its bounds within a pass
_MASK = 2**64 - 1


class Bounds(NamedTuple):
    """How many parts, and the weight each should have."""

    parts: int
    low: int
    high: int
    slack: int  #: by how much a pass of refinement may leave low and high on its way


class Graph(NamedTuple):
    """One level: a vertex stands for one or several connected vertices of the level below."""

    weight: list[int]
    lines: Lines


def split(lines: Lines, parts: int) -> list[int]:
    """The part, 0 to parts - 1, of every vertex of a connected graph; 1 <= parts <= number of vertices.

    Every part is connected and, if the method finds such a split, within a fifth of the mean size, rounded outwards.
    Parts are numbered by their first vertex.
    """
    n = len(lines)
    bounds = Bounds(parts, max(1, 4 * n // (5 * parts)), -(-6 * n // (5 * parts)), _SLACK * n // (100 * parts))
    graph = Graph([1] * n, lines)
    if parts in (1, n):
        return [0 if parts == 1 else v for v in range(n)]
    best: dict[tuple[int, int, int], list[int]] = {}  # one split for each score
    stale = 0
    for seed in range(_SPLITS):
        _keep(best, _found(graph, bounds, seed))
    for seed in range(_SPLITS, _SPLITS + _COMBINED):
        ranked = [best[score] for score in sorted(best)]
        if seed % 6 and len(ranked) > 1:
            one = _mixed(seed, 0) % len(ranked)
            two = (one + 1 + _mixed(seed, 1) % (len(ranked) - 1)) % len(ranked)
            base, other = ranked[min(one, two)], ranked[max(one, two)]
        else:  # now and then the best with one from a new start
            base, other = ranked[0], _found(graph, bounds, seed).part_of
        stale = 0 if _keep(best, _combined(graph, bounds, seed, base, other)) else stale + 1
        if stale == _STALE:
            break
    return best[min(best)]


def _keep(best: dict[tuple[int, int, int], list[int]], candidate: _Split) -> bool:
    """Whether a split is taken in.

    Of equally good ones the one stays whose list of parts, read from its end, is the smallest.
    """
    names: dict[int, int] = {}
    score, numbers = candidate.score(), [names.setdefault(part, len(names)) for part in candidate.part_of]
    if score in best and best[score][::-1] <= numbers[::-1]:
        return False
    best[score] = numbers
    if len(best) > _SPLITS:
        del best[max(best)]
    return score in best


def _found(graph: Graph, bounds: Bounds, seed: int) -> _Split:
    """A split from nothing: on the smallest level the best of several that are grown, then refined upwards."""
    levels, joined = _levels(graph, bounds, seed, [0] * len(graph.weight))
    tried = min(_GROWN, 1 + len(levels[-1].weight) // 10, 1 + 100 // bounds.parts)
    grown = [_grown(levels[-1], bounds.parts, seed * _GROWN + k) for k in range(tried)]
    refined = [_refined(_Split(levels[-1], part_of, bounds), seed) for part_of in grown]
    return _upwards(levels, joined, min(refined, key=_Split.score), seed)


def _combined(graph: Graph, bounds: Bounds, seed: int, base: list[int], other: list[int]) -> _Split:
    """At least as good as `base`: refined on levels on which every line that `base` or `other` cuts is still there."""
    names: dict[tuple[int, int], int] = {}
    apart = [names.setdefault(both, len(names)) for both in zip(base, other, strict=True)]
    levels, joined = _levels(graph, bounds, seed, apart)
    part_of = base
    for into, level in zip(joined, levels[1:], strict=True):
        coarse = [0] * len(level.weight)
        for v, c in enumerate(into):
            coarse[c] = part_of[v]
        part_of = coarse
    return _upwards(levels, joined, _refined(_Split(levels[-1], list(part_of), bounds), seed), seed)


def _levels(graph: Graph, bounds: Bounds, seed: int, apart: list[int]) -> tuple[list[Graph], list[list[int]]]:
    """Ever smaller graphs, and for each but the last its vertices' vertex in the next.

    Vertices with different numbers in `apart` are never joined.
    """
    levels, joined = [graph], list[list[int]]()
    heaviest = sum(graph.weight) // (3 * bounds.parts)
    while len(levels[-1].weight) > _SMALLEST * bounds.parts:
        coarse, into = _coarser(levels[-1], heaviest, _mixed(seed, len(levels)), apart)
        if 20 * len(coarse.weight) > 19 * len(into):
            break
        levels.append(coarse)
        joined.append(into)
        above = [0] * len(coarse.weight)
        for v, c in enumerate(into):
            above[c] = apart[v]
        apart = above
    return levels, joined


def _coarser(graph: Graph, heaviest: int, seed: int, apart: list[int]) -> tuple[Graph, list[int]]:
    """Every vertex joined with the neighbour, or what it was joined with, that has most lines for its weight."""
    n = len(graph.weight)
    leader, weight, single = list(range(n)), list(graph.weight), [True] * n
    for v in sorted(range(n), key=lambda v: _mixed(seed, v)):
        if not single[v]:
            continue
        shared: dict[int, int] = {}
        for u, k in graph.lines[v].items():
            if apart[u] == apart[v]:
                shared[leader[u]] = shared.get(leader[u], 0) + k
        fitting = [
            (k * 2**20 // (weight[c] * graph.weight[v]), _mixed(seed + 1, c), c)
            for c, k in shared.items()
            if weight[c] + graph.weight[v] <= heaviest
        ]
        if fitting:
            c = max(fitting)[2]
            leader[v], single[v], single[c] = c, False, False
            weight[c] += graph.weight[v]
    names = {c: k for k, c in enumerate(sorted(set(leader)))}
    into = [names[c] for c in leader]
    coarse = Graph([0] * len(names), [{} for _ in names])
    for v, c in enumerate(into):
        coarse.weight[c] += graph.weight[v]
        for u, k in graph.lines[v].items():
            if into[u] != c:
                coarse.lines[c][into[u]] = coarse.lines[c].get(into[u], 0) + k
    return coarse, into


def _upwards(levels: list[Graph], joined: list[list[int]], division: _Split, seed: int) -> _Split:
    """A split of the smallest graph carried to the largest, refined on every level."""
    for graph, into in zip(reversed(levels[:-1]), reversed(joined), strict=True):
        division = _refined(_Split(graph, [division.part_of[c] for c in into], division.bounds), seed)
    return division


def _grown(graph: Graph, parts: int, seed: int) -> list[int]:
    """Parts grown one vertex at a time, the lightest first, from vertices far from each other."""
    n, lines = len(graph.weight), graph.lines
    starts = [_mixed(seed, n) % n]
    hops = distances(lines, starts[0])
    while len(starts) < parts:
        order = sorted((v for v in range(n) if hops[v]), key=lambda v: (-hops[v], _mixed(seed, v)))
        # With an even seed the farthest vertex, with an odd one any of the farther half.
        starts.append(order[_mixed(seed, n + len(starts)) % (len(order) // 2 or 1) if seed % 2 else 0])
        hops = [min(a, b) for a, b in zip(hops, distances(lines, starts[-1]), strict=True)]
    part_of = [-1] * n
    weight = [0] * parts
    frontier: list[set[int]] = [set() for _ in starts]

    def take(v: int, part: int) -> None:
        part_of[v] = part
        weight[part] += graph.weight[v]
        for u in lines[v]:
            if part_of[u] < 0:
                frontier[part].add(u)
            else:
                frontier[part_of[u]].discard(v)

    def attraction(v: int, part: int) -> tuple[int, int]:
        # Lines into the part against lines to vertices still free. No two vertices have the same second entry.
        return sum(k * ((part_of[u] == part) - (part_of[u] < 0)) for u, k in lines[v].items()), _mixed(seed, v)

    for part, start in enumerate(starts):
        take(start, part)
    lightest = sorted((w, part) for part, w in enumerate(weight))
    while lightest:
        _, part = heappop(lightest)
        if frontier[part]:
            take(max(frontier[part], key=lambda v: attraction(v, part)), part)
            heappush(lightest, (weight[part], part))
    return part_of


def distances(lines: Lines, start: int, among: set[int] | None = None) -> list[int]:
    """Hops from `start` to every vertex, by way of `among` only; -1 where unreached."""
    hops = [-1] * len(lines)
    hops[start] = 0
    reached = [start]
    for v in reached:
        for u in lines[v]:
            if hops[u] < 0 and (among is None or u in among):
                hops[u] = hops[v] + 1
                reached.append(u)
    return hops


class _Split:
    """An assignment of every vertex to a part, with weights and cut kept current."""

    def __init__(self, graph: Graph, part_of: list[int], bounds: Bounds) -> None:
        self.graph, self.part_of, self.bounds = graph, part_of, bounds
        self.weight, self.count = [0] * bounds.parts, [0] * bounds.parts
        for v, part in enumerate(part_of):
            self.weight[part] += graph.weight[v]
            self.count[part] += 1
        self.cut = sum(
            k for v, ns in enumerate(graph.lines) for u, k in ns.items() if v < u and part_of[u] != part_of[v]
        )
        self.beyond = sum(self._excess(weight) for weight in self.weight)
        self.squares = sum(weight * weight for weight in self.weight)

    def score(self) -> tuple[int, int, int]:
        """Lower is better: weight beyond the bounds, then lines cut, then spread of the weights."""
        return self.beyond, self.cut, self.squares

    def _excess(self, weight: int) -> int:
        return max(0, self.bounds.low - weight, weight - self.bounds.high)

    def _change(self, moved: int, here: int, there: int) -> int:
        """Of `beyond`, if a weight `moved` goes from one part to another."""
        a, b = self.weight[here], self.weight[there]
        return self._excess(a - moved) + self._excess(b + moved) - self._excess(a) - self._excess(b)

    def move(self, v: int, there: int) -> None:
        here, moved = self.part_of[v], self.graph.weight[v]
        self.cut += sum(
            k * ((self.part_of[u] == here) - (self.part_of[u] == there)) for u, k in self.graph.lines[v].items()
        )
        self.beyond += self._change(moved, here, there)
        self.squares += 2 * moved * (self.weight[there] - self.weight[here] + moved)
        self.weight[here] -= moved
        self.weight[there] += moved
        self.count[here] -= 1
        self.count[there] += 1
        self.part_of[v] = there

    def best_move(self, v: int) -> tuple[int, int, int, int] | None:
        """(lines gained, weight returned within the bounds, evenness, - part) of the best move of v, None if none."""
        here, moved = self.part_of[v], self.graph.weight[v]
        into: dict[int, int] = {}
        for u, k in self.graph.lines[v].items():
            into[self.part_of[u]] = into.get(self.part_of[u], 0) + k
        inside = into.pop(here, 0)
        low, high, a = self.bounds.low - self.bounds.slack, self.bounds.high + self.bounds.slack, self.weight[here]
        best = None
        for part, k in into.items():
            b, change = self.weight[part], self._change(moved, here, part)
            if change <= 0 or (a - moved >= low and b + moved <= high):
                key = (k - inside, -change, a - b - moved, -part)
                if best is None or key > best:
                    best = key
        return best

    def may_leave(self, v: int) -> bool:
        """Whether the part of v stays connected, and not empty, without v.

        The rest is searched from all neighbours of v at once: either the searches meet, or the smallest ends first.
        """
        part_of, lines, part = self.part_of, self.graph.lines, self.part_of[v]
        fellows = [u for u in lines[v] if part_of[u] == part]
        if len(fellows) < 2:
            return self.count[part] > 1
        search = {u: k for k, u in enumerate(fellows)} | {v: -1}
        met, frontier, unreached = list(range(len(fellows))), [[u] for u in fellows], len(fellows)
        while True:
            for k in range(len(fellows)):
                if met[k] != k:
                    continue
                grown = list[int]()
                for w in frontier[k]:
                    for u in lines[w]:
                        if part_of[u] != part:
                            continue
                        other = search.setdefault(u, len(fellows))
                        if other == len(fellows):
                            search[u] = k
                            grown.append(u)
                            continue
                        while other >= 0 and met[other] != other:
                            other = met[other]
                        if other not in (k, -1):
                            met[other], unreached = k, unreached - 1
                            grown += frontier[other]
                if unreached == 1:
                    return True
                if not grown:
                    return False
                frontier[k] = grown


def _refined(division: _Split, seed: int) -> _Split:
    """Passes of the best allowed move over the boundary, each vertex once, undone back to the best point seen."""
    lines = division.graph.lines
    order = [_mixed(seed, v) for v in range(len(lines))]

    def entry(v: int) -> list[tuple[int, int, int, int]]:
        move = division.best_move(v)
        return [(-move[0], -move[1], order[v], v)] if move else []

    for _ in range(_PASSES):
        start = best = division.score()
        done, keep = list[tuple[int, int]](), 0
        fixed = bytearray(len(lines))
        heap = [e for v in range(len(lines)) for e in entry(v)]
        heapify(heap)
        while heap and len(done) - keep <= _PATIENCE:
            *promised, _, v = heappop(heap)
            move = None if fixed[v] else division.best_move(v)
            if move is None:
                continue
            if [-move[0], -move[1]] > promised:  # no longer as good as it was: it waits its turn
                heappush(heap, (-move[0], -move[1], order[v], v))
                continue
            if not division.may_leave(v):
                continue
            done.append((v, division.part_of[v]))
            fixed[v] = True
            division.move(v, -move[3])
            if division.score() < best:
                best, keep = division.score(), len(done)
            for u in lines[v]:
                if not fixed[u]:
                    for e in entry(u):
                        heappush(heap, e)
        for v, part in reversed(done[keep:]):
            division.move(v, part)
        if best == start:
            break
    return division


def _mixed(seed: int, k: int) -> int:
    """64 bits that look random (Steele, Lea, Flood, 2014): for one seed, a different number for every k."""
    x = (seed * 0x9E3779B97F4A7C15 + k * 0xBF58476D1CE4E5B9 + 0x94D049BB133111EB) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)
