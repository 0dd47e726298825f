"""A site: its coordinator's two ends, the member above and the coordinator of its devices below.

Each end has its own fleet, ledger and connection. Whatever has happened at one, `settle` hands on to the other; both
commit first what they then send. `Site` drives both over one connection, as where the two fleets have one broker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from hushgrid.broker.sites.lower import SiteCoordinator
from hushgrid.broker.sites.upper import UpperMember
from hushgrid.kernels.errors import HushgridError, InputError, Suspended
from hushgrid.kernels.patterns.sites import NO_NEWS, Below
from hushgrid.node.problems.plan import RunPlan, decode_plan
from hushgrid.node.runtime.driver import UNFORESEEN, incomputable
from hushgrid.node.wire import COORDINATOR, Publication


def fleet_of(fleet: str, site: str) -> str:
    """The name of the fleet of a site's devices; that of all without sites."""
    return f"{fleet}-{site}" if site else fleet


def below_of(site: str) -> str:
    """The name of the ledger of a site's coordinator towards its devices."""
    return f"{site}-{COORDINATOR}"


class Site:
    """`begin` makes the coordinator below for a run above, with some of the devices, or as the last one was (None)."""

    def __init__(self, upper: UpperMember, begin: Callable[[RunPlan, list[str] | None], SiteCoordinator]) -> None:
        self.upper, self.begin = upper, begin
        self.concluded: SiteCoordinator | None = None  #: the last one whose run is over and closed
        self.lower: SiteCoordinator | None = None
        self._of = b""  #: the run above for which `lower` was made
        self._local = False
        self._topics: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
        self._subscriptions: tuple[str, ...] = ()
        self._resume()

    @property
    def name(self) -> str:
        return self.upper.name

    @property
    def local(self) -> bool:
        return self._local

    @local.setter
    def local(self, local: bool) -> None:
        self._local = self.upper.local = local
        if self.lower is not None:
            self.lower.local = local

    # --- one connection for both ---

    @property
    def will(self) -> tuple[str, bytes]:
        return self.upper.will

    @property
    def finished(self) -> bool:
        """Whether no run goes on, above or below."""
        return self.upper.driver is None and (self.lower is None or self.lower.finished)

    @property
    def subscriptions(self) -> tuple[str, ...]:
        now = self.upper.subscriptions, self.lower.subscriptions if self.lower else ()
        if any(a is not b for a, b in zip(now, self._topics, strict=True)):
            self._topics, self._subscriptions = now, (*now[0], *now[1])
        return self._subscriptions

    def connected(self) -> list[Publication]:
        below = self.lower.connected() if self.lower else []
        return [*self.upper.connected(), *below, *self.settle()]

    def on_message(self, topic: str, payload: bytes) -> list[Publication]:
        end = self.lower if self.lower and topic in self.lower.subscriptions else self.upper
        return [*end.on_message(topic, payload), *self.settle()]

    def on_tick(self, now: float) -> list[Publication]:
        below = self.lower.on_tick(now) if self.lower else []
        return [*self.upper.on_tick(now), *below, *self.settle()]

    def idle(self) -> None:
        """Neither draws noise."""

    # --- from one to the other ---

    def settle(self) -> list[Publication]:
        """What each end makes of the other's news."""
        before = self.lower
        above, below = self.exchange()
        fresh = self.lower.connected() if self.lower and self.lower is not before else []
        return [*above, *fresh, *below]

    def exchange(self) -> tuple[list[Publication], list[Publication]]:
        """The same, for each end's own connection."""
        above, below = list[Publication](), list[Publication]()
        upper = self.upper
        if self.lower is not None and self.lower.finished and self.lower is not self.concluded:
            self.lower.conclude()
            self.concluded = self.lower
        if upper.driver is not None and upper.driver.run != self._of:
            if self.lower is None or self.lower.finished:
                self._begin(upper.driver.run)
            if self.lower is not None and upper.driver.run != self._of:
                return above, self._end(self.lower, "another run has begun above")
        lower = self.lower
        if lower is not None and lower.error is not None and upper.driver is not None:
            if not (there := lower.spares):
                above += upper.give_up(lower.error)
            elif lower.finished:
                self._begin(upper.driver.run, there)
        elif lower is None or lower.finished:
            return above, below
        elif upper.driver is None and not lower.ending and not self._told(lower):
            below += self._end(lower, "the run is over above")
        elif upper.driver is not None and lower.driver is not None and not lower.ending:
            self._pass(upper, lower, above, below)
        return above, below

    def _resume(self) -> None:
        """After a restart: its devices may still have to be told how a run went that is over above."""
        last = self.upper.ledger.runs.last()
        if last is None or self.upper.driver is not None:
            return
        try:
            lower = self.begin(decode_plan(last.plan), None)
        except InputError:  # a plan of another program
            return
        if lower.run:
            self.lower, self._of = lower, last.id

    def _end(self, lower: SiteCoordinator, why: str) -> list[Publication]:
        return [] if lower.ending else lower.fail(Suspended(f"{self.name}: {why}"))

    def _begin(self, run: bytes, among: list[str] | None = None) -> None:
        """The devices' coordinator for a run above. One that was under way at the last end of this process goes on, if
        it has answered no other run above: a sum serves one question.
        """
        plan = self.upper.plan
        assert plan is not None
        lower = self.lower = self.begin(plan, among)
        lower.local = self.local
        answered = lower.driver.machine.state.run if lower.driver else b""
        self._of = run if answered in (b"", run) else answered

    def _told(self, lower: SiteCoordinator) -> bool:
        """Whether its devices have been told, or are being told, what came of the run."""
        return lower.driver is not None and cast(Below, lower.driver.machine).telling

    def _pass(
        self, upper: UpperMember, lower: SiteCoordinator, above: list[Publication], below: list[Publication]
    ) -> None:
        assert upper.driver is not None
        assert lower.driver is not None
        try:
            machine, member = cast(Below, lower.driver.machine), upper.driver.machine
            while (steps := machine.exchanged(member, upper.driver.run)) != NO_NEWS:
                if steps.above.send:
                    above += upper.act(steps.above)
                if steps.below.send or steps.below.done:
                    below += lower.act(steps.below)
        except (HushgridError, *UNFORESEEN) as error:
            why = error if isinstance(error, HushgridError) else incomputable(self.name, error)
            below += lower.fail(why)
            above += upper.give_up(why)
