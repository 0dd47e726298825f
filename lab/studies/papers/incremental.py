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
from hushgrid.kernels.types import Document, DocumentView, Matrix, Vector
from hushgrid.lab.rollout.compiled import iadmm as whole_iadmm
from hushgrid.lab.studies.baselines import coca, ipwadmm
from hushgrid.lab.studies.common.study import Exact, Panel, Table, on_two, random_walk

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
    changed: tuple[tuple[str, object], ...] = ()  #: keys of the method, in place of the paper's (`TRIED`)


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
    own_keys: Document = {key: value for key, value in task.changed if key in Setup._fields}
    setup = setup._replace(**own_keys)
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
    changed: Document = dict(task.changed)
    every, counted = task.N // 4, changed.pop("counted", "")
    steps: Iterator[tuple[float, Matrix]]
    if task.method == "COCA":
        censored: Document = {"rounds": VISITS, "update": update}
        rounds = coca.run(coca.Params(**(censored | changed)), gates, neighbours, P, L)
        steps = ((r.spoken if counted else r.sent, r.x) for r in rounds)
    else:
        paper: Document = {"rounds": K, "rho": 1.0, "tau": tau, "tokens": TOKENS, "update": update}
        p = ipwadmm.Params(**paper | changed)
        activations = ipwadmm.run(p, gates, neighbours, P, counter_generator(task.seed, "IPW-ADMM", task.N))
        steps = ((a.sent / (p.tokens if counted else 1), a.x) for a in activations if a.sent % every == 0)
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


# --- IPW-ADMM and COCA: why so far behind? ---

#: What is changed of the paper's c = alpha = 1, rho = .85 (COCA), and rho = 1, M = 25 (IPW-ADMM).
TRIED: Sequence[tuple[str, str, DocumentView]] = (
    ("I-ADMM", "as printed", {}),
    ("I-ADMM", "rho = 1", {"rho": 1.0}),
    ("W-ADMM", "as printed", {}),
    ("W-ADMM", "rho = 1", {"rho": 1.0}),
    ("COCA", "as printed", {}),
    ("COCA", "a message that all neighbours hear counts once", {"counted": "messages"}),
    *(("COCA", f"c = {c:g}", {"c": c}) for c in (0.1, 0.03, 0.01, 0.003)),
    ("COCA", "c = .01, threshold rho = .5", {"c": 0.01, "rho": 0.5}),
    ("COCA", "c = .01, no censor", {"c": 0.01, "alpha": 1e-12}),
    ("COCA", "c = .01, a message counts once", {"c": 0.01, "counted": "messages"}),
    ("IPW-ADMM", "as printed", {}),
    ("IPW-ADMM", "25 hops at once count once", {"counted": "rounds"}),
    *(("IPW-ADMM", f"M = {M}", {"tokens": M}) for M in (5, 2, 1)),
    ("IPW-ADMM", "rho = 1/M", {"rho": 1 / TOKENS}),
    ("IPW-ADMM", "rho = 10", {"rho": 10.0}),
    ("IPW-ADMM", "tau = 0", {"tau": 0.0}),
    ("IPW-ADMM", "tau = 3", {"tau": 3.0}),
    ("IPW-ADMM", "one neighbour drawn", {"choices": 1}),
    ("IPW-ADMM", "one dual for all tokens", {"duals": "shared"}),
    ("IPW-ADMM", "one dual, rho = 1/M", {"duals": "shared", "rho": 1 / TOKENS}),
    ("IPW-ADMM", "one dual, M = 5", {"duals": "shared", "tokens": 5}),
)


def tried(setting: tuple[int, float]) -> Table:
    """Each change of `TRIED` on one network, in both problems."""
    tasks = [IncrementalTask(kind, *setting, m, 0, tuple(keys.items())) for kind in PAPER for m, _, keys in TRIED]
    curves = on_two(way, tasks, lambda t: f"{t.kind}: {t.method} {dict(t.changed)}")
    rows = []
    for (method, what, _), exact, first_order in zip(TRIED, curves[: len(TRIED)], curves[len(TRIED) :], strict=True):
        figures = [
            value for c in (exact, first_order) for value in (c.distance[-1], *(needed(c, x) for x in LEVELS[:2]))
        ]
        rows.append((method, what, *figures))
    of_each = [f"{kind}: {what}" for kind in PAPER for what in ("distance at the end", "to 0.001", "to 1e-06")]
    N, eta = setting
    return Table(f"IPW-ADMM and COCA: what was tried, N = {N}, eta = {eta:g}", ("method", "changed", *of_each), rows)


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
