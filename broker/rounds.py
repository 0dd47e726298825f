"""The coordinator of a star: it averages, and waits for every member in every round."""

from __future__ import annotations

from math import inf
from typing import Any

from hushgrid.broker.coordinator import Coordinator
from hushgrid.grid_cases.case import Case
from hushgrid.kernels.ladmm import Server
from hushgrid.node import zones
from hushgrid.node.ledger import Ledger
from hushgrid.node.plan import RunPlan
from hushgrid.node.wire import SMALL, Publication


class Rounds(Coordinator):
    """A run of linearised ADMM over the zones of a case, whose loads it does not need."""

    def __init__(self, fleet: str, plan: RunPlan, case: Case, ledger: Ledger, **options: Any) -> None:
        self.case = case
        self.shares = {m: k.size for m, k in zones.server(plan, case).position.items()}
        super().__init__(fleet, plan, ledger, **options)

    def machine(self) -> Server:
        return zones.server(self.plan, self.case)

    def dimension(self, member: str) -> int:
        return int(self.shares[member])

    @property
    def limit(self) -> int:
        return SMALL + 8 * max(self.shares.values(), default=0)

    def complete(self, state: Any) -> tuple[int, float | None] | None:
        t = state.t if state.done else state.t - 1
        return (t, state.residual if state.residual < inf else None) if t > 0 else None

    def owing(self) -> list[str]:
        assert self.driver is not None
        return [send.dst for send in self.driver.machine.tick().send]

    def overdue(self, waiting: list[str]) -> list[Publication]:
        return self.give_up(waiting)
