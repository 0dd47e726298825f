"""Data problems: from a plan and a device's own rows to its machine and gate; and the public part of a scenario."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
from msgspec import UNSET
from msgspec.structs import replace

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.privacy import perturbation
from hushgrid.kernels.problems.losses import LARGEST, Loss, Objective, U, settled
from hushgrid.kernels.problems.losses import Kind as LossKind
from hushgrid.kernels.types import Matrix, Vector
from hushgrid.node.durable import write_file
from hushgrid.node.privacy.budget import BudgetCheck
from hushgrid.node.privacy.gate import Gate
from hushgrid.node.privacy.noise_source import NoiseSource
from hushgrid.node.problems.kind import Plan, ScenarioSections, archive_of
from hushgrid.node.problems.masking import MakeMasks, own_share
from hushgrid.node.problems.on_graph import GraphNode, wired
from hushgrid.node.problems.records.data import Arrays, Data, Devices, Loaded, classes, load
from hushgrid.node.problems.records.files import Shard, read_csv, read_npz
from hushgrid.node.problems.records.gate import RowsGate
from hushgrid.node.problems.records.section import NAME, DataPlan, DataProblem, DeclaredProblem, Labels, shared

Reader = Callable[[Data, Path, LossKind, int | None, Arrays | None], Loaded]


class Checked(NamedTuple):
    """Every node's rows, which its loss takes, and what is public of them."""

    loaded: Loaded
    classes: int
    L: list[float]  #: the smoothness constant of each node


#: From a problem, the number of its nodes if it is known, and the rows themselves if they were given in Python.
Checker = Callable[[DataProblem, int | None, Arrays | None], Checked]


def clamped(b: Vector, labels: Labels, kind: LossKind) -> Vector:
    """Labels (m,) moved into what their owner declares: into low..high; logistic 1 if b > 0, else -1;
    else the next class.
    """
    if labels.classes is None:
        return np.clip(b, labels.low, labels.high)
    if kind == "logistic":
        return np.where(b > 0, 1.0, -1.0)
    return np.clip(np.round(b), 0.0, labels.classes - 1.0)


def shortened(A: Matrix, R: float) -> Matrix:
    """A (m, q) with every row that is longer than R shortened to it: to refuse one would tell that there is one.

    `Loss` takes what this returns as rows within R. Its room for rounding, (q + 4) U,
    is used up by a row that is R long; one beyond it is made shorter by the roundings of the quotient and the product
    too.
    """
    norms, room = np.linalg.norm(A, axis=1), (A.shape[1] + 4) * U
    to = np.where(norms > R * (1 + room), R * (1 - room - 4 * U), R)
    return settled(A * np.minimum(1.0, to / np.where(norms > 0, norms, to))[:, None])


