"""Whole walks of I-ADMM, PI-ADMM1 and 2, all agents in a few arrays, for studies: no gate and no network.

The updates are those of kernels/algorithms/iadmm.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hushgrid.kernels.algorithms.iadmm import Params, dual, first_order, token
from hushgrid.kernels.jit import kernel
from hushgrid.kernels.problems.losses import Loss
from hushgrid.kernels.types import Index, Matrix, Tensor, Vector
from hushgrid.lab.rollout.compiled.stacked import SPECTRAL, Stack, check, gradient, minimizer, stack


@kernel
def whole_walk(
    f: Stack, walk: Index, z: Vector, x: Matrix, y: Matrix, rho: float, gamma: Vector, omega: Matrix, record: Tensor
) -> None:
    """(4a), (12) or (8), then (4b) or (13) and (5), at each agent of `walk` (K,) in turn; z (p,), x, y (N, p) in place.

    gamma (K,) and omega (K, p) are those of each activation; `record` (K, 2, p) takes z and the active agent's x after
    it. Where there are no omegas, or nothing is to be recorded, the array has length 0.
    """
    N, p = x.shape
    check(walk, y, omega, record)
    if x.shape != y.shape or z.size != p or gamma.size != walk.size:
        raise ValueError("z, x, y, gamma: shape mismatch")
    A, b, e, v, x_new = f.A, f.b, f.e, np.empty(p), np.empty(p)
    for k in range(walk.size):
        i, r = walk[k], rho * gamma[k]
        rows = slice(f.start[i], f.start[i + 1])
        if f.kind == SPECTRAL:
            for j in range(p):
                v[j] = -(r * z[j] + y[i, j])
            minimizer(e[i], A[rows], b[rows], v, r, x_new)
        else:
            gradient(f.kind, A[rows], b[rows], f.factor[i], f.l2, f.lam, f.omega, x[i], v)
            for j in range(p):
                x_new[j] = first_order(z[j], y[i, j], v[j], r)
        for j in range(p):
            if omega.shape[0]:
                x_new[j] += omega[k, j]
            y_new = dual(y[i, j], z[j], x_new[j], r)
            z[j] = token(z[j], x[i, j], y[i, j], x_new[j], y_new, rho, N)
            x[i, j], y[i, j] = x_new[j], y_new
            if record.shape[0]:
                record[k, 0, j], record[k, 1, j] = z[j], x_new[j]


class Agents:
    """All N agents; `start` (N, p) holds their v of Algorithm 2. Raises InputError if no compiled update serves."""

    def __init__(self, params: Params, fs: Sequence[Loss], start: Matrix | None = None) -> None:
        N, p = len(fs), fs[0].size
        self.params, self.f = params, stack(fs, params.exact)
        self.z = np.zeros(p)
        self.x = np.zeros((N, p)) if start is None else start.copy()
        self.y = params.rho * self.x

    def walk(
        self,
        nodes: Sequence[int] | Index,
        *,
        gamma: Vector | None = None,
        noise: Matrix | None = None,
        record: bool = False,
    ) -> Tensor:
        """Activate `nodes` in turn, from where the last call ended: (K, 2, p) z and the active x of each, or none.

        `gamma` (K,) of PI-ADMM1. `noise` (K, p): omega, or where guarded what the gate adds to the gradient (which is
        not clipped here). Activations beyond an agent's cap, which change nothing, are left out of `nodes`.
        """
        K, p, rho, guarded = len(nodes), self.z.size, self.params.rho, self.params.variant == "guarded"
        omega = np.zeros((0, p)) if noise is None else -noise / rho if guarded else noise  # (8) of g + noise
        tokens = np.empty((K if record else 0, 2, p))
        gamma = np.ones(K) if gamma is None else gamma
        whole_walk(self.f, np.asarray(nodes, dtype=np.int64), self.z, self.x, self.y, rho, gamma, omega, tokens)
        return tokens
