"""The members of one run: who is there, who has joined or refused, and how far each one's ledger has come."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Literal, NamedTuple

from hushgrid.broker.coordinator.refusals import Fewer
from hushgrid.kernels.errors import HushgridError, InputError, printable
from hushgrid.kernels.machine import Malformed
from hushgrid.node import wire
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.ledger_rows import relation
from hushgrid.node.problems.plan import RunPlan
from hushgrid.node.runtime.endpoint import LINE
from hushgrid.node.versions import RUNNING
from hushgrid.node.wire import COORDINATOR, Birth, Mark, Seen, Topics

Phase = Literal["gathering", "joining", "running", "finishing", "over"]


class Joined(NamedTuple):
    """With what a member has joined: how far its ledger has come, what of other ledgers that counts, and as in `Join`."""

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

    @property
    def present(self) -> list[str]:
        """The members that are there and have neither refused nor fallen silent."""
        away = {*self.absent, *self.refusals}
        return [m for m in self.names if m in self.births and m not in away]

    def passed_over(self, member: str) -> str:
        """Why a member that is there is not asked; "" if it is."""
        birth = self.births.get(member)
        return self._fewer.passed_over(member, birth) if self._fewer and birth else ""

    def spared(self, missing: list[str]) -> bool:
        """Whether a run without these members can be made, and it is known that they will not take part."""
        if self._fewer is None or not all(m in self.absent or self.passed_over(m) for m in missing):
            return False
        return self._fewer.possible([m for m in self.names if m not in missing and m not in self.refusals])

    def replaced(self, member: str, session: int) -> bool:
        """Whether the ledger of a member cannot know the run that it joined in that session: another box, or emptied."""
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
