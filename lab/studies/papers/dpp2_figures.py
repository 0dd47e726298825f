"""`hushgrid study dpp2-figures`: Figures 1 to 3 of Z. Ou, D. Wang, Z. Liu, J. Lu (DPP2), with the honest epsilon
beside.

Section VI: N = 50 nodes on a geometric graph (r = .3), m = 200 rows of d = 10 features and a label each, drawn at
random, logistic loss with the nonconvex penalty (lambda = .001, omega = 1); K = 500. The optimality is (31). Figure 3
compares with DiaDSP and PPDC, reconstructed, with the paper's parameters and Metropolis weights.

Table I's methods at one honest total: every node is to give K answers for TOTAL in all, one record replaced and each
record's gradient clipped. The noise is the gate's (Gaussian, GDP), or the method's own where its proof gives a finite
epsilon. Each step is the best of STEPS on other seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import inf, nan
from typing import NamedTuple

import numpy as np

from hushgrid.kernels.algorithms import diadsp, dmsp, dpp2, ppdc, privsgp, weakening
from hushgrid.kernels.algorithms.base import Rounds
from hushgrid.kernels.algorithms.mixing import metropolis
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.graphs import Graph
from hushgrid.kernels.patterns import routes
from hushgrid.kernels.patterns.neighbours import Neighbour, NodeContext
from hushgrid.kernels.privacy.limits import mu_max
from hushgrid.kernels.problems.losses import Loss
from hushgrid.kernels.problems.prox import Regularizer
from hushgrid.kernels.randomness import counter_generator
from hushgrid.kernels.types import Document, Matrix, Vector
from hushgrid.lab.benchmarks.rounds import OBJECTIVE, connected
from hushgrid.lab.rollout.compiled import dpp2 as whole_dpp2
from hushgrid.lab.rollout.machines import run_rounds
from hushgrid.lab.studies.baselines import diff2
from hushgrid.lab.studies.common.study import Exact, Page, Panel, Table, chart, on_two

N, ROWS, D, RADIUS = 50, 200, 10, 0.3
ROUNDS = 501  #: k = 0..K, K = 500
M = 5.03  #: the paper's, of its own random rows
CHANGE = 1.0  #: delta of Theorem 3: how far two gradients may be apart; a number that the paper leaves open
LONGER = 16  #: times K, to which one run goes on
EVERY = 5  #: rounds between two points of a curve
DECAYS = (0.0, 0.5, 0.9, 0.95, 0.97, 0.98, 0.99)  #: Figure 1, u = 1; 0: no noise
SCALES = (0.0, 0.1, 0.3, 0.6, 1.0, 3.0, 5.0)  #: Figure 2, r = .95
ETAS = (0.1, 0.5, 0.9, "random")
RIVALRY = tuple(k / 10 for k in range(1, 10))  #: r of Figure 3
METHODS = ("DPP2", "DiaDSP", "PPDC")

TOTAL, DELTA, CLIP = 4.0, 1e-5, 1.0  #: (epsilon, delta) of a node over all answers; a method's own noise has delta 0
STEPS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
TUNED_ON, SHOWN = (1000, 1001), (0, 1, 2, 3, 4)  #: seeds of the noise
#: Method and noise. DiaDSP and PPDC state no epsilon here, and PrivSGP-VR's and DIFF2's own noise is Gaussian.
CELLS = (
    *((method, "gate") for method in ("DPP2", "DiaDSP", "PPDC", "PrivSGP-VR", "DMSP", "weakening factor", "DIFF2")),
    *((method, "own") for method in ("DPP2", "DMSP", "weakening factor")),
)


class Dpp2Task(NamedTuple):
    figure: str  #: 1, 2, eta, long or 3
    method: str
    r: float
    u: float
    eta: float | str
    n: int
    rounds: int


class Dpp2Result(NamedTuple):
    task: Dpp2Task
    k: Vector
    optimality: Vector  #: (31) after round k
    gradient: float  #: |sum_i f_i'(x_i)/N|^2 at the end
    merging: float  #: the largest entry of y, less x: what merging by eta adds to it
    x: Matrix


def problem(n: int) -> tuple[list[Loss], Graph]:
    """The paper's recipe: z from N(0, I), y a fair sign; nothing can be learnt but chance."""
    draw = counter_generator(0, "dpp2 figures", 0)
    fs = [Loss(OBJECTIVE, draw.normal(size=(ROWS, D)), np.sign(draw.normal(size=ROWS))) for _ in range(n)]
    return fs, connected(n, RADIUS if n >= N else 0.8)


