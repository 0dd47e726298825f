"""The networks of data problems, and the routes a token takes over them. Nodes are 0..n-1; everything is public.

A graph is connected, simple and undirected, its neighbours sorted; the random kinds are functions of their seed. The
cyclic route is a Hamiltonian cycle where one is found, else a closed walk through every node: a cycle need not exist,
and where its absence has a short proof (a node of degree 1, a node whose loss cuts the graph, a bipartite graph with
unequal sides) no search is made.
Sources: L. Posa, Hamiltonian circuits in random graphs (1976); N. Christofides (1976), by networkx; S. Boyd, P.
Diaconis, L. Xiao, Fastest mixing Markov chain on a graph (2004), for the Metropolis weights.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, combinations, pairwise
from math import isqrt
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta, Struct

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.randomness import counter_generator, counter_word
from hushgrid.kernels.types import Matrix

Edge = tuple[int, int]
RESTARTS = 50  #: of the search for a Hamiltonian cycle; each makes at most ROTATIONS n steps
ROTATIONS = 50


@dataclass(frozen=True)
class Graph:
    """`neighbours[i]`: the nodes i shares an edge with, in ascending order."""

    neighbours: tuple[tuple[int, ...], ...]

    @classmethod
    def from_edges(cls, n: int, edges: Iterable[Edge]) -> Graph:
        """Raises InputError unless every edge joins two different nodes of 0..n-1 and the graph is connected,
        n >= 2.
        """
        if n < 2:
            raise InputError(f"network: found {n} nodes, expected at least 2")
        neighbours: list[set[int]] = [set() for _ in range(n)]
        for a, b in edges:
            if not (0 <= a < n and 0 <= b < n and a != b):
                raise InputError(f"network: found edge [{a}, {b}], expected two different nodes of 0..{n - 1}")
            neighbours[a].add(b)
            neighbours[b].add(a)
        graph = cls(tuple(tuple(sorted(nodes)) for nodes in neighbours))
        parts = graph.components()
        if len(parts) > 1:
            one = str(min(parts, key=len))[:80]
            raise InputError(f"network: found {len(parts)} parts, {one} one of them, expected a connected graph")
        return graph

    @property
    def n(self) -> int:
        return len(self.neighbours)

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """Every edge once, as (smaller, larger), sorted."""
        return tuple((i, j) for i, nodes in enumerate(self.neighbours) for j in nodes if i < j)

    @cached_property
    def bipartite(self) -> bool:
        """Whether its nodes have two colours such that every edge joins both."""
        import networkx as nx

        return bool(nx.is_bipartite(nx.Graph(self.edges)))

    def components(self, lost: Iterable[int] = ()) -> list[list[int]]:
        """The connected parts of what remains without the nodes `lost`, each sorted, by their smallest node."""
        seen, parts = set(lost), []
        for root in range(self.n):
            if root in seen:
                continue
            part, stack = [], [root]
            seen.add(root)
            while stack:
                part.append(here := stack.pop())
                new = [j for j in self.neighbours[here] if j not in seen]
                seen.update(new)
                stack.extend(new)
            parts.append(sorted(part))
        return parts

    def metropolis(self) -> Matrix:
        """W (n, n): W_ij = 1/(1 + max(d_i, d_j)) on edges, the rest of each row on its diagonal.

        Symmetric, rows sum to 1.
        """
        W = np.zeros((self.n, self.n))
        for i, j in self.edges:
            W[i, j] = W[j, i] = 1.0 / (1 + max(len(self.neighbours[i]), len(self.neighbours[j])))
        W[np.diag_indices(self.n)] = 1.0 - W.sum(axis=1)
        return W


# --- the kinds of a scenario ---

Kind = Literal["ring", "path", "star", "complete", "grid", "geometric", "erdos-renyi", "edges"]
Node = Annotated[int, Meta(ge=0)]
#: The keys each kind needs beside `nodes`; the others are refused, so that none is silently without effect.
KEYS: dict[Kind, tuple[str, ...]] = {
    "geometric": ("radius", "seed"),
    "erdos-renyi": ("density", "seed"),
    "edges": ("edges",),
}


class Network(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The scenario's `network` section."""

    kind: Kind  #: the shape
    nodes: Annotated[int, Meta(ge=2, le=10_000)] | None = None  #: n [the largest node of the edges and one]
    edges: list[tuple[Node, Node]] | None = None  #: edges: pairs of nodes, from 0
    #: geometric: points of the unit square no further apart are joined
    radius: Annotated[float, Meta(gt=0)] | None = None
    density: Annotated[float, Meta(gt=0, le=1)] | None = None  #: erdos-renyi: the share of the n(n-1)/2 pairs, exactly
    seed: Annotated[int, Meta(ge=0)] | None = None  #: geometric, erdos-renyi: of the draw

    def build(self) -> Graph:
        """The graph. Raises InputError if a key is missing or without meaning, or the graph is not connected."""
        needed = KEYS.get(self.kind, ())
        for key in ("edges", "radius", "density", "seed"):
            value = getattr(self, key)
            if value is None and key in needed:
                raise InputError(f"network.{key}: missing, expected a value (kind {self.kind})")
            if value is not None and key not in needed:
                raise InputError(f"network.{key}: found {value!r:.40}, expected none (kind {self.kind})")
        edges: list[Edge] = list(self.edges or [])
        if self.nodes is None and self.kind != "edges":
            raise InputError(f"network.nodes: missing, expected a number (kind {self.kind})")
        n = self.nodes if self.nodes is not None else 1 + max((max(edge) for edge in edges), default=-1)
        if n > 10_000:
            raise InputError(f"network.edges: found node {n - 1}, expected at most 9999")
        return Graph.from_edges(n, edges if self.kind == "edges" else self._edges(n))

    def _edges(self, n: int) -> Iterable[Edge]:
        if self.kind in ("path", "ring"):
            return [*pairwise(range(n)), *([(n - 1, 0)] if self.kind == "ring" and n > 2 else [])]
        if self.kind == "star":
            return [(0, i) for i in range(1, n)]
        if self.kind == "grid":  # as square as n allows
            columns = n // next(k for k in range(isqrt(n), 0, -1) if n % k == 0)
            return [e for i in range(n) for e in ((i, i + 1), (i, i + columns)) if e[1] < n and not _wraps(e, columns)]
        pairs = np.array(list(combinations(range(n), 2)))
        if self.kind == "complete":
            return [(int(i), int(j)) for i, j in pairs]
        generator = counter_generator(self.seed or 0, f"network {self.kind}", 0)
        if self.kind == "geometric":
            points = generator.random((n, 2))
            radius = self.radius or 0.0
            chosen = np.sum((points[pairs[:, 0]] - points[pairs[:, 1]]) ** 2, axis=1) <= radius * radius
        else:
            count = round((self.density or 0.0) * len(pairs))
            chosen = np.argsort(generator.random(len(pairs)), kind="stable")[:count]
        return [(int(i), int(j)) for i, j in pairs[chosen]]


