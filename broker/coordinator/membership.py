"""The members of one run: who is there, joins or refuses, how far each ledger has come, who is silent, and which run it
is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Literal, NamedTuple, Protocol

from hushgrid.kernels.errors import HushgridError, InputError, Refused, printable
from hushgrid.kernels.machine import Malformed
from hushgrid.node import system, wire
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.ledger_rows import StoredRun, relation
from hushgrid.node.problems.plan import RunPlan, encode_plan
from hushgrid.node.runtime.endpoint import LINE, Endpoint
from hushgrid.node.status import moment
from hushgrid.node.versions import RUNNING
from hushgrid.node.wire import (
    COORDINATOR,
    Birth,
    Capabilities,
    Envelope,
    Finish,
    Instance,
    Mark,
    Plan,
    Progress,
    Publication,
    Seen,
    Topics,
)

PATIENCE = 3  #: refusals in a row after which a member is asked again only once its birth is another


class Fewer(Protocol):
    """What a coordinator asks about a run without some of its members."""

    def possible(self, present: list[str]) -> bool:
        """Whether a run of these members alone can be made."""
        ...

    def passed_over(self, member: str, birth: Birth) -> str:
        """Why a member of this birth is not asked now, in one line; "" if it is."""
        ...


class Refusal(NamedTuple):
    """The last one of a member."""

    times: int  #: in a row
    session: int
    offer: tuple[Mark, Capabilities, int] | None  #: what its birth said
    interval: int  #: the number of the interval
    midway: bool  #: in the rounds of a run, which it has ended
    reason: str


class Refusals:
    """Of all members. They are known to this process alone: a coordinator that starts again asks everybody."""

    def __init__(self) -> None:
        self._last: dict[str, Refusal] = {}

    def note(
        self, member: str, birth: Birth | None, interval: int, reason: str, *, midway: bool, complete: bool = True
    ) -> int:
        """A member has refused in an interval. Returns how often it has, in a row. complete: a plan of all members; one
        without some counts for nothing, because it may refuse that one alone.
        """
        before = self._last.get(member)
        times = before.times if before else 0
        times = times + 1 if complete else min(times, PATIENCE - 1)
        offer = _offer(birth) if birth else None
        self._last[member] = Refusal(times, birth.session if birth else -1, offer, interval, midway, reason)
        return times

    def forget(self, members: list[str]) -> None:
        """These have taken part in a run that is done."""
        for member in members:
            self._last.pop(member, None)

    def standing(self, member: str, birth: Birth, interval: int, *, without: bool = True) -> str:
        """Why a member of this birth would refuse in an interval, so that it is not asked; "" if it may not.

        It has refused so often, and its birth is the same; or it has ended the run of the interval before, and there
        may be one `without` it.
        """
        last = self._last.get(member)
        if last is None or birth.session != last.session:
            return ""
        same = last.times >= PATIENCE and _offer(birth) == last.offer
        ended = without and last.midway and interval == last.interval + 1
        return f"{last.reason} (not asked: {last.times} refusals in a row)" if same or ended else ""


def _offer(birth: Birth) -> tuple[Mark, Capabilities, int]:
    return birth.mark, birth.capabilities, birth.consents


Phase = Literal["gathering", "joining", "running", "finishing", "over"]


class Joined(NamedTuple):
    """With what a member has joined: how far its ledger has come, what of other ledgers that counts, and as in
    `Join`.
    """

    mark: Mark
    accepted: tuple[Mark, ...] | None = None
    stands: int = -1


class Membership:
    """What is known of the members now. It sends nothing and reads no clock."""

    def __init__(self, names: list[str], ledger: Ledger, fewer: Fewer | None) -> None:
        """`fewer`: what knows of runs without some members; None: there are none."""
        self.names, self._ledger, self._fewer = names, ledger, fewer
        self.births: dict[str, Birth] = {}
        self.absent: dict[str, str] = {}  #: member: wall time of its last will
        self.joined: set[str] = set()
        self.parted: set[str] = set()  #: members that have said farewell
        self.refusals: dict[str, HushgridError] = {}  #: members that refuse this run, and why
        self.warmed: set[str] = set()  #: members that have said that they begin at the end of their last run
        self.marks = ledger.marks.peers
        self.precedence = Precedence()  #: over another coordinator of these members
        self._joins: dict[str, Joined] = {}
        self._published: dict[str, tuple[Mark, ...]] = {}  #: the marks that the plan said last
        self._before: dict[str, Mark] = {}  #: the marks when this process began the rounds
        self._barred: set[tuple[str, str]] = set()  #: (member, topic) that its broker keeps from it, and that were said

    # --- who is there ---

    def died(self, member: str, session: int, moment: str) -> None:
        """A last will."""
        born = self.births.get(member)
        if born is None or born.session == session:
            self.absent[member] = moment
            self.births.pop(member, None)

    def born(self, member: str, birth: Birth) -> bool:
        """A member is there. False, and nothing has changed, if the birth is of an earlier session."""
        before = self.births.get(member)
        if before and before.mark.ledger == birth.mark.ledger and birth.session < before.session:
            return False
        self.births[member] = birth
        self.absent.pop(member, None)
        self.marks.born(member, birth.mark, birth.accepted)
        return True

    def newly_barred(self, member: str, topics: Topics) -> Iterator[str]:
        """What the broker keeps from a member, one line each, and each once."""
        for topic in self.births[member].barred:
            if (member, topic) in self._barred:
                continue
            try:
                _, src, dst = topics.parse(topic)
            except Malformed:
                continue
            if not {src, dst} <= {*self.names, COORDINATOR, ""}:
                continue
            self._barred.add((member, topic))
            what = "cannot publish" if src == member else f"lacks messages of {src}"
            yield f"{member} {what}: does the access list allow {topic}?"

    def waiting(self, phase: Phase) -> list[str]:
        """The members that must send something in this phase of the run, which is not that of its rounds."""
        if phase == "gathering":
            return [m for m in self.names if m not in self.births or self.passed_over(m)]
        if phase == "joining":
            return [m for m in self.names if m not in self.joined and m not in self.refusals]
        over = {*self.parted, *self.absent, *self.refusals}  # who has refused has no part in the run any more
        return [m for m in self.names if m not in over]

    def complete(self, phase: Literal["joining", "finishing"]) -> bool:
        """Whether nobody is waited for. It counts before it looks: an answer of one costs no look at all the others."""
        answered = (self.joined,) if phase == "joining" else (self.parted, self.absent)
        return len(self.refusals) + sum(map(len, answered)) >= len(self.names) and not self.waiting(phase)

    @property
    def present(self) -> list[str]:
        """The members that are there and have neither refused nor fallen silent."""
        away = {*self.absent, *self.refusals}
        return [m for m in self.names if m in self.births and m not in away]

    def passed_over(self, member: str) -> str:
        """Why a member that is there is not asked; "" if it is."""
        birth = self.births.get(member)
        return self._fewer.passed_over(member, birth) if self._fewer and birth else ""

    @property
    def enough(self) -> bool:
        """Whether a run of those who are there can be made."""
        return self._fewer is not None and self._fewer.possible(self.present)

    def spared(self, missing: list[str]) -> bool:
        """Whether a run without these members can be made, and it is known that they will not take part."""
        if self._fewer is None or not all(m in self.absent or self.passed_over(m) for m in missing):
            return False
        return self._fewer.possible([m for m in self.names if m not in missing and m not in self.refusals])

    def replaced(self, member: str, session: int) -> bool:
        """Whether the ledger of a member cannot know the run that it joined in that session: another box, or
        emptied.
        """
        birth = self.births[member]
        return birth.session < session or self.marks.mark(member, birth.mark.ledger) is None

    # --- who joins ---

    def ask(self) -> None:
        """All are asked to join, from the beginning."""
        self.joined, self._joins = set(), {}

    def join(self, member: str, joined: Joined) -> bool:
        """A member joins. False if its ledger does not count yet what is remembered of its earlier ones."""
        self._joins[member] = joined
        if self._lacks(member):
            self.joined.discard(member)
            return False
        self.joined.add(member)
        return True

    def refuse(self, member: str, error: HushgridError) -> None:
        """A member does not take part. Its first word counts."""
        self.refusals.setdefault(member, error)
        self.joined.discard(member)

    def refusal(self, more: HushgridError | None = None) -> HushgridError:
        """All that have refused, in one line; `more`: what there is to say besides."""
        errors = list(self.refusals.values())
        return type(errors[0])("; ".join(map(str, [*errors, *([more] if more else [])])))

    # --- marks ---

    def publish_marks(self) -> dict[str, tuple[Mark, ...]]:
        """The marks of every member's ledgers, for the ledger that it has now. What is told once is told for ever."""
        self._ledger.marks.remember_peers()
        self._published = self._remembered()
        return self._published

    @property
    def marks_have_risen(self) -> bool:
        """Whether other marks are remembered now than were published last."""
        return self._published != self._remembered()

    def _remembered(self) -> dict[str, tuple[Mark, ...]]:
        ledgers = {member: birth.mark.ledger for member, birth in self.births.items()}
        return {member: self.marks.marks(member, ledgers.get(member)) for member in self.names}

    def _lacks(self, member: str) -> bool:
        joined = self._joins[member]
        return bool(self.marks.lacking(member, joined.mark, joined.accepted))

    @property
    def any_lacks(self) -> bool:
        """Whether a ledger that has joined does not count yet what is remembered now."""
        return any(map(self._lacks, self.names))

    def stand(self) -> None:
        """All have joined: these are their ledgers from here on."""
        for member, joined in self._joins.items():
            self.marks.joined(member, joined.mark, joined.accepted)
        self._ledger.marks.remember_peers()
        self._before = {member: joined.mark for member, joined in self._joins.items()}

    def witness(self, member: str, seen: Seen, witnessed: Collection[str]) -> None:
        """What a member says of the ledgers of those whose spends it receives."""
        for name, mark in seen:
            if name != member and name in witnessed:
                self.marks.spent(name, mark)

    @property
    def paid(self) -> str:
        """What the members' marks say that they have paid for since the rounds began here; "" if nothing."""
        ends = {m: self.marks.mark(m, mark.ledger) or mark for m, mark in self._before.items()}
        paid = {m: mark.no - self._before[m].no for m, mark in ends.items() if mark.no > self._before[m].no}
        return "; paid for: " + ", ".join(f"{m} {answers} answers" for m, answers in paid.items()) if paid else ""


