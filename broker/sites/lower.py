"""The coordinator of one site of a fleet in two levels: it asks its devices what the fleet above asks the site."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import cast

from hushgrid.broker.coordinator.star import StarCoordinator
from hushgrid.kernels.algorithms import registry
from hushgrid.kernels.algorithms.base import Star
from hushgrid.kernels.errors import HushgridError, Stopped
from hushgrid.kernels.machine import Step
from hushgrid.kernels.patterns.star import FinalState, StarCentre
from hushgrid.kernels.types import Document
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems import masking
from hushgrid.node.problems.kind import Tests
from hushgrid.node.problems.plan import RunPlan
from hushgrid.node.runtime.driver import Driver
from hushgrid.node.wire import Publication


class SiteCoordinator(StarCoordinator):
    """It has no answer of its own: what comes of a run is known above."""

    def __init__(
        self,
        site: str,
        fleet: str,
        plan: RunPlan,
        source: str,
        ledger: Ledger,
        *,
        wait_s: float = inf,
        silent_s: float = inf,
        missed: Callable[[Stopped], None] | None = None,
        observe: Callable[[Driver, bool], None] | None = None,
    ) -> None:
        """fleet: that of the site's devices."""
        self.site = site
        super().__init__(fleet, plan, source, ledger, wait_s=wait_s, silent_s=silent_s, missed=missed, observe=observe)

    def parties(self, plan: RunPlan) -> list[str]:
        return plan.sites[self.site]

    def machine(self) -> StarCentre:
        if self.terms is not None and self.terms.masked is not None:
            return masking.site_centre(self.plan, self.site)
        return registry.server_of(cast(Star, self.plan.running), self.centre, self.site)

    def act(self, step: Step) -> list[Publication]:
        """Commits and sends a step that the fleet above has caused."""
        assert self.driver is not None
        return self._publish(self.driver.act(step))

    def fail(self, error: HushgridError) -> list[Publication]:
        """Ends the run here."""
        return self._finish(error if isinstance(error, Stopped) else Stopped(str(error)))

    def answer(self) -> tuple[Document, Document]:
        return {}, {}

    def view(self, tests: Tests | None) -> Document:
        return {}

    def final_state(self) -> FinalState | None:
        return None
