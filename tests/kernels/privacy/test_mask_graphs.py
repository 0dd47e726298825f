"""Graphs of masks: the bound on small closed sets, beside all graphs of a few devices and many of some more."""

from itertools import combinations, product
from math import comb, log

import numpy as np
import pytest

from hushgrid.kernels.privacy.mask_graphs import MaskGraph, exposure, fewest_neighbours, fewest_shares, log_bounds


def reached(picks: list[frozenset[int]], honest: range, i: int) -> set[int]:
    """The smallest closed set with i: all honest devices that are reached by picks."""
    reach, edge = {i}, [i]
    while edge:
        new = {j for j in picks[edge.pop()] if j in honest} - reach
        reach |= new
        edge += new
    return reach


def smallest_closed(picks: list[frozenset[int]], honest: range) -> int:
    return min(len(reached(picks, honest, i)) for i in honest)


@pytest.mark.parametrize(("n", "t", "k"), [(4, 1, 1), (4, 1, 2), (4, 0, 1), (5, 1, 2), (5, 2, 2), (4, 0, 3)])
def test_of_all_graphs_of_a_few_devices_no_more_have_a_small_closed_set_than_the_bound_says(n, t, k):
    honest = range(n - t)
    choices = [[frozenset(c) for c in combinations([j for j in range(n) if j != i], k)] for i in honest]
    sizes = np.array([smallest_closed(list(picks), honest) for picks in product(*choices)])
    for shares in range(1, n - t + 1):
        assert np.mean(sizes < shares) <= exposure(MaskGraph(n, n, t, k), shares) + 1e-12


def reaches(picks: np.ndarray) -> np.ndarray:
    """(games, h) how many honest devices each reaches; picks (games, h, h): whether one has picked another."""
    reach = picks | np.eye(picks.shape[1], dtype=bool)
    for _ in range(picks.shape[1].bit_length()):
        reach = np.matmul(reach.astype(np.float32), reach.astype(np.float32)) > 0
    return reach.sum(axis=2)


@pytest.mark.runs
@pytest.mark.parametrize(("n", "t", "k"), [(12, 3, 3), (20, 6, 3), (20, 6, 5), (40, 8, 4)])
def test_many_graphs_have_small_closed_sets_as_seldom_as_the_bound_says_and_nearly_as_often(n, t, k):
    rng, games, h = np.random.default_rng(n + k), 10_000, n - t
    order = rng.random((games, h, n))
    order[:, range(h), range(h)] = 2.0  # nobody picks itself
    picks = order <= np.sort(order, axis=2)[:, :, k - 1 : k]
    sizes = reaches(picks[:, :, :h]).min(axis=1)
    for shares in (2, 4, h - 1):
        bound = exposure(MaskGraph(n, n, t, k), shares)
        assert np.mean(sizes < shares) <= bound + 5 * (bound / games) ** 0.5
    few = exposure(MaskGraph(n, n, t, k), 2)  # devices that are alone: here the union loses little
    assert np.mean(sizes < 2) >= 0.7 * few - 5 * (few / games) ** 0.5


def test_the_bound_is_the_hypergeometric_one():
    n, s, t, k, draws = graph = MaskGraph(30, 25, 7, 4, 3)
    for m, found in enumerate(log_bounds(graph), 1):
        q = min(1.0, draws * comb(t + m - 1, k) / comb(s - 1, k))
        exact = log(comb(n - t, m)) + m * log(q) if q else -np.inf
        assert found == pytest.approx(min(exact, 0.0), rel=1e-9, abs=2e-6)


def test_all_with_all_loses_no_share_and_without_neighbours_none_is_known():
    for n, t in ((2, 0), (8, 2), (50, 49)):
        assert fewest_shares(MaskGraph(n, n, t, n - 1), 1e-30) == n - t
    assert fewest_shares(MaskGraph(1000, 1000, 300, 1), 1e-9) == 0
    assert exposure(MaskGraph(1000, 1000, 300, 1), 2) == 1.0


def test_fewer_neighbours_more_corrupt_ones_or_more_draws_leave_fewer_shares():
    graph = MaskGraph(1000, 900, 200, 0, 4)
    graph = graph._replace(neighbours=fewest_neighbours(graph, 1e-9))
    shares = fewest_shares(graph, 1e-9)
    assert 0.95 * graph.honest <= shares < graph.honest
    for worse in ({"neighbours": 16}, {"corrupt": 400}, {"draws": 10**3}, {"contributors": 600}):
        assert fewest_shares(graph._replace(**worse), 1e-9) < shares
    assert exposure(graph, shares) <= 1e-9 < exposure(graph, shares + 1)


def test_the_fewest_neighbours_are_enough_and_one_less_is_not():
    graph = MaskGraph(500, 500, 100, 0)
    k = fewest_neighbours(graph, 1e-9)
    assert exposure(graph._replace(neighbours=k), 380) <= 1e-9 < exposure(graph._replace(neighbours=k - 1), 380)
