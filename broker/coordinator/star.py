"""The coordinator of a star: it averages, and waits for every member in every round."""

from __future__ import annotations

from importlib import import_module
from math import inf
from typing import Any, cast

from hushgrid.broker.coordinator.base import Coordinator
from hushgrid.kernels.algorithms.base import Star
from hushgrid.kernels.patterns.star import Centre, StarCentre
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems.plan import RunPlan
from hushgrid.node.wire import SMALL, Publication


class StarCoordinator(Coordinator):
    """A run of rounds around this coordinator, which averages."""

    def __init__(
        self, fleet: str, plan: RunPlan, source: str, ledger: Ledger, *, warm: str = "", **options: Any
    ) -> None:
        """`warm`: the directory of an earlier run, where this one begins; "": at the flat start."""
        # What only a coordinator needs of a kind of problem stands in a file of its own, which no device reaches.
        self._kind: Any = import_module(f"{type(plan.kind).__module__.rpartition('.')[0]}.centre")
        self._source = source
        self.centre: Centre = self._kind.centre(plan, source, warm)
        self.shares = {m: k.size for m, k in self.centre.position.items()}
        super().__init__(fleet, plan, ledger, **options)

    def machine(self) -> StarCentre:
        return cast(Star, self.plan.running).server(self.centre)

    def dimension(self, member: str) -> int:
        return int((self.centre.announced or self.shares)[member])

    @property
    def limit(self) -> int:
        largest = self.centre.largest or self.shares
        return SMALL + 8 * max(largest.values(), default=0)

    def complete(self, state: Any) -> tuple[int, float | None] | None:
        assert self.driver is not None
        t = cast(StarCentre, self.driver.machine).completed(state)
        return (t, state.residual if state.residual < inf else None) if t > 0 else None

    def answer(self) -> tuple[dict[str, Any], dict[str, Any]]:
        if self.driver is None:
            return {}, {}
        found: tuple[dict[str, Any], dict[str, Any]] = self._kind.answer(
            self.plan, self._source, self.driver.machine.state
        )
        return found

    def owing(self) -> list[str]:
        assert self.driver is not None
        return [send.dst for send in self.driver.machine.tick().send]

    def overdue(self, waiting: list[str]) -> list[Publication]:
        return self.give_up(waiting)


COORDINATOR = StarCoordinator