def parameters(task: Dpp2Task) -> dpp2.Params:
    """Section VI's; Figure 3 has its own alpha and u_w. Without noise, r and u are any."""
    eta = counter_generator(0, "dpp2 eta", 0).uniform(0.01, 0.99, task.rounds)
    third = task.figure == "3"
    return dpp2.Params(
        variant="published",
        rounds=task.rounds,
        alpha=0.0994 if third else 0.1,
        beta=0.05,
        rho=10.0,
        eta=tuple(eta.tolist()) if isinstance(task.eta, str) else task.eta,
        decay=task.r or 0.5,
        u_w=(task.u or 1.0) * (0.994 if third else 1.0),
        u_e=task.u or 1.0,
    )


def measure(task: Dpp2Task) -> Dpp2Result:
    """One run, in this process."""
    fs, graph = problem(task.n)
    return _dpp2(task, fs, graph) if task.method == "DPP2" else _rival(task, fs, graph)


def _dpp2(task: Dpp2Task, fs: Sequence[Loss], graph: Graph) -> Dpp2Result:
    p, shape = parameters(task), (task.rounds, len(fs), D)
    w = e = None
    if task.r and task.u:
        scales = np.array([p.theta(k) for k in range(task.rounds)])
        w, e = (
            scales[:, place, None, None] * counter_generator(0, f"dpp2 {name}", 0).laplace(size=shape)
            for place, name in enumerate("we")
        )
    nodes = whole_dpp2.Nodes(p, fs, graph)
    x = nodes.run(task.rounds, w=w, e=e, record=True)[:, 0]
    k = range(EVERY - 1, task.rounds, EVERY)
    g = _gradients(fs, x[-1])
    added = (1.0 - p.eta_k(task.rounds)) * float(np.max(np.abs(nodes.d)))
    optimality = np.array([dpp2.stationarity(x[i], _gradients(fs, x[i])) for i in k])
    return Dpp2Result(task, np.array(k, np.float64) + 1, optimality, float(np.sum(g.mean(axis=0) ** 2)), added, x[-1])


class Publishing(Exact):
    """An exact oracle with a paper's noise: Laplace, of the scale that is asked."""

    def __init__(self, loss: Loss, node: str) -> None:
        super().__init__(loss)
        self.draw = counter_generator(0, f"{node} published", 0)

    def perturb(self, x: Vector, scale: float = 0.0) -> Vector:
        return x + scale * self.draw.laplace(size=x.size)


def _rival(task: Dpp2Task, fs: Sequence[Loss], graph: Graph) -> Dpp2Result:
    nodes: list[Neighbour] = []
    for i, f in enumerate(fs):
        node = routes.name(i)
        weights = {routes.name(j): w for j, w in zip(graph.neighbours[i], metropolis(graph, i), strict=True)}
        gate = Publishing(f, node)
        if task.method == "DiaDSP":
            tracking = diadsp.Params(
                variant="published", rounds=task.rounds, alpha=0.01, decay=task.r, u_x=2 * task.u, u_y=5 * task.u
            )
            nodes.append(diadsp.Node(tracking, gate, weights, D, node))
        else:
            dual = ppdc.Params(
                variant="published",
                rounds=task.rounds,
                gamma=65.0,
                omega=5.0,
                eta=0.01,
                decay=task.r,
                u_x=task.u,
                u_v=task.u,
            )
            nodes.append(ppdc.Node(dual, gate, weights, D, node))
    for _ in run_rounds(nodes):
        pass
    x = np.array([node.state.x for node in nodes])
    g = _gradients(fs, x)
    at_end = np.array([dpp2.stationarity(x, g)])
    return Dpp2Result(task, np.array([float(task.rounds)]), at_end, float(np.sum(g.mean(axis=0) ** 2)), nan, x)


