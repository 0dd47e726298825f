"""`hushgrid study relay`: Tables I to III of L. Wang, L. Guo, S. Yang, X. Shi (RECAL), measured; and what a budget
costs.

Tables I to III give orders of growth. Here every method solves the same least squares to the same accuracy on complete
graphs, rings and geometric graphs of 8, 16 and 32 agents; a question to the data is one gradient for all of them. What
is counted, as in the paper: activations (gradients, of all agents together); the privacy leakage frequency
Theta_K = max_i of agent i's activations after K iterations; and vectors sent. Each method's one parameter is the best
of a grid, by activations. lab/studies/relay has the rest of the study.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import inf, isfinite, nan, pi, sqrt
from typing import NamedTuple

import numpy as np

from hushgrid.kernels.algorithms import extra, iadmm, nids, recal
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.graphs import Graph, Network, cyclic_route
from hushgrid.kernels.patterns.neighbours import NodeContext
from hushgrid.kernels.problems.centralised import optimum
from hushgrid.kernels.problems.losses import Loss, Objective
from hushgrid.kernels.problems.prox import Regularizer
from hushgrid.kernels.types import Matrix, Vector
from hushgrid.lab.rollout.compiled import iadmm as whole_iadmm
from hushgrid.lab.rollout.compiled import recal as whole_recal
from hushgrid.lab.rollout.machines import run_rounds
from hushgrid.lab.studies.baselines import coca, rwadmm
from hushgrid.lab.studies.common.study import Exact, Page, Panel, Table, chart, on_two, random_walk
from hushgrid.lab.studies.relay import private, rivals
from hushgrid.node.problems.records.data import Synthetic, synthetic

GRAPHS = ("complete", "ring", "geometric")
SIZES = (8, 16, 32)
ACCURACY = 1e-6  #: relative error at which a method is stopped
SEEDS = 3  #: walks, where a method walks at random; the median counts
LIMIT = 200_000  #: activations after which a run is given up
AT_ONCE = 2000  #: activations between two looks at the error
ROWS, FEATURES = 30, 5  #: of each agent, by node/problems/records/data.py `synthetic`

#: Each method's parameter and its grid: RECAL's alpha_i in units of 1/(L_i + 1), steps of EXTRA and NIDS in units of
#: 1/max L_i, the others' rho in units of max L_i.
METHODS: dict[str, Sequence[float]] = {
    "RECAL, random walk": (1.0, 1.9), "RECAL, cycle": (1.0, 1.9), "W-ADMM": (2.0, 1.4, 4.0), "I-ADMM": (2.0, 1.4, 4.0),
    "RW-ADMM": (2.0, 0.5, 8.0, 0.125), "ADMM, synchronous": (2.0, 0.5, 8.0, 0.125),
    "EXTRA": (0.6, 0.3, 0.15, 0.9, 1.4), "NIDS": (0.5, 0.25, 1.0, 0.125, 1.5),
}  # fmt: skip
ROUNDS = {"EXTRA": extra.Params, "NIDS": nids.Params}
#: Of these nothing is drawn.
STILL = ("RECAL, cycle", "I-ADMM", "ADMM, synchronous", "EXTRA", "NIDS")
#: Orders of growth in n that Tables I and II claim: (PLF, communication) on complete graphs and on rings. I-ADMM and
#: W-ADMM are not in them.
CLAIMED = {
    "RECAL, random walk": {"complete": (0, 1), "ring": (0, 1)},
    "RW-ADMM": {"complete": (2, 3), "ring": (2, 3)},
    **{name: {"complete": (0, 2), "ring": (2, 3)} for name in ("ADMM, synchronous", "EXTRA", "NIDS")},
}


class State(NamedTuple):
    """A method after one activation, or (synchronous) one round."""

    error: float
    active: Sequence[int]
    sent: int  #: vectors so far


class Problem(NamedTuple):
    graph: Graph
    losses: list[Loss]
    L: list[float]
    star: Vector  #: x*

    def errors(self, x: Matrix) -> Vector:
        """|x - x*|/|x*| of every row of x (K, q)."""
        each: Vector = np.linalg.norm(x - self.star, axis=1) / np.linalg.norm(self.star)
        return each


class RelayTask(NamedTuple):
    kind: str
    n: int
    method: str
    limit: int
    seeds: int


class RelayResult(NamedTuple):
    """A method's best parameter on one graph; medians over seeds. Infinite: not within the limit."""

    task: RelayTask
    edges: int
    parameter: float
    activations: float
    plf: float
    sent: float
    curve: tuple[Vector, Vector]  #: (vectors sent, relative error) of the first seed


