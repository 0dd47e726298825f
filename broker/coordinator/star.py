"""The coordinator of a star: it averages, and waits for every member in every round."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from math import inf
from typing import Any, NamedTuple, cast

from hushgrid.broker.coordinator import warm_start
from hushgrid.broker.coordinator.base import Coordinator
from hushgrid.broker.coordinator.warm_start import WarmState
from hushgrid.kernels.algorithms import registry
from hushgrid.kernels.algorithms.base import Star
from hushgrid.kernels.patterns.star import FinalState, ServerContext, StarCentre
from hushgrid.kernels.types import Document, Vector
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems.kind import Ended, Tests
from hushgrid.node.problems.masking import INTRODUCTION
from hushgrid.node.problems.plan import RunPlan
from hushgrid.node.problems.rolling import Point
from hushgrid.node.wire import SMALL, Publication

NAMED = 66  #: bytes of a name in a message, at most


class Held(NamedTuple):
    """The members that count as constants in a run."""

    whole: RunPlan  #: the plan of a run in which they take part
    z: dict[str, Vector]  #: what each said last
    standing: dict[str, Vector]  #: and goes on doing, as the problem has it; empty if that is unknown


class StarCoordinator(Coordinator):
    """A run of rounds around this coordinator, which averages."""

    def __init__(
        self,
        fleet: str,
        plan: RunPlan,
        source: str,
        ledger: Ledger,
        *,
        warm: str = "",
        start: WarmState | None = None,
        held: Held | None = None,
        among: Collection[str] | None = None,
        **options: Any,
    ) -> None:
        """`warm`: the directory of an earlier run, where this one begins; "": at the flat start.

        `start`: the state in force, where this one begins if it fits. `held`: members that are not in the plan.
        `among`: of sites, and of a site's devices: those that the run is made with [all in the plan].
        """
        # What only a coordinator needs of a kind of problem stands in a file of its own, which no device reaches.
        self._kind: Any = import_module(f"{type(plan.kind).__module__.rpartition('.')[0]}.centre")
        self._source, self._among = source, among
        self._over: object = None
        self.centre: ServerContext = self._kind.centre(plan, source, warm)
        self.shares = {m: k.size for m, k in self.centre.position.items()}
        if plan.sites and not plan.kind.sites(plan.problem):  # what a site of zones hands on is of each zone
            self.shares = dict.fromkeys(plan.sites, int(plan.problem.size))
        self._start = start if start is not None and warm_start.fits(start, self.shares) else None
        if held is not None:
            self.centre = self._kind.holding(self.centre, plan, source, *held)
        super().__init__(fleet, plan, ledger, **options)
        if self._start is not None and not self.run:
            self.announcement.earlier = {m: run for m, run in self._start.warm.items() if m in self.shares}

    def parties(self, plan: RunPlan) -> list[str]:
        return self._present(plan.parties)

    def _present(self, parties: list[str]) -> list[str]:
        return [m for m in parties if self._among is None or m in self._among]

    def machine(self) -> StarCentre:
        algorithm, start, centre = cast(Star, self.plan.running), self._start, self.centre
        if self.plan.terms is not None and self.plan.terms.masked is not None:
            masked = self._kind.masked_centre(self.plan)
            sites = {site: masked.sites[site] for site in self.members if masked.sites}
            masked = replace(masked, members=self.members, sites=sites)
            return algorithm.masked_server(replace(masked, start=warm_start.latest(start)) if start else masked)
        if start is not None:
            warm = {m: v for m, v in warm_start.vectors(start, "warm").items() if m in self.shares}
            duals = {
                m: v for m, v in warm_start.vectors(start, "dual").items() if m in self.shares and m not in self.cold
            }
            centre = replace(centre, warm=warm, duals=duals, factor=start.factor)
        return registry.server_of(algorithm, centre) if self.plan.sites else algorithm.server(centre)

    @property
    def cold(self) -> list[str]:
        if self.driver is not None and self.driver.started:
            return list(getattr(self.driver.machine.state, "cold", []))
        return [m for m in self.members if m not in self.membership.warmed] if self.asks_earlier else []

    @property
    def asks_earlier(self) -> bool:
        return bool(self.announcement.earlier) and cast(Star, self.plan.algorithm).both_remember

    def final_state(self) -> FinalState | None:
        if self.driver is None or self.error or not self.driver.done:
            return None
        return cast(StarCentre, self.driver.machine).final_state()

    def points(self) -> tuple[Point, ...]:
        if self.final_state() is None or self.plan.kind.periods(self.plan.problem) is None or self.driver is None:
            return ()
        points: tuple[Point, ...] = self._kind.points(self.concluded())
        return points

    def concluded(self) -> object:
        """What the kind of problem makes of the last state, for all that asks; once, when the run is done."""
        assert self.driver is not None
        if self._over is None:
            over = self._kind.concluded(self.plan, self._source, self.driver.machine.state)
            if not self.driver.done:
                return over
            self._over = over
        return self._over

    def witnessed(self, member: str) -> Collection[str]:
        masked = self.terms is not None and self.terms.masked is not None
        return self.members if masked else ()  # whose signed introductions it has had

    def dimension(self, member: str) -> int:
        if member in self.plan.sites:
            return 1  # it has no data
        return int((self.centre.announced or self.shares)[member])

    @cached_property
    def limit(self) -> int:  # asked at each message
        largest = self.centre.largest or self.shares
        masked = self.plan.terms.masked if self.plan.terms else None
        picks = masked.graph.neighbours if masked and masked.graph else 0
        return SMALL + INTRODUCTION + 8 * max(largest.values(), default=0) + NAMED * picks

    def complete(self, state: Any) -> tuple[int, float | None] | None:
        assert self.driver is not None
        t = cast(StarCentre, self.driver.machine).completed(state)
        return (t, state.residual if state.residual < inf else None) if t > 0 else None

    def answer(self) -> tuple[dict[str, Any], dict[str, Any]]:
        if self.driver is None:
            return {}, {}
        answer: tuple[dict[str, Any], dict[str, Any]] = self._kind.answer(
            self.plan, self.driver.machine.state, self.concluded()
        )
        return answer

    def view(self, tests: Tests | None) -> Document:
        final = self.final_state()
        if final is None or self.driver is None:
            return {}
        state = self.driver.machine.state
        done = self.complete(state)
        ended = Ended(state, final.z, done[1] if done else None, self.reason == "tolerance", tests)
        fields: Document = self._kind.view(self.plan, ended, self.concluded())
        return fields

    def owing(self) -> list[str]:
        assert self.driver is not None
        machine = cast(StarCentre, self.driver.machine)
        return [] if machine.complete else machine.missing()

    def overdue(self, waiting: list[str]) -> list[Publication]:
        """A round goes on without members that are silent, if the machine knows how."""
        silent = self.silence.longer(waiting, self.silent_s)
        out = self.without(silent) if silent else None
        return self.give_up(waiting) if out is None else out

    def without(self, members: list[str]) -> list[Publication] | None:
        step = cast(StarCentre, self.driver.machine).without(members) if self.driver else None
        if step is None or self.driver is None:
            return None
        self.log(f"goes on without {', '.join(members)}")
        return self._publish(self.driver.act(step))


COORDINATOR = StarCoordinator
