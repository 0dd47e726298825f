"""Networks are what their kind says and always the same; routes pass every node along edges; certificates are
proofs.
"""

import collections
import contextlib
from itertools import pairwise, permutations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.graphs import Graph, Network, check_walk, cyclic_route, next_node, random_walk, walk_word
from tests.support import examples

PETERSEN = nx.petersen_graph().edges  # 2-connected, 3-regular, famously without a Hamiltonian cycle


def build(kind: str, **keys) -> Graph:
    return Network(kind=kind, **keys).build()


@pytest.mark.parametrize(
    ("graph", "edges"),
    [
        (build("ring", nodes=4), [(0, 1), (0, 3), (1, 2), (2, 3)]),
        (build("ring", nodes=2), [(0, 1)]),
        (build("path", nodes=4), [(0, 1), (1, 2), (2, 3)]),
        (build("star", nodes=4), [(0, 1), (0, 2), (0, 3)]),
        (build("complete", nodes=4), [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]),
        (build("grid", nodes=6), [(0, 1), (0, 3), (1, 2), (1, 4), (2, 5), (3, 4), (4, 5)]),
        (build("grid", nodes=4), [(0, 1), (0, 2), (1, 3), (2, 3)]),
        (build("grid", nodes=3), [(0, 1), (1, 2)]),
        (build("edges", edges=[(2, 1), (1, 0), (0, 1)]), [(0, 1), (1, 2)]),
    ],
)
def test_each_kind_is_what_its_name_says(graph, edges):
    assert list(graph.edges) == edges
    assert all(list(near) == sorted(near) for near in graph.neighbours)


def test_a_grid_is_the_product_of_two_paths():
    assert set(build("grid", nodes=12).edges) == {
        tuple(sorted((4 * a + b, 4 * c + d))) for (a, b), (c, d) in nx.grid_2d_graph(3, 4).edges
    }


def test_a_random_graph_is_a_function_of_its_seed():
    for kind, key in (("geometric", {"radius": 0.4}), ("erdos-renyi", {"density": 0.3})):
        first = build(kind, nodes=30, seed=4, **key)
        assert first == build(kind, nodes=30, seed=4, **key) != build(kind, nodes=30, seed=5, **key)


def test_an_erdos_renyi_graph_has_exactly_its_density_and_favours_no_pair():
    count = collections.Counter()
    for seed in range(400):
        graph = build("erdos-renyi", nodes=6, density=0.8, seed=seed)
        assert len(graph.edges) == 12
        count.update(graph.edges)
    # A pair is in a graph with probability 0.8 (a little more is connected: any 12 of 15 edges are): 400 trials, 5
    # sigma.
    assert all(abs(count[pair] - 320) < 5 * (400 * 0.8 * 0.2) ** 0.5 for pair in count)
    assert len(count) == 15


def test_a_geometric_graph_joins_what_is_near():
    small, large = (set(build("geometric", nodes=40, radius=r, seed=1).edges) for r in (0.35, 0.5))
    assert small < large
    # The mean share of pairs within r of the unit square: pi r^2 - 8/3 r^3 + r^4/2. 30 graphs of 40 nodes.
    share = np.mean([len(build("geometric", nodes=40, radius=0.5, seed=s).edges) / 780 for s in range(30)])
    assert share == pytest.approx(np.pi / 4 - 1 / 3 + 1 / 32, abs=0.05)


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"kind": "ring"}, "network.nodes: missing, expected a number (kind ring)"),
        ({"kind": "ring", "nodes": 4, "radius": 0.3}, "network.radius: found 0.3, expected none (kind ring)"),
        ({"kind": "geometric", "nodes": 4, "seed": 1}, "network.radius: missing, expected a value (kind geometric)"),
        ({"kind": "geometric", "nodes": 4, "radius": 1}, "network.seed: missing, expected a value (kind geometric)"),
        ({"kind": "edges", "nodes": 3}, "network.edges: missing, expected a value (kind edges)"),
        ({"kind": "edges", "edges": []}, "network: found 0 nodes, expected at least 2"),
        ({"kind": "edges", "nodes": 3, "edges": [(0, 1), (1, 1)]},
         "network: found edge [1, 1], expected two different nodes of 0..2"),
        ({"kind": "edges", "nodes": 3, "edges": [(0, 3)]},
         "network: found edge [0, 3], expected two different nodes of 0..2"),
        ({"kind": "edges", "nodes": 5, "edges": [(0, 1), (3, 1), (2, 4)]},
         "network: found 2 parts, [2, 4] one of them, expected a connected graph"),
        ({"kind": "edges", "edges": [(0, 10**9)]}, "network.edges: found node 1000000000, expected at most 9999"),
    ],
)  # fmt: skip
def test_a_network_that_cannot_be_is_one_line(keys, line):
    with pytest.raises(InputError) as error:
        build(**keys)
    assert str(error.value) == line


def test_what_remains_without_lost_nodes_falls_into_its_parts():
    ring = build("ring", nodes=6)
    assert ring.components() == [[0, 1, 2, 3, 4, 5]]
    assert ring.components(lost=[2]) == [[0, 1, 3, 4, 5]]
    assert ring.components(lost=[0, 3]) == [[1, 2], [4, 5]]


def test_metropolis_weights_are_symmetric_and_sum_to_one_and_average():
    graph = build("geometric", nodes=20, radius=0.5, seed=2)
    W = graph.metropolis()
    degree = [len(near) for near in graph.neighbours]
    assert np.array_equal(W, W.T)
    np.testing.assert_allclose(W.sum(axis=1), 1, rtol=1e-15)
    assert {(i, j) for i, j in np.argwhere(np.triu(W, 1)).tolist()} == set(graph.edges)
    assert all(W[i, j] == 1 / (1 + max(degree[i], degree[j])) for i, j in graph.edges)
    assert np.all(np.diag(W) > 0)
    assert abs(np.linalg.eigvalsh(W)).tolist().count(1) <= 1
    assert np.sort(abs(np.linalg.eigvalsh(W)))[-2] < 1