class Rows(GraphNode):
    """A device with rows of records A (m, q), b (m,).

    `labels`, `problem`: what the owner of a real device declares. Of a simulated node the labels have been checked when
    they were read, by the program that made the plan too.
    """

    kind: ClassVar[str] = NAME

    def __init__(
        self,
        name: str,
        shard: Shard,
        labels: Labels | None = None,
        problem: DeclaredProblem | None = None,
        masks: MakeMasks | None = None,
    ) -> None:
        self.name, self.shard, self.labels, self.problem, self.masks = name, shard, labels, problem, masks

    @property
    def dimension(self) -> int:
        return int(self.shard.A.shape[1])

    def check(self, plan: Plan) -> None:
        """Raises InputError unless the plan's public part is this device's own.

        A function of the plan, of m and q, and of what the owner declares: nothing in it reads a row or a label.
        """
        p = plan.problem
        if plan.kind.devices != NAME:
            raise InputError(f"{self.name}: found a plan for {p.kind}, expected one for rows of data")
        if self.name not in p.nodes:
            raise InputError(
                f"{self.name}: found a plan for {p.nodes[0]}..{p.nodes[-1]}, expected its own name among them"
            )
        m, q = self.shard.A.shape
        if (p.rows[p.position(self.name)], p.features) != (m, q):
            size = f"{p.rows[p.position(self.name)]} rows of {p.features}"
            raise InputError(f"{self.name}: found a plan for {size}, expected its own {m} rows of {q}")
        problem = self.problem
        if p.kind != NAME:  # nothing else of a row is asked for
            if problem is not None:
                question = plan.kind.question(p)
                raise InputError(f"{self.name}: found a plan for {question}, expected one for its own {problem}")
            return
        o = p.node_objective(p.position(self.name))
        if self.labels is not None and not self.labels.fit(o.kind, p.classes):
            size = f"{o.kind} of {p.classes} classes" if o.kind == "softmax" else o.kind
            raise InputError(f"{self.name}: found a plan for {size}, expected one for labels of {self.labels}")
        if problem is not None and (o.kind, o.scale, p.row_bound) != (problem.kind, problem.scale, problem.row_bound):
            size = f"{o.kind}, scale {o.scale!r}, row_bound {p.row_bound!r}"
            raise InputError(f"{self.name}: found a plan for {size}, expected its own {problem}")

    def loss(self, p: DataPlan) -> Loss:
        """f_i of a plan that was checked. No row and no label is a reason to refuse it."""
        A, b = self.shard
        if p.row_bound is not None:
            A = shortened(A, p.row_bound)
        if self.labels is not None:
            b = clamped(b, self.labels, p.objective.kind)
        return Loss(p.node_objective(p.position(self.name)), A, b, p.classes, p.row_bound)

    def gate(self, plan: Plan, noise: NoiseSource, budget_check: BudgetCheck) -> Gate:
        if plan.problem.kind != NAME:
            return plan.kind.gate(self, plan, noise, budget_check)
        p, t, i, algorithm = plan.problem, plan.terms_of(self.name), plan.problem.position(self.name), plan.running
        published = algorithm.published
        check_minimizer(plan, i)
        if t is not None:
            step, ratio = published.step_and_ratio(algorithm, i, p.L[i], len(p.rows)) if published else (0.0, 1.0)
            t = replace(t, step=step, decay=ratio)
        share = own_share(plan, self.name, budget_check)
        return RowsGate(self.name, self.loss(p), t, noise, budget_check, stepped(plan), share)


