"""Routes: the walk every node computes alike, and how it goes on around nodes that are lost."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from hushgrid.kernels import walks
from hushgrid.kernels.errors import Stopped
from hushgrid.kernels.graphs import Graph, Network, cyclic_route, heavier_node, metropolis_weight, random_walk
from hushgrid.kernels.patterns.routes import cyclic, index, listed, random
from hushgrid.kernels.patterns.token import Leg
from tests.support import examples

RING = Network(kind="ring", nodes=6).build()
STAR = Network(kind="star", nodes=5).build()
WHOLE = Network(kind="complete", nodes=6).build()


def walk(route, hops, leg=None, start=0, node=""):
    """The active node of each activation."""
    found = []
    for hop in range(start, start + hops):
        node = route(node, hop, leg or Leg())
        found.append(index(node))
    return found


def test_a_cycle_is_repeated_from_its_first_node():
    assert walk(cyclic(RING, cyclic_route(RING).nodes), 8) in ([0, 1, 2, 3, 4, 5, 0, 1], [0, 5, 4, 3, 2, 1, 0, 5])


def test_the_random_route_is_the_random_walk_of_studies():
    assert walk(random(RING, 7), 500) == random_walk(RING, 0, 500, seed=7)


def test_the_metropolis_route_hops_by_its_weights():
    """Three neighbours of degrees 3, 2 and 1 beside a hub of degree 3, and the hop back. A word is a share of 2^64."""
    graph = Graph.from_edges(5, [(0, 1), (0, 2), (0, 3), (1, 2), (1, 4), (2, 4), (3, 4)])
    weights = {j: metropolis_weight(graph, 1, j) for j in graph.neighbours[1]}
    assert weights == {0: 2**32 // 3, 2: 2**32 // 3, 4: 2**32 // 3}
    assert [metropolis_weight(graph, 3, j) for j in graph.neighbours[3]] == [2**32 // 3] * 2
    shares = [int(2**64 * share) for share in (0, 0.249, 0.251, 0.749, 0.751, 0.999)]
    assert [heavier_node((5, 6, 7), (1, 2, 1), word) for word in shares] == [5, 5, 6, 6, 7, 7]
    assert heavier_node((5, 6), (1, 2**32), 2**64 - 1) == 6


@pytest.mark.runs
def test_the_metropolis_walk_visits_by_its_law_within_its_caps():
    hub = Graph.from_edges(8, [*((0, i) for i in range(1, 8)), *((i, i % 7 + 1) for i in range(1, 8))])
    for seed in range(5):
        visits = np.bincount(walk(random(hub, seed, True), 1000), minlength=8)
        assert (visits <= walks.caps(walks.metropolis(hub), 1000)).all()
        assert visits[0] < np.bincount(walk(random(hub, seed), 1000), minlength=8)[0]


def test_a_given_walk_is_followed_and_stops_at_a_node_that_is_lost():
    assert walk(listed([3, 4, 5]), 3) == [3, 4, 5]
    with pytest.raises(Stopped, match=r"n4 is lost and the walk is given, expected algorithm\.walk"):
        listed([3, 4, 5])("n3", 1, Leg(1, 1, "n3", ("n4",)))


@pytest.mark.runs
@examples.of(60)
@drawn(st.sampled_from([RING, STAR, WHOLE]), st.data())
def test_on_a_later_leg_the_walk_visits_every_node_left_and_no_other_along_edges(graph, data):
    lost = data.draw(st.sets(st.integers(0, graph.n - 1), max_size=graph.n - 2))
    left = set(range(graph.n)) - lost
    if len(graph.components(lost)) > 1:
        return
    origin, since = data.draw(st.sampled_from(sorted(left))), data.draw(st.integers(0, 50))
    leg = Leg(1, since, f"n{origin}", tuple(sorted(f"n{i}" for i in lost)))
    for route in (cyclic(graph, cyclic_route(graph).nodes), random(graph, 3), random(graph, 3, True)):
        steps = [origin, *walk(route, 60 * graph.n, leg, since, f"n{origin}")]
        assert set(steps) == left
        assert all(j in graph.neighbours[i] for i, j in pairwise(steps))


def test_a_node_without_neighbours_left_stops_the_walk():
    with pytest.raises(Stopped, match="n1 has no neighbour left"):
        random(STAR, 0)("n1", 4, Leg(1, 2, "n2", ("n0",)))


def test_the_route_around_lost_nodes_needs_no_networkx(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "networkx", None)
    tree = Graph.from_edges(5, [(0, 1), (1, 2), (1, 3), (3, 4)])
    leg = Leg(1, 0, "n3", ("n2",))
    assert set(walk(cyclic(tree, (0,)), 12, leg, 0, "n3")) == {0, 1, 3, 4}