# --- Table I at one honest total ---


class TotalTask(NamedTuple):
    method: str
    noise: str  #: gate or own
    step: float
    seed: int
    n: int
    answers: int  #: of a node


class AtOneTotal(Exact):
    """A node's records, clipped: with Gaussian noise of sd a coordinate, or exact behind a method's own noise."""

    def __init__(self, loss: Loss, node: str, seed: int, sd: float) -> None:
        super().__init__(loss)
        self.draw, self.sd = counter_generator(seed, f"{node} total", 0), sd

    def exact_gradient(self, x: Vector) -> Vector:
        return self.loss.clipped_gradient(x, CLIP, 2) + self.loss.public_gradient(x)

    def gradient(self, x: Vector) -> Vector:
        return self.exact_gradient(x) + self.sd * self.draw.normal(size=x.size)

    def perturb(self, x: Vector, scale: float = 0.0) -> Vector:
        return x + scale * self.draw.laplace(size=x.size)


def sections(task: TotalTask, change: float, least: float, f: Loss) -> Rounds:
    """The method's parameters. Its own noise is scaled so that epsilon is TOTAL: all of them go as 1/scale.

    change: how far a record moves a node's gradient. least: the smallest sum_j W_ij of a node. f: that of the largest
    L.
    """
    K, step, publishes = task.answers, task.step, task.noise == "own"
    common: Document = {"variant": "published" if publishes else "guarded", "rounds": K}
    if task.method == "DPP2":
        keys = common | {"alpha": step, "beta": step / 2, "rho": 1.0}
        if not publishes:
            return dpp2.Params(**keys)
        keys |= {"eta": 0.5, "decay": 0.99}
        u = dpp2.epsilon(dpp2.Params(**keys, u_w=1.0, u_e=1.0), change, M, D) / TOTAL
        return dpp2.Params(**keys, u_w=u, u_e=u)
    if task.method == "DMSP":
        keys = common | {"c": step, "q": 0.99}
        if not publishes:
            return dmsp.Params(**keys)
        return dmsp.Params(**keys, p=0.995, b=dmsp.epsilon(dmsp.Params(**keys, p=0.995, b=1.0), change, D) / TOTAL)
    if task.method == "weakening factor":
        keys = common | {"step": step, "a": 0.9, "chi": 0.7, "b": 0.7}
        if not publishes:
            return weakening.Params(**keys)
        u = (
            weakening.epsilon(weakening.Params(**keys, u=1.0, s=0.1), change, D, least, f.L, -f.objective.convexity)
            / TOTAL
        )
        return weakening.Params(**keys, u=u, s=0.1)
    if task.method == "PPDC":
        return ppdc.Params(**common, eta=step, gamma=0.5 / step, omega=0.3 / step)
    later = common | {"rounds": K + 1}  # message 1 takes no answer
    if task.method == "DiaDSP":
        return diadsp.Params(**later, alpha=step)
    return privsgp.Params(**later, step_size=step)


def at_one_total(task: TotalTask) -> tuple[float, float]:
    """|sum_i f_i'(x_i)/N|^2 and (31) at the end of one run; infinite where the method refuses the step."""
    fs, graph = problem(task.n)
    mu = mu_max(TOTAL, DELTA)
    if task.method == "DIFF2":
        p = diff2.Params(rounds=task.answers, step=task.step, clip=CLIP, smooth=M, mu=mu)
        *_, last = diff2.run(p, fs, counter_generator(task.seed, "DIFF2", 0))
        x = np.tile(last, (task.n, 1))
    else:
        try:
            *_, x = run_rounds(*_fleet(task, fs, graph, mu))
        except InputError:
            return inf, inf
    g = _gradients(fs, x)
    return float(np.sum(g.mean(axis=0) ** 2)), dpp2.stationarity(x, g)


