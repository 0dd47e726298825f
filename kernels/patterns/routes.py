"""Walks as a token's routes: who makes activation k, and how the walk goes on around nodes that are lost. All public.

Nodes are n0, n1, ... of a graph. A closed walk is begun anew at each leg, from the node that made the activation before
it, through every node that is left; a random walk chooses among the neighbours that are left.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from msgspec.structs import replace

from hushgrid.kernels.errors import Suspended
from hushgrid.kernels.graphs import Graph, closed_walk, heavier_node, metropolis_weight, next_node, walk_word
from hushgrid.kernels.patterns.token_messages import Leg, Route


def name(i: int) -> str:
    return f"n{i}"


def index(node: str) -> int:
    return int(node[1:])


def random(graph: Graph, seed: int, metropolis: bool = False) -> Route:
    """From n0, P_ij = 1/deg(i), or by the weights 1/max(deg i, deg j). A recount tours a closed walk.

    Hop k is a function of (seed, k), whoever holds the token.
    """
    tour = cyclic(graph, ())

    def route(node: str, hop: int, leg: Leg) -> str:
        if not node:
            return name(0)
        if leg.recount is True:
            return tour(node, hop, leg)
        reachable = [j for j in graph.neighbours[index(node)] if name(j) not in leg.without]
        if not reachable:
            raise Suspended(f"{node} has no neighbour left, expected one to hand the token to")
        word = walk_word(seed, hop)
        if not metropolis:
            return name(next_node(reachable, word))
        return name(heavier_node(reachable, [metropolis_weight(graph, index(node), j) for j in reachable], word))

    return route


def cyclic(graph: Graph, nodes: Sequence[int]) -> Route:
    """Around the closed walk `nodes`, and on a later leg around one through the nodes that are left."""

    @cache
    def around(without: tuple[str, ...]) -> tuple[int, ...]:
        return closed_walk(graph, {index(node) for node in without}) if without or not nodes else tuple(nodes)

    def route(node: str, hop: int, leg: Leg) -> str:
        walk = around(leg.without)
        first = walk.index(index(leg.origin)) + 1 if leg.origin else 0
        return name(walk[(first + hop - leg.since) % len(walk)])

    return route


def listed(walk: Sequence[int]) -> Route:
    """Activation k at walk[k]; nobody can be walked around."""

    def route(node: str, hop: int, leg: Leg) -> str:
        if (to := name(walk[hop])) in leg.without:
            raise Suspended(f"{to} is lost and the walk is given, expected algorithm.walk: random or hamiltonian")
        return to

    return route


def renamed(route: Route, names: Sequence[str]) -> Route:
    """The same walk where node i of the graph is called names[i]."""
    back = {node: name(i) for i, node in enumerate(names)} | {"": ""}

    def translated(node: str, hop: int, leg: Leg) -> str:
        here = replace(leg, origin=back[leg.origin], without=tuple(back[lost] for lost in leg.without))
        return names[index(route(back[node], hop, here))]

    return translated
