"""Y. Ye, H. Chen, Z. Ma, M. Xiao, Decentralized consensus optimization based on parallel random walk: IPW-ADMM
(reference [18] of the I-ADMM paper), the baseline of its figures. In simulation only.

Reconstructed from the published description: W-ADMM with M tokens that walk at the same time (here in turn), each by a
random walk with choice. Problem: min_x sum_i f_i(x), x_i = z_m for every agent i and token m, with its own duals y_im;
z^_im is token m as agent i last saw it. Where token m is:

    x_i+  = argmin f_i(x) + sum_l rho/2 |z^_il - x + y_il/rho|^2 + tau/2 |x - x_i|^2,   z^_im = z_m
    y_im+ = y_im + rho (z_m - x_i+)
    z_m+  = z_m + ((x_i+ - y_im+/rho) - u_im)/N,   u_im what agent i last put into token m: N z_m = sum_i u_im

With `duals: shared` an agent has one dual y_i for all tokens, and knows the token that it has alone: l = m in the sum.
With one token, tau = 0 and one choice this is W-ADMM. tau is taken to be the weight of the proximal term that a
first-order step needs (the paper sets it where it takes (8), and 0 where it does not).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, NamedTuple

import numpy as np
from msgspec import Meta, Struct

from hushgrid.kernels.algorithms.iadmm import Oracle
from hushgrid.kernels.ranges import Count, Positive
from hushgrid.kernels.types import Matrix


class Params(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The method's symbols."""

    rounds: Count  #: activations, of all tokens together
    rho: Positive
    tau: Annotated[float, Meta(ge=0)] = 0.0
    tokens: Annotated[int, Meta(ge=1, le=10_000)] = 1  #: M
    choices: Annotated[int, Meta(ge=1, le=100)] = 2  #: neighbours drawn for a hop; the least visited of them is taken
    update: Literal["exact", "first-order"] = "exact"
    duals: Literal["own", "shared"] = "own"


class Activation(NamedTuple):
    m: int  #: the token
    i: int  #: and where it was
    x: Matrix  #: (N, p) x_i after it
    z: Matrix  #: (M, p) the tokens after it
    sent: int  #: vectors sent so far: one a hop


def run(
    params: Params,
    gates: Sequence[Oracle],
    neighbours: Sequence[Sequence[int]],
    size: int,
    generator: np.random.Generator,
) -> Iterator[Activation]:
    """Activation by activation, from zeros; token m starts at agent m mod N. `generator` draws the hops."""
    N, M, rho, tau = len(gates), params.tokens, params.rho, params.tau
    x, z = np.zeros((N, size)), np.zeros((M, size))
    seen, y, u = (np.zeros((N, M, size)) for _ in range(3))
    places, visits, shared = [m % N for m in range(M)], [0] * N, params.duals == "shared"
    penalty = rho if shared else M * rho
    for k in range(params.rounds):
        m = k % M
        i = places[m]
        visits[i] += 1
        seen[i, m] = z[m]
        j = 0 if shared else m
        pull = (rho * z[m] + y[i, 0] if shared else np.sum(rho * seen[i] + y[i], axis=0)) + tau * x[i]
        if params.update == "exact":
            x[i] = gates[i].exact_minimizer(-pull, penalty + tau)
        else:
            x[i] = (pull - gates[i].exact_gradient(x[i])) / (penalty + tau)
        y[i, j] = y[i, j] + rho * (z[m] - x[i])
        new = x[i] - y[i, j] / rho
        z[m] = z[m] + (new - u[i, m]) / N
        u[i, m] = new
        around = neighbours[i]
        drawn = [around[int(j)] for j in generator.integers(len(around), size=params.choices)]
        places[m] = min(drawn, key=lambda j: visits[j])
        yield Activation(m, i, x.copy(), z.copy(), k + 1)
