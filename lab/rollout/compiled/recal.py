"""Whole walks of RECAL, all agents in a few arrays, for studies: no gate and no network.

The update is kernels/algorithms/recal.py's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from hushgrid.kernels.algorithms.recal import Params, activation
from hushgrid.kernels.jit import kernel
from hushgrid.kernels.problems.losses import Loss
from hushgrid.kernels.problems.prox import Regularizer
from hushgrid.kernels.types import Index, Matrix, Tensor, Vector
from hushgrid.lab.rollout.compiled.stacked import Stack, check, gradient, stack


@kernel
def whole_walk(
    f: Stack,
    walk: Index,
    x: Vector,
    u: Vector,
    y: Matrix,
    lam: Matrix,
    last: Matrix,
    alpha: Vector,
    beta: float,
    l1: float,
    l2: float,
    box: float,
    noise: Matrix,
    eps: Matrix,
    added_back: float,
    record: Tensor,
) -> None:
    """Algorithm 1 at each agent of `walk` (K,) in turn; x, u (q,) and y, lam, last (n, q) in place.

    Of each activation: `noise` (K, q) on the gradient; `eps` (K, q) on u~, where `last` holds each agent's own, added
    back `added_back` times (reading A 0, B 1); `record` (K, 2, q) takes x and u after it. Each may have length 0: there
    is none.
    """
    n, q = y.shape
    check(walk, y, noise, record)
    check(walk, lam, eps, record)
    if y.shape != lam.shape or y.shape != last.shape or alpha.size != n:
        raise ValueError("y, lam, last, alpha: shape mismatch")
    g = np.empty(q)
    for k in range(walk.size):
        i = walk[k]
        rows = slice(f.start[i], f.start[i + 1])
        gradient(f.kind, f.A[rows], f.b[rows], f.factor[i], f.l2, f.lam, f.omega, y[i], g)
        if noise.shape[0]:
            g += noise[k]
        x_new, y_new, lam_new = activation(x, u, y[i], lam[i], g, alpha[i], beta, float(n), l1, l2, box)
        u += lam_new - lam[i]  # (7e)
        if eps.shape[0]:
            u += added_back * last[i] - eps[k]
            last[i] = eps[k]
        x[:], y[i], lam[i] = x_new, y_new, lam_new
        if record.shape[0]:
            record[k, 0], record[k, 1] = x, u


class Agents:
    """All n agents. Raises InputError if no compiled gradient serves."""

    def __init__(
        self, params: Params, fs: Sequence[Loss], regularizer: Regularizer, reading: Literal["A", "B"] = "B"
    ) -> None:
        n, q = len(fs), fs[0].size
        self.params, self.f, self.regularizer, self.added_back = params, stack(fs), regularizer, float(reading == "B")
        self.alpha = np.array([params.alpha_i(i, f.L) for i, f in enumerate(fs)])
        self.x, self.u = np.zeros(q), np.zeros(q)
        self.y, self.lam, self.eps = np.zeros((n, q)), np.zeros((n, q)), np.zeros((n, q))

    def walk(self, nodes: Sequence[int] | Index, *, noise: Matrix | None = None, record: bool = False) -> Tensor:
        """Activate `nodes` in turn, from where the last call ended: (K, 2, q) x and u after each of them, or none.

        `noise` (K, q): guarded on the gradient (which is not clipped here), published on u~. Activations beyond an
        agent's cap, which change nothing, are left out of `nodes`.
        """
        (n, q), r, none = self.y.shape, self.regularizer, np.zeros((0, self.x.size))
        noise, published = none if noise is None else noise, self.params.variant == "published"
        tokens = np.empty((len(nodes) if record else 0, 2, q))
        whole_walk(
            self.f,
            np.asarray(nodes, dtype=np.int64),
            self.x,
            self.u,
            self.y,
            self.lam,
            self.eps,
            self.alpha,
            self.params.beta_n(n),
            r.l1,
            r.l2,
            r.box,
            none if published else noise,
            noise if published else none,
            self.added_back,
            tokens,
        )
        return tokens
