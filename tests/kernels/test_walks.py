"""Caps of a random walk: never below the exact quantile of the visits, and seldom far above it."""

from itertools import combinations, pairwise, product

import numpy as np
import pytest

from hushgrid.kernels import walks
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.graphs import Graph, Network

GRAPHS = {
    "star": Network(kind="star", nodes=8).build(),
    "ring": Network(kind="ring", nodes=8).build(),
    "path": Network(kind="path", nodes=8).build(),
    "complete": Network(kind="complete", nodes=8).build(),
    "lollipop": Graph.from_edges(9, [*combinations(range(5), 2), (4, 5), (5, 6), (6, 7), (7, 8)]),
    "grid": Network(kind="grid", nodes=12).build(),
    "wheel": Graph.from_edges(8, [*((0, i) for i in range(1, 8)), *((i, i % 7 + 1) for i in range(1, 8))]),
    "geometric": Network(kind="geometric", nodes=12, radius=0.45, seed=1).build(),
}
#: The largest cap by the formula, in largest exact quantiles.
ABOVE = {
    (walks.simple, 100): 1.9,
    (walks.simple, 1000): 1.09,
    (walks.metropolis, 100): 1.94,
    (walks.metropolis, 1000): 1.12,
}


def enumerated(P, i, K, start):
    """P(m visits to i in K activations) for m = 0 to K, walk by walk."""
    found = np.zeros(K + 1)
    for rest in product(range(len(P)), repeat=K - 1):
        walk = (start, *rest)
        found[walk.count(i)] += np.prod([P[a, b] for a, b in pairwise(walk)])
    return found


@pytest.mark.parametrize("kind", ["path", "lollipop"])
def test_the_law_is_that_of_every_single_walk(kind):
    graph = {
        "path": Graph.from_edges(3, [(0, 1), (1, 2)]),
        "lollipop": Graph.from_edges(4, [(0, 1), (1, 2), (0, 2), (2, 3)]),
    }[kind]
    w = walks.simple(graph)
    P = w / w.sum(axis=1)[:, None]
    for i, start in product(range(graph.n), repeat=2):
        assert np.allclose(walks.law(w, i, 6)[start], enumerated(P, i, 6, start), rtol=0, atol=1e-15)


@pytest.mark.parametrize("K", [100, 1000])
@pytest.mark.parametrize("weights", [walks.simple, walks.metropolis])
@pytest.mark.parametrize("kind", GRAPHS)
def test_no_cap_is_below_the_exact_quantile_and_the_largest_is_near_it(kind, weights, K):
    w = weights(GRAPHS[kind])
    caps, exact = walks.normal(w, K), walks.exact(w, K)
    assert all(cap >= least for cap, least in zip(caps, exact, strict=True))
    assert max(caps) <= max(exact) * ABOVE[weights, K]


@pytest.mark.parametrize(
    ("kind", "largest", "smallest"),
    [("star", 506, 107), ("complete", 165, 165), ("ring", 190, 190), ("path", 268, 152)],
)
def test_the_caps_of_a_thousand_activations_over_eight_nodes(kind, largest, smallest):
    caps = walks.caps(walks.simple(GRAPHS[kind]), 1000)
    assert (max(caps), min(caps)) == (largest, smallest)
    if kind == "star":
        assert caps == (506, *[107] * 7)


def test_the_cap_of_weighted_hops_holds_too():
    """Any symmetric weights: P_ij = w_ij/w_i is reversible. An edge nine times as heavy draws the token to its ends."""
    w = walks.simple(GRAPHS["ring"])
    w[0, 1] = w[1, 0] = 9.0
    caps = walks.normal(w, 400)
    assert all(cap >= least for cap, least in zip(caps, walks.exact(w, 400), strict=True))
    assert caps[0] == caps[1] > 2 * caps[4]


def test_the_metropolis_walk_leaves_the_hub_alone_and_a_regular_network_as_it_was():
    """K = 1000 over a hub in a ring of seven: pi of the hub is 7/28 on the simple walk, and 1/(1 + 7 (1/7 + 2/3)) =
    3/20 here.
    """
    wheel = GRAPHS["wheel"]
    w = walks.metropolis(wheel)
    assert (w == w.T).all()
    assert w.sum(axis=1)[0] / w.sum() == pytest.approx(3 / 20, abs=1e-8)
    simple, even = walks.caps(walks.simple(wheel), 1000), walks.caps(w, 1000)
    assert (max(simple), min(simple)) == (292, 152)
    assert (max(even), min(even)) == (191, 172)
    for kind in ("ring", "complete"):
        assert walks.caps(walks.metropolis(GRAPHS[kind]), 400) == walks.caps(walks.simple(GRAPHS[kind]), 400)


def test_a_short_walks_caps_are_exact_and_smaller():
    """The hub of a star is at every second activation, whatever comes: at most 50 of 100, where the formula says 56."""
    w = walks.simple(GRAPHS["star"])
    assert walks.caps(w, 100) == walks.exact(w, 100) == (50, *[18] * 7)
    assert walks.normal(w, 100) == (56, *[23] * 7)
    assert walks.caps(w, 1) == (1,) * 8


def test_along_a_repeated_walk_each_node_is_counted():
    assert walks.along((0, 1, 0, 2), 4, 10) == (5, 3, 2, 1)  # node 3 never comes; a cap is at least 1


def test_a_network_whose_law_takes_too_long_needs_a_number():
    class Many:
        n = walks.LARGEST + 1

    with pytest.raises(InputError, match=r"privacy\.answers: found none, and a random walk over 4001 nodes"):
        walks.simple(Many())
