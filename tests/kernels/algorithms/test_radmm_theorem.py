"""Theorem IV.1 of the recycled ADMM paper: its sufficient condition, computed from public numbers (Finding 5.5)."""

from itertools import combinations

import numpy as np
import pytest
from msgspec.structs import replace

from hushgrid.kernels.algorithms.radmm import Growth, Params, Recycled, conditions, holds, theorem
from hushgrid.kernels.graphs import Graph
from hushgrid.kernels.problems.centralised import optimum
from hushgrid.kernels.problems.prox import Regularizer
from tests.support.agents.lockstep_rounds import messages
from tests.support.agents.radmm_agents import nodes, stored

TRIANGLE, COMPLETE = (Graph.from_edges(n, combinations(range(n), 2)) for n in (3, 5))
SQUARE = Graph.from_edges(4, [(0, 1), (1, 2), (2, 3), (3, 0)])
PATH = Graph.from_edges(3, [(0, 1), (1, 2)])


def as_printed(A, W, later, gamma, M, L, mu):
    """(i) and (ii) with the paper's own matrices: A the adjacency, W and `later` the penalties of nodes."""
    D = np.diag(A.sum(axis=1))
    tilde = np.diag(1 / (2 * W * A.sum(axis=1) + gamma))
    W, later, DM, c = np.diag(W), np.diag(later), np.diag(np.square(M)), L * mu / 2 * tilde.max()
    one = np.eye(len(A)) + later @ (D + A) @ tilde - c * np.linalg.pinv(later @ (D - A)) @ DM
    two = later @ (D + A) - later @ (D + A) @ tilde @ (W @ (D - A) + 2 / L * later @ (D + A)) - c / (mu - 1) * DM
    return tuple(np.linalg.eigvalsh((X + X.T) / 2)[0] for X in (one, two))


@pytest.mark.parametrize("graph", [TRIANGLE, COMPLETE, SQUARE, PATH], ids=["triangle", "complete", "square", "path"])
def test_both_sides_are_the_printed_ones(graph):
    A = np.array([[j in graph.neighbours[i] for j in range(graph.n)] for i in range(graph.n)], float)
    start, M = np.linspace(0.4, 0.9, graph.n), np.linspace(0.5, 0.8, graph.n)
    params = Params(rounds=6, eta=Growth(tuple(start), 1.05), gamma=0.7, penalties="node")
    for L, mu in ((0.3, 1.4), (2.0, 2.0), (20.0, 9.0)):
        expected = as_printed(A, start * 1.05**2, start * 1.05**3, 0.7, M, L, mu)
        assert conditions(params, graph, M, 2, L, mu) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_the_second_constant_is_the_best_for_the_first():
    params, M = Recycled(rounds=4, eta=0.5, gamma=40.0), [0.3] * 5
    for L in (0.05, 0.5, 5.0):
        chosen = min(conditions(params, COMPLETE, M, 1, L))
        tried = (min(conditions(params, COMPLETE, M, 1, L, mu)) for mu in np.geomspace(1.0001, 1e4, 400))
        assert (chosen > 0) == (max(tried) > 0)


def test_a_large_gamma_fulfils_it_on_a_complete_graph_and_the_iteration_converges():
    """As the paper says after the theorem."""
    fs, _ = stored()
    graph, M = Graph.from_edges(4, combinations(range(4), 2)), [f.L for f in fs]
    gamma = next(g for g in np.geomspace(1, 1e6, 25) if holds(Recycled(rounds=2, eta=0.5, gamma=g), graph, M, [1]))
    fleet = nodes(fs, graph.neighbours, Recycled, rounds=600, eta=0.5, gamma=gamma)
    *_, (_, last) = messages(fleet)
    assert np.abs(last - optimum(fs, Regularizer()).x).max() < 1e-3


@pytest.mark.parametrize("graph", [SQUARE, PATH], ids=["square", "path"])
@pytest.mark.parametrize("penalties", ["node", "edge"])
def test_nothing_fulfils_it_on_a_bipartite_graph(graph, penalties):
    """Finding 5.5: u'W (D + A) = 0 for u = W^-1 v, v = 1 on one side and -1 on the other; (ii) asks for more than 0."""
    for eta in (
        (1.0,) * graph.n,
        np.linspace(0.2, 3.0, graph.n),
        [1 / len(graph.neighbours[i]) for i in range(graph.n)],
    ):
        params = Params(rounds=4, eta=Growth(tuple(eta), 1.0), gamma=1.0, penalties=penalties)
        for gamma in np.geomspace(1e-3, 1e12, 16):
            assert not holds(replace(params, gamma=gamma), graph, [1e-6] * graph.n, [1])
        assert "bipartite" in theorem(params, graph, [1e-6] * graph.n)


@pytest.mark.runs
def test_check_says_so_of_a_scenario(hushgrid):
    assert "gamma 100 would fulfil it" in hushgrid("check", "adult-minimisers").out