def stepped(plan: Plan) -> Callable[[float, int], float] | None:
    """The sensitivity of an answer's published noise, if it is one of a step around a coordinator.

    A function of how far one record replaced moves a gradient, and of the number of the answer.
    """
    p, t, algorithm = plan.problem, plan.terms, plan.running
    if t is None or not t.published or algorithm.pattern != "star":
        return None
    L, epsilon, per_round = max(p.L), t.paper_epsilon, algorithm.per_round
    steps = [algorithm.step_of_answer(0, k, L, epsilon, p.convexity) for k in range(1, t.rounds + 1)]
    return lambda moved, answer: algorithm.published.sensitivity(t.mode, moved, steps[(answer - 1) // per_round])


def check_minimizers(plan: Plan) -> None:
    """Raises InputError if a node's gate could not answer what is asked at these terms, as public numbers say."""
    for i in range(len(plan.problem.rows)):
        check_minimizer(plan, i)


def check_minimizer(plan: Plan, i: int) -> None:
    """The same of node i."""
    p, t, algorithm = plan.problem, plan.terms_of(plan.problem.nodes[i]), plan.algorithm
    if t is None or algorithm.asks() != "minimiser":
        return
    quadratic = algorithm.curvature(i, 1, p.graph.neighbours[i])
    if algorithm.by_output(t.mechanism):
        perturbation.output(p.declared(i), t.mechanism, t.per_answer, np.zeros(p.size), quadratic, t.records)
    else:
        perturbation.objective(p.declared(i), t.per_answer, np.zeros(p.size), quadratic, t.records)


def rows_of(
    node: str, path: Path, labels: Labels | None, problem: DeclaredProblem | None, masks: MakeMasks | None = None
) -> Rows:
    """A device's own rows, read once. Raises InputError on what no run could take; it is said to the owner alone."""
    written: LossKind = "least-squares"  # any number is a label: `clamped` moves it
    shard = Shard(*read_csv(path, written)[:2]) if ".csv" in path.suffixes else read_npz(path, written)
    if not np.all(np.abs(shard.A) <= LARGEST):
        raise InputError(f"{path}: A: found a number beyond {LARGEST:g}, expected smaller ones")
    return Rows(node, Shard(settled(shard.A), settled(shard.b)), labels, problem, masks)


def keep_model(outcome: dict[str, Vector], path: Path) -> None:
    """What a run has left on this device, replaced whole. Raises OSError if the disk fails."""
    write_file(path, archive_of(outcome))


def public(
    sections: ScenarioSections, file: str = "scenario", arrays: Arrays | None = None, check: Checker | None = None
) -> tuple[Loaded | None, DataPlan]:
    """Every node's rows (None if they are on the devices), and what of the problem is public. Raises InputError.

    arrays: the rows themselves, if they were given in Python. check: what reads and checks them [`checked`].
    """
    problem, network = sections.problem, sections.network
    try:
        n, R, loaded = network.build().n if network is not None else problem.data.nodes, problem.row_bound, None
        if (declared := problem.data.devices) is not None:
            q, rows = declared_rows(declared, n)
            C = _classes(problem, [])
            L = [objective.lipschitz(R or 0.0) for objective in _objectives(problem, rows)]
        else:
            loaded, C, L = (check or checked)(problem, n, arrays)
            q, rows = loaded.shards[0].A.shape[1], [len(s.b) for s in loaded.shards]
        wiring = wired(sections, L, problem.objective.convexity)
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    return loaded, DataPlan(
        objective=problem.objective,
        l1=problem.regularizer.l1,
        l2=problem.regularizer.l2,
        box=problem.box,
        row_bound=R,
        features=q,
        classes=C,
        rows=rows,
        L=L,
        share=True if problem.scale == "share" else UNSET,
        **wiring._asdict(),
    )


def declared_rows(devices: Devices, n: int | None) -> tuple[int, list[int]]:
    """The features of rows that are on devices, and how many of them each has. n: the number of nodes, if it is known.

    Raises InputError if nothing says it, or the rows are of another number of nodes.
    """
    m = devices.rows
    if n is None and isinstance(m, int):
        raise InputError("problem.data.nodes: missing, expected the number of nodes (all have as many rows)")
    rows = [m] * (n or 0) if isinstance(m, int) else list(m)
    if len(rows) != (n or len(rows)):
        raise InputError(f"problem.data.devices.rows: found {len(rows)} numbers, expected one for each of {n} nodes")
    return devices.features, rows


def checked(problem: DataProblem, n: int | None, arrays: Arrays | None, read: Reader = load) -> Checked:
    """Every node's rows, read and checked. read: what reads them. Raises InputError."""
    try:
        loaded = read(problem.data, Path(), problem.kind, n, arrays)
    except InputError as error:
        raise InputError(f"problem.{error}" if str(error).startswith("data") else str(error)) from None
    C, L = _classes(problem, loaded.shards), []
    objectives = _objectives(problem, [len(s.b) for s in loaded.shards])
    for i, (objective, shard) in enumerate(zip(objectives, loaded.shards, strict=True)):
        try:
            L.append(Loss(objective, shard.A, shard.b, C, problem.row_bound).L)
        except InputError as error:
            raise InputError(f"problem.data: node n{i}: {error}") from None
    return Checked(loaded, C, L)


def _objectives(problem: DataProblem, rows: list[int]) -> list[Objective]:
    """What is public of each node's f_i."""
    share = problem.scale == "share"
    return [shared(problem.objective, rows, i) if share else problem.objective for i in range(len(rows))]


def _classes(problem: DataProblem, shards: Sequence[Shard]) -> int:
    declared = problem.declared_classes
    if declared is None and not shards:
        raise InputError("problem.classes: missing, expected the number of classes (softmax)")
    return declared or max(2, classes(shards))
