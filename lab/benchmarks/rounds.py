"""The arithmetic of DPP2's rounds without their network: the paper's experiment beside a bare compiled loop."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hushgrid.kernels import jit
from hushgrid.kernels.algorithms.dpp2 import Params
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.graphs import Graph, Network
from hushgrid.kernels.problems.losses import Loss, Nonconvex, Objective
from hushgrid.kernels.randomness import counter_generator
from hushgrid.kernels.types import Index, Matrix, Tensor, Vector
from hushgrid.lab.benchmarks.common.measure import Row, Table, against, in_each_mode, print_rows, row, timed
from hushgrid.lab.rollout.compiled.dpp2 import Nodes
from hushgrid.lab.rollout.compiled.mixing import Edges

N, ROWS, D, ROUNDS = 50, 200, 10, 500  #: the DPP2 paper's section VI
PARAMS = Params(variant="none", rounds=ROUNDS, alpha=0.1, beta=0.05, rho=10.0)
OBJECTIVE = Objective(kind="logistic", nonconvex=Nonconvex(lam=0.001, omega=1.0))


def dpp2() -> Table:
    """Both modes, numba where it is installed."""
    rows = in_each_mode("hushgrid.lab.benchmarks.rounds")
    return Table(name="dpp2", summary="whole runs in one process, no network, no gate", rows=rows)


def connected(n: int, radius: float) -> Graph:
    """The first connected geometric graph. Raises InputError if none of a hundred seeds gives one."""
    for seed in range(100):
        try:
            return Network(kind="geometric", nodes=n, radius=radius, seed=seed).build()
        except InputError:  # not connected
            continue
    raise InputError(f"network: found no connected geometric graph of {n} nodes, radius {radius}, expected one in 100")


def measured(n: int = N, rows: int = ROWS, rounds: int = ROUNDS, repeats: int = 15) -> list[Row]:
    """The rows of this process's mode: milliseconds of a whole run of `rounds`, n nodes of `rows` rows,
    in turn with the bare loop. Raises InputError if their results differ."""
    draw, graph = counter_generator(0, "bench dpp2", 0), connected(n, 0.3)
    fs = [Loss(OBJECTIVE, draw.normal(size=(rows, D)), np.sign(draw.normal(size=rows))) for _ in range(n)]
    name = f"DPP2, N = {n}, K = {rounds}, {jit.MODE}: whole run"

    def ours() -> Nodes:
        nodes = Nodes(PARAMS, fs, graph)
        nodes.run(rounds)
        return nodes

    if jit.MODE == "numpy":
        return [row(name, "ms", [1e3 * s for s in timed(ours, min(repeats, 3))])]
    bare = _bare(fs, Edges.from_graph(graph), rounds)
    if not np.allclose(ours().x, bare(), rtol=0, atol=1e-9):
        raise InputError("dpp2: found another result of the bare loop, expected the same arithmetic")
    pairs = [(timed(ours, 1)[0], timed(bare, 1)[0]) for _ in range(repeats)]  # what slows the machine slows both
    nodes_ms, loop = 1e3 * np.array(pairs).T
    rival = row("bare loop by hand, four rows at a time", "ms", loop.tolist())
    line = row(name, "ms", nodes_ms.tolist(), rival=rival, ratio=float(np.median(nodes_ms / loop)))
    return [against(line, 1.5, "ratio"), rival]


def _bare(fs: list[Loss], edges: Edges, rounds: int) -> Callable[[], Matrix]:
    """(20)-(21) for this problem and nothing else, rows a multiple of 4: no temporary array,
    -b/(1 + exp(b t)) as it stands.
    """
    import numba

    @numba.njit(error_model="numpy")  # type: ignore[untyped-decorator]
    def loop(
        rounds: int,
        A: Tensor,
        b: Matrix,
        start: Index,
        around: Index,
        weight: Vector,
        x: Matrix,
        q: Matrix,
        z: Matrix,
        alpha: float,
        beta: float,
        rho: float,
        lam: float,
        omega: float,
    ) -> None:
        N, m, d = A.shape
        g, new = np.empty(d), np.empty((N, d))
        for _ in range(rounds):
            for i in range(N):
                g[:] = 0.0
                for j in range(0, m, 4):
                    t0 = t1 = t2 = t3 = 0.0
                    for k in range(d):
                        t0 += A[i, j, k] * x[i, k]
                        t1 += A[i, j + 1, k] * x[i, k]
                        t2 += A[i, j + 2, k] * x[i, k]
                        t3 += A[i, j + 3, k] * x[i, k]
                    s0 = -b[i, j] / (1.0 + np.exp(b[i, j] * t0))
                    s1 = -b[i, j + 1] / (1.0 + np.exp(b[i, j + 1] * t1))
                    s2 = -b[i, j + 2] / (1.0 + np.exp(b[i, j + 2] * t2))
                    s3 = -b[i, j + 3] / (1.0 + np.exp(b[i, j + 3] * t3))
                    for k in range(d):
                        g[k] += s0 * A[i, j, k] + s1 * A[i, j + 1, k] + s2 * A[i, j + 2, k] + s3 * A[i, j + 3, k]
                for k in range(d):
                    mixed = 0.0
                    for e in range(start[i], start[i + 1]):
                        mixed += weight[e] * (x[i, k] - x[around[e], k])
                    v = 1.0 + omega * x[i, k] * x[i, k]
                    q[i, k] += rho * mixed
                    z[i, k] = g[k] / m + 2.0 * lam * omega * x[i, k] / (v * v) + q[i, k]
            for i in range(N):
                for k in range(d):
                    mixed = 0.0
                    for e in range(start[i], start[i + 1]):
                        mixed += weight[e] * (z[i, k] - z[around[e], k])
                    new[i, k] = x[i, k] - alpha * z[i, k] + beta * mixed
            x[:] = new

    A, b, p = np.array([f.A for f in fs]), np.array([f.b for f in fs]), PARAMS

    def run() -> Matrix:
        x, q, z = np.zeros((3, len(fs), D))
        loop(rounds, A, b, *edges, x, q, z, p.alpha, p.beta, p.rho, OBJECTIVE.lam, OBJECTIVE.omega)
        return x

    return run


if __name__ == "__main__":
    print_rows(measured)
