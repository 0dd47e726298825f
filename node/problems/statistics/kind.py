"""Statistics of records that are summed over nodes: what the rest of the program asks of this kind of problem."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import msgspec

from hushgrid.kernels.algorithms.base import Algorithm, Pattern, Sharing
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.graphs import Network
from hushgrid.kernels.problems.statistics import STATISTICS
from hushgrid.node.problems.kind import Plan, ScenarioSections
from hushgrid.node.problems.masking import numbers, own_share
from hushgrid.node.problems.on_graph import GraphKind
from hushgrid.node.problems.records.section import NAME as RECORDS
from hushgrid.node.problems.statistics.section import NAME, SECTIONS, StatisticProblem, StatisticsPlan
from hushgrid.node.schema.sections import AllowedProblem, Privacy, Question, Section

if TYPE_CHECKING:
    from hushgrid.node.privacy.budget import BudgetCheck
    from hushgrid.node.privacy.gate import Gate
    from hushgrid.node.privacy.noise_source import NoiseSource
    from hushgrid.node.problems.records.device import Rows


class Statistics(GraphKind[StatisticProblem, StatisticsPlan, "Rows"]):
    name: ClassVar[str] = NAME
    of_devices: ClassVar[str] = RECORDS
    sections: ClassVar[tuple[type[Section], ...]] = SECTIONS
    public_type: ClassVar[type] = StatisticsPlan
    patterns: ClassVar[tuple[Pattern, ...]] = ("star",)
    sharing: ClassVar[Sharing] = "addends"

    def check_questions(self, problem: StatisticProblem, algorithm: Algorithm, privacy: Privacy, file: str) -> None:
        tag, replaced = problem.__struct_config__.tag, privacy.adjacency.replace_one_record
        if replaced is not None and replaced.clip != 1 and not problem.statistic.shortened:
            raise InputError(
                f"{file}: privacy.adjacency.replace-one-record.clip: found {replaced.clip:g}, expected 1 "
                f"({tag}: a record counts once)"
            )
        if privacy.mechanism == "laplace" and 1 not in problem.statistic.orders:
            raise InputError(f"{file}: privacy.mechanism: found laplace, expected gaussian (problem.kind: {tag})")

    def question(self, problem: StatisticsPlan) -> Question:
        statistic = problem.statistic
        return Question(statistic.name, statistic.read(problem.features), getattr(statistic, "edges", None))

    def reveals(self, entry: AllowedProblem, device: Rows) -> str:
        m, q = device.shard.A.shape
        columns = f"any of its {q} features and the label" if entry.read is None else _columns(entry.read, q)
        return STATISTICS[entry.kind].reveals(m, columns, entry.edges)

    def solved(self, algorithm: Algorithm) -> str:
        return ", ".join(statistic.plural for statistic in STATISTICS.values())

    def located(
        self, problem: StatisticProblem, network: Network | None, networked: bool, base: Path, file: str
    ) -> StatisticProblem:
        super().located(problem, network, networked, base, file)
        return msgspec.structs.replace(problem, data=problem.data.relative_to(base))

    def public(self, sections: ScenarioSections, file: str) -> StatisticsPlan:
        from hushgrid.node.problems.statistics.public import public

        return public(sections, file)[1]

    def gate(self, device: Rows, plan: Plan, noise: NoiseSource, budget_check: BudgetCheck) -> Gate:
        from hushgrid.node.problems.records.device import clamped
        from hushgrid.node.problems.statistics.gate import StatisticGate

        A, b = device.shard
        if device.labels is not None:
            b = clamped(b, device.labels, "softmax" if device.labels.classes else "least-squares")
        share = own_share(plan, device.name, budget_check)
        return StatisticGate(device.name, (A, b), plan.problem, plan.terms, noise, budget_check, share)

    def among(self, plan: StatisticsPlan, present: Sequence[str]) -> StatisticsPlan:
        return plan.among(present)

    def on_devices(self, problem: StatisticProblem) -> str | None:
        if problem.data.devices is None:
            return "problem.data: found rows, expected devices: {features, rows} (the rows are on the devices)"
        return None

    def check_answers(self, plan: Plan) -> None:
        from hushgrid.node.problems.statistics.gate import check_terms, lattice_of

        p, t = plan.problem, plan.terms
        if t is None:
            return
        check_terms(p, t)
        if t.masked is not None:
            numbers(plan)
            return
        for i in range(len(p.rows)):
            lattice_of(p, i, t)


def _columns(read: Sequence[int], features: int) -> str:
    """Numbers of a record, with its label by name."""
    return ", ".join("the label" if k == features else f"column {k}" for k in read)


KIND = Statistics()
