"""Y. Liu, W. Xu, G. Wu, Z. Tian, Q. Ling, Communication-censored ADMM for decentralized consensus optimization: COCA
(reference [20] of the I-ADMM paper), the baseline of its figures. In simulation only.

Reconstructed from the published description of the method. Problem: min_x sum_i f_i(x). Every agent, in rounds, with
x^_i what its neighbours last heard from it, and d_i neighbours:

    x_i+      = argmin f_i(x) + <lambda_i - c sum_j (x^_i + x^_j), x> + c d_i |x|^2
    x^_i+     = x_i+ where |x^_i - x_i+| >= alpha rho^k (it is sent, to each neighbour), else x^_i (it is censored)
    lambda_i+ = lambda_i + c sum_j (x^_i+ - x^_j+)

First-order: grad f_i(x_i) + L/2 |x - x_i|^2, L = L_i, stands for f_i.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
from msgspec import Struct

from hushgrid.kernels.algorithms.iadmm import Oracle
from hushgrid.kernels.ranges import Count, Positive
from hushgrid.kernels.types import Matrix


class Params(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The method's symbols; alpha rho^k is the threshold of round k."""

    rounds: Count
    c: Positive = 1.0
    alpha: Positive = 1.0
    rho: Positive = 0.85
    update: Literal["exact", "first-order"] = "exact"


class Round(NamedTuple):
    x: Matrix  #: (n, p) x_i after the round
    sent: int  #: vectors sent so far: one for each neighbour of a node that is not censored
    spoken: int  #: times that a node was not censored so far: what it costs where all neighbours hear one message


def run(
    params: Params, gates: Sequence[Oracle], neighbours: Sequence[Sequence[int]], size: int, L: Sequence[float] = ()
) -> Iterator[Round]:
    """Round by round from x = x^ = lambda = 0. `L` (n,) for the first-order update."""
    n, c, sent, spoken = len(gates), params.c, 0, 0
    x, received, lam = np.zeros((n, size)), np.zeros((n, size)), np.zeros((n, size))
    for k in range(1, params.rounds + 1):
        new = np.empty_like(x)
        for i, gate in enumerate(gates):
            d = len(neighbours[i])
            linear = lam[i] - c * sum((received[i] + received[j] for j in neighbours[i]), np.zeros(size))
            if params.update == "exact":
                new[i] = gate.exact_minimizer(linear, 2.0 * c * d)
            else:
                new[i] = (L[i] * x[i] - gate.exact_gradient(x[i]) - linear) / (L[i] + 2.0 * c * d)
        informative = np.linalg.norm(received - new, axis=1) >= params.alpha * params.rho**k
        received = np.where(informative[:, None], new, received)
        for i in range(n):
            lam[i] = lam[i] + c * sum((received[i] - received[j] for j in neighbours[i]), np.zeros(size))
            sent += len(neighbours[i]) * int(informative[i])
        x, spoken = new, spoken + int(np.sum(informative))
        yield Round(x, sent, spoken)
