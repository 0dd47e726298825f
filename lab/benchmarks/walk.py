"""The token walks' arithmetic without their network: a step beside a bare compiled loop,
a whole run on the paper's data.

Each mode of the kernels is a process of its own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hushgrid.kernels import jit
from hushgrid.kernels.algorithms import iadmm, recal
from hushgrid.kernels.graphs import Network, random_walk
from hushgrid.kernels.problems.losses import Kind, Loss, Objective
from hushgrid.kernels.problems.prox import Regularizer
from hushgrid.kernels.randomness import counter_generator
from hushgrid.kernels.types import Index, Matrix, Tensor, Vector
from hushgrid.lab.benchmarks.common.measure import Row, Table, against, in_each_mode, print_rows, row, timed
from hushgrid.lab.rollout.compiled import iadmm as whole_iadmm
from hushgrid.lab.rollout.compiled import recal as whole_recal
from hushgrid.node.problems.records.data import Data, load

N, P, RHO = 100, 2, 2.0
IJCNN1 = "HUSHGRID_IJCNN1"  #: names the file, which is not shipped: LIBSVM's ijcnn1, 49,990 rows of 22 features
AGENTS, ACTIVATIONS = 8, 2400  #: the RECAL paper's Table IV: PLF = 300 on a ring


def walk() -> Table:
    """Both modes, numba where it is installed. Raises InputError if the file named by HUSHGRID_IJCNN1 is not one."""
    rows = in_each_mode("hushgrid.lab.benchmarks.walk")
    where = "" if os.environ.get(IJCNN1) else f"; ijcnn1 is not there: {IJCNN1} may name its file"
    return Table(name="walk", summary=f"activations in one process, no network, no gate{where}", rows=rows)


def measured(steps: int = 20_000, repeats: int = 100, activations: int = ACTIVATIONS, compiled: int = 5) -> list[Row]:
    """The rows of this process's mode. `steps` and `repeats` of I-ADMM; `activations` of RECAL, `whole` times."""
    rows = step(steps, repeats)
    if path := os.environ.get(IJCNN1):
        rows += ijcnn1(Path(path), activations, compiled)
    return rows


# --- one step of I-ADMM ---


def step(steps: int, repeats: int) -> list[Row]:
    """Nanoseconds a step, N = 100, p = 2, in turn with the bare loops."""
    draw = counter_generator(0, "bench walk", 0)
    objective = Objective(kind="least-squares", scale=2.0)
    fs = [Loss(objective, draw.normal(size=(6, P)), draw.normal(size=6)) for _ in range(N)]
    nodes = np.arange(steps) % N

    def agents(update: Any, rho: float = RHO) -> Callable[[], object]:
        compiled = whole_iadmm.Agents(iadmm.Params(rounds=steps, rho=rho, variant="none", update=update), fs)
        return lambda: compiled.walk(nodes)

    def each(call: Callable[[], object]) -> list[float]:
        return [1e9 * s / steps for s in timed(call, repeats)]

    name = f"I-ADMM, N = {N}, p = {P}, {jit.MODE}"
    ours, first_order = each(agents("exact")), each(agents("first-order", 2.5 * max(f.L for f in fs)))
    if jit.MODE == "numpy":
        return [row(f"{name}: a step (4a)", "ns", ours), row(f"{name}: a step (8)", "ns", first_order)]
    bare = row("bare loop by hand: p = 2 unrolled, inverses stored, no division", "ns", each(_bare(fs, nodes)))
    return [
        against(row(f"{name}: a step (4a)", "ns", ours, rival=bare), 5.0, "ratio"),
        row(f"{name}: a step (8)", "ns", first_order, rival=bare),
        bare,
    ]


def _bare(fs: list[Loss], nodes: Index) -> Callable[[], object]:
    """I-ADMM as fast as it was found to be written for this one size: z in registers, x = M (rho z + y + h)."""
    import numba

    @numba.njit(error_model="numpy")  # type: ignore[untyped-decorator]
    def loop(nodes: Index, z: Vector, x: Matrix, y: Matrix, M: Tensor, h: Matrix, rho: float) -> None:
        z0, z1, s, c = z[0], z[1], 1.0 / rho, 1.0 / x.shape[0]
        for k in range(nodes.size):
            i = nodes[k]
            v0, v1 = rho * z0 + y[i, 0] + h[i, 0], rho * z1 + y[i, 1] + h[i, 1]
            x0, x1 = M[i, 0, 0] * v0 + M[i, 0, 1] * v1, M[i, 1, 0] * v0 + M[i, 1, 1] * v1
            y0, y1 = y[i, 0] + rho * (z0 - x0), y[i, 1] + rho * (z1 - x1)
            z0 += ((x0 - y0 * s) - (x[i, 0] - y[i, 0] * s)) * c
            z1 += ((x1 - y1 * s) - (x[i, 1] - y[i, 1] * s)) * c
            x[i, 0], x[i, 1], y[i, 0], y[i, 1] = x0, x1, y0, y1
        z[0], z[1] = z0, z1

    gram = [form for f in fs if (form := f.gram)]
    M = np.array([np.linalg.inv(2.0 * H + RHO * np.eye(P)) for H, _ in gram])
    h = np.array([2.0 * h for _, h in gram])
    z, x, y = np.zeros(P), np.zeros((N, P)), np.zeros((N, P))
    return lambda: loop(nodes, z, x, y, M, h, RHO)


# --- a whole run of RECAL ---


def ijcnn1(path: Path, activations: int, repeats: int) -> list[Row]:
    """Seconds of the paper's run, r = |x|_1/2 + |x|_2^2/2: linear regression (by Gram forms) and logistic
    regression.
    """
    began = time.perf_counter()
    shards = load(Data(libsvm=str(path), nodes=AGENTS), Path(), "logistic").shards
    loading = time.perf_counter() - began
    ring = random_walk(Network(kind="ring", nodes=AGENTS).build(), 0, activations, seed=0)
    rows = []
    kinds: tuple[Kind, ...] = ("least-squares", "logistic")
    for kind in kinds:

        def made(kind: Kind = kind) -> whole_recal.Agents:
            fs = [Loss(Objective(kind=kind), s.A, s.b) for s in shards]
            return whole_recal.Agents(recal.Params(rounds=activations, variant="none"), fs, Regularizer(l1=0.5, l2=1.0))

        taken = timed(lambda: made().walk(ring), repeats)
        name = f"ijcnn1, {AGENTS} agents, {activations} activations, {kind}, {jit.MODE}"
        rows.append(against(row(f"{name}: whole run", "s", taken), 0.5))
        rows.append(Row(what=f"{name}: with loading", unit="s", value=loading + rows[-1].value))
    return rows


if __name__ == "__main__":
    print_rows(measured)
