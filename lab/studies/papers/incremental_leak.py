"""`hushgrid study incremental`, the rest: Figures 4 and 6 of the PI-ADMM paper, and what its token tells (Finding 3.1).

What an eavesdropper does is what `hushgrid attack` does (lab/attacks/incremental.py), here against truths that a study
knows. Figures 4 and 6: x_1(1) and y_1(1) over the first 2000 activations, the paper's estimator (23) beside the forward
recursion, which it does not try. And what N - 1 colluders, to whom the last y_1 is -sum_j y_j (20), gain over that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from hushgrid.kernels.problems.losses import Loss
from hushgrid.kernels.types import Matrix, Vector
from hushgrid.lab.attacks.incremental import Exchanges, backward, estimator, exchanges_of, forward, model
from hushgrid.lab.attacks.transcript import Visit
from hushgrid.lab.studies.common.study import Page, Panel, Table, chart, on_two
from hushgrid.lab.studies.papers.incremental import (
    METHODS,
    PAPER,
    SETTINGS,
    VISITS,
    IncrementalTask,
    P,
    Setup,
    Walked,
    accuracy,
    incremental,
    losses,
    panels,
    tried,
    way,
)

LEAKING = ("I-ADMM", "Algorithm 2", "PI-ADMM1", "PI-ADMM2")
ESTIMATED = ("I-ADMM", "PI-ADMM1", "PI-ADMM2")  #: of Figures 4 and 6
FIRST = 20  #: visits of these figures: 2000 activations of 100 agents


def visits(run: Walked, N: int) -> Iterator[Visit]:
    """A study's run as an eavesdropper has it."""
    before = np.zeros(P)
    for k, (i, z) in enumerate(zip(run.walk, run.z, strict=True)):
        yield Visit(k, i, (before,), (z,), N)
        before = z


def gradients_read(every: dict[int, Exchanges], rho: float) -> Matrix:
    """(K, p) the gradient of the active agent after each activation, as an eavesdropper has it: starts are taken for
    0.
    """
    gradients = np.empty((sum(len(visits.when) for visits in every.values()), P))
    for visits in every.values():
        gradients[visits.when] = forward(visits, rho)[1]
    return gradients


class Leak(NamedTuple):
    method: str
    sent: Vector
    error: Vector  #: |gradient heard - gradient|/|gradient|, the mean over agents
    at_optimum: float  #: the same of rho (z - u_i) against f_i'(z), after the last activation
    game: float  #: the share of right answers to "which of two data sets"


def leak(task: IncrementalTask, games: int = 200, rivals: int = 10) -> Leak:
    """How well an eavesdropper hears the gradients of a run on a cycle; and the one-sample game, a small network a
    game.
    """
    setup = PAPER[task.kind]
    fs = losses(task.kind, task.N, task.seed)
    run = incremental(fs, setup, task.method, [k % task.N for k in range(VISITS * task.N)], task.seed)
    every = exchanges_of(visits(run, task.N))
    now, errors, held = np.full(task.N, np.nan), [], run.start.copy()
    for k, (i, g, x) in enumerate(zip(run.walk, gradients_read(every, setup.rho), run.x, strict=True), 1):
        truth = fs[i].gradient(x if setup.update == "exact" else held[i])  # where the update asked for it
        now[i], held[i] = np.linalg.norm(g - truth) / np.linalg.norm(truth), x
        if k % task.N == 0:
            errors.append((k, np.mean(now)))
    z, u = run.z[-1], np.array([every[i].u[-1] for i in range(task.N)])
    truths = np.array([f.gradient(z) for f in fs])
    last = np.linalg.norm(setup.rho * (z - u) - truths, axis=1) / np.linalg.norm(truths, axis=1)
    right = sum(_guessed(task, setup, rivals, game) for game in range(games))
    sent, error = np.array(errors).T
    return Leak(task.method, sent, error, float(np.mean(last)), right / games if games else np.nan)


