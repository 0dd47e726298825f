"""The coordinator of synchronous rounds: it begins them, and notices who has fallen silent. No iterate passes through
it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

from hushgrid.broker.coordinator.base import Coordinator
from hushgrid.kernels.algorithms.base import Rounds
from hushgrid.kernels.patterns.neighbours import Census
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems.plan import RunPlan
from hushgrid.node.wire import SMALL, Publication


class NeighboursCoordinator(Coordinator):
    """A run of an algorithm whose nodes exchange with their neighbours: without one of them nobody can go on."""

    def __init__(self, fleet: str, plan: RunPlan, source: str, ledger: Ledger, **options: Any) -> None:
        self.problem = plan.problem
        super().__init__(fleet, plan, ledger, **options)

    @property
    def census(self) -> Census:
        assert self.driver is not None
        return cast(Census, self.driver.machine)

    def machine(self) -> Census:
        return Census(self.members)

    def witnessed(self, member: str) -> Collection[str]:
        nodes, neighbours = self.problem.nodes, self.problem.graph.neighbours
        return [nodes[j] for j in neighbours[nodes.index(member)]]

    def dimension(self, member: str) -> int:
        entries: int = self.problem.dimension
        return entries

    @property
    def limit(self) -> int:
        return SMALL

    def complete(self, state: Any) -> tuple[int, float | None] | None:
        algorithm = cast(Rounds, self.plan.algorithm)
        rounds = min(max(self.census.lowest - 1, 0) // algorithm.messages, algorithm.rounds)
        if state.done:
            rounds = self.terms.rounds if self.terms else algorithm.rounds
        return (rounds, None) if rounds else None

    def owing(self) -> list[str]:
        return self.census.missing()

    def overdue(self, waiting: list[str]) -> list[Publication]:
        return self.give_up(waiting)


COORDINATOR = NeighboursCoordinator
