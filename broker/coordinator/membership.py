"""A coordinator's first half: who is there, who has joined the run, and how far each member's ledger has come."""

from __future__ import annotations

import os
import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import Literal, NamedTuple

from hushgrid.broker.coordinator import run_history
from hushgrid.broker.coordinator.refusals import Fewer
from hushgrid.kernels.errors import HushgridError, InputError, Refused, Stopped, failure, printable
from hushgrid.kernels.machine import Malformed
from hushgrid.node import wire
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.ledger_rows import StoredRun, relation
from hushgrid.node.problems.plan import RunPlan, encode_plan
from hushgrid.node.runtime.endpoint import LINE, Endpoint
from hushgrid.node.versions import RUNNING
from hushgrid.node.wire import COORDINATOR, Birth, Death, Envelope, Finish, Mark, Plan, Progress, Publication, Seen

ANNOUNCED = 3  #: plans announced at once for members that start again before they have joined; the next ones wait,
CALL_S = 60.0  #: the longest wait between two calls for births: who is there is not woken often for who is not
CALLED_S = 1.0  #: for a member that is known to be gone, or to refuse, to say otherwise at a call
ANNOUNCE_S = (1.0, 30.0)  #: twice as long each time: a member that comes and goes writes no ledger full

Phase = Literal["gathering", "joining", "running", "finishing", "over"]


class Standing(NamedTuple):
    """With what a member has joined: how far its ledger has come, what of other ledgers that counts, and as in `Join`."""

    mark: Mark
    accepted: tuple[Mark, ...] | None = None
    stands: int = -1