def _guessed(task: IncrementalTask, setup: Setup, N: int, game: int) -> bool:
    """Agent 0 has one of two data sets that differ in one record; is it the one whose gradient at z is the nearer?"""
    fs, coin = losses(task.kind, N, 1000 + game), game % 2
    other = Loss(fs[0].objective, fs[0].A.copy(), fs[0].b)
    other.A[0] = -fs[0].A[0] if task.kind == "logistic" else 1 - fs[0].A[0]
    candidates = (fs[0], other)
    run = incremental([candidates[coin], *fs[1:]], setup, task.method, [k % N for k in range(VISITS * N)], 1000 + game)
    z = run.z[-1]
    heard_there = setup.rho * (z - exchanges_of(visits(run, N))[0].u[-1])
    errors = [float(np.linalg.norm(heard_there - f.gradient(z))) for f in candidates]
    return int(np.argmin(errors)) == coin


def models(N: int = 12, count: int = 10) -> Vector:
    """The relative error of `model` for every agent of a small network, (N,): |(H, h) found - (H, h)|/|(H, h)|."""
    fs, setup = losses("ridge", N), PAPER["ridge"]
    run = incremental(fs, setup, "PI-ADMM1", [k % N for k in range(count * N)], 0)
    every, errors = exchanges_of(visits(run, N)), []
    gamma = (1 - setup.width / setup.rho, 1 + setup.width / setup.rho)
    for i, f in enumerate(fs):
        solved = model(every[i], setup.rho, gamma, f.L)
        assert solved is not None
        H, h, _ = solved
        scale = f.objective.scale / f.rows
        truth = np.column_stack([scale * f.A.T @ f.A, scale * f.A.T @ f.b])
        errors.append(np.linalg.norm(np.column_stack([H, h]) - truth) / np.linalg.norm(truth))
    return np.array(errors)


# --- Figures 4 and 6 ---


class Estimates(NamedTuple):
    """x and y of agent 1 after each of its visits, (V, p) each, by name: true, forward, (23), colluders."""

    method: str
    x: dict[str, Matrix]
    y: dict[str, Matrix]
    worst: float  #: |y - y found| by the forward recursion at the last visit, the largest over agents and coordinates


def estimates(task: IncrementalTask, count: int = FIRST) -> Estimates:
    """The first `count` visits to every agent of a cycle."""
    fs, setup, N = losses(task.kind, task.N, task.seed), PAPER[task.kind], task.N
    run = incremental(fs, setup, task.method, [k % N for k in range(count * N)], task.seed)
    every, rho, middle = exchanges_of(visits(run, N)), setup.rho, 0.0
    if task.method != "I-ADMM":
        middle = setup.high / 2
    true_x = {i: run.x[seen.when] for i, seen in every.items()}
    true_y = {i: rho * (true_x[i] - seen.u) for i, seen in every.items()}
    found_x, found_y = forward(every[0], rho, 1.0, middle)
    lx, ly = estimator(every, N, rho)[0]
    last = every[0].u[-1] - sum(true_y[j][-1] for j in range(1, N)) / rho  # x = u + y/rho, y by (20)
    back = backward(every[0], last)
    worst = max(
        float(np.max(np.abs(forward(seen, rho, 1.0, middle)[1][-1] - true_y[i][-1]))) for i, seen in every.items()
    )
    x = {"true": true_x[0], "forward recursion": found_x, "estimator (23)": lx, "N - 1 colluders, backwards": back}
    y = {name: rho * (v - every[0].u) for name, v in x.items()} | {"forward recursion": found_y, "estimator (23)": ly}
    return Estimates(task.method, x, y, worst)


