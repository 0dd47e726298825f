"""`hushgrid study incremental`: Figures 3 to 6 of Y. Ye, H. Chen, M. Xiao, M. Skoglund, H. V. Poor (PI-ADMM) again.

Ridge regression (22) by exact updates and logistic regression (24) by first-order ones, p = 2, b_i = 30, networks of
N agents and a share eta of all links; a vector sent is one unit of communication. The accuracy is (21), each agent's
distance from x* over its own start's, and, beside it, the distance itself: a start far away flatters (21).
`incremental_leak.py` has the rest: Figures 4 and 6, and what an eavesdropper makes of the token (Finding 3.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np

from hushgrid.kernels.algorithms import iadmm
from hushgrid.kernels.graphs import Network, cyclic_route
from hushgrid.kernels.problems.centralised import optimum
from hushgrid.kernels.problems.losses import Loss, Objective
from hushgrid.kernels.problems.prox import Regularizer
from hushgrid.kernels.randomness import counter_generator
from hushgrid.kernels.types import Matrix, Vector
from hushgrid.lab.rollout.compiled import iadmm as whole_iadmm
from hushgrid.lab.studies.baselines import coca, ipwadmm
from hushgrid.lab.studies.common.study import Exact, Panel, Table, random_walk

Kind = Literal["ridge", "logistic"]
SETTINGS = ((100, 0.3), (100, 0.5), (200, 0.3))  #: N and eta
P, ROWS = 2, 30  #: p and b_i
VISITS = 400  #: to each agent, on average; COCA has as many rounds
LEVELS = (1e-3, 1e-6, 1e-9)  #: of the absolute error, to which communication is counted


class Setup(NamedTuple):
    """The paper's parameters of a problem."""

    rho: float  #: of I-ADMM and PI-ADMM; W-ADMM's beta
    tau: float  #: of IPW-ADMM, whose rho is 1 and M 25
    update: Literal["exact", "first-order"]
    high: float  #: v of Algorithm 2 is drawn from U(0, high)
    width: float  #: gamma from U(1 - width/rho, 1 + width/rho)


PAPER: dict[Kind, Setup] = {
    "ridge": Setup(10.0, 0.0, "exact", 100.0, 1.0),
    "logistic": Setup(1.0, 3.0, "first-order", 10.0, 0.1),
}
NOISE_SD = 1e-3  #: PI-ADMM2's sigma
TOKENS = 25  #: M
METHODS = ("W-ADMM", "IPW-ADMM", "COCA", "I-ADMM", "PI-ADMM1", "PI-ADMM2")


def losses(kind: Kind, N: int, seed: int = 0) -> list[Loss]:
    """(22): mean |x'o - t|^2, o and t from U(0, 1). (24): mean log(1 + exp(-t x'o)), o from N(0, I), t by one model."""
    draw = counter_generator(seed, f"incremental {kind}", N)
    if kind == "ridge":
        o, t = draw.random((N, ROWS, P)), draw.random((N, ROWS))
        return [Loss(Objective(kind="least-squares", scale=2.0), o[i], t[i]) for i in range(N)]
    model, o = draw.normal(size=P), draw.normal(size=(N, ROWS, P))
    t = np.where(draw.random((N, ROWS)) * (1 + np.exp(-(o @ model))) <= 1, 1.0, -1.0)
    return [Loss(Objective(kind="logistic"), o[i], t[i]) for i in range(N)]


class Curve(NamedTuple):
    """A method's way: vectors sent, (21), and the mean distance |x_i - x*|."""

    sent: Vector
    accuracy: Vector
    distance: Vector


class IncrementalTask(NamedTuple):
    kind: Kind
    N: int
    eta: float
    method: str
    seed: int = 0


class Walked(NamedTuple):
    """A run of an incremental method, as its caller sees it and (z alone) an eavesdropper."""

    walk: list[int]
    z: Matrix  #: (K, p) the token after each activation
    x: Matrix  #: (K, p) the active agent's x_i after it
    agents: whole_iadmm.Agents
    start: Matrix  #: (N, p)