def check_offer(plan: RunPlan, member: str, offer: wire.Capabilities, entries: int) -> None:
    """Whether a member can take part. `entries`: of the problem, that it must have.

    Raises InputError if it cannot, which names the member and what is not right.
    """
    terms = plan.terms
    numbers = f"{' or '.join(map(str, (wire.WIRE, *wire.OLDER)))} (version {RUNNING})"
    common = wire.common((offer.wire, *offer.older)) is not None
    digest = plan.problem.digest
    rows: list[tuple[str, str, bool, str]] = [
        ("problem", offer.problem, offer.problem == plan.kind.devices, plan.kind.devices),
        ("case digest", offer.digest[:12], offer.digest == digest, digest[:12]),
        ("wire", f"{offer.wire} (version {offer.version})", common, numbers),
        ("dimension", str(offer.dimension), offer.dimension == entries, f"{entries} entries"),
        ("algorithms", ", ".join(offer.algorithms), plan.algorithm.name in offer.algorithms, plan.algorithm.name),
    ]
    if terms is not None:
        rows.append(("mechanisms", ", ".join(offer.mechanisms), terms.mechanism in offer.mechanisms, terms.mechanism))
        # Its budget converts the unit.
        alike = offer.adjacency == "" or relation(offer.adjacency) == relation(terms.adjacency)
        rows.append(("adjacency", offer.adjacency, alike, terms.adjacency))
    for what, actual, right, expected in rows:
        if not right:
            raise InputError(f"{member}: {what}: found {printable(actual, LINE)}, expected {expected}")


