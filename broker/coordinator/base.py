"""The coordinator gathers the members' births, publishes the plan, runs the rounds, and says when the run is over.

It is a node without a gate: same ledger file, same transaction, same restart. It has no socket and reads no clock: an
event loop calls `connected`, `on_message` and `on_tick`, and publishes what they return. What it knows of its members
is in `membership.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from math import inf

from hushgrid.broker.coordinator import run_history
from hushgrid.broker.coordinator.membership import Announcement, Fewer, Joined, Membership, Phase, Silence, check_offer
from hushgrid.broker.coordinator.pattern import Pattern
from hushgrid.kernels.algorithms.base import UNITS
from hushgrid.kernels.errors import HushgridError, Refused, Stopped, Suspended, failure, printable
from hushgrid.kernels.machine import Malformed
from hushgrid.node import wire
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.ledger_rows import StoredRun
from hushgrid.node.problems.plan import RunPlan
from hushgrid.node.runtime.driver import Address, Driver
from hushgrid.node.runtime.endpoint import LINE, REJOIN_S, RETRY_S, Endpoint
from hushgrid.node.wire import COORDINATOR, Finish, Finished, Join, Plan, Progress, Publication, Refuse

GRACE_S = 10.0  #: how long it waits for the members' farewells, s
CALL_S = 60.0  #: the longest wait between two calls for births: who is there is not woken often for who is not
CALLED_S = 1.0  #: for a member that is known to be gone, or to refuse, to say otherwise at a call


class Coordinator(Endpoint, Pattern):
    """One run over one fleet. If the run was stopped, `error` says by what; if it is done, `reason` says why.

    It has a membership and an announcement. A pattern (`star.py`, `token.py`, `neighbours.py`) says which machine runs,
    and what silence means.
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
        """`wait_s`: for all members to be connected; then `missed` is told who is not, and it waits on. None, or if
        there may be a run of those who are: it ends.

        `silent_s`: of a member's silence before the run is stopped.
        `resumes`: if a run of this plan was stopped by silence, go on with it instead of beginning a new one.
        `every`: s until the next run begins; None: by no schedule. `fewer`: what knows of runs without some members.
        """
        super().__init__(COORDINATOR, fleet, ledger)
        self.plan, self.terms, self.members = plan, plan.terms, self.parties(plan)
        self.names = frozenset(self.members)
        self.membership, self.announcement = Membership(self.members, ledger, fewer), Announcement(plan, every)
        self.phase: Phase = "gathering"
        self.wait_s, self.silent_s, self.missed, self._can_spare = wait_s, silent_s, missed, fewer is not None
        self.observe, self.progress = observe or (lambda *_: None), progress
        self._displayed: tuple[int, float | None] | None = None  #: round and residual that `progress` has shown last
        self.driver: Driver | None = None
        self.reason = ""
        self.error: HushgridError | None = None
        self.silence = Silence()
        self._began: float | None = None
        self._asked = 0.0  #: when the members were asked to join
        self._called: float | None = None  #: when births were called for first
        self._stopped: StoredRun | None = None  #: the run to be gone on with, until all have joined it again
        self._news_at = 0.0  #: time of the last message, or of the last probe, s
        self._met = False  #: whether the broker was ever connected
        self._ends: float | None = None  #: when the wait for farewells ends, s
        self._resumed: int | None = None  #: how much was done when the run was resumed
        self._resume()
        if not self.run and resumes:
            self._stopped = run_history.resumable(self.ledger, self.announcement.blob)

    # --- the run ---

    @property
    def run(self) -> bytes:
        """The run's id; b"": there is none yet."""
        return self.announcement.run

    @property
    def ending(self) -> bool:
        """How the run ends is decided, and in the ledger; the members may not know it yet."""
        return self.phase in ("finishing", "over")

    # --- what a transport asks ---

    @cached_property
    def subscriptions(self) -> tuple[str, ...]:
        t = self.topics
        its_own = [t.state(COORDINATOR)] if self.instance else []
        return (*its_own, *(x for m in self.members for x in (t.state(m), t.edge(m, COORDINATOR))))

    @property
    def finished(self) -> bool:
        return self.phase == "over"

    @property
    def due(self) -> float:
        """Nothing is due once the run is over; and little, while members are waited for."""
        if self.phase != "gathering":
            return inf if self.phase == "over" else super().due
        return min(self._due, self._gathers_until()) if self.waiting else self.announcement.next

    @property
    def patient(self) -> bool:
        return self.phase in ("gathering", "over")

    def connected(self) -> list[Publication]:
        if self._met or self.driver:  # the members may have lost the broker too and need time to return
            self.silence.fresh = self.silence.now + REJOIN_S
        self._met = True
        self._soon()
        return [*self._state(), *self._again()]

    def on_message(self, topic: str, payload: bytes) -> list[Publication]:
        """The answers to one delivered message. A message that does not belong here is counted and dropped."""
        self._news_at = self.silence.now
        try:
            kind, src, dst = self.topics.parse(topic)
            if (kind, src) == ("state", COORDINATOR) and self.instance:
                return self.membership.precedence.read(payload)
            if src not in self.names or kind in wire.WATCHED or (kind == "edge" and dst != COORDINATOR):
                raise Malformed("not of this run's edges")
            if kind == "state":
                return self._on_presence(src, wire.decode_presence(payload)) if payload else []
            envelope = wire.decode_envelope(payload, max(self.limit, wire.SMALL))
        except Malformed as error:
            return self._drop(f"malformed: {error}")
        if envelope.run != self.run or not self.run:
            return self._drop("a foreign run")
        body, out = envelope.body, []
        if isinstance(body, (Plan, Finish)):
            return self._drop("not for the coordinator")
        if isinstance(body, Finished) and not self.ending:
            return self._drop("a farewell before the end")
        step = not isinstance(body, (Join, Refuse, Finished))
        if step:
            refused = src in self.membership.refusals  # or after them: it was on its way when they ended
            if self.driver is None or self.phase != "running" or refused:
                return [] if self.ending or refused else self._drop("before the rounds")
            try:
                out = self.driver.receive(src, envelope, len(payload))
            except Malformed as error:
                return self._drop(str(error))
            except Stopped as error:  # the members that are left cannot go on
                return self._finish(error)
            self._show(self.driver)
        self.membership.absent.pop(src, None)
        if not step and envelope.mark is not None:
            self.membership.marks.born(src, envelope.mark)
        self.silence.end(src, asked=isinstance(body, Join))  # a join is of no round
        match body:
            case Join(warm, stands, accepted, seen) if envelope.mark is not None:
                if warm:
                    self.membership.warmed.add(src)
                self.membership.witness(src, seen, self.witnessed(src))
                return self._on_join(src, Joined(envelope.mark, accepted, stands))
            case Refuse(reason, kind):
                return self._on_refuse(src, reason, kind)
            case Finished(seen):
                self.membership.witness(src, seen, self.witnessed(src))
                return self._on_finished(src)
        return self._publish(out)

    def on_tick(self, now: float) -> list[Publication]:
        """Some time has passed: silent members are noticed, messages without a proven receipt are sent again."""
        if self._began is None:
            self._began = now
        waiting = self.waiting
        self.silence.tick(now, waiting)
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
            and now - max(self._asked, self.silence.fresh) > self.silent_s
            and (here := [m for m in waiting if m not in self.membership.absent])
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
        if self.phase != "running" or self.silence.now - self._news_at < self.silent_s / 4:
            return []
        self._news_at = self.silence.now
        return self._state()

    def give_up(self, waiting: list[str]) -> list[Publication]:
        """Ends the run if one of these members has been silent for too long."""
        longest = CALLED_S if self.phase == "joining" and waiting and self.membership.spared(waiting) else self.silent_s
        if not (silent := self.silence.longer(waiting, longest)):
            return []
        reason = "; ".join([*map(str, self.membership.refusals.values()), *map(self._silence, silent)])
        # A connected member that is silent again at the same point has nothing from which it could go on.
        stuck = self._resumed == self._at() is not None and any(m not in self.membership.absent for m in silent)
        out = self._finish(Stopped(reason) if stuck else Suspended(reason))
        absent = self.membership.absent  # the farewell of those who are is not waited for
        absent.update((m, "") for m in silent if m not in absent)
        return out

    def stop(self, reason: str) -> list[Publication]:
        """Ends the run now, in order: every member gets the reason."""
        return self._finish(Suspended(reason))

    # --- births ---

    def _on_presence(self, member: str, presence: wire.Presence) -> list[Publication]:
        if isinstance(presence, wire.Death):
            self.membership.died(member, presence.session, self.silence.moment())
            return []
        if not isinstance(presence, wire.Birth):
            return self._drop("not a birth")
        if not self.membership.born(member, presence):
            return self._drop("a birth of an earlier session")
        for line in self.membership.newly_barred(member, self.topics):
            self.log(line)
        self.silence.end(member)
        # A member that was away when an earlier run was done has its outcome still to write. What the broker retains
        # says so too, unless the broker has lost it.
        ended = run_history.farewell_to(self.ledger, presence.run) if presence.run != self.run else None
        out = [Publication(self.topics.edge(COORDINATOR, member), ended)] if ended else []
        if self.phase == "running":
            return out + self._again(member)
        if self.phase == "joining" and presence.run == self.run and not (self.asks_earlier or self._stopped):
            return self._on_join(member, Joined(presence.mark, presence.accepted))  # it says so: the plan is stored
        if self.phase == "joining" and not self._stopped and presence.session != self.announcement.sessions[member]:
            self.phase = "gathering"  # it has not stored this plan; a run's id holds its session, so a new run
            self._soon()
        return out

    # --- the plan, and who joins it ---

    def _gather(self, now: float, waiting: list[str]) -> list[Publication]:
        """The plan once all are there, not at each birth: members that keep restarting get one plan."""
        members = self.membership
        if not waiting:
            return self._announce() if now >= self.announcement.next else []
        if now < (until := self._gathers_until()):
            return []
        members.refusals = {m: Refused(why) for m in waiting if (why := members.passed_over(m))}
        away = [m for m in waiting if m not in members.refusals]
        since = f"not there after {until - max(self._began or 0.0, self.silence.fresh):g} s, expected a birth"
        error = Stopped(f"{', '.join(away)} {since}")
        if self.missed is None or members.enough:
            return self._finish(members.refusal(error if away else None) if members.refusals else error)
        self._began = now
        self.missed(error)
        return []

    def _gathers_until(self) -> float:
        latest = max(self._began or 0.0, self.silence.fresh) + self.wait_s
        if self._called is None or not self.membership.spared(self.waiting):
            return latest
        return min(max(self._called, self.silence.fresh) + CALLED_S, latest)

    def _announce(self) -> list[Publication]:
        members, announcement = self.membership, self.announcement
        members.refusals = {}
        for member in self.members:
            try:
                check_offer(self.plan, member, members.births[member].capabilities, self.dimension(member))
            except HushgridError as error:
                members.refusals[member] = error
        if members.refusals:
            return self._finish(members.refusal())
        if self._stopped:
            announcement.take(self._stopped)
            if replaced := [m for m in self.members if members.replaced(m, announcement.sessions[m])]:
                return self._give_over(f"{', '.join(replaced)} has lost its state: its ledger is another one")
        else:
            before = self.run
            announcement.renew({m: members.births[m].session for m in self.members}, self.silence.now)
            self.ledger.runs.drop(before)
            members.warmed = set()
            self.ledger.join(self.run, wire.encode(announcement.body({})))
        members.ask()
        self.phase = "joining"
        self._soon()
        self.silence.ask(self.members)
        self._asked = self.silence.now
        again = " again" if self._stopped else ""
        who = ", ".join(self.members) if announcement.times <= 1 else "all, a member having started again,"
        self.log(f"run {self.run.hex()[:8]}: {who} asked to join{again}")
        return [*self._state(), self._plan()]

    def _on_join(self, member: str, joined: Joined) -> list[Publication]:
        if self.ending:  # it has been called once too often
            return [Publication(self.topics.edge(COORDINATOR, member), self._farewell())]
        if self.phase != "joining":
            return []
        if self._stopped and (why := run_history.lost(self._stopped, member, joined.stands, self.reached)):
            return self._give_over(why)
        if not self.membership.join(member, joined):  # it is told again, and not heard until then
            return [self._plan()] if self.membership.marks_have_risen else []
        self.silence.end(member)
        return self._all_answered()

    def _on_refuse(self, member: str, reason: str, kind: str) -> list[Publication]:
        """A member will not take part, or not further. Its topic says who it is, whatever the reason says."""
        line = printable(reason, LINE)
        if self._stopped:
            return self._give_over(f"{member} refuses: {line}")
        if self._can_spare and self.phase == "gathering":  # another has started again: this one is asked again too
            return []
        if self.ending and self.error is None:  # it comes too late: the run is done, with its part
            return self._on_finished(member)
        error = failure(kind, line if line.startswith(f"{member}: ") else f"{member} refuses: {line}")
        self.membership.refuse(member, error)
        if self.phase != "running" and self._can_spare:
            return self._all_answered()  # who else refuses is known then
        out = self.without([member]) if self.phase == "running" else None
        return self._finish(error) if out is None else out

    def _all_answered(self) -> list[Publication]:
        """The rounds, once all have joined; or the end of this run, once the others have refused."""
        if self.phase != "joining" or not self.membership.complete(self.phase):
            return []
        if self.membership.refusals:
            return self._finish(self.membership.refusal())
        if self.membership.any_lacks:  # another member has seen more of it: what is known now is told to all
            self.membership.joined = set()
            return [self._plan()]
        return self._begin()

    def _give_over(self, why: str) -> list[Publication]:
        """The stopped run is given up for good: a new one begins in its place."""
        self.log(f"run {self.run.hex()[:8]} is given up, what was paid for it is lost: {why}; a new run begins")
        last = self.announcement.envelope(Finish("stopped", why, Stopped.kind))
        self.ledger.commit(self.run, last=wire.encode(last))
        self._stopped, self.announcement.run, self.phase, self._began = None, b"", "gathering", self.silence.now
        self._soon()
        return []

    def _call(self) -> list[Publication]:
        """A birth may have been lost, the last one of a member that has not joined: who is there says so again."""
        if self.phase not in ("gathering", "joining"):
            return []
        self._called = self.silence.now if self._called is None else self._called
        return [Publication(self.topics.state(COORDINATOR), wire.encode(Progress(b"", 0, "gathering", self.instance)))]

    def _plan(self) -> Publication:
        body = self.announcement.body(self.membership.publish_marks())
        return Publication(self.topics.all(COORDINATOR), self._seal(self.announcement.envelope(body)))

    def _silence(self, member: str) -> str:
        since = self.membership.absent.get(member)
        return f"{member} is gone since {since}" if since else self.silence.words(member)

    # --- the rounds ---

    def _begin(self) -> list[Publication]:
        self.membership.stand()
        if self._stopped:
            self.ledger.runs.reopen(self.run)
        self.phase = "running"
        self.announcement.begun()
        unit = UNITS[self.plan.algorithm.pattern]
        self.driver = self._driver()
        self._soon()
        self.silence.ask(self.members)
        if self._stopped:
            self._resumed = self._at()
            self.log(f"resumes run {self.run.hex()[:8]} at {unit[:-1]} {self._resumed}: what was paid for is kept")
        else:
            self.log(f"run {self.run.hex()[:8]}: {self.plan.algorithm.rounds} {unit} begin")
        self._stopped = None
        return self._publish(self.driver.start())

    def _at(self) -> int | None:
        """How much of the run is done, in the algorithm's unit; None before the rounds."""
        done = self.progress_of(self.driver.machine.state) if self.driver else None
        return None if not self.driver else done[0] if done else 0

    def _driver(self) -> Driver:
        driver = Driver(COORDINATOR, self.run, self.machine(), None, self.ledger)
        driver.round_of = self.complete
        driver.seal = self._seal
        driver.observe = lambda driver: self.observe(driver, True)
        return driver

    def _show(self, driver: Driver) -> None:
        done = self.progress_of(driver.machine.state) if self.progress else None
        if self.progress and done and done != self._displayed:
            self._displayed = done
            self.progress(done[0], self.plan.algorithm.rounds, done[1])

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
            self.ledger.commit(self.run, last=self._farewell())
        return [*self._again(), *self._state()]  # the retained state is for members that come late

    def _farewell(self) -> bytes:
        done = self.complete(self.driver.machine.state) if self.driver else None
        return self.announcement.farewell(self.error, self.reason, done[1] if done else None)

    def _on_finished(self, member: str) -> list[Publication]:
        self.membership.parted.add(member)
        if self.phase == "over" or self.membership.complete("finishing"):
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
        stored = self.ledger.runs.under_way()
        if stored is None or not run_history.is_of(stored, self.announcement.blob):
            return
        self.announcement.take(stored)
        self.phase = "joining"
        if stored.state is not None:
            self.phase = "running"
            self.driver = self._driver()
            self.observe(self.driver, True)
            self.reason = self.driver.done or ""
        if farewell := run_history.farewell_in(stored):
            self._finish(failure(farewell.kind, farewell.reason) if farewell.state == "stopped" else None)
        elif self.reason:
            self._finish(None)

    @property
    def waiting(self) -> list[str]:
        """The members that must send something now."""
        if self.phase in ("running", "over"):
            return self.owing() if self.driver else []
        return self.membership.waiting(self.phase)

    def _again(self, only: str | None = None, older: frozenset[Address] | None = None) -> list[Publication]:
        """The messages whose receipt is not proven yet. `only`: for this receiver alone. `older`: of a star's these
        alone.
        """
        if self.phase == "joining":
            return [self._plan()]
        if self.phase == "running" and self.driver:
            out = self.driver.tick(older, only)
            return [Publication(self.topics.edge(COORDINATOR, dst), payload) for dst, payload in out]
        if self.phase == "finishing":
            payload = self._farewell()
            return [Publication(self.topics.edge(COORDINATOR, m), payload) for m in self.waiting]
        return []

    def _state(self) -> list[Publication]:
        if not self.run:
            return []
        done = self.complete(self.driver.machine.state) if self.driver else None
        how_far, going = done[0] if done else 0, self.phase in ("joining", "running")
        progress = self.announcement.progress(how_far, self.instance, going=going, stopped=self.error is not None)
        return [Publication(self.topics.state(COORDINATOR), wire.encode(progress), True)]