# --- routes ---


def valid(graph: Graph, route) -> bool:
    closed = [*route.nodes, route.nodes[0]]
    return set(closed) == set(range(graph.n)) and all(j in graph.neighbours[i] for i, j in pairwise(closed))


@pytest.mark.runs
def test_fifty_connected_geometric_graphs_each_get_a_cycle_or_a_proof_that_there_is_none():
    graphs, seed = [], 0
    while len(graphs) < 50:
        with contextlib.suppress(InputError):  # not connected
            graphs.append(build("geometric", nodes=50, radius=0.3, seed=seed))
        seed += 1
    kinds = collections.Counter()
    for graph in graphs:
        route = cyclic_route(graph)
        assert valid(graph, route)
        assert route.length <= 2 * (graph.n - 1)
        kinds[route.kind] += 1
        plain = nx.Graph(graph.edges)
        proven = min(dict(plain.degree).values()) < 2 or not nx.is_biconnected(plain)
        assert (route.kind == "closed-walk") == proven  # no third case among these fifty
        assert (route.kind == "hamiltonian") == (route.length == graph.n)
    assert kinds["hamiltonian"] > 0
    assert kinds["closed-walk"] > 0


@st.composite
def connected(draw) -> Graph:
    n = draw(st.integers(2, 7))
    tree = [(draw(st.integers(0, i - 1)), i) for i in range(1, n)]
    node = st.integers(0, n - 1)
    more = draw(st.lists(st.tuples(node, node).filter(lambda e: e[0] != e[1]), max_size=12))
    return Graph.from_edges(n, tree + more)


@given(connected())
@examples.of(150)
def test_a_cycle_is_found_exactly_where_one_exists(graph):
    route = cyclic_route(graph)
    exists = graph.n > 2 and any(
        all(b in graph.neighbours[a] for a, b in pairwise([0, *order, 0])) for order in permutations(range(1, graph.n))
    )
    assert valid(graph, route)
    assert (route.kind == "hamiltonian") == exists
    assert (route.reason == "") == exists
    assert route.length <= 2 * (graph.n - 1)


@pytest.mark.parametrize(
    ("graph", "length", "reason"),
    [
        (build("path", nodes=5), 8, "node 0 has one neighbour"),
        (build("path", nodes=2), 2, "node 0 has one neighbour"),
        (build("star", nodes=6), 10, "node 1 has one neighbour"),
        (build("edges", edges=[(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 2)]), 6,
         "without node 2 the graph falls into 2 parts"),
        (build("grid", nodes=9), 10, "the graph is bipartite, 5 nodes against 4"),
    ],
)  # fmt: skip
def test_the_absence_of_a_cycle_is_proven_and_the_walk_is_at_most_half_as_long_again_as_the_shortest(
    graph, length, reason
):
    route = cyclic_route(graph)
    assert (route.kind, route.reason) == ("closed-walk", reason)
    assert route.length <= 1.5 * length  # Christofides
    assert valid(graph, route)


def test_where_neither_a_cycle_nor_a_proof_is_found_the_route_says_so():
    graph = Graph.from_edges(10, PETERSEN)
    route = cyclic_route(graph)
    assert valid(graph, route)
    assert (route.kind, route.reason) == ("closed-walk", "none found in 50 searches")
    assert 11 <= route.length <= 16  # the shortest closed walk has 11 hops


def test_a_route_is_a_function_of_graph_and_seed():
    graph = build("erdos-renyi", nodes=30, density=0.4, seed=1)
    assert cyclic_route(graph, seed=3) == cyclic_route(graph, seed=3) != cyclic_route(graph, seed=4)


def test_a_given_walk_hops_along_edges_and_is_long_enough():
    ring = build("ring", nodes=4)
    check_walk(ring, [0, 1, 2, 3, 0, 3], 6)
    for walk, line in [
        ([0, 1, 3], "algorithm.walk[2]: found a hop from 1 to 3, expected one along an edge"),
        ([0, 0, 1], "algorithm.walk[1]: found a hop from 0 to 0, expected one along an edge"),
        ([4, 0, 1], "algorithm.walk[0]: found node 4, expected one of 0..3"),
        ([0, -1, 1], "algorithm.walk[1]: found node -1, expected one of 0..3"),
        ([0, 1], "algorithm.walk: found 2 nodes, expected one for each of 3 activations"),
    ]:
        with pytest.raises(InputError) as error:
            check_walk(ring, walk, 3)
        assert str(error.value) == line


@pytest.mark.runs
def test_a_random_walk_takes_every_neighbour_as_often_and_any_hop_can_be_made_alone():
    graph = build("star", nodes=5)
    walk = random_walk(graph, 0, 4001, seed=7)
    check_walk(graph, walk, 4001)
    leaves = collections.Counter(walk[1::2])
    # 2000 visits to the centre, each leaf with probability 1/4: 5 sigma
    assert all(abs(leaves[i] - 500) < 5 * (2000 * 0.25 * 0.75) ** 0.5 for i in (1, 2, 3, 4))
    assert walk == random_walk(graph, 0, 4001, seed=7) != random_walk(graph, 0, 4001, seed=8)
    assert all(walk[k] == next_node(graph.neighbours[walk[k - 1]], walk_word(7, k)) for k in (1, 2, 1999, 4000))


def test_the_ends_of_the_uniform_word_are_the_first_and_the_last_neighbour():
    assert next_node((3, 5, 9), 0) == 3
    assert next_node((3, 5, 9), 2**64 - 1) == 9
