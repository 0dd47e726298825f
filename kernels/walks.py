"""How often a random walk visits each node: its law at equilibrium, and a cap for each node. All public.

The walk is reversible: it goes from i to j with probability P_ij = w_ij/w_i, w_i = sum_j w_ij, by symmetric public
weights w_ij (the simple walk: 1 on every edge), so that pi_i = w_i/sum_j w_j. Then the number of visits to node i in K
activations has the mean K pi_i + O(1) and the variance K v_i + O(1), v_i = 2 pi_i Z_ii - pi_i - pi_i^2 with the
fundamental matrix Z = (I - P + 1 pi)^-1 (J. G. Kemeny, J. L. Snell, Finite Markov Chains, 1960).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, sqrt
from statistics import NormalDist

import numpy as np

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.graphs import Graph, metropolis_weight
from hushgrid.kernels.types import Matrix

EXACT = 100_000_000  #: n^3 K^2 up to which the law of the visits is computed, about 0.1 s
LARGEST = 4000  #: nodes of a network whose random walk is computed with: the work is their cube
STOPPED = 1e-3  #: beta, the chance that any node of a walk reaches its cap before the walk ends


def simple(graph: Graph) -> Matrix:
    """The weights (n, n) of the simple walk, P_ij = 1/deg(i): 1 on every edge.
    Raises InputError beyond LARGEST nodes.
    """
    return _weights(graph, lambda i, j: 1)


def metropolis(graph: Graph) -> Matrix:
    """Of the Metropolis walk that never waits: 1/max(deg i, deg j) on every edge, times 2^32.
    Raises InputError as above.

    Waiting would make all visits alike often; without, a node of many neighbours is still visited less often than by
    the simple walk, and no hop is lost.
    """
    return _weights(graph, lambda i, j: metropolis_weight(graph, i, j))


def _weights(graph: Graph, weight: Callable[[int, int], int]) -> Matrix:
    if graph.n > LARGEST:
        raise InputError(
            f"privacy.answers: found none, and a random walk over {graph.n} nodes, expected a number (or {LARGEST} "
            "nodes)"
        )
    w = np.zeros((graph.n, graph.n))
    for i, neighbours in enumerate(graph.neighbours):
        w[i, list(neighbours)] = [weight(i, j) for j in neighbours]
    return w


def caps(w: Matrix, activations: int, beta: float = STOPPED) -> tuple[int, ...]:
    """For each node, visits that any of the n nodes passes with probability beta at most, wherever the walk begins.

    w: (n, n), symmetric weights. A short walk's are exact quantiles at beta/n, a long one's `normal`.
    """
    n, K = len(w), activations
    return exact(w, K, beta) if n**3 * K**2 <= EXACT else normal(w, K, beta)


def exact(w: Matrix, activations: int, beta: float = STOPPED) -> tuple[int, ...]:
    """The quantiles at beta/n of the law of the visits, whichever node is the first."""
    beyond = (1 - np.cumsum(law(w, i, activations), axis=1) for i in range(len(w)))
    return tuple(max(int(np.max(np.argmax(tail <= beta / len(w), axis=1))), 1) for tail in beyond)


def law(w: Matrix, i: int, activations: int) -> Matrix:
    """P(m of K activations are at node i, the first one at node j): (n, K + 1), by dynamic programming."""
    P, K = w / w.sum(axis=1)[:, None], activations
    chances = np.zeros((len(w), K + 1))
    chances[:, 0] = 1.0
    for k in range(K):
        chances = P @ chances if k else chances
        chances[i, 1:], chances[i, 0] = chances[i, :-1].copy(), 0.0
    return chances


def normal(w: Matrix, activations: int, beta: float = STOPPED) -> tuple[int, ...]:
    """The normal quantiles at beta/n, with a term for the start (b_i) and one for the skewness of the visits.

    Checked against the exact law, not proven: a cap that is passed stops a node early, no more.
    """
    n, K = len(w), activations
    total = w.sum(axis=1)
    pi = total / total.sum()
    Z = np.linalg.inv(np.eye(n) - w / total[:, None] + pi)
    v = np.maximum(2 * pi * np.diag(Z) - pi - pi**2, 0.0)
    b = Z.max(axis=0) - pi  # sum_k P(visit at k | start j) - K pi_i <= b_i
    z = NormalDist().inv_cdf(1 - beta / n)
    return tuple(
        min(K, ceil(K * p + start + z * sqrt(K * spread) + z * z / 3 * max(1.0, spread / p) + 1))
        for p, start, spread in zip(pi.tolist(), b.tolist(), v.tolist(), strict=True)
    )


def along(walk: Sequence[int], n: int, activations: int) -> tuple[int, ...]:
    """The visits of each of n nodes in the first `activations` along a walk that is repeated, at least 1."""
    laps, rest = divmod(activations, len(walk))
    counts = laps * np.bincount(walk, minlength=n) + np.bincount(walk[:rest], minlength=n)
    return tuple(max(count, 1) for count in counts.tolist())
