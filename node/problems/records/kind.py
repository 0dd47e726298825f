"""Problems whose data are rows of records: what the rest of the program asks of this kind of problem."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from msgspec import UNSET
from msgspec.structs import replace

from hushgrid.kernels.algorithms.base import Algorithm, Pattern
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.graphs import Network
from hushgrid.node.problems.feed import Feed
from hushgrid.node.problems.kind import Device, DeviceFile, Outcome, Plan, ScenarioSections, Tests
from hushgrid.node.problems.masking import masks_of, numbers
from hushgrid.node.problems.on_graph import GraphKind, induced
from hushgrid.node.problems.records.section import (
    NAME,
    DataPlan,
    DataProblem,
    Labels,
    LeastSquares,
    Logistic,
    Softmax,
    minimised,
    unsolved,
)
from hushgrid.node.schema.sections import Adjacency, AllowedProblem, Privacy, Question, Section

if TYPE_CHECKING:
    from hushgrid.node.problems.records.device import Rows

PROBLEMS = (LeastSquares, Logistic, Softmax)


def record_words(owner: DeviceFile, rows: Rows, adjacency: Adjacency) -> str:
    """What is hidden of the records of a device."""
    m, q = rows.shard.A.shape
    if adjacency.replace_one_record is not None:
        if (k := adjacency.records) > 1:
            return (
                f"hidden: any {k} of {m} records (rows and their labels), replaced by any others; j such groups "
                "count j times"
            )
        return f"hidden: any one of {m} records (a row and its label), replaced by any other; k records count k times"
    beta, problem = adjacency.bounded_change, owner.problem
    assert beta is not None
    assert problem is not None
    text = (
        f"hidden: any change of the {m} records that moves the gradient by at most {beta:g} everywhere, in the L1 "
        f"norm under Laplace noise, L2 under Gaussian ({problem}); one record replaced "
    )
    if problem.kind == "least-squares":
        return text + "may move it by more than any bound, and is then not hidden"
    slopes = {"logistic": (1.0, 1.0), "softmax": (2.0, sqrt(2))}[problem.kind]  # |s| in L1, L2 at most
    move = 2 * problem.scale * problem.row_bound / m
    laplace, gaussian = (ceil(move * s * norm / beta) for s, norm in zip(slopes, (sqrt(q), 1.0), strict=True))
    return text + f"counts {laplace} times under Laplace noise, {gaussian} times under Gaussian"


def label_words(labels: Labels | None) -> list[str]:
    """What labels can be, and what becomes of others."""
    if labels is None:
        return []
    if labels.classes == 2:
        return [
            "labels: 2 classes; of a logistic problem by sign (above 0 or not), of softmax 0 or 1, whichever is nearer"
        ]
    if labels.classes:
        return [f"labels: classes 0 to {labels.classes - 1}; any other label is taken for the nearest of them"]
    return [f"labels: {labels.low:g} to {labels.high:g}; any other label is taken for the nearer end"]


class Records(GraphKind[DataProblem, DataPlan, "Rows"]):
    name: ClassVar[str] = NAME
    sections: ClassVar[tuple[type[Section], ...]] = PROBLEMS
    public_type: ClassVar[type] = DataPlan
    patterns: ClassVar[tuple[Pattern, ...]] = ("star", "token", "neighbours")

    def check(self, problem: DataProblem, algorithm: Algorithm, file: str) -> None:
        super().check(problem, algorithm, file)
        guarded = algorithm.variant == "guarded"
        if guarded and problem.row_bound is None:
            raise InputError(f"{file}: problem.row_bound: missing, expected R >= |a|_2 of every row (variant: guarded)")
        if guarded and problem.declared_classes is None:
            raise InputError(f"{file}: problem.classes: missing, expected the number of classes (variant: guarded)")
        r = problem.regularizer
        if (wrong := unsolved(algorithm, r.l1, r.l2, problem.box)) is not None:
            raise InputError(
                f"{file}: problem.{wrong}: found a value, expected none "
                f"({algorithm.name} minimises {minimised(algorithm)}; l2 of the problem is a part of f_i)"
            )

    def tests(self, problem: DataProblem, public: DataPlan) -> Tests | None:
        if problem.test is None:
            return None
        from hushgrid.node.problems.records.held_out import HeldOut

        rows = HeldOut(problem, public.features, public.classes)
        return lambda x: rows.errors(x[None])[0]

    def check_questions(self, problem: DataProblem, algorithm: Algorithm, privacy: Privacy, file: str) -> None:
        """Private minimisers are of logistic regression, by output perturbation of softmax too, |a| <= 1.

        Raises InputError if the algorithm asks for another.
        """
        if privacy.sensitivity == "pointwise" and problem.kind != "logistic":
            raise InputError(
                f"{file}: problem.kind: found {problem.kind}, expected logistic (privacy.sensitivity: pointwise)"
            )
        if algorithm.asks() != "minimiser":
            return
        output, R = algorithm.by_output(privacy.mechanism), problem.row_bound or inf
        replaced = privacy.adjacency.replace_one_record
        clip = replaced.clip if replaced else None
        for key, wrong, value, expected in (
            (
                "problem.kind",
                problem.kind not in ("logistic", "softmax" if output else ""),
                problem.kind,
                "logistic or softmax" if output else "logistic, or softmax under gaussian noise",
            ),
            ("problem.nonconvex", problem.nonconvex is not None, "a term", "none"),
            ("problem.row_bound", R > 1, f"{R:g}", "at most 1"),
            ("privacy.adjacency", clip is None or clip < R, f"clip {clip}", f"replace-one-record, clip at least {R:g}"),
        ):
            if wrong:
                raise InputError(
                    f"{file}: {key}: found {value}, expected {expected} ({algorithm.name}: private minimisers)"
                )

    def question(self, problem: DataPlan) -> Question:
        return Question(problem.objective.kind)

    def fits(self, tag: str, labels: Labels | None) -> bool:
        return labels is None or any(labels.fit(s.kind, labels.classes or 1) for s in PROBLEMS if s.kind == tag)

    def reveals(self, entry: AllowedProblem, device: Rows) -> str:
        m, q = device.shard.A.shape
        return (
            f"gradients or minimisers of a model of the label by {q} features: how these go together in its {m} records"
        )

    def solved(self, algorithm: Algorithm) -> str:
        if algorithm.asks() != "minimiser":
            return "data problems" + {"no": "", "box": " with a box", "all": " with l1, l2, box"}[algorithm.constrained]
        laplace, gaussian = (algorithm.by_output(m) for m in ("laplace", "gaussian"))
        if laplace:
            return "logistic and softmax regression"
        return "logistic regression; softmax under Gaussian noise" if gaussian else "logistic regression"

    def unit(self, algorithm: Algorithm) -> str:
        """A bounded change is a promise about gradients; of minimisers there is none."""
        return "one record" if algorithm.asks() == "minimiser" else "one record, or a gradient moved by at most beta"

    def located(
        self, problem: DataProblem, network: Network | None, networked: bool, base: Path, file: str
    ) -> DataProblem:
        super().located(problem, network, networked, base, file)
        test = problem.test and str((base / problem.test).resolve())
        return replace(problem, data=problem.data.relative_to(base), test=test)

    def public(self, sections: ScenarioSections, file: str) -> DataPlan:
        from hushgrid.node.problems.records import device

        return device.public(sections, file)[1]

    def among(self, plan: DataPlan, present: Sequence[str]) -> DataPlan:
        rows = [m for node, m in zip(plan.nodes, plan.rows, strict=True) if node in present]
        members = replace(plan, rows=rows, **induced(plan, present))
        if plan.share is UNSET or plan.row_bound is None:
            return members
        return replace(members, L=[members.node_objective(i).lipschitz(plan.row_bound) for i in range(len(rows))])

    def device(self, owner: DeviceFile, path: str) -> Device:
        from hushgrid.node.problems.records.device import rows_of

        return rows_of(owner.node, Path(owner.data), owner.labels, owner.problem, masks_of(owner))

    def feed(self, owner: DeviceFile, path: str) -> Feed:
        from hushgrid.node.problems.records.feed import RowsFeed

        return RowsFeed(owner, path)

    def outcome(self, device: Device, state: Path) -> Outcome:
        from hushgrid.node.problems.records.device import keep_model

        return lambda model, facts: keep_model(model, state / f"{device.name}.model.npz")

    def data_words(self, data: str) -> str:
        return f"the rows of {data}"

    def hidden(self, owner: DeviceFile, device: Rows, adjacency: Adjacency) -> list[str]:
        return [record_words(owner, device, adjacency), *label_words(owner.labels)]

    def on_devices(self, problem: DataProblem) -> str | None:
        if problem.test is not None:
            return "problem.test: found a file, expected none (a coordinator of devices has no model to test)"
        if problem.data.devices is None:
            return "problem.data: found rows, expected devices: {features, rows} (the rows are on the devices)"
        return None

    def check_answers(self, plan: Plan) -> None:
        from hushgrid.node.problems.records import device

        device.check_minimizers(plan)
        if plan.terms is not None and plan.terms.masked is not None:
            numbers(plan)


KIND = Records()