def _fleet(task: TotalTask, fs: Sequence[Loss], graph: Graph, mu: float) -> tuple[list[Neighbour], int]:
    """The nodes of a run, and the messages of a round. mu: of all answers. Raises InputError if they are unstable."""
    change, least = fs[0].sensitivity(CLIP), min(sum(metropolis(graph, i)) for i in range(graph.n))
    section = sections(task, change, least, max(fs, key=lambda f: f.L))
    nodes = []
    for i, f in enumerate(fs):
        around = [routes.name(j) for j in graph.neighbours[i]]
        gate = AtOneTotal(f, routes.name(i), task.seed, change * task.answers**0.5 / mu)
        context = NodeContext(
            gate=gate, name=routes.name(i), neighbours=around, graph=graph, index=i, size=D, L=[M],
            regularizer=Regularizer(), report=1,
        )  # fmt: skip
        nodes.append(section.agent(context))
    return nodes, section.messages


def honest(cells: Sequence[tuple[str, str]], steps: Sequence[float], n: int, answers: int) -> Table:
    """Each cell at its best step. At 0 no data are used."""
    tuning = [TotalTask(*cell, step, seed, n, answers) for cell in cells for step in steps for seed in TUNED_ON]
    worth = dict(zip(tuning, on_two(at_one_total, tuning, lambda t: f"step: {t}"), strict=True))

    def least(cell: tuple[str, str], step: float) -> float:
        return sum(worth[TotalTask(*cell, step, seed, n, answers)][1] for seed in TUNED_ON)

    best = {cell: min(steps, key=lambda step: least(cell, step)) for cell in cells}
    last = [TotalTask(*cell, best[cell], seed, n, answers) for cell in cells for seed in SHOWN]
    ended = dict(zip(last, on_two(at_one_total, last, lambda t: f"total: {t}"), strict=True))
    g = _gradients(problem(n)[0], zero := np.zeros((n, D)))
    rows: list[Sequence[str | float]] = []
    for cell in cells:
        each = np.array([ended[TotalTask(*cell, best[cell], seed, n, answers)] for seed in SHOWN])
        spread = each.std(axis=0, ddof=1)
        delta = DELTA if cell[1] == "gate" else 0.0
        rows.append((*cell, delta, best[cell], each[:, 0].mean(), spread[0], each[:, 1].mean(), spread[1]))
    at_zero = float(np.sum(g.mean(axis=0) ** 2)), dpp2.stationarity(zero, g)
    rows.append(("x = 0", "none", 0.0, 0.0, at_zero[0], 0.0, at_zero[1], 0.0))
    columns = ("method", "noise", "delta", "step", "|f'(x)/N|²", "its spread", "(31)", "its spread ")
    return Table(f"One total: ε = {TOTAL:g}, one record, {answers} answers, {len(SHOWN)} seeds", columns, rows)


def _gradients(fs: Sequence[Loss], x: Matrix) -> Matrix:
    return np.array([f.gradient(v) for f, v in zip(fs, x, strict=True)])


# --- tables and pictures ---


def claims(task: Dpp2Task) -> tuple[float, float]:
    """Epsilon by Theorem 3, and by its own proof with k = 0 (the final x withheld). Without noise both are
    unbounded.
    """
    if not (task.r and task.u):
        return inf, inf
    p = parameters(task)
    return dpp2.claimed_epsilon(p, CHANGE, M, D), dpp2.epsilon(p, CHANGE, M, D)