ANNOUNCED = 3  #: plans announced at once for members that start again before they have joined; the next ones wait,
ANNOUNCE_S = (1.0, 30.0)  #: twice as long each time: a member that comes and goes writes no ledger full


class Announcement:
    """The run of a plan, before and while it is made."""

    def __init__(self, plan: RunPlan, every: float | None) -> None:
        """`every`: s until the next run begins; None: by no schedule."""
        self.blob = encode_plan(plan)
        self.run = b""  #: id of the run; b"": there is none yet
        self.sessions: dict[str, int] = {}  #: of the members, when it was announced
        self.earlier: dict[str, bytes] = {}  #: member: the run at whose end it is to begin
        self.times = 0  #: plans since the last run that began
        self.next = 0.0  #: when the next may be, s
        self._every, self._nonce = every, b""

    def renew(self, sessions: dict[str, int], now: float) -> None:
        """Another run of the plan: its id holds the members' sessions of now."""
        self.sessions, self._nonce = sessions, system.machine.entropy(16)
        self.run = wire.run_id(self.blob, self._nonce, sessions)
        self.times += 1
        first, longest = ANNOUNCE_S
        late = self.times - ANNOUNCED
        self.next = now + (min(first * 2.0 ** min(late, 10), longest) if late >= 0 else 0.0)

    def take(self, stored: StoredRun) -> None:
        """A run of the ledger: the same plan to the byte, with the sessions of then, which are part of its id."""
        plan = wire.decode_state(Plan, stored.plan)
        self.run, self._nonce, self.sessions = stored.id, plan.nonce, plan.members
        self._every, self.earlier = plan.every, plan.warm

    def begun(self) -> None:
        """The rounds begin: the next plan need not wait."""
        self.times, self.next = 0, 0.0

    def body(self, marks: Mapping[str, tuple[Mark, ...]]) -> Plan:
        """The plan as it is published, with what is remembered of each member's ledgers."""
        first = {member: several[0] for member, several in marks.items() if several}
        beside = {member: several[1:] for member, several in marks.items() if several[1:]}
        return Plan(self.blob, self._nonce, self.sessions, first, self._every, self.earlier, beside)

    def envelope(self, body: wire.Body) -> Envelope:
        """A message of this run that is of no round."""
        return Envelope(self.run, 0, 0, None, body)

    def farewell(self, error: HushgridError | None, reason: str, residual: float | None) -> bytes:
        """How the run has ended, for a member: stopped by an error, or done."""
        if error:
            body = Finish("stopped", str(error), error.kind)
        else:
            body = Finish("done", reason, residual=residual, quality="agreed" if reason == "tolerance" else "rounds")
        return wire.encode(self.envelope(body))

    def progress(self, done: int, by: wire.Instance | None, *, going: bool, stopped: bool) -> Progress:
        """How far the run is, for whoever comes late."""
        return Progress(self.run, done, "running" if going else "stopped" if stopped else "done", by)