def incremental(fs: Sequence[Loss], setup: Setup, method: str, walk: list[int], seed: int) -> Walked:
    """I-ADMM or one of its relatives along a walk; "Algorithm 2" is I-ADMM with a random start."""
    N, K, rho = len(fs), len(walk), setup.rho
    draw = counter_generator(seed, method, N)
    start = draw.uniform(0.0, setup.high, (N, P)) if method not in ("W-ADMM", "I-ADMM") else np.zeros((N, P))
    gamma = draw.uniform(1 - setup.width / rho, 1 + setup.width / rho, K) if method == "PI-ADMM1" else None
    noise = draw.normal(0.0, NOISE_SD, (K, P)) if method == "PI-ADMM2" else None
    agents = whole_iadmm.Agents(iadmm.Params(rounds=K, variant="none", rho=rho, update=setup.update), fs, start)
    record = agents.walk(walk, gamma=gamma, noise=noise, record=True)
    return Walked(walk, record[:, 0], record[:, 1], agents, start)


def way(task: IncrementalTask) -> Curve:
    """A method on a problem and a network, with the paper's parameters."""
    fs, setup = losses(task.kind, task.N, task.seed), PAPER[task.kind]
    graph = Network(kind="erdos-renyi", nodes=task.N, density=task.eta, seed=task.seed).build()
    star, K = optimum(fs, Regularizer()).x, VISITS * task.N
    if task.method in ("COCA", "IPW-ADMM"):
        return _other(task, [Exact(f) for f in fs], graph.neighbours, [f.L for f in fs], star, K)
    cycle = cyclic_route(graph).nodes
    around = task.method != "W-ADMM"
    run = incremental(
        fs,
        setup,
        task.method,
        [cycle[k % len(cycle)] for k in range(K)] if around else random_walk(graph, K, task.seed),
        task.seed,
    )
    now = np.linalg.norm(run.start - star, axis=1)
    first, iterates = now.copy(), []
    for k, (i, d) in enumerate(zip(run.walk, np.linalg.norm(run.x - star, axis=1).tolist(), strict=True), 1):
        now[i] = d
        if k % (task.N // 4) == 0:
            iterates.append((k, np.mean(now / first), np.mean(now)))
    return Curve(*np.array(iterates).T)


def _other(
    task: IncrementalTask,
    gates: Sequence[Exact],
    neighbours: Sequence[Sequence[int]],
    L: Sequence[float],
    star: Vector,
    K: int,
) -> Curve:
    update, tau = PAPER[task.kind].update, PAPER[task.kind].tau
    steps: Iterator[tuple[int, Matrix]]
    if task.method == "COCA":
        rounds = coca.run(coca.Params(rounds=VISITS, update=update), gates, neighbours, P, L)
        steps = ((r.sent, r.x) for r in rounds)
    else:
        p = ipwadmm.Params(rounds=K, rho=1.0, tau=tau, tokens=TOKENS, update=update)
        activations = ipwadmm.run(p, gates, neighbours, P, counter_generator(task.seed, "IPW-ADMM", task.N))
        steps = ((a.sent, a.x) for a in activations if a.sent % (task.N // 4) == 0)
    distances = [(sent, np.mean(np.linalg.norm(x - star, axis=1))) for sent, x in steps]
    sent, distance = np.array(distances).T
    return Curve(sent, distance / np.linalg.norm(star), distance)


# --- the whole ---


def needed(curve: Curve, level: float) -> float:
    """Vectors sent when the mean distance first is at most `level`; NaN where it never is."""
    below = np.flatnonzero(curve.distance <= level)
    return float(curve.sent[below[0]]) if below.size else np.nan


def accuracy(curves: dict[IncrementalTask, Curve]) -> Table:
    """Accuracy and communication."""
    columns = (
        "problem",
        "N",
        "eta",
        "method",
        "(21) at the end",
        "distance at the start",
        "distance at the end",
        *(f"vectors to {level:g}" for level in LEVELS),
    )
    rows = [
        (
            t.kind,
            t.N,
            f"{t.eta:g}",
            t.method,
            c.accuracy[-1],
            c.distance[0],
            c.distance[-1],
            *(needed(c, x) for x in LEVELS),
        )
        for t, c in curves.items()
    ]
    return Table("Accuracy and communication", columns, rows)


def panels(curves: dict[IncrementalTask, Curve], settings: Sequence[tuple[int, float]]) -> list[list[Panel]]:
    """A row a problem and measure, a panel a setting: the methods over the vectors sent."""
    return [
        [
            Panel(
                f"{kind}, N = {N}, η = {eta:g}",
                "vectors sent",
                label,
                {
                    m: (
                        curves[IncrementalTask(kind, N, eta, m)].sent,
                        getattr(curves[IncrementalTask(kind, N, eta, m)], what),
                    )
                    for m in METHODS
                },
                xlog=True,
            )
            for N, eta in settings
        ]
        for kind in PAPER
        for what, label in (("accuracy", "accuracy (21)"), ("distance", "mean |x_i − x*|"))
    ]