def _wraps(edge: Edge, columns: int) -> bool:
    return edge[1] - edge[0] == 1 and edge[1] % columns == 0 and columns > 1


# --- routes ---


@dataclass(frozen=True)
class Route:
    """A closed walk through every node, repeated for ever: after its last node comes its first."""

    nodes: tuple[int, ...]
    kind: Literal["hamiltonian", "closed-walk"]
    reason: str = ""  #: why it is no Hamiltonian cycle

    @property
    def length(self) -> int:
        """Hops of one round: n for a Hamiltonian cycle, at most 2(n - 1) for a closed walk."""
        return len(self.nodes)


def closed_walk(graph: Graph, lost: set[int]) -> tuple[int, ...]:
    """A closed walk through every node but `lost`: a Hamiltonian cycle where one is found, else depth-first.

    What every node computes alike, without networkx. Raises InputError if the rest is not connected.
    """
    members = [i for i in range(graph.n) if i not in lost]
    number = {i: k for k, i in enumerate(members)}
    rest = Graph.from_edges(
        len(members), [(number[i], number[j]) for i, j in graph.edges if i in number and j in number]
    )
    cycle = None if _no_cycle(rest) else _search(rest, 0)
    return tuple(members[k] for k in cycle or _depth_first(rest))


def cyclic_route(graph: Graph, seed: int = 0) -> Route:
    """A Hamiltonian cycle; where none exists or none is found, the shorter of Christofides' and the
    depth-first walk.
    """
    reason = _no_cycle(graph)
    if not reason:
        if cycle := _search(graph, seed):
            return Route(cycle, "hamiltonian")
        reason = f"none found in {RESTARTS} searches"
    return Route(min(_christofides(graph), _depth_first(graph), key=len), "closed-walk", reason)


def _no_cycle(graph: Graph) -> str:
    """A certificate that no Hamiltonian cycle exists, or nothing."""
    for i, neighbours in enumerate(graph.neighbours):
        if len(neighbours) < 2:
            return f"node {i} has one neighbour"
    for i in range(graph.n):
        if (parts := len(graph.components(lost=[i]))) > 1:
            return f"without node {i} the graph falls into {parts} parts"
    colour = {0: 0}
    for i in (order := [0]):
        for j in graph.neighbours[i]:
            if j not in colour:
                colour[j] = 1 - colour[i]
                order.append(j)
    ones = sum(colour.values())
    if 2 * ones != graph.n and all(colour[i] != colour[j] for i, j in graph.edges):
        return f"the graph is bipartite, {graph.n - ones} nodes against {ones}"
    return ""