def network(kind: str, n: int) -> Graph:
    """The graph; geometric: about five neighbours a node, the first seed that is connected.

    Raises InputError if none of a thousand is.
    """
    if kind != "geometric":
        return Network(kind=kind, nodes=n).build()  # type: ignore[arg-type]
    radius = sqrt(6 / (pi * (n - 1)))  # a node near the border has fewer neighbours than 6
    for seed in range(1000):
        try:
            return Network(kind="geometric", nodes=n, radius=radius, seed=seed).build()
        except InputError:  # not connected
            continue
    raise InputError(f"network: found no connected geometric graph of {n} nodes, expected one in 1000 seeds")


def problem(kind: str, n: int) -> Problem:
    """min sum_i f_i, f_i = 1/2 mean (a.x - b)^2 over agent i's rows."""
    shards = synthetic(Synthetic(rows=ROWS, features=FEATURES, seed=1), "least-squares", n)
    losses = [Loss(Objective(kind="least-squares"), s.A, s.b) for s in shards]
    L = [float(np.linalg.eigvalsh(f.A.T @ f.A / f.rows)[-1]) for f in losses]
    return Problem(network(kind, n), losses, L, optimum(losses, Regularizer()).x)


def context(p: Problem, i: int) -> NodeContext:
    """What a node among neighbours is made from."""
    return NodeContext(
        gate=Exact(p.losses[i]),
        name=f"n{i}",
        neighbours=[f"n{j}" for j in p.graph.neighbours[i]],
        graph=p.graph,
        index=i,
        size=FEATURES,
        L=p.L,
        regularizer=Regularizer(),
        report=LIMIT,
    )


