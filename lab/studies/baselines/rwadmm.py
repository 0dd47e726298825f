"""S. M. Shah, K. E. Avrachenkov, Linearly convergent asynchronous distributed ADMM via Markov sampling: RW-ADMM
(reference [30] of the RECAL paper), the baseline of its tables. In simulation only.

Reconstructed from the abstract and from the costs in the RECAL paper's Tables I-III: one agent a step, chosen by a
random walk, updates and sends to all its neighbours. Problem: min_x sum_i f_i(x) + n r(x), the consensus written on the
edges; ADMM in its Douglas-Rachford form, one block of coordinates a step. w_ij is what agent i holds from neighbour j,
d_i its degree:

    x_i+  = argmin f_i(x) + r(x) - <sum_j w_ij, x> + rho d_i/2 |x|^2
    w_ji+ = 1/2 w_ji + 1/2 (2 rho x_i+ - w_ij)      for each neighbour j, to whom it is sent

First-order: grad f_i(x_i) + L/2 |x - x_i|^2, L = L_i, stands for f_i; r is for it alone. DP-RWADMM, the RECAL paper's
rival, is the first-order update with the gate's noisy gradient (`guarded`): an agent sends x_i, a function of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
from msgspec import Struct

from hushgrid.kernels.algorithms.iadmm import Oracle
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.problems.prox import Regularizer
from hushgrid.kernels.ranges import Count, Positive
from hushgrid.kernels.types import Matrix

PLAIN = Regularizer()


class Params(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The method's symbols. Raises InputError if a guarded update is exact."""

    variant: Literal["guarded", "none"] = "none"  #: whose gradient: the gate's noisy one, or the exact one
    rounds: Count  #: activations
    rho: Positive
    update: Literal["exact", "first-order"] = "exact"

    def __post_init__(self) -> None:
        if self.variant == "guarded" and self.update == "exact":
            raise InputError("rwadmm: found update exact, expected first-order (variant: guarded)")


class Activation(NamedTuple):
    i: int  #: the active agent
    x: Matrix  #: (n, p) x_i after it
    sent: int  #: vectors sent so far: d_i a step


def run(
    params: Params,
    gates: Sequence[Oracle],
    neighbours: Sequence[Sequence[int]],
    size: int,
    walk: Sequence[int],
    L: Sequence[float] = (),
    regularizer: Regularizer = PLAIN,
) -> Iterator[Activation]:
    """Activation by activation along `walk`, from zeros. `L` (n,), r for the first-order update."""
    n, rho, sent = len(gates), params.rho, 0
    x = np.zeros((n, size))
    w = {(i, j): np.zeros(size) for i in range(n) for j in neighbours[i]}
    for i in walk[: params.rounds]:
        total, d = sum((w[i, j] for j in neighbours[i]), np.zeros(size)), len(neighbours[i])
        if params.update == "exact":
            x[i] = gates[i].exact_minimizer(-total, rho * d)
        else:
            ask = gates[i].gradient if params.variant == "guarded" else gates[i].exact_gradient
            x[i] = regularizer.prox((L[i] * x[i] - ask(x[i]) + total) / (L[i] + rho * d), 1 / (L[i] + rho * d))
        for j in neighbours[i]:
            w[j, i] = 0.5 * w[j, i] + 0.5 * (2.0 * rho * x[i] - w[i, j])
        sent += d
        yield Activation(i, x.copy(), sent)
