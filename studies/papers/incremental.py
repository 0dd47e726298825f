"""`hushgrid study incremental`: Figures 3 and 5 of Y. Ye, H. Chen, M. Xiao, M. Skoglund, H. V. Poor (PI-ADMM) again.

Ridge regression (22) by exact updates and logistic regression (24) by first-order ones, p = 2, b_i = 30, networks of
N agents and a share eta of all links; a vector sent is one unit of communication. The accuracy is (21), each agent's
distance from x* over its own start's, and, beside it, the distance itself: a start far away flatters (21). Then what an
eavesdropper makes of the token (Finding 3.1): the gradients, and which of two data sets an agent has.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from hushgrid.kernels.algorithms import iadmm
from hushgrid.kernels.graphs import Network, cyclic_route
from hushgrid.kernels.problems.centralised import optimum
from hushgrid.kernels.problems.losses import Loss, Objective
from hushgrid.kernels.problems.prox import Regularizer
from hushgrid.kernels.randomness import counter_generator
from hushgrid.kernels.types import Matrix, Vector
from hushgrid.kernels.vectorised import iadmm as whole_iadmm
from hushgrid.studies.baselines import coca, ipwadmm
from hushgrid.studies.common.study import TARGET, Exact, Panel, Table, chart, on_two, random_walk, write

COMMAND = "hushgrid study incremental"
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
LEAKING = ("I-ADMM", "Algorithm 2", "PI-ADMM1", "PI-ADMM2")


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


class Task(NamedTuple):
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


def way(task: Task) -> Curve:
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
    first, kept = now.copy(), []
    for k, (i, d) in enumerate(zip(run.walk, np.linalg.norm(run.x - star, axis=1).tolist(), strict=True), 1):
        now[i] = d
        if k % (task.N // 4) == 0:
            kept.append((k, np.mean(now / first), np.mean(now)))
    return Curve(*np.array(kept).T)


def _other(
    task: Task, gates: Sequence[Exact], near: Sequence[Sequence[int]], L: Sequence[float], star: Vector, K: int
) -> Curve:
    update, tau = PAPER[task.kind].update, PAPER[task.kind].tau
    steps: Iterator[tuple[int, Matrix]]
    if task.method == "COCA":
        rounds = coca.run(coca.Params(rounds=VISITS, update=update), gates, near, P, L)
        steps = ((r.sent, r.x) for r in rounds)
    else:
        p = ipwadmm.Params(rounds=K, rho=1.0, tau=tau, tokens=TOKENS, update=update)
        activations = ipwadmm.run(p, gates, near, P, counter_generator(task.seed, "IPW-ADMM", task.N))
        steps = ((a.sent, a.x) for a in activations if a.sent % (task.N // 4) == 0)
    distances = [(sent, np.mean(np.linalg.norm(x - star, axis=1))) for sent, x in steps]
    sent, distance = np.array(distances).T
    return Curve(sent, distance / np.linalg.norm(star), distance)


# --- Finding 3.1: what the token tells ---


def heard(run: Walked, N: int, rho: float) -> Iterator[tuple[int, Vector]]:
    """(agent, its gradient as an eavesdropper has it) after every activation, from tokens and public numbers.

    u_i = x_i - y_i/rho follows from the token's differences, u_i^0 = v - v = 0 being public; (18) with gamma = 1 gives
    x_i, its start taken for 0, an error that shrinks by 1/(1 + gamma) a visit; and y_i = rho (x_i - u_i).
    """
    u, x, before = np.zeros((N, P)), np.zeros((N, P)), np.zeros(P)
    for i, z in zip(run.walk, run.z, strict=True):
        step = N * (z - before)
        u[i] += step
        x[i] = (step + before + x[i]) / 2
        before = z
        yield i, rho * (x[i] - u[i])


def sums(run: Walked, N: int) -> Matrix:
    """u_i = x_i - y_i/rho of every agent after the last activation, (N, p), from the tokens alone."""
    u = np.zeros((N, P))
    np.add.at(u, run.walk, N * np.diff(run.z, axis=0, prepend=0.0))
    return u


class Leak(NamedTuple):
    method: str
    sent: Vector
    error: Vector  #: |gradient heard - gradient|/|gradient|, the mean over agents
    at_optimum: float  #: the same of rho (z - u_i) against f_i'(z), after the last activation
    game: float  #: the share of right answers to "which of two data sets"


def leak(task: Task, games: int = 200, rivals: int = 10) -> Leak:
    """How well an eavesdropper hears the gradients of a run on a cycle; and the one-sample game, a small network a game."""
    setup = PAPER[task.kind]
    fs = losses(task.kind, task.N, task.seed)
    run = incremental(fs, setup, task.method, [k % task.N for k in range(VISITS * task.N)], task.seed)
    now, kept, held = np.full(task.N, np.nan), [], run.start.copy()
    for k, ((i, g), x) in enumerate(zip(heard(run, task.N, setup.rho), run.x, strict=True), 1):
        truth = fs[i].gradient(x if setup.update == "exact" else held[i])  # where the update asked for it
        now[i], held[i] = np.linalg.norm(g - truth) / np.linalg.norm(truth), x
        if k % task.N == 0:
            kept.append((k, np.mean(now)))
    z, u = run.z[-1], sums(run, task.N)
    truths = np.array([f.gradient(z) for f in fs])
    last = np.linalg.norm(setup.rho * (z - u) - truths, axis=1) / np.linalg.norm(truths, axis=1)
    right = sum(_guessed(task, setup, rivals, game) for game in range(games))
    sent, error = np.array(kept).T
    return Leak(task.method, sent, error, float(np.mean(last)), right / games if games else np.nan)


def _guessed(task: Task, setup: Setup, N: int, game: int) -> bool:
    """Agent 0 has one of two data sets that differ in one record; is it the one whose gradient at z is the nearer?"""
    fs, coin = losses(task.kind, N, 1000 + game), game % 2
    other = Loss(fs[0].objective, fs[0].A.copy(), fs[0].b)
    other.A[0] = -fs[0].A[0] if task.kind == "logistic" else 1 - fs[0].A[0]
    candidates = (fs[0], other)
    run = incremental([candidates[coin], *fs[1:]], setup, task.method, [k % N for k in range(VISITS * N)], 1000 + game)
    z = run.z[-1]
    heard_there = setup.rho * (z - sums(run, N)[0])
    errors = [float(np.linalg.norm(heard_there - f.gradient(z))) for f in candidates]
    return int(np.argmin(errors)) == coin


def model(run: Walked, i: int, N: int, setup: Setup, visits: int) -> tuple[Matrix, Vector]:
    """H and h of f_i' = H x - h, ridge under PI-ADMM1, from the tokens of agent i's first visits and public numbers.

    u = x - (H x - h)/rho gives x and y = rho (x - u) from (H, h); (13) between two visits, gamma the one number unknown
    in it and its range public, is p equations. Least squares over (H, h) and the gammas.
    """
    from scipy.optimize import least_squares

    z, rho = np.vstack([np.zeros(P), run.z]), setup.rho
    at = np.flatnonzero(np.array(run.walk) == i)[:visits]
    u, received = np.cumsum(N * (z[at + 1] - z[at]), axis=0), z[at]

    def of(v: Vector) -> tuple[Matrix, Vector]:
        return np.array([[v[0], v[1]], [v[1], v[2]]]), v[3:5]

    def residual(v: Vector) -> Vector:
        H, h = of(v)
        x = np.linalg.solve(np.eye(P) - H / rho, (u - h / rho).T).T
        y = rho * (x - u)
        left: Vector = (np.diff(y, axis=0) - rho * v[5:, None] * (received[1:] - x[1:])).ravel()
        return left

    bound, width = np.full(5, rho / 3), np.full(visits - 1, setup.width / rho)
    first = np.concatenate([[1.0, 0.0, 1.0, 0.0, 0.0], np.ones(visits - 1)])
    box = np.concatenate([-bound, 1 - width]), np.concatenate([bound, 1 + width])
    return of(least_squares(residual, first, bounds=box, x_scale="jac", xtol=1e-15, ftol=1e-15, gtol=1e-15).x)


def models(N: int = 12, visits: int = 10) -> Vector:
    """The relative error of `model` for every agent of a small network, (N,): |(H, h) found - (H, h)|/|(H, h)|."""
    fs, setup = losses("ridge", N), PAPER["ridge"]
    run = incremental(fs, setup, "PI-ADMM1", [k % N for k in range(visits * N)], 0)
    errors = []
    for i, f in enumerate(fs):
        H, h = model(run, i, N, setup, visits)
        scale = f.objective.scale / f.rows
        truth = np.column_stack([scale * f.A.T @ f.A, scale * f.A.T @ f.b])
        errors.append(np.linalg.norm(np.column_stack([H, h]) - truth) / np.linalg.norm(truth))
    return np.array(errors)


# --- the whole ---


def needed(curve: Curve, level: float) -> float:
    """Vectors sent when the mean distance first is at most `level`; NaN where it never is."""
    below = np.flatnonzero(curve.distance <= level)
    return float(curve.sent[below[0]]) if below.size else np.nan


def tables(curves: dict[Task, Curve], leaks: dict[Task, Leak]) -> list[Table]:
    """Accuracy and communication, what an eavesdropper hears, and the whole model it finds."""
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
    found = models()
    told = [(t.kind, k.method, k.error[0], k.error[-1], k.at_optimum, k.game) for t, k in leaks.items()]
    return [
        Table("Accuracy and communication", columns, rows),
        Table(
            "What an eavesdropper hears: relative error of the gradients, and the one-sample game",
            ("problem", "method", "first visit", "last visit", "at the optimum", "game won"),
            told,
        ),
        Table(
            "The whole model of a ridge agent, from its first ten visits under PI-ADMM1: relative error over 12 agents",
            ("median", "worst"),
            [(float(np.median(found)), float(found.max()))],
        ),
    ]


def panels(curves: dict[Task, Curve], settings: Sequence[tuple[int, float]]) -> list[list[Panel]]:
    """A row a problem and measure, a panel a setting: the methods over the vectors sent."""
    return [
        [
            Panel(
                f"{kind}, N = {N}, η = {eta:g}",
                "vectors sent",
                label,
                {
                    m: (curves[Task(kind, N, eta, m)].sent, getattr(curves[Task(kind, N, eta, m)], what))
                    for m in METHODS
                },
                xlog=True,
            )
            for N, eta in settings
        ]
        for kind in PAPER
        for what, label in (("accuracy", "accuracy (21)"), ("distance", "mean |x_i − x*|"))
    ]


def study(settings: Sequence[tuple[int, float]] = SETTINGS, games: int = 200, target: Path = TARGET) -> None:
    """Both figures and the leak, to files."""
    began = time.perf_counter()
    tasks = [Task(kind, N, eta, method) for kind, (N, eta), method in product(PAPER, settings, METHODS)]
    curves = dict(
        zip(tasks, on_two(way, tasks, lambda t: f"{t.kind} N = {t.N} eta = {t.eta:g}: {t.method}"), strict=True)
    )
    heard_of = [Task(kind, settings[0][0], settings[0][1], m) for kind in PAPER for m in LEAKING]
    leaks = dict(zip(heard_of, on_two(leak, heard_of, lambda t: f"{t.kind}: {t.method} overheard"), strict=True))
    title = "Figures 3 and 5 of the PI-ADMM paper again, in (21) and in the distance itself"
    write(
        "incremental-figures",
        COMMAND,
        time.perf_counter() - began,
        tables(curves, leaks),
        chart(title, COMMAND, panels(curves, settings)),
        target,
    )
    pictures = [
        Panel(
            f"{kind}, N = {settings[0][0]}",
            "vectors sent",
            "relative error of a gradient",
            {k.method: (k.sent, k.error) for t, k in leaks.items() if t.kind == kind},
        )
        for kind in PAPER
    ]
    (target / "incremental-leak.svg").write_text(chart("The gradients an eavesdropper hears", COMMAND, [pictures]))
