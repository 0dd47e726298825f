"""One run on made-up rows: its machines and gates, the noise of the declared number of rows, and what the answer is
worth.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import ceil, inf, isfinite, sqrt
from typing import Any, NamedTuple

import msgspec
import numpy as np
from scipy.optimize import minimize

from hushgrid.kernels.algorithms.mixing import metropolis
from hushgrid.kernels.errors import InputError, Refused
from hushgrid.kernels.privacy.noise import Lattice, simulated
from hushgrid.kernels.problems.centralised import optimum
from hushgrid.kernels.problems.losses import Loss, Objective
from hushgrid.kernels.problems.prox import Regularizer
from hushgrid.kernels.types import Document, Index, Matrix, Vector
from hushgrid.lab.planning import synthetic
from hushgrid.lab.planning.shape import Shape
from hushgrid.lab.planning.synthetic import Source
from hushgrid.lab.rollout.batch import rollout
from hushgrid.lab.rollout.machines import AllowAll
from hushgrid.node.config.planning import make_plan
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.privacy.noise_source import SeededNoise
from hushgrid.node.problems.plan import RunPlan
from hushgrid.node.problems.records.gate import RowsGate
from hushgrid.node.problems.records.section import DataPlan

GOSSIP = (0, 5, 10, 20, 40)  #: rounds of averaging that are tried
MADE = 1 << 20  #: numbers of the rows that are made up for one run, about
TESTED = 4000  #: made-up rows that models are tested on


class Played(NamedTuple):
    """One run, or what stands beside it: excess loss, and the error on made-up rows that nobody has learned from."""

    excess: tuple[
        float, ...
    ]  #: of the median node's own model, after each of GOSSIP; one number where nothing is averaged
    error: tuple[float, ...]
    beyond: tuple[float, ...] = (inf,)  #: expected loss beyond that of the best model of all
    why: str = ""  #: it is refused


REFUSED = Played((inf,), (inf,))


class RoughNoise(SeededNoise):
    """The same law in floating point, many times quicker: for rows that are made up."""

    def take(self, lattice: Lattice, size: int, answer: int) -> Index:
        steps: Index = np.rint(simulated(lattice.kind, lattice.t, size, self.generator("answer", answer))).astype(
            np.int64
        )
        return steps


class SyntheticProblem(NamedTuple):
    """Made-up rows of one seed, and what is best on them."""

    losses: list[Loss]
    best: float  #: the optimum of sum_i f_i + n r
    best_x: Vector  #: (d,) where it is
    tested: Loss  #: of rows that nobody learns from: the mean, without a regularizer
    least: float  #: that of the model that the labels are of, or of the best in the box
    unit: float  #: sum of scales: what an objective is divided by


@lru_cache(maxsize=4)
def world(blob: bytes, shape: Shape, made: tuple[int, ...], seed: int) -> SyntheticProblem:
    """`blob`: the public part of the problem, as JSON. `made`: rows of each node that are made up."""

    p = msgspec.json.decode(blob, type=DataPlan)
    rows_of = population(p, shape, seed)
    losses = [loss_of(p, i, shard) for i, shard in enumerate(synthetic.shards(rows_of, made))]
    test = rows_of.rows(TESTED, "test")
    tested = Loss(Objective(kind=p.objective.kind), test.A, test.b, p.classes, p.row_bound)
    truth = rows_of.model.ravel(order="F")
    if np.max(np.abs(truth)) > p.regularizer.box:  # the best in the box, but for as many rows
        truth = least([tested], Regularizer(box=p.regularizer.box))
    best = least(losses, p.regularizer)
    return SyntheticProblem(
        losses,
        value(losses, p.regularizer, best),
        best,
        tested,
        tested.value(truth),
        sum(loss.objective.scale for loss in losses),
    )


def value(losses: Sequence[Loss], r: Regularizer, x: Vector) -> float:
    """sum_i f_i(x) + n r(x)."""
    return float(sum(loss.value(x) for loss in losses) + len(losses) * r.value(x))


def least(losses: Sequence[Loss], r: Regularizer) -> Vector:
    """A minimiser of that in the box, to what a plan shows: L-BFGS-B (scipy); with l1 Newton's method."""
    n = len(losses)
    if r.l1:
        return optimum(losses, r).x

    def both(x: Vector) -> tuple[float, Vector]:
        return value(losses, r, x), np.sum([loss.gradient(x) for loss in losses], axis=0) + n * r.l2 * x

    bounds = None if r.box == inf else [(-r.box, r.box)] * losses[0].size
    minimiser: Vector = minimize(
        both,
        np.zeros(losses[0].size),
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": 400, "ftol": 1e-10},
    ).x
    return minimiser


def population(p: Any, shape: Shape, seed: int) -> Source:
    return synthetic.source(seed, p.objective.kind, p.features, p.classes, p.row_bound or 1.0, shape.unit)


def loss_of(p: Any, i: int, shard: Any) -> Loss:
    return Loss(p.node_objective(i), shard.A, shard.b, p.classes, p.row_bound)


