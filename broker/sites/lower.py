"""The coordinator of one site of a fleet in two levels: it asks its devices what the fleet above asks the site."""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import inf
from typing import NamedTuple, cast

from msgspec import UNSET
from msgspec.structs import replace

from hushgrid.broker.coordinator import run_history
from hushgrid.broker.coordinator.star import StarCoordinator
from hushgrid.kernels.algorithms import registry
from hushgrid.kernels.algorithms.base import Star
from hushgrid.kernels.errors import HushgridError, Stopped
from hushgrid.kernels.machine import Step
from hushgrid.kernels.patterns.star import FinalState, StarCentre
from hushgrid.kernels.types import Document
from hushgrid.node import wire
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems import masking
from hushgrid.node.problems.kind import Tests
from hushgrid.node.problems.plan import RunPlan, encode_plan
from hushgrid.node.runtime.driver import Driver
from hushgrid.node.wire import Birth, Plan, Publication


class Fewest(NamedTuple):
    """A run is made with s devices at least."""

    s: int

    def possible(self, present: list[str]) -> bool:
        return len(present) >= self.s

    def passed_over(self, member: str, birth: Birth) -> str:
        return ""


def _under_way(ledger: Ledger, plan: RunPlan) -> Collection[str] | None:
    """The devices of the run of this plan in which the process has ended; None: there is none."""
    stored = ledger.runs.under_way()
    if stored is None or not run_history.is_of(stored, encode_plan(plan)):
        return None
    return wire.decode_state(Plan, stored.plan).members


def is_masked(plan: RunPlan) -> bool:
    """Whether devices mask within their sites, and sites against each other; else their shares are noisy data."""
    return plan.terms is not None and plan.terms.masked is not None


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
        among: Collection[str] | None = None,
        observe: Callable[[Driver, bool], None] | None = None,
    ) -> None:
        """fleet: that of the site's devices. plan: as it is stored above, with its interval. among: these devices
        alone [of a run under way its own, else all].
        """
        self.site = site
        every, plan, masked = plan.every, replace(plan, interval=UNSET), is_masked(plan)
        super().__init__(
            fleet,
            plan,
            source,
            ledger,
            among=_under_way(ledger, plan) if among is None else among,
            wait_s=wait_s,
            silent_s=silent_s,
            every=every,
            missed=missed,
            fewer=Fewest(masking.numbers(plan, site).contributors if masked else len(plan.sites[site])),
            observe=observe,
        )

    def parties(self, plan: RunPlan) -> list[str]:
        return self._present(plan.sites[self.site])

    @property
    def spares(self) -> list[str]:
        """With whom the run can be made that has not begun, because others are not there, or refuse; [] if it cannot
        be.
        """
        there = self.membership.present
        fewer = self.error is not None and self.driver is None and len(there) < len(self.members)
        return there if fewer and self.membership.enough else []

    def machine(self) -> StarCentre:
        if is_masked(self.plan):
            return masking.site_centre(self.plan, self.site, self.members)
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