class Silence:
    """When each member that is waited for was heard last, or asked."""

    def __init__(self) -> None:
        self.now = 0.0  #: of the coordinator's clock, s
        self.fresh = 0.0  #: silence counts from this time on, s
        self.wall: Callable[[], float] = system.wall
        self._last: dict[str, float] = {}

    def tick(self, now: float, waiting: Iterable[str]) -> None:
        """Some time has passed. `waiting`: the members that are waited for."""
        self.now = now
        self._last = {m: max(self._last.get(m, now), self.fresh) for m in waiting}

    def ask(self, members: Iterable[str]) -> None:
        """Something was asked of these members just now."""
        self._last = dict.fromkeys(members, self.now)

    def end(self, member: str, *, asked: bool = False) -> None:
        """A member says something. `asked`: it counts from when it was asked, if it was."""
        self._last[member] = self._last.get(member, 0.0) if asked else self.now

    def longer(self, members: Iterable[str], seconds: float) -> list[str]:
        """Those of these members that have been silent for longer."""
        return [m for m in members if self.now - self._last[m] > seconds]

    def since(self, members: Iterable[str]) -> float:
        """Since when the first of these members is silent, s of the coordinator's clock; now if there are none."""
        return min((self._last.get(m, self.now) for m in members), default=self.now)

    def moment(self, seconds: float = 0.0) -> str:
        """The time of day, so many seconds ago."""
        return time.strftime("%H:%M:%S", system.machine.local(self.wall() - seconds))

    def words(self, member: str) -> str:
        """Since when a member has been silent."""
        seconds = self.now - self._last[member]
        return f"{member} silent since {self.moment(seconds)} ({seconds:.0f} s)"


class Precedence:
    """Which of two coordinators of one fleet goes on: the one whose process began later.

    They have one certificate, and so end each other's connections for ever, unless one of them ends. A coordinator that
    starts again replaces nobody: its ledger is the same. What the broker retains of one that is long gone replaces
    nobody either, whatever its clock was: nobody takes the connection.
    """

    def __init__(self) -> None:
        self.instance: Instance | None = None  #: this one; None in a simulation, where there is no other
        self.later: Instance | None = None  #: another one, that began later

    def claim(self, coordinator: Endpoint, began: float) -> Instance:
        """Which coordinator this one is. `began`: its process, s since 1970."""
        self.instance = Instance(coordinator.ledger.id, coordinator.session, began)
        return self.instance

    def read(self, payload: bytes) -> list[Publication]:
        """Something that a coordinator says of itself: this one, or another with the same certificate. Nothing is
        answered.
        """
        try:
            presence = wire.decode_presence(payload)
        except Malformed:
            return []
        if not isinstance(presence, Birth) and presence.by and self.instance and presence.by.replaces(self.instance):
            self.later = presence.by
        return []

    def yields(self, connects: int) -> bool:
        """Whether another one goes on. connects: how often the connection was made: more than once if it was taken."""
        return self.later is not None and connects > 1

    def check(self, connects: int) -> None:
        """Raises Refused if another one goes on. The run, if there is one, is that one's too."""
        if self.later and self.yields(connects):
            began = moment(self.later.began)
            raise Refused(f"{COORDINATOR}: another one of this fleet began at {began}, after this one, which ends")