def tables(lines: Sequence[Dpp2Result]) -> list[Table]:
    def in_figure(figure: str) -> list[Dpp2Result]:
        return [li for li in lines if li.task.figure == figure]

    first = [
        (li.task.figure, li.task.r, li.task.u, li.optimality[len(li.k) // 5], li.optimality[-1], *claims(li.task))
        for li in (*in_figure("1"), *in_figure("2"))
    ]
    merged = in_figure("eta")
    eta = [
        (str(li.task.eta), li.optimality[-1], float(np.max(np.abs(li.x - merged[0].x))), li.merging, *claims(li.task))
        for li in merged
    ]
    gone_on = [
        (int(k), li.optimality[int(k) // EVERY - 1]) for li in in_figure("long") for k in li.k if _doubled(k, lines[0])
    ]
    third = [
        (li.task.r, li.task.method, li.gradient, li.optimality[-1], *_rivals_claim(li.task)) for li in in_figure("3")
    ]
    task = lines[0].task
    graph = problem(task.n)[1]
    P = np.eye(graph.n) - graph.metropolis()
    conditions = [
        (c.where, c.actual, c.below, "yes" if c.holds else "no") for c in dpp2.conditions(parameters(task), P, M)
    ]
    claimed = "ε by Theorem 3", "ε by its proof"
    K = task.rounds - 1
    return [
        Table(
            f"Figures 1 and 2: (31), random η, K = {K}",
            ("figure", "r", "u", f"(31) at k = {K // 5}", "(31) at K", *claimed),
            first,
        ),
        Table("η: r = .9, u = 1", ("η", "(31) at K", "|x - x of the first|", "|y - x|, largest", *claimed), eta),
        Table("r = .9, u = 1, for longer", ("round", "(31)"), gone_on),
        Table("Figure 3: |f'(x)/N|² at K", ("r", "method", "|f'(x)/N|²", "(31)", *claimed), third),
        Table("(24)-(27) at the paper's parameters", ("condition", "found", "below", "holds"), conditions),
    ]


def _doubled(k: float, line: Dpp2Result) -> bool:
    """Whether k is a run's last point, or that times a power of 2."""
    return bool(np.log2(k / line.k[-1]) % 1 == 0 and k >= line.k[-1])


def _rivals_claim(task: Dpp2Task) -> tuple[float, float]:
    return claims(task) if task.method == "DPP2" else (nan, nan)  # reconstructed: none is claimed


def picture(lines: Sequence[Dpp2Result]) -> str:
    def panel(figure: str, title: str, label: str, place: int) -> Panel:
        curves = {f"{label} = {li.task[place]}": (li.k, li.optimality) for li in lines if li.task.figure == figure}
        return Panel(title, "round k", "(31)", curves)

    third = {
        method: (np.array([li.task.r for li in same]), np.array([li.gradient for li in same]))
        for method in METHODS
        if (same := [li for li in lines if (li.task.figure, li.task.method) == ("3", method)])
    }
    return chart(
        "Figures 1 to 3 of the DPP2 paper again",
        [
            [panel("1", "Figure 1: u = 1", "r", 2), panel("2", "Figure 2: r = .95", "u", 3)],
            [panel("eta", "r = .9, u = 1", "η", 4)],
            [Panel("Figure 3", "r", "|f'(x)/N|² at K", third, marks=True)],
        ],
    )


def study(
    n: int = N, rounds: int = ROUNDS, rivalry: Sequence[float] = RIVALRY, steps: Sequence[float] = STEPS
) -> list[Page]:
    """All three figures, eta, more rounds, and Table I's methods at one honest total."""
    tasks = [Dpp2Task("1", "DPP2", r, 1.0, "random", n, rounds) for r in DECAYS]
    tasks += [Dpp2Task("2", "DPP2", 0.95, u, "random", n, rounds) for u in SCALES]
    tasks += [Dpp2Task("eta", "DPP2", 0.9, 1.0, eta, n, rounds) for eta in ETAS]
    tasks += [Dpp2Task("long", "DPP2", 0.9, 1.0, 0.5, n, LONGER * rounds)]
    tasks += [Dpp2Task("3", method, r, 1.0, "random", n, rounds) for r, method in product(rivalry, METHODS)]
    lines = on_two(measure, tasks, lambda t: f"{t.figure}: {t.method}, r = {t.r:g}, u = {t.u:g}, eta = {t.eta}")
    total = honest(CELLS, steps, n, rounds - 1)
    return [Page("dpp2-figures", [*tables(lines), total], {"dpp2-figures.svg": picture(lines)})]
