"""The coordinator gathers the members' births, publishes the plan, runs the rounds, and says when the run is over.

It is a node without a gate: same ledger file, same transaction, same restart. It has no socket and reads no clock: an
event loop calls `connected`, `on_message` and `on_tick`, and publishes what they return. What happens before the rounds
is in `gathering.py`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import cached_property
from math import inf
from typing import Any, Literal

from hushgrid.broker.coordinator import run_history
from hushgrid.broker.coordinator.membership import CALL_S, CALLED_S, Membership, Standing
from hushgrid.broker.coordinator.refusals import Fewer
from hushgrid.kernels.algorithms.base import UNITS
from hushgrid.kernels.errors import HushgridError, Stopped, Suspended, failure
from hushgrid.kernels.machine import Machine, Malformed
from hushgrid.kernels.patterns.star import FinalState
from hushgrid.node import wire
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems.plan import RunPlan
from hushgrid.node.runtime.driver import Address, Driver
from hushgrid.node.runtime.endpoint import REJOIN_S, RETRY_S
from hushgrid.node.wire import COORDINATOR, Envelope, Finish, Finished, Join, Plan, Progress, Publication, Refuse

GRACE_S = 10.0  #: how long it waits for the members' farewells, s


class Coordinator(Membership):
    """One run over one fleet. If the run was stopped, `error` says by what; if it is done, `reason` says why.

    A pattern (`star.py`, `token.py`, `neighbours.py`) says which machine runs, and what silence means.
    """

    def __init__(
        self,
        fleet: str,
        plan: RunPlan,
        ledger: Ledger,
        *,
        wait_s: float = 60.0,
        silent_s: float = 10.0,
        resumes: bool = False,
        every: float | None = None,
        observe: Callable[[Driver, bool], None] | None = None,
        progress: Callable[[int, int, float | None], None] | None = None,
        missed: Callable[[Stopped], None] | None = None,
        fewer: Fewer | None = None,
    ) -> None:
        """`wait_s`: for all members to be connected; then `missed` is told who is not, and it waits on. None: it ends.

        `silent_s`: of a member's silence before the run is stopped.
        `resumes`: if a run of this plan was stopped by silence, go on with it instead of beginning a new one.
        `every`: s until the next run begins; None: by no schedule. `fewer`: what knows of runs without some members.
        """
        super().__init__(fleet, plan, ledger, every)
        self.wait_s, self.silent_s, self.missed, self.fewer = wait_s, silent_s, missed, fewer
        self.observe, self.progress = observe, progress
        self._shown: tuple[int, float | None] | None = None  #: (round, residual) that `progress` was last called with
        self.parted: set[str] = set()  #: members that have said farewell
        self.driver: Driver | None = None
        self.reason = ""
        self.error: HushgridError | None = None
        self._news_at = 0.0  #: time of the last message, or of the last probe, s
        self._met = False  #: whether the broker was ever connected
        self._ends: float | None = None  #: when the wait for farewells ends, s
        self._resumed: int | None = None  #: how much was done when the run was resumed
        self._resume()
        if not self.run and resumes:
            self._stopped = run_history.resumable(self.ledger, self.blob)

    # --- what a pattern says ---

    @abstractmethod
    def machine(self) -> Machine:
        """The coordinator's machine for this plan, before its first step."""

    @property
    @abstractmethod
    def limit(self) -> int:
        """The bytes of the largest message that a member may send."""

    @abstractmethod
    def complete(self, state: Any) -> tuple[int, float | None] | None:
        """(last complete round, its consensus residual) by the machine's state; None before the first."""

    def answer(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What the run has found, as far as the coordinator knows it: figures, and tables (columns, rows) by name."""
        return {}, {}

    def final_state(self) -> FinalState | None:
        """What a run that is done leaves for the next one; None: nothing."""
        return None

    @property
    def cold(self) -> list[str]:
        """The members that began at the flat start while the coordinator did not."""
        return []

    @property
    def lost(self) -> list[str]:
        """The members without which the run went on."""
        return []

    @property
    def solved(self) -> list[str]:
        """The members whose data the problem that was solved is about."""
        return self.members

    @abstractmethod
    def owing(self) -> list[str]:
        """The members that must send something for the rounds to go on."""

    @abstractmethod
    def overdue(self, waiting: list[str]) -> list[Publication]:
        """What to send about members that are silent: `waiting` still must send something."""

    # --- what a transport asks ---

    @cached_property
    def subscriptions(self) -> tuple[str, ...]:
        t = self.topics
        return tuple(x for m in self.members for x in (t.state(m), t.edge(m, COORDINATOR)))

    @property
    def waiting(self) -> list[str]:
        """The members that must send something now."""
        return self._waiting()

    @property
    def finished(self) -> bool:
        return self.phase == "over"

    @property
    def due(self) -> float:
        """Nothing is due once the run is over; and little, while members are waited for."""
        if self.phase == "over":
            return inf
        if self.phase != "gathering":
            return super().due
        return min(self._due, self._gathers_until()) if self._waiting() else self._next

    @property
    def patient(self) -> bool:
        return self.phase in ("gathering", "over")

    def connected(self) -> list[Publication]:
        if self._met or self.driver:  # the members may have lost the broker too and need time to return
            self._fresh = self._now + REJOIN_S
        self._met = True
        self._soon()
        return [*self._state(), *self._again()]

    def on_message(self, topic: str, payload: bytes) -> list[Publication]:
        """The answers to one delivered message. A message that does not belong here is counted and dropped."""
        self._news_at = self._now
        try:
            kind, src, dst = self.topics.parse(topic)
            if src not in self.members or kind == "status" or (kind == "edge" and dst != COORDINATOR):
                raise Malformed("not of this run's edges")
            if kind == "state":
                return self._on_presence(src, wire.decode_presence(payload)) if payload else []
            envelope = wire.decode_envelope(payload, max(self.limit, wire.SMALL))
        except Malformed as error:
            return self._drop(f"malformed: {error}")
        if envelope.run != self.run or not self.run:
            return self._drop("a foreign run")
        body, out = envelope.body, []
        if isinstance(body, Plan | Finish):
            return self._drop("not for the coordinator")
        if isinstance(body, Finished) and not self.ending:
            return self._drop("a farewell before the end")
        step = not isinstance(body, Join | Refuse | Finished)
        if step:
            if self.driver is None or self.phase != "running":  # after them: it was on its way when they ended
                return [] if self.ending else self._drop("before the rounds")
            try:
                out = self.driver.receive(src, envelope, len(payload))
            except Malformed as error:
                return self._drop(str(error))
            except Stopped as error:  # the members that are left cannot go on
                return self._finish(error)
            self._show(self.driver)
        self.absent.pop(src, None)
        if not step and envelope.mark is not None:
            self.marks.born(src, envelope.mark)
        self._heard[src] = self._heard.get(src, 0.0) if isinstance(body, Join) else self._now  # a join is of no round
        match body:
            case Join(warm, stands, accepted, seen) if envelope.mark is not None:
                if warm:
                    self.warmed.add(src)
                self._witness(src, seen)
                return self._on_join(src, Standing(envelope.mark, accepted, stands))
            case Refuse(reason, kind):
                return self._on_refuse(src, reason, kind)
            case Finished(seen):
                self._witness(src, seen)
                return self._on_finished(src)
        return self._publish(out)

    def on_tick(self, now: float) -> list[Publication]:
        """Some time has passed: silent members are noticed, messages without a proven receipt are sent again."""
        self._now = now
        if self._began is None:
            self._began = now
        waiting = self._waiting()
        self._heard = {m: max(self._heard.get(m, now), self._fresh) for m in waiting}
        if self.phase == "gathering":
            if out := self._gather(now, waiting):
                return out
        elif self.phase == "finishing":
            self._ends = now + GRACE_S if self._ends is None else self._ends
            if not waiting or now > self._ends:
                self.phase = "over"
                return []
        elif (
            self._stopped
            and now - max(self._asked, self._fresh) > self.silent_s
            and (here := [m for m in waiting if m not in self.absent])
        ):  # they are connected, and do not answer to this run
            return self._give_over(f"{', '.join(here)} does not know it any more")
        elif out := self.overdue(waiting) if self.phase == "running" else self.give_up(waiting):
            return out
        longest = CALL_S if self.phase == "gathering" else RETRY_S[1]
        out = [*self._again(older=self._overdue(now)), *self._call()] if self._due_at(now, longest) else []
        return out or self._probe()

    def _probe(self) -> list[Publication]:
        """Publishes the state again if no message has come for a while, to learn whether the broker is there.

        If it does not acknowledge, the clock stands still. Otherwise the broker's absence would be taken for silence of
        the members.
        """
        if self.phase != "running" or self._now - self._news_at < self.silent_s / 4:
            return []
        self._news_at = self._now
        return self._state()

    def give_up(self, waiting: list[str]) -> list[Publication]:
        """Ends the run if one of these members has been silent for too long."""
        longest = CALLED_S if self.phase == "joining" and waiting and self._spared(waiting) else self.silent_s
        silent = [m for m in waiting if self._now - self._heard[m] > longest]
        if not silent:
            return []
        said = "; ".join([*map(str, self.refusals.values()), *map(self._silence, silent)])
        # A connected member that is silent again at the same point has nothing from which it could go on.
        stuck = self._resumed == self._at() is not None and any(m not in self.absent for m in silent)
        out = self._finish(Stopped(said) if stuck else Suspended(said))
        self.absent.update((m, "") for m in silent if m not in self.absent)  # their farewell is not waited for
        return out

    def idle(self) -> None:
        """Does nothing: the coordinator has no gate, so it draws no noise ahead."""

    def stop(self, reason: str) -> list[Publication]:
        """Ends the run now, in order: every member gets the reason."""
        return self._finish(Suspended(reason))

    # --- the rounds ---

    def _begin(self) -> list[Publication]:
        self._stand()
        if self._stopped:
            self.ledger.reopen(self.run)
        self.phase = "running"
        self._announced, self._next = 0, 0.0
        self.driver = self._driver()
        self._soon()
        self._heard = dict.fromkeys(self.members, self._now)
        if self._stopped:
            self._resumed = self._at()
            at = f"{UNITS[self.plan.algorithm.pattern][:-1]} {self._resumed}"
            self.log(f"resumes run {self.run.hex()[:8]} at {at}: what was paid for is kept")
        else:
            self.log(
                f"run {self.run.hex()[:8]}: {self.plan.algorithm.rounds} {UNITS[self.plan.algorithm.pattern]} begin"
            )
        self._stopped = None
        return self._publish(self.driver.start())

    def _at(self) -> int | None:
        """How much of the run is done, in the algorithm's unit; None before the rounds."""
        done = self.shown(self.driver.machine.state) if self.driver else None
        return None if not self.driver else done[0] if done else 0

    def _driver(self) -> Driver:
        driver = Driver(COORDINATOR, self.run, self.machine(), None, self.ledger)
        driver.round_of = self.complete
        driver.observe = self._committed
        return driver

    def shown(self, state: Any) -> tuple[int, float | None] | None:
        """(how much is done, in the algorithm's unit; the residual), for the display of progress."""
        return self.complete(state)

    def _show(self, driver: Driver) -> None:
        done = self.shown(driver.machine.state) if self.progress else None
        if self.progress and done and done != self._shown:
            self._shown = done
            self.progress(done[0], self.plan.algorithm.rounds, done[1])

    def _committed(self, driver: Driver) -> None:
        if self.observe:
            self.observe(driver, True)

    def _publish(self, out: list[tuple[str, bytes]]) -> list[Publication]:
        driver = self.driver
        if out and driver and driver.started:
            self._soon()
        publications = [Publication(self.topics.edge(COORDINATOR, dst), payload) for dst, payload in out]
        if driver and driver.done and self.phase == "running":
            self.reason = driver.done
            publications += self._finish(None)
        return publications

    # --- the end ---

    def _finish(self, error: HushgridError | None) -> list[Publication]:
        if self.ending:
            return []
        self.error = error
        self.phase = "finishing" if self.run else "over"
        self._soon()
        if self.run:
            self.ledger.commit(self.run, last=wire.encode(self._farewell()))
        return [*self._again(), *self._state()]  # the retained state is for members that come late

    def _farewell(self) -> Envelope:
        error = self.error
        if error:
            body = Finish("stopped", str(error), error.kind)
        else:
            done = self.complete(self.driver.machine.state) if self.driver else None
            agreed = "agreed" if self.reason == "tolerance" else "rounds"
            body = Finish("done", self.reason, residual=done[1] if done else None, quality=agreed)
        return Envelope(self.run, 0, 0, None, body)

    def _on_finished(self, member: str) -> list[Publication]:
        self.parted.add(member)
        if not self._waiting():
            self.phase = "over"
        return []

    def conclude(self) -> None:
        """Closes the run in the ledger. Called once the caller has recorded how the run ended.

        Until then a restart goes on with this run and says farewell again; it begins no other run.
        """
        if self.run:
            self.ledger.commit(self.run, status="stopped" if self.error else "done")

    # --- inside ---

    def _resume(self) -> None:
        """Goes on with the run of this plan in which the process ended, from the stored state."""
        stored = self.ledger.open_run()
        if stored is None or not run_history.is_of(stored, self.blob):
            return
        self._take(stored)
        self.phase = "joining"
        if stored.state is not None:
            self.phase = "running"
            self.driver = self._driver()
            self._committed(self.driver)
            self.reason = self.driver.done or ""
        if farewell := run_history.farewell_in(stored):
            self._finish(failure(farewell.kind, farewell.reason) if farewell.state == "stopped" else None)
        elif self.reason:
            self._finish(None)

    def _waiting(self) -> list[str]:
        """The members that must send something now."""
        if self.phase == "gathering":
            return [m for m in self.members if m not in self.births or self._passed_over(m)]
        if self.phase == "joining":
            return [m for m in self.members if m not in self.joined and m not in self.refusals]
        if self.phase == "finishing":  # who has refused has no part in the run any more
            return [m for m in self.members if m not in self.parted and m not in {*self.absent, *self.refusals}]
        return self.owing() if self.driver else []

    def _again(self, only: str | None = None, older: frozenset[Address] | None = None) -> list[Publication]:
        """The messages whose receipt is not proven yet. `only`: for this receiver alone. `older`: of a star's these alone."""
        if self.phase == "joining":
            return [self._plan()]
        if self.phase == "running" and self.driver:
            out = [(dst, payload) for dst, payload in self.driver.tick(older) if only in (None, dst)]
            return [Publication(self.topics.edge(COORDINATOR, dst), payload) for dst, payload in out]
        if self.phase == "finishing":
            payload = wire.encode(self._farewell())
            return [Publication(self.topics.edge(COORDINATOR, m), payload) for m in self._waiting()]
        return []

    def _state(self) -> list[Publication]:
        if not self.run:
            return []
        ended: Literal["done", "stopped"] = "stopped" if self.error else "done"
        state = "running" if self.phase in ("joining", "running") else ended
        done = self.complete(self.driver.machine.state) if self.driver else None
        t = done[0] if done else 0
        return [Publication(self.topics.state(COORDINATOR), wire.encode(Progress(self.run, t, state)), True)]
