"""The coordinator of synchronous rounds: it begins them, and notices who has fallen silent. No iterate passes through it."""

from __future__ import annotations

from typing import Any

from hushgrid.broker.coordinator import Coordinator
from hushgrid.kernels.neighbours import Census
from hushgrid.node.ledger import Ledger
from hushgrid.node.plan import DataPlan, RunPlan
from hushgrid.node.problem import messages
from hushgrid.node.wire import SMALL, Publication


class Peers(Coordinator):
    """A run of an algorithm whose nodes exchange with their neighbours: without one of them nobody can go on."""

    def __init__(self, fleet: str, plan: RunPlan, ledger: Ledger, **options: Any) -> None:
        assert isinstance(plan.problem, DataPlan)
        self.problem = plan.problem
        super().__init__(fleet, plan, ledger, **options)

    @property
    def census(self) -> Census:
        assert self.driver is not None
        assert isinstance(self.driver.machine, Census)
        return self.driver.machine

    def machine(self) -> Census:
        return Census(self.members)

    def dimension(self, member: str) -> int:
        return self.problem.features

    @property
    def limit(self) -> int:
        return SMALL

    def complete(self, state: Any) -> tuple[int, float | None] | None:
        algorithm = self.plan.algorithm
        sent = min((state.reached.get(m, 0) for m in self.members), default=0)
        rounds = max(sent - 1, 0) // messages(algorithm)
        if state.done:
            rounds = self.terms.rounds if self.terms else algorithm.rounds
        return (rounds, None) if rounds else None

    def owing(self) -> list[str]:
        return self.census.missing()

    def overdue(self, waiting: list[str]) -> list[Publication]:
        return self.give_up(waiting)