def estimates_table(each: dict[IncrementalTask, Estimates]) -> Table:
    """How far y_1(1) is off at the first visit and the last, by each way."""
    rows = []
    for task, estimate in each.items():
        errors = {name: np.abs(y[:, 0] - estimate.y["true"][:, 0]) for name, y in estimate.y.items() if name != "true"}
        ends = [errors[name][k] for name in errors for k in (0, -1)]
        rows.append((task.kind, task.method, abs(estimate.y["true"][-1, 0]), *ends, estimate.worst))
    columns = (
        "problem", "method", "y at visit 20", "forward: visit 1", "visit 20", "(23): visit 1", "visit 20",
        "colluders: visit 1", "visit 20", "forward, worst of all agents: visit 20",
    )  # fmt: skip
    return Table("Figures 4 and 6: how far y_1(1) is off", columns, rows)


def estimates_panels(each: dict[IncrementalTask, Estimates]) -> list[list[Panel]]:
    """A row a problem, a panel a method: how far y_1(1) is off over the visits. In place of the paper's lines, which
    lie on each other, what is between them."""
    rows = []
    for kind in PAPER:
        row = []
        for task, estimate in each.items():
            if task.kind == kind:
                k = np.arange(1.0, len(estimate.y["true"]) + 1)
                curves = {
                    name: (k, np.maximum(np.abs(y[:, 0] - estimate.y["true"][:, 0]), 1e-17))
                    for name, y in estimate.y.items()
                    if name != "true"
                }
                curves["|y| itself"] = (k, np.abs(estimate.y["true"][:, 0]))
                row.append(Panel(f"{kind}, {task.method}", "visit to agent 1", "|y_1(1) found − y_1(1)|", curves))
        rows.append(row)
    return rows


# --- the whole ---


def tables(leaks: dict[IncrementalTask, Leak], each: dict[IncrementalTask, Estimates]) -> list[Table]:
    """What an eavesdropper hears, the whole models it finds, Figures 4 and 6."""
    errors = models()
    rows = [(t.kind, k.method, k.error[0], k.error[-1], k.at_optimum, k.game) for t, k in leaks.items()]
    return [
        Table(
            "What an eavesdropper hears: relative error of the gradients, and the one-sample game",
            ("problem", "method", "first visit", "last visit", "at the optimum", "game won"),
            rows,
        ),
        Table(
            "The whole model of a ridge agent, from its first ten visits under PI-ADMM1: relative error over 12 agents",
            ("median", "worst"),
            [(float(np.median(errors)), float(errors.max()))],
        ),
        estimates_table(each),
    ]


def study(settings: Sequence[tuple[int, float]] = SETTINGS, games: int = 200) -> list[Page]:
    """All four figures and the leak."""
    tasks = [IncrementalTask(kind, N, eta, method) for kind, (N, eta), method in product(PAPER, settings, METHODS)]
    ways = on_two(way, tasks, lambda t: f"{t.kind} N = {t.N} eta = {t.eta:g}: {t.method}")
    curves = dict(zip(tasks, ways, strict=True))
    leaking = [IncrementalTask(kind, *settings[0], m) for kind in PAPER for m in LEAKING]
    leaks = dict(zip(leaking, on_two(leak, leaking, lambda t: f"{t.kind}: {t.method} overheard"), strict=True))
    four = {t: estimates(t) for t in (IncrementalTask(kind, *settings[0], m) for kind in PAPER for m in ESTIMATED)}
    gradients = [
        Panel(
            f"{kind}, N = {settings[0][0]}",
            "vectors sent",
            "relative error of a gradient",
            {k.method: (k.sent, k.error) for t, k in leaks.items() if t.kind == kind},
        )
        for kind in PAPER
    ]
    convergence = "Figures 3 and 5 of the PI-ADMM paper again, in (21) and in the distance itself"
    guesses = "Figures 4 and 6 of the PI-ADMM paper: the error of each estimate of y"
    pictures = {
        "incremental-figures.svg": chart(convergence, panels(curves, settings)),
        "incremental-leak.svg": chart("The gradients an eavesdropper hears", [gradients]),
        "incremental-estimates.svg": chart(guesses, estimates_panels(four)),
    }
    return [Page("incremental-figures", [accuracy(curves), tried(settings[0]), *tables(leaks, four)], pictures)]