def made_of(shape: Shape, classes: int) -> tuple[int, ...]:
    """How many rows of each node are made up: all, or as many as there is time for, and enough for the model's size."""
    n, size = len(shape.rows), shape.features * classes
    most = max(200, ceil(MADE / (n * size)), ceil(20 * size / n))
    return tuple(min(m, most) for m in shape.rows)


class TrialTask(NamedTuple):
    raw: Document  #: without data
    shape: Shape
    seed: int
    file: str


def plan_of(raw: Document, file: str) -> RunPlan:
    """The plan that devices would get. Raises InputError."""
    scenario = scenario_from(raw, file)
    return make_plan(scenario, scenario.kind.public(scenario, file), file)


@np.errstate(over="ignore", invalid="ignore")  # of what diverges
def play(task: TrialTask) -> Played:
    """One run on made-up rows."""
    try:
        plan = plan_of(task.raw, task.file)
        p = plan.problem
        made = made_of(task.shape, p.classes)
        here = world(blob_of(p), task.shape, made, task.seed)

        def gate(i: int, seeds: Sequence[int]) -> RowsGate:
            t = plan.terms_of(plan.nodes[i])
            assert t is not None
            if t.masked is not None:  # a share of the sum's noise, made for the node with the fewest rows
                share = t.per_answer * sqrt(t.masked.honest) * min(p.rows) / p.rows[i]
                t = msgspec.structs.replace(t, per_answer=share, masked=None)
            t = msgspec.structs.replace(t, per_answer=t.per_answer * p.rows[i] / made[i])  # the noise of all rows
            return RowsGate(plan.nodes[i], here.losses[i], t, RoughNoise(seeds[0], plan.nodes[i]), AllowAll())

        x = rollout(plan, gate, [task.seed])[0]
    except (InputError, Refused) as error:
        return REFUSED._replace(why=str(error))
    averaged = [x]
    if plan.algorithm.pattern == "neighbours":
        W, after = mixing(plan), {0: x}
        for k in range(1, GOSSIP[-1] + 1):
            x = after[k] = W @ x
        averaged = [after[k] for k in GOSSIP]
    alike = plan.algorithm.pattern != "neighbours"
    each = [figures(p, here, X[:1] if alike else X) for X in averaged]
    above, wrongs, beyond = zip(*each, strict=True)
    return Played(above, wrongs, beyond)


def blob_of(p: DataPlan) -> bytes:
    """The public part of a problem as JSON, without the seed of a walk: runs of one seed share their rows."""
    return msgspec.json.encode(msgspec.structs.replace(p, walk_seed=None))


def mixing(plan: RunPlan) -> Matrix:
    """W, the Metropolis weights of the network, shape (n, n)."""
    graph = plan.problem.graph
    W = np.zeros((graph.n, graph.n))
    for i, neighbours in enumerate(graph.neighbours):
        W[i, list(neighbours)] = metropolis(graph, i)
        W[i, i] = 1 - W[i].sum()
    return W


def figures(p: Any, here: SyntheticProblem, X: Matrix) -> tuple[float, float, float]:
    """Medians over the models in X: the objective above its least, per unit of scale; the error on the test rows, and
    the loss there beyond that of the best model of all.
    """
    r = p.regularizer

    def each(x: Vector) -> tuple[float, float, float]:
        if not np.isfinite(x).all():
            return inf, inf, inf
        above = (value(here.losses, r, x) - here.best) / here.unit
        return above, wrong(here.tested, x), here.tested.value(x) - here.least

    excess, error, beyond = (float(np.median(values)) for values in zip(*map(each, X), strict=True))
    return (excess if isfinite(excess) else inf), error, beyond


def wrong(tested: Loss, x: Vector) -> float:
    """The share of rows that a model gets wrong; of least squares the root of the mean squared error."""
    t, b = tested.margins(x), tested.b
    if tested.objective.kind == "least-squares":
        return sqrt(float(np.mean((t - b) ** 2)))
    predicted = np.argmax(t, axis=0) if t.ndim == 2 else np.where(t > 0, 1.0, -1.0)
    return float(np.mean(predicted != b))


def together(task: TrialTask) -> Played:
    """What all rows say without privacy."""
    p = plan_of(task.raw, task.file).problem
    here = world(blob_of(p), task.shape, made_of(task.shape, p.classes), task.seed)
    excess, error, beyond = figures(p, here, here.best_x[None])
    return Played((max(excess, 0.0),), (error,), (beyond,))


def beside(task: TrialTask) -> tuple[Played, Played]:
    """Without privacy, and the median node alone with all the rows it has: what it would have without the others."""
    p = plan_of(task.raw, task.file).problem
    here = world(blob_of(p), task.shape, made_of(task.shape, p.classes), task.seed)
    rows_of, rows, n = population(p, task.shape, task.seed), task.shape.rows, len(task.shape.rows)
    median = sorted(range(n), key=rows.__getitem__)[n // 2]
    alone = least([loss_of(p, median, rows_of.rows(rows[median], f"n{median}"))], p.regularizer)
    excess, error, beyond = figures(p, here, alone[None])
    return together(task), Played((excess,), (error,), (beyond,))
