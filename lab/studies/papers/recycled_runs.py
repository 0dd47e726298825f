"""What `hushgrid study recycled` runs: the paper's problem on Adult, and the methods of its figures, in this process.

X. Zhang, M. M. Khalili, M. Liu, Recycled ADMM, Section VIII. C = 1750, rho = .22, rows of norm 1, O(f, D_i) =
C/B sum_n log(1 + exp(-y_n f.x_n)) + rho/(2N) |f|^2; L(t) is the mean over nodes of node i's loss at its own f_i(t). The
40,000 rows are divided evenly: B = 8,000 of each of 5 nodes, 2,000 of each of 20.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import inf, nan
from typing import Any, NamedTuple

import numpy as np

from hushgrid.kernels.algorithms import dpadmm, dpladmm, madmm, radmm
from hushgrid.kernels.algorithms.radmm import Conventional, Growth, Params, Recycled
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.graphs import Network
from hushgrid.kernels.patterns.routes import name
from hushgrid.kernels.privacy import accounting
from hushgrid.kernels.problems.centralised import optimum
from hushgrid.kernels.problems.losses import CURVATURE, Loss, Objective, logistic_value
from hushgrid.kernels.problems.prox import Regularizer
from hushgrid.kernels.randomness import counter_generator
from hushgrid.kernels.types import Document, Matrix, Vector
from hushgrid.lab.rollout.machines import AllowAll, run_rounds
from hushgrid.lab.studies.common.study import Exact
from hushgrid.lab.studies.problems.relay import ADULT, ADULT_TEST
from hushgrid.node.privacy.noise_source import SeededNoise
from hushgrid.node.privacy.terms import Terms
from hushgrid.node.problems.records.data import unit_rows
from hushgrid.node.problems.records.files import Shard, read_libsvm
from hushgrid.node.problems.records.gate import RowsGate

C, RHO, GAMMA, GROWTH = 1750.0, 0.22, 0.5, 1.04
TRAINED = 40_000  #: rows of Adult that the nodes have; the others test
ROUNDS, RUNS = 30, 10
DELTA = 1e-5  #: of the Gaussian mechanism, which only one rival uses
STEPS = (1.0, 4.0, 16.0, 64.0)  #: of linearised ADMM, in units of 1/L, L = C/4: the grid


class Method(NamedTuple):
    machine: Any  #: with Agent
    params: Any
    keys: Document
    mechanism: str = "laplace"


METHODS = {
    "ADMM": Method(radmm, Conventional, {"eta": 1.0}),  # private: dual variable perturbation
    "R-ADMM": Method(radmm, Recycled, {"eta": 1.0, "gamma": GAMMA}),
    "MR-ADMM": Method(radmm, Params, {"eta": Growth(1.0, GROWTH), "gamma": GAMMA}),
    "M-ADMM": Method(madmm, madmm.Params, {"eta": Growth(1.0, GROWTH), "theta": 1.0}),
    "ADMM, primal": Method(dpadmm, dpadmm.Params, {"eta": 1.0, "perturb": "primal"}),
    "linearised, Laplace": Method(dpladmm, dpladmm.Params, {"eta": 1.0}),
    "linearised, Gaussian": Method(dpladmm, dpladmm.Params, {"eta": 1.0}, "gaussian"),
}


class Setting(NamedTuple):
    """One line of a figure. `keys` stand in place of the method's own."""

    figure: str
    method: str
    keys: Document = {}  # noqa: RUF012
    epsilon: float = inf  #: honest total; infinite: no noise
    N: int = 5
    rounds: int = ROUNDS
    runs: int = RUNS


class RunsResult(NamedTuple):
    setting: Setting
    loss: Matrix  #: (runs, rounds) L(t); NaN where the gate refuses: an answer may not cost so little
    wrong: Vector  #: (runs,) the share of the test rows classified wrong by the mean of all f_i, at the end
    answers: int  #: of each node
    alpha: tuple[float, float]  #: the first answer's noise is exp(-alpha |eps|), and the last one's
    stated: float  #: what the method's paper says of this noise
    step: float  #: of linearised ADMM, in units of 1/L

    @property
    def last(self) -> tuple[float, float, float, float]:
        """Mean and range (largest - smallest) over runs of L and of the share that is wrong, at the end."""
        end = self.loss[:, -1]
        return float(end.mean()), float(np.ptp(end)), float(self.wrong.mean()), float(np.ptp(self.wrong))


# --- the problem ---


@cache
def adult() -> tuple[Shard, Shard]:
    """All 48,842 rows, of norm 1, in one fixed random order: those to learn from, those to test on."""
    parts = [read_libsvm(path, "logistic", features=123, first_index=0) for path in (ADULT, ADULT_TEST)]
    A, b = unit_rows(np.concatenate([p.A for p in parts])), np.concatenate([p.b for p in parts])
    order = np.argsort(counter_generator(0, "recycled", 0).random(len(b)))
    A, b = A[order], b[order]
    return Shard(A[:TRAINED], b[:TRAINED]), Shard(A[TRAINED:], b[TRAINED:])


def losses(N: int, rho: float = RHO) -> list[Loss]:
    """O(., D_i), B = TRAINED/N rows each."""
    A, b = adult()[0]
    B = TRAINED // N
    objective = Objective(kind="logistic", scale=C, l2=rho / N)
    return [Loss(objective, A[i * B :][:B], b[i * B :][:B], row_bound=1.0) for i in range(N)]