class Membership(Endpoint):
    """The members of one run: their births, their joining, the marks of their ledgers, and who is absent."""

    wait_s: float  #: for all members to be connected
    missed: Callable[[Stopped], None] | None  #: is told who is not; None: the run is over then
    error: HushgridError | None  #: by what the run was stopped
    fewer: Fewer | None  #: knows whether a run can be made without some members; None: it cannot

    def __init__(self, fleet: str, plan: RunPlan, ledger: Ledger, every: float | None = None) -> None:
        super().__init__(COORDINATOR, fleet, ledger)
        self.every = every
        self.earlier: dict[str, bytes] = {}  #: member: the run at whose end it is to begin
        self.warmed: set[str] = set()  #: members that have said that they do
        self.plan = plan
        self.members = plan.nodes
        self.blob = encode_plan(plan)
        self.terms = plan.terms
        self.phase: Phase = "gathering"
        self.births: dict[str, Birth] = {}
        self.absent: dict[str, str] = {}  #: member: wall time of its last will
        self.joined: set[str] = set()
        self.refusals: dict[str, HushgridError] = {}  #: members that refuse this run, and why
        self.sessions: dict[str, int] = {}
        self.nonce = b""
        self.run = b""
        self.marks = ledger.peer_marks
        self.wall: Callable[[], float] = time.time
        self._joins: dict[str, Standing] = {}  #: of who has joined
        self._published: dict[str, tuple[Mark, ...]] = {}  #: the marks that the plan said last
        self._before: dict[str, Mark] = {}  #: the marks when this process began the rounds
        self._heard: dict[str, float] = {}  #: member that is waited for: when it was last heard, or asked
        self._now = 0.0
        self._barred: set[tuple[str, str]] = set()  #: (member, topic) that its broker keeps from it, and that were said
        self._began: float | None = None
        self._fresh = 0.0  #: silence counts from this time on, s
        self._stopped: StoredRun | None = None  #: the run to be gone on with, until all have joined it again
        self._asked = 0.0  #: when they were asked to join
        self._called: float | None = None  #: when births were called for first
        self._announced = 0  #: plans since the last run that began
        self._next = 0.0  #: when the next may be

    # --- what the rounds and their end say ---

    @property
    def asks_earlier(self) -> bool:
        """Whether each member must say itself that it has joined, and whether it begins where the plan says."""
        return False

    def witnessed(self, member: str) -> Collection[str]:
        """The members whose spends this member receives: it may say how far their ledgers have come."""
        return ()

    def reached(self, member: str, seen: Mapping[str, tuple[int, int, bytes]]) -> int:
        """The number of the last message that the coordinator has taken from a member (`Stored.seen`); 0: none."""
        return max((seq for key, (_, seq, _) in seen.items() if key.split()[0] == member), default=0)

    @abstractmethod
    def dimension(self, member: str) -> int:
        """Entries of the problem that a member says it has."""

    @property
    def ending(self) -> bool:
        """How the run ends is decided, and in the ledger; the members may not know it yet."""
        return self.phase in ("finishing", "over")

    @abstractmethod
    def _waiting(self) -> list[str]:
        """The members that must send something now."""

    @abstractmethod
    def _begin(self) -> list[Publication]:
        """All have joined: the rounds begin, or go on."""

    @abstractmethod
    def _finish(self, error: HushgridError | None) -> list[Publication]:
        """The run is over."""

    @abstractmethod
    def _on_finished(self, member: str) -> list[Publication]:
        """A member has no part in the run any more, which is over."""

    @abstractmethod
    def _farewell(self) -> Envelope:
        """How it has ended, for a member."""

    @abstractmethod
    def _again(self, only: str | None = None) -> list[Publication]:
        """What is not proven to have arrived; `only`: at this member."""

    @abstractmethod
    def _state(self) -> list[Publication]:
        """How far the run is, for whoever comes late."""

    # --- births ---

    def _on_presence(self, member: str, presence: wire.Presence) -> list[Publication]:
        if isinstance(presence, Death):
            born = self.births.get(member)
            if born is None or born.session == presence.session:
                self.absent[member] = time.strftime("%H:%M:%S", time.localtime(self.wall()))
                self.births.pop(member, None)
            return []
        if not isinstance(presence, Birth):
            return self._drop("not a birth")
        born = self.births.get(member)
        if born and born.mark.ledger == presence.mark.ledger and presence.session < born.session:
            return self._drop("a birth of an earlier session")
        self.births[member] = presence
        self._note(member, presence.barred)
        self.absent.pop(member, None)
        self._heard[member] = self._now
        self.marks.born(member, presence.mark, presence.accepted)
        out = self._farewell_of(member, presence.run)
        if self.phase == "running":
            return out + self._again(member)
        if self.phase == "joining" and presence.run == self.run and not (self.asks_earlier or self._stopped):
            return self._on_join(member, Standing(presence.mark, presence.accepted))  # it says so: the plan is stored
        if self.phase == "joining" and not self._stopped and presence.session != self.sessions[member]:
            self.phase = "gathering"  # it has not stored this plan; a run's id holds its session, so a new run
            self._soon()
        return out

    def _farewell_of(self, member: str, run: bytes) -> list[Publication]:
        """The end of an earlier run, to a member that was away when it was done: it has its outcome still to write.

        What the broker retains says so too, unless the broker has lost it.
        """
        stored = self.ledger.run(run) if run and run != self.run else None
        if stored is None or stored.status != "done" or stored.last is None:
            return []
        return [Publication(self.topics.edge(COORDINATOR, member), stored.last)]

    def _note(self, member: str, barred: tuple[str, ...]) -> None:
        """What the broker keeps from a member, said once each."""
        for topic in barred:
            if (member, topic) in self._barred:
                continue
            try:
                _, src, dst = self.topics.parse(topic)
            except Malformed:
                continue
            if not {src, dst} <= {*self.members, COORDINATOR, ""}:
                continue
            self._barred.add((member, topic))
            what = "cannot publish" if src == member else f"lacks messages of {src}"
            self.log(f"{member} {what}: does the access list allow {topic}?")

    # --- the plan, and who joins it ---

    def _gather(self, now: float, waiting: list[str]) -> list[Publication]:
        """The plan once all are there, not at each birth: members that keep restarting get one plan."""
        if not waiting:
            return self._announce() if now >= self._next else []
        if now < (until := self._gathers_until()):
            return []
        self.refusals = {m: Refused(why) for m in waiting if (why := self._passed_over(m))}
        away = [m for m in waiting if m not in self.refusals]
        since = f"not there after {until - max(self._began or 0.0, self._fresh):g} s, expected a birth"
        error = Stopped(f"{', '.join(away)} {since}")
        if self.missed is None:
            return self._finish(self._refusal(error if away else None) if self.refusals else error)
        self._began = now
        self.missed(error)
        return []

    def _gathers_until(self) -> float:
        latest = max(self._began or 0.0, self._fresh) + self.wait_s
        if self._called is None or not self._spared(self._waiting()):
            return latest
        return min(max(self._called, self._fresh) + CALLED_S, latest)

    def _passed_over(self, member: str) -> str:
        """Why a member that is there is not asked; "" if it is."""
        birth = self.births.get(member)
        return self.fewer.passed_over(member, birth) if self.fewer and birth else ""

    def _spared(self, missing: list[str]) -> bool:
        """Whether a run without these members can be made, and it is known that they will not take part."""
        if self.fewer is None or not all(m in self.absent or self._passed_over(m) for m in missing):
            return False
        return self.fewer.possible([m for m in self.members if m not in missing and m not in self.refusals])

    @property
    def present(self) -> list[str]:
        """The members that are there and have neither refused nor fallen silent."""
        away = {*self.absent, *self.refusals}
        return [m for m in self.members if m in self.births and m not in away]

    def _announce(self) -> list[Publication]:
        self.refusals = {}
        for member in self.members:
            try:
                self._check(member, self.births[member].capabilities)
            except HushgridError as error:
                self.refusals[member] = error
        if self.refusals:
            return self._finish(self._refusal())
        if self._stopped:  # the same plan to the byte, with the sessions of then: they are part of the run's id
            self._take(self._stopped)
            if another := [m for m in self.members if self._another(m)]:
                return self._give_over(f"{', '.join(another)} has lost its state: its ledger is another one")
        else:
            before, self.sessions = self.run, {m: self.births[m].session for m in self.members}
            self.nonce = os.urandom(16)
            self.run = wire.run_id(self.blob, self.nonce, self.sessions)
            self.ledger.drop(before)
            self.warmed = set()
            self.ledger.join(self.run, wire.encode(self._body({})))
            self._announced += 1
            first, longest = ANNOUNCE_S
            late = self._announced - ANNOUNCED
            self._next = self._now + (min(first * 2.0 ** min(late, 10), longest) if late >= 0 else 0.0)
        self.joined, self._joins = set(), {}
        self.phase = "joining"
        self._soon()
        self._heard, self._asked = dict.fromkeys(self.members, self._now), self._now
        again = " again" if self._stopped else ""
        who = ", ".join(self.members) if self._announced <= 1 else "all, a member having started again,"
        self.log(f"run {self.run.hex()[:8]}: {who} asked to join{again}")
        return [*self._state(), self._plan()]

    def _another(self, member: str) -> bool:
        """Whether the ledger of a member cannot know the run that was stopped: the box was replaced, or emptied."""
        birth = self.births[member]
        return birth.session < self.sessions[member] or self.marks.mark(member, birth.mark.ledger) is None

    def _check(self, member: str, c: wire.Capabilities) -> None:
        """Refuse a bad mix, naming who and what."""
        plan, t = self.plan, self.terms
        wanted: list[tuple[str, str, bool, str]] = [
            ("problem", c.problem, c.problem == plan.kind.devices, plan.kind.devices),
            ("case digest", c.digest[:12], c.digest == plan.problem.digest, plan.problem.digest[:12]),
            (
                "wire",
                f"{c.wire} (version {c.version})",
                wire.common((c.wire, *c.older)) is not None,
                f"{' or '.join(map(str, (wire.WIRE, *wire.OLDER)))} (version {RUNNING})",
            ),
            (
                "dimension",
                str(c.dimension),
                c.dimension == self.dimension(member),
                f"{self.dimension(member)} entries",
            ),
            ("algorithms", ", ".join(c.algorithms), plan.algorithm.name in c.algorithms, plan.algorithm.name),
        ]
        if t is not None:
            wanted.append(("mechanisms", ", ".join(c.mechanisms), t.mechanism in c.mechanisms, t.mechanism))
            alike = c.adjacency == "" or relation(c.adjacency) == relation(t.adjacency)  # its budget converts the unit
            wanted.append(("adjacency", c.adjacency, alike, t.adjacency))
        for what, found, right, expected in wanted:
            if not right:
                raise InputError(f"{member}: {what}: found {printable(found, LINE)}, expected {expected}")

    def _on_join(self, member: str, standing: Standing) -> list[Publication]:
        if self.ending:  # it has been called once too often
            return [Publication(self.topics.edge(COORDINATOR, member), wire.encode(self._farewell()))]
        if self.phase != "joining":
            return []
        if self._stopped and (why := run_history.lost(self._stopped, member, standing.stands, self.reached)):
            return self._give_over(why)
        self._joins[member] = standing
        if self._lacks(member):  # it was told less, or has not counted it: it is told again, and not heard until then
            self.joined.discard(member)
            return [self._plan()] if self._published != self._remembered() else []
        self._heard[member] = self._now
        self.joined.add(member)
        return self._all_answered()

    def _on_refuse(self, member: str, reason: str, kind: str) -> list[Publication]:
        """A member will not take part, or not further. It is its topic that says who it is, whatever the reason says."""
        line = printable(reason, LINE)
        if self._stopped:
            return self._give_over(f"{member} refuses: {line}")
        if self.fewer and self.phase == "gathering":  # another has started again meanwhile: this one is asked again too
            return []
        if self.ending and self.error is None:  # it comes too late: the run is done, with its part
            return self._on_finished(member)
        error = failure(kind, line if line.startswith(f"{member}: ") else f"{member} refuses: {line}")
        self.refusals.setdefault(member, error)
        self.joined.discard(member)
        if self.fewer is None or self.phase == "running":
            return self._finish(error)
        return self._all_answered()  # who else refuses is known then

    def _all_answered(self) -> list[Publication]:
        """The rounds, once all have joined; or the end of this run, once the others have refused."""
        if self.phase != "joining" or self._waiting():
            return []
        if self.refusals:
            return self._finish(self._refusal())
        if any(map(self._lacks, self.members)):  # another member has seen more of it: what is known now is told to all
            self.joined = set()
            return [self._plan()]
        return self._begin()

    def _refusal(self, more: HushgridError | None = None) -> HushgridError:
        """All that have refused, in one line; `more`: what there is to say besides."""
        errors = list(self.refusals.values())
        return type(errors[0])("; ".join(map(str, [*errors, *([more] if more else [])])))

    def _give_over(self, why: str) -> list[Publication]:
        """The stopped run is given up for good: a new one begins in its place."""
        self.log(f"run {self.run.hex()[:8]} is given up, what was paid for it is lost: {why}; a new run begins")
        last = Envelope(self.run, 0, 0, None, Finish("stopped", why, Stopped.kind))
        self.ledger.commit(self.run, last=wire.encode(last))
        self._stopped, self.run, self.phase, self._began = None, b"", "gathering", self._now
        self._soon()
        return []

    def _take(self, stored: StoredRun) -> None:
        announced = wire.decode_state(Plan, stored.plan)
        self.run, self.nonce, self.sessions = stored.id, announced.nonce, announced.members
        self.every, self.earlier = announced.every, announced.warm

    def _call(self) -> list[Publication]:
        """A birth may have been lost, the last one of a member that has not joined: who is there says so again."""
        if self.phase not in ("gathering", "joining"):
            return []
        self._called = self._now if self._called is None else self._called
        return [Publication(self.topics.state(COORDINATOR), wire.encode(Progress(b"", 0, "gathering")))]

    def _plan(self) -> Publication:
        self.ledger.remember_peers()  # what is told once is told for ever
        self._published = self._remembered()
        payload = wire.encode(Envelope(self.run, 0, 0, None, self._body(self._published)))
        return Publication(self.topics.all(COORDINATOR), payload)

    def _body(self, marks: Mapping[str, tuple[Mark, ...]]) -> Plan:
        first = {member: several[0] for member, several in marks.items() if several}
        beside = {member: several[1:] for member, several in marks.items() if several[1:]}
        return Plan(self.blob, self.nonce, self.sessions, first, self.every, self.earlier, beside)

    # --- marks, and silence ---

    def _remembered(self) -> dict[str, tuple[Mark, ...]]:
        """The marks of every member's ledgers, for the ledger that it has now."""
        ledgers = {member: birth.mark.ledger for member, birth in self.births.items()}
        return {member: self.marks.marks(member, ledgers.get(member)) for member in self.members}

    def _lacks(self, member: str) -> bool:
        """Whether the ledger with which a member has joined does not count yet what is remembered of its earlier ones."""
        standing = self._joins[member]
        return bool(self.marks.lacking(member, standing.mark, standing.accepted))

    def _stand(self) -> None:
        """All have joined: these are their ledgers from here on."""
        for member, standing in self._joins.items():
            self.marks.joined(member, standing.mark, standing.accepted)
        self.ledger.remember_peers()
        self._before = {member: standing.mark for member, standing in self._joins.items()}

    def _witness(self, member: str, seen: Seen) -> None:
        """What a member says of the ledgers of those whose spends it receives."""
        for name, mark in seen:
            if name != member and name in self.witnessed(member):
                self.marks.spent(name, mark)

    @property
    def paid(self) -> str:
        """What the members' marks say that they have paid for since the rounds began here; "" if nothing."""
        ends = {m: self.marks.mark(m, mark.ledger) or mark for m, mark in self._before.items()}
        paid = {m: mark.no - self._before[m].no for m, mark in ends.items() if mark.no > self._before[m].no}
        return "; paid for: " + ", ".join(f"{m} {answers} answers" for m, answers in paid.items()) if paid else ""

    def _silence(self, member: str) -> str:
        since = self.absent.get(member)
        if since:
            return f"{member} is gone since {since}"
        at = self.wall() - (self._now - self._heard[member])
        return f"{member} silent since {time.strftime('%H:%M:%S', time.localtime(at))} ({self._now - self._heard[member]:.0f} s)"
