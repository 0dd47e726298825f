"""Whole runs of DPP2, all nodes in a few arrays, for studies: no gate and no network.

The updates are kernels/algorithms/dpp2.py's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hushgrid.kernels.algorithms.dpp2 import Params, merged
from hushgrid.kernels.graphs import Graph
from hushgrid.kernels.jit import kernel
from hushgrid.kernels.problems.losses import Loss
from hushgrid.kernels.types import Matrix, Tensor, Vector
from hushgrid.lab.rollout.compiled.mixing import Edges, mix
from hushgrid.lab.rollout.compiled.stacked import Stack, gradient, stack


@kernel
def whole_run(
    f: Stack,
    edges: Edges,
    x: Matrix,
    q: Matrix,
    d: Matrix,
    alpha: float,
    beta: float,
    rho: float,
    eta: Vector,
    noise: Tensor,
    w: Tensor,
    e: Tensor,
    record: Tensor,
) -> None:
    """(16)-(19) for every eta^k of `eta` (K,), in turn; x, q, d (N, d) in place.

    Of each round and node: `noise` (K, N, d) on the gradient, `w` and `e` on y and z; `record` (K, 2, N, d) takes x and
    q after it. Each may have length 0: there is none.
    """
    K, shape = eta.size, x.shape
    if q.shape != shape or d.shape != shape or f.start.size != shape[0] + 1:
        raise ValueError("x, q, d: shape mismatch with each other or the functions")
    for a in (noise, w, e):
        if a.shape[0] not in (0, K) or a.shape[1:] != shape:
            raise ValueError("noise, w, e: shape mismatch with the rounds or the state")
    if record.shape[0] not in (0, K) or record.shape[1] != 2 or record.shape[2:] != shape:
        raise ValueError("record: shape mismatch with the rounds or the state")
    g, Pv = np.empty(shape), np.empty(shape)
    for k in range(K):
        start = x + w[k] if w.shape[0] else x
        y = start + (1.0 - eta[k]) * d
        mix(edges.start, edges.neighbours, edges.weight, y, Pv)
        for i in range(shape[0]):
            rows = slice(f.start[i], f.start[i + 1])
            gradient(f.kind, f.A[rows], f.b[rows], f.factor[i], f.l2, f.lam, f.omega, x[i], g[i])
        if noise.shape[0]:
            g += noise[k]
        z, q[:] = merged(g, q, Pv, eta[k], rho)
        mix(edges.start, edges.neighbours, edges.weight, z + e[k] if e.shape[0] else z, Pv)
        x[:] = start - alpha * z + beta * Pv
        d[:] = eta[k] * d + y
        if record.shape[0]:
            record[k, 0], record[k, 1] = x, q


class Nodes:
    """All N nodes of a graph. M: the largest M_i, where a sharper one than Loss.L is known.

    Raises InputError if no compiled gradient serves, or the parameters are unstable.
    """

    def __init__(self, params: Params, fs: Sequence[Loss], graph: Graph, M: float | None = None) -> None:
        params.check([f.L for f in fs] if M is None else [M], max(map(len, graph.neighbours)))
        self.params, self.f, self.edges = params, stack(fs), Edges.from_graph(graph)
        self.x, self.q, self.d = np.zeros((3, len(fs), fs[0].size))
        self.k = 0  #: rounds made

    def run(
        self,
        rounds: int,
        *,
        noise: Tensor | None = None,
        w: Tensor | None = None,
        e: Tensor | None = None,
        record: bool = False,
    ) -> Tensor:
        """`rounds` more: (K, 2, N, d) x and q after each of them, or none.

        (K, N, d): guarded `noise` on the gradient (not clipped here); published `w` on y and `e` on z.
        """
        p, (n, d) = self.params, self.x.shape
        none = np.zeros((0, n, d))
        eta = np.array([p.eta_k(k) for k in range(self.k, self.k + rounds)])
        states = np.empty((rounds if record else 0, 2, n, d))
        whole_run(
            self.f,
            self.edges,
            self.x,
            self.q,
            self.d,
            p.alpha,
            p.beta,
            p.rho,
            eta,
            none if noise is None else noise,
            none if w is None else w,
            none if e is None else e,
            states,
        )
        self.k += rounds
        return states