def neighbours(N: int) -> list[list[int]]:
    """A graph drawn at random, 6 of 10 links (N = 5) or a quarter of them; the first seed that is connected.

    Raises InputError if none of a thousand is.
    """
    for seed in range(1000):
        try:
            graph = Network(kind="erdos-renyi", nodes=N, density=0.6 if N < 10 else 0.25, seed=seed).build()
        except InputError:  # not connected
            continue
        return [list(around) for around in graph.neighbours]
    raise InputError(f"network: found no connected graph of {N} nodes, expected one in 1000 seeds")


def value(fs: Sequence[Loss], x: Matrix) -> float:
    """L: the mean over nodes of node i's mean loss at x_i, without the regulariser."""
    return float(np.mean([logistic_value(f.A @ xi, f.b) for f, xi in zip(fs, x, strict=True)]))


@cache
def lowest(N: int) -> float:
    """L(x*), x* the optimum of all N nodes: what every method without noise tends to."""
    fs = losses(N)
    return value(fs, np.tile(optimum(fs, Regularizer()).x, (N, 1)))


def wrong(x: Vector) -> float:
    """E: the share of the test rows that x classifies wrong."""
    A, b = adult()[1]
    return float(np.mean(np.where(A @ x >= 0, 1.0, -1.0) != b))


# --- one run ---


def fleet(method: Method, keys: Document, gates: Sequence[Any], around: Sequence[Sequence[int]], d: int) -> list[Any]:
    params = method.params(**keys)
    return [
        method.machine.Agent(params, gate, d, name(i), [name(j) for j in around[i]], centre="")
        for i, gate in enumerate(gates)
    ]


def terms(mechanism: Any, epsilon: float, answers: int) -> Terms:
    """`answers` answers of a node that cost `epsilon` in all: pure, or (Gaussian) at DELTA by GDP; one record
    replaced.
    """
    delta, accountant = (DELTA, "gdp") if mechanism == "gaussian" else (0.0, "pure-basic")
    return Terms(
        mechanism=mechanism,
        adjacency="replace-one-record, clip 1",
        beta=0.0,
        mode="objective",
        at="data",
        published=False,
        accountant=accountant,
        answers=answers,
        per_answer=accounting.calibrate(accountant, epsilon, delta, answers),
        paper_epsilon=epsilon / answers,
        paper_delta=None,
        delta=delta,
        epsilon=epsilon,
        rounds=answers,
        capped=False,
        clip=1.0,
    )


def stated(method: str, nodes: Sequence[radmm.Agent], gates: Sequence[RowsGate]) -> float:
    """(32) at the noise in use, the largest over nodes; of [21] and [23], which price one iteration, that of one."""
    first = gates[0]
    if "R-ADMM" not in method and method != "M-ADMM":
        return first.spends[0].value if first.spends[0].kind == "laplace" else nan
    each = []
    for node, gate in zip(nodes, gates, strict=True):
        o, rows = gate.loss.objective, gate.loss.rows
        mu = [o.l2 + node.quadratic(k) for k in range(1, len(gate.spends) + 1)]
        each.append(
            sum(
                2 * o.scale / rows * (1.4 * CURVATURE[o.kind] / m + 1 / s.scale)
                for m, s in zip(mu, gate.spends, strict=True)
            )
        )
    return float(max(each))


def run(s: Setting, seed: int, step: float = nan) -> RunsResult:
    """One run of a setting."""
    fs, method = losses(s.N), METHODS[s.method]
    keys = method.keys | {"rounds": s.rounds, "variant": "none" if s.epsilon == inf else "guarded"} | s.keys
    if step == step:
        keys["step"] = step / (C * CURVATURE["logistic"])
    answers = method.params(**keys).answers
    gates: list[Any]
    if s.epsilon == inf:
        gates = [Exact(f) for f in fs]
    else:
        t = terms(method.mechanism, s.epsilon, answers)
        gates = [RowsGate(name(i), f, t, SeededNoise(seed, name(i)), AllowAll()) for i, f in enumerate(fs)]
    nodes = fleet(method, keys, gates, neighbours(s.N), fs[0].size)
    loss, f = np.full((1, s.rounds), nan), np.zeros((s.N, fs[0].size))
    try:
        for k, f in enumerate(run_rounds(nodes, of_messages=True)):
            loss[0, k] = value(fs, f)
    except InputError:  # so many answers at so little are refused before any is drawn
        if gates[0].spends:
            raise
        return RunsResult(s, loss, np.array([nan]), answers, (nan, nan), nan, step)
    alpha, claimed = (inf, inf), nan
    if s.epsilon < inf:
        ends = gates[0].spends[0], gates[0].spends[-1]
        perturbed = method.machine is not dpladmm and keys.get("perturb") != "primal"
        alpha = (1 / ends[0].scale, 1 / ends[1].scale) if perturbed else (nan, nan)
        claimed = stated(s.method, nodes, gates)
    return RunsResult(s, loss, np.array([wrong(f.mean(axis=0))]), answers, alpha, claimed, step)


def measure(s: Setting) -> RunsResult:
    """All runs of a setting; linearised ADMM's step is the best of its grid, by the loss at the end: optimistic."""
    outcomes = []
    for step in STEPS if METHODS[s.method].machine is dpladmm else (nan,):
        runs = [run(s, seed, step) for seed in range(s.runs if s.epsilon < inf else 1)]
        loss = np.concatenate([r.loss for r in runs])
        outcomes.append(runs[0]._replace(loss=loss, wrong=np.concatenate([r.wrong for r in runs])))
    return min(outcomes, key=lambda f: np.inf if np.isnan(f.last[0]) else f.last[0])