def states(p: Problem, method: str, parameter: float, seed: int, limit: int) -> Iterator[State]:
    """The method on the problem, one gradient a question."""
    n, neighbours, rho = len(p.losses), p.graph.neighbours, parameter * max(p.L)
    of_degree = rho * n / (2 * len(p.graph.edges))  # times d_i it is about rho
    if method == "ADMM, synchronous":  # COCA without a censor: everything is informative
        q = coca.Params(rounds=limit // n, c=of_degree, alpha=1e-300, update="first-order")
        for r in coca.run(q, [Exact(f) for f in p.losses], neighbours, FEATURES, p.L):
            yield State(float(np.mean(p.errors(r.x))), range(n), r.sent)
        return
    if method in ROUNDS:
        made = ROUNDS[method](rounds=limit // n, variant="none", step_size=parameter / max(p.L))
        for k, x in enumerate(run_rounds([made.agent(context(p, i)) for i in range(n)]), 1):
            yield State(float(np.mean(p.errors(x))), range(n), 2 * len(p.graph.edges) * k)
        return
    cycle = cyclic_route(p.graph).nodes
    around = method in ("RECAL, cycle", "I-ADMM")
    walk = [cycle[k % len(cycle)] for k in range(limit)] if around else random_walk(p.graph, limit, seed)
    if method == "RW-ADMM":
        w = rwadmm.Params(rounds=limit, rho=of_degree, update="first-order")
        for step in rwadmm.run(w, [Exact(f) for f in p.losses], neighbours, FEATURES, walk, p.L):
            yield State(float(np.mean(p.errors(step.x))), (step.i,), step.sent)
        return
    agents: whole_recal.Agents | whole_iadmm.Agents
    if method.startswith("RECAL"):
        alpha = tuple(parameter / (L + 1) for L in p.L)
        agents = whole_recal.Agents(recal.Params(rounds=limit, variant="none", alpha=alpha), p.losses, Regularizer())
        vectors = 2
    else:
        agents = whole_iadmm.Agents(iadmm.Params(rounds=limit, variant="none", rho=rho, update="first-order"), p.losses)
        vectors = 1
    for first in range(0, limit, AT_ONCE):
        part = walk[first : first + AT_ONCE]
        errors = p.errors(agents.walk(part, record=True)[:, 0]).tolist()
        yield from (State(e, (i,), (first + k) * vectors) for k, (i, e) in enumerate(zip(part, errors, strict=True), 1))


def reached(p: Problem, method: str, parameter: float, seed: int, limit: int) -> tuple[list[float], list[State]]:
    """(activations, PLF, vectors) at ACCURACY, infinite where it is not reached; and some states on the way."""
    visits, curve, next_kept = np.zeros(len(p.losses), dtype=np.int64), [], 1.0
    for state in states(p, method, parameter, seed, limit):
        visits[list(state.active)] += 1
        if state.error <= ACCURACY or state.sent >= next_kept:
            curve.append(state)
            next_kept = 1.02 * state.sent
        if state.error <= ACCURACY:
            return [float(visits.sum()), float(visits.max()), float(state.sent)], curve
        if not state.error < 1e6:  # diverges
            break
    return [inf, inf, inf], curve


def measure(task: RelayTask) -> RelayResult:
    """One method on one graph: the best of its grid."""
    p = problem(task.kind, task.n)
    seeds = 1 if task.method in STILL else task.seeds
    best, limit = RelayResult(task, len(p.graph.edges), nan, inf, inf, inf, (np.zeros(0), np.zeros(0))), task.limit
    for parameter in METHODS[task.method]:
        runs = [reached(p, task.method, parameter, seed, limit) for seed in range(seeds)]
        activations, plf, sent = np.median([figures for figures, _ in runs], axis=0)
        if activations < best.activations:
            sent_on_way, errors = np.array([(s.sent, s.error) for s in runs[0][1]]).T
            best = RelayResult(task, best.edges, parameter, activations, plf, sent, (sent_on_way, errors))
            limit = min(limit, int(2 * activations))  # what takes longer is not the best
    return best


def growth(lines: Sequence[RelayResult], what: str) -> float:
    """The exponent of n, by least squares of the logarithms; NaN where one is not measured."""
    values = [getattr(line, what) for line in lines]
    if len(values) < 2 or not all(map(isfinite, values)):
        return nan
    return float(np.polyfit(np.log([line.task.n for line in lines]), np.log(values), 1)[0])


def tables(lines: Sequence[RelayResult]) -> list[Table]:
    """Counts, and their growth beside what is claimed."""
    columns = ("graph", "n", "edges", "method", "parameter", "activations", "PLF", "vectors sent")
    counted = [
        (li.task.kind, li.task.n, li.edges, li.task.method, li.parameter, li.activations, li.plf, li.sent)
        for li in lines
    ]
    grown = []
    for kind, method in product(GRAPHS, METHODS):
        same = [li for li in lines if li.task.kind == kind and li.task.method == method]
        plf, sent = CLAIMED.get(method, {}).get(kind, ("", ""))
        if same:
            grown.append((kind, method, growth(same, "plf"), plf, growth(same, "sent"), sent))
    return [
        Table(f"Tables I to III, measured: to a relative error of {ACCURACY:g}", columns, counted),
        Table(
            "Growth with n: the exponent",
            ("graph", "method", "PLF", "PLF claimed", "vectors", "vectors claimed"),
            grown,
        ),
    ]


def picture(lines: Sequence[RelayResult]) -> str:
    """PLF and vectors over n, and the error over vectors on the largest graph."""
    rows = []
    for what, label in (("plf", "privacy leakage frequency"), ("sent", "vectors sent")):
        rows.append(
            [
                Panel(
                    kind,
                    "agents",
                    label,
                    {
                        method: (
                            np.array([li.task.n for li in same], np.float64),
                            np.array([getattr(li, what) for li in same]),
                        )
                        for method in METHODS
                        if (same := [li for li in lines if (li.task.kind, li.task.method) == (kind, method)])
                    },
                    xlog=True,
                    marks=True,
                )
                for kind in GRAPHS
            ]
        )
    middle = sorted({li.task.n for li in lines})[len({li.task.n for li in lines}) // 2]
    rows.append(
        [
            Panel(
                f"{kind}, {middle} agents",
                "vectors sent",
                "relative error",
                {li.task.method: li.curve for li in lines if (li.task.kind, li.task.n) == (kind, middle)},
                xlog=True,
            )
            for kind in GRAPHS
        ]
    )
    return chart("Tables I to III of the RECAL paper, measured", rows)


def study(sizes: Sequence[int] = SIZES, limit: int = LIMIT, seeds: int = SEEDS) -> list[Page]:
    """Counts on graphs; where answers cost something; and all methods of Tables IV and V."""
    tasks = [RelayTask(kind, n, method, limit, seeds) for kind, n, method in product(GRAPHS, sizes, METHODS)]
    lines = on_two(measure, tasks, lambda t: f"{t.kind} of {t.n}: {t.method}")
    return [
        Page("relay-graphs", tables(lines), {"relay-graphs.svg": picture(lines)}),
        private.page(),
        rivals.page(),
    ]