def _search(graph: Graph, seed: int) -> tuple[int, ...] | None:
    """A Hamiltonian cycle from node 0, where one is found."""
    for k in range(RESTARTS):
        if cycle := _rotate_and_extend(graph, counter_generator(seed, "route", k)):
            start = cycle.index(0)
            return (*cycle[start:], *cycle[:start])
    return None


def _rotate_and_extend(graph: Graph, generator: np.random.Generator) -> list[int] | None:
    """One search: a path grows at its end; where it cannot, an edge from its end back into it turns a part around."""

    def any_of(options: Sequence[int]) -> int:
        return options[int(generator.integers(len(options)))]

    path = [any_of(range(graph.n))]
    on_path = set(path)
    for _ in range(ROTATIONS * graph.n):
        end = path[-1]
        free = [j for j in graph.neighbours[end] if j not in on_path]
        if free:
            path.append(j := any_of(free))
            on_path.add(j)
        elif path[0] in graph.neighbours[end]:  # the path closes
            if len(path) == graph.n:
                return path
            # The graph is connected: some node of the cycle has a neighbour outside, and is made the end.
            out = next(k for k, i in enumerate(path) if not on_path.issuperset(graph.neighbours[i]))
            path = path[out + 1 :] + path[: out + 1]
        else:
            turn = path.index(any_of(graph.neighbours[end])) + 1
            path[turn:] = path[: turn - 1 : -1]
    return None


def _depth_first(graph: Graph) -> tuple[int, ...]:
    """Down every edge of a depth-first tree and back up: 2(n - 1) hops, whatever the graph."""
    walk, seen = [0], {0}
    ahead = [iter(graph.neighbours[0])]
    above = [0]
    while ahead:
        j = next((j for j in ahead[-1] if j not in seen), None)
        if j is None:
            ahead.pop()
            above.pop()
            if above:
                walk.append(above[-1])
        else:
            seen.add(j)
            walk.append(j)
            ahead.append(iter(graph.neighbours[j]))
            above.append(j)
    return tuple(walk[:-1])  # the last hop leads to the first node again


def _christofides(graph: Graph) -> tuple[int, ...]:
    """Christofides' tour of the metric closure, every leg a shortest path: at most 3/2 of the shortest closed walk."""
    import networkx as nx

    plain = nx.Graph(graph.edges)
    closure = nx.Graph()
    legs: Any = dict(nx.all_pairs_shortest_path(plain))
    closure.add_weighted_edges_from((i, j, len(legs[i][j]) - 1) for i, j in combinations(range(graph.n), 2))
    tour = nx.approximation.christofides(closure)
    return tuple(node for i, j in pairwise(tour) for node in legs[i][j][:-1])


def check_walk(graph: Graph, walk: Sequence[int], activations: int, key: str = "algorithm.walk") -> None:
    """Raises InputError unless a given walk names the active node of each activation, every hop along an edge."""
    if len(walk) < activations:
        raise InputError(f"{key}: found {len(walk)} nodes, expected one for each of {activations} activations")
    neighbours = [frozenset(nodes) for nodes in graph.neighbours]  # a hub may have thousands, a walk millions of hops
    for k, i in enumerate(walk):
        if not 0 <= i < graph.n:
            raise InputError(f"{key}[{k}]: found node {i}, expected one of 0..{graph.n - 1}")
        if k and i not in neighbours[walk[k - 1]]:
            raise InputError(f"{key}[{k}]: found a hop from {walk[k - 1]} to {i}, expected one along an edge")


def next_node(neighbours: Sequence[int], word: int) -> int:
    """The random walk's hop, P_ij = 1/deg(i) but for 2^-64 deg(i). `word`: uniform, of 64 bits."""
    return neighbours[word * len(neighbours) >> 64]


def heavier_node(neighbours: Sequence[int], weights: Sequence[int], word: int) -> int:
    """The hop of a weighted walk, P_ij = w_ij/sum_j w_ij but for 2^-64. Whole weights: every machine hops alike."""
    place = word * sum(weights) >> 64
    return neighbours[bisect_right(list(accumulate(weights)), place)]


def metropolis_weight(graph: Graph, i: int, j: int) -> int:
    """2^32 times 1/max(deg i, deg j), a whole number: alike from both ends, and known to both."""
    return (1 << 32) // max(len(graph.neighbours[i]), len(graph.neighbours[j]))


def walk_word(seed: int, hop: int) -> int:
    """The random word of one hop of a seeded run: the same in every process, whoever holds the token."""
    return counter_word(seed, "walk", hop)


def random_walk(graph: Graph, start: int, activations: int, seed: int) -> list[int]:
    """The active node of each activation, `start` the first; hop k leads to the k-th after it."""
    walk = [start]
    while len(walk) < activations:
        walk.append(next_node(graph.neighbours[walk[-1]], walk_word(seed, len(walk))))
    return walk
