"""Masked sums in two levels: the devices of a site mask against each other, and the sites do so against each other.

A site is a member of the fleet above and the centre of its own devices below. Above it is told one question, a point x
under a round and an attempt among certain sites. It asks its devices the same x and gets their sum Y_s modulo 2^64, in
which their pads have cancelled. It adds its own pad against the other sites and sends that up. Above, only the sum over
the sites can be decoded; the site itself sees Y_s. It adds no noise and has no budget, because what it hands on is
post-processing of its devices' answers.

Two rules hold the price of the whole fleet. A site takes part in no set of fewer than m sites, and it answers each
(round, attempt) once, as a device does. And **a sum serves one question**: if another site falls silent, the question
comes again under a smaller set, and the site asks its devices again, at a new price. (The same Y_s under two sets would
show the late site's sum by difference, once its message turns up.)

Each half is a machine of its own, with a store of its own. `passed` makes what goes from one to the other; it may be
called at any time and as often as one likes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from hushgrid.kernels.errors import Stopped
from hushgrid.kernels.machine import NOTHING, Step
from hushgrid.kernels.patterns import masked, masked_messages
from hushgrid.kernels.types import Index, Vector


class Question(NamedTuple):
    """What a site is asked from above."""

    round: int
    attempt: int
    x: Vector  #: (d,)
    run: bytes = b""  #: the run above
    among: tuple[str, ...] = ()  #: the sites whose sum it is


class _NoData:
    """A site has none of its own."""

    def share(self, x: Vector, question: bytes) -> Index:
        raise AssertionError("a site's own answer, expected its devices' sum")


@dataclass
class SiteState(masked.MemberState):
    waits: bool = False  #: whether its devices' sum is still to come
    summed: list[str] = field(default_factory=list)  #: the devices in the last sum


class SiteMember(masked.MaskedMember):
    """A site towards the fleet above. Its ledger keeps which question it has answered last, and with what."""

    state: SiteState

    def __init__(
        self, name: str, masks: masked.Masks, terms: masked.Terms, start: Vector, rounds: int, run: bytes = b""
    ) -> None:
        """terms: `contributors` are sites. run: the run's id above."""
        super().__init__(masked.NodeContext(name=name, gate=_NoData(), masks=masks, terms=terms, start=start), rounds)
        self.run = run
        self.state = SiteState(0, 0, start.copy())

    def update(self, t: int, body: object) -> None:
        s = self.state
        match body:
            case masked.Ask(k, a, among, x):
                s.round, s.mean, s.last_answered = k - 1, x, (k, a)
                s.among, s.waits, s.share, s.last_message = among, True, b"", "share"  # these sites
            case _:
                s.waits = False
                super().update(t, body)

    @property
    def wanted(self) -> Question | None:
        """The question to which its devices' sum is still to come."""
        s = self.state
        return Question(*s.last_answered, s.mean, self.run, s.among) if s.waits else None

    def supply(self, total: masked.Words, devices: Sequence[str]) -> Step:
        """Sends up the sum of these devices' messages, (d,), which answers the question and no other one."""
        s = self.state
        assert s.waits
        s.share = self.masked(total, *s.last_answered, s.among, s.mean)
        s.summed, s.waits = list(devices), False
        return self.tick()

    def tick(self) -> Step:
        return NOTHING if self.state.waits else super().tick()

    def answer_body(self) -> masked.Answer:
        body = super().answer_body()
        return masked.Masked(body.share, tuple(self.state.summed)) if isinstance(body, masked.Masked) else body


@dataclass
class SiteCentreState(masked.CentreState):
    run: bytes = b""  #: the run above
    question: tuple[int, int] = (0, 0)  #: (round, attempt) above that was asked below last
    of_sites: tuple[str, ...] = ()  #: whose sum that question is for
    sum: bytes = b""  #: d words, the sum of the messages to it; b"": it is still to come


class SiteCentre(masked.MaskedCentre):
    """A site towards its devices: as the coordinator of a masked run, but it asks when it is asked.

    Phase `wait` is between two questions. A round of `state` is one of the fleet; an attempt is one below.
    """

    state: SiteCentreState

    def __init__(self, context: masked.ServerContext, rounds: int) -> None:
        super().__init__(context, rounds)
        self.state = SiteCentreState(0, context.start.copy(), among=self.members)

    def advance(self, total: Vector, among: Sequence[str]) -> Vector:
        raise AssertionError("a site moves nothing")

    def combine(self) -> bool:
        s = self.state
        match s.phase:
            case "meet":
                s.introductions = {m: s.arrived[m] for m in s.among}  # type: ignore[misc]
                s.phase = "introduce"
                s.among = [m for m in s.among if m not in s.absent]
            case "introduce":
                s.met, s.phase, s.among = list(s.among), "wait", []
            case "ask":
                shares = [s.arrived[m].share for m in s.among]  # type: ignore[union-attr]
                self.decoded_sum(shares, len(s.among))  # which is only looked at
                s.sum = masked_messages.added(shares).astype("<u8").tobytes()
                s.summed, s.round = list(s.among), s.question[0]
                s.phase, s.among = "wait", []
            case "tell":
                s.phase = ""
        return False

    def serves(self, question: Question) -> bool:
        """Whether its devices were asked this very question last: at this point, for the sum over these sites."""
        s, (k, a, x, run, of_sites) = self.state, question
        return (s.run, s.question, s.of_sites) == (run, (k, a), of_sites) and np.array_equal(s.w, x)

    @property
    def ready(self) -> bool:
        """Whether its devices know each other, and none was told the end."""
        return self.state.phase in ("wait", "ask")

    def ask(self, question: Question) -> Step:
        """Asks its devices, afresh, whatever they have answered before.

        Raises Stopped if they are too few, or may answer no more.
        """
        s, (k, a, x, run, of_sites) = self.state, question
        among, terms = self.present, self.terms
        if len(among) < terms.contributors:
            raise Stopped(f"round {k}: {len(among)} devices are left, expected at least {terms.contributors}")
        if s.attempts >= terms.answers:
            raise Stopped(f"round {k}: its devices have been asked {s.attempts} times, expected one of these")
        s.attempt = s.attempt + 1 if s.question[0] == k else 1
        s.round, s.w, s.run, s.question, s.of_sites, s.sum = k - 1, x.copy(), run, (k, a), of_sites, b""
        s.attempts += 1
        return self._exchange("ask", among)

    def tell(self, x: Vector) -> Step:
        """Tells its devices what came of the run."""
        s = self.state
        s.w = x.copy()
        if not self.present:
            s.phase, s.done = "", "rounds"
            return Step(done=s.done)
        return self._exchange("tell", self.present)

    @property
    def telling(self) -> bool:
        """Whether its devices have been told, or are being told, what came of the run."""
        return self.state.phase in ("tell", "")

    def exchanged(self, member: SiteMember, run: bytes) -> Passed:
        """As `passed`; the run above stands in each question."""
        return passed(member, self)

    @property
    def present(self) -> list[str]:
        """The devices that know each other and are not silent."""
        return [m for m in self.state.met if m not in self.state.absent]

    def _exchange(self, phase: str, among: list[str]) -> Step:
        s = self.state
        if s.phase != "wait":  # an exchange is given up
            s.t += 1
        s.phase, s.among, s.arrived = phase, among, {}
        return self.tick()


class Below(Protocol):
    """The half of a site towards its devices."""

    @property
    def telling(self) -> bool: ...
    def exchanged(self, member: object, run: bytes) -> Passed: ...


class Passed(NamedTuple):
    """The steps that one half's news make in the other, each to be committed by its own driver."""

    above: Step = NOTHING
    below: Step = NOTHING


NO_NEWS = Passed()


def passed(above: SiteMember, below: SiteCentre) -> Passed:
    """What goes from one half to the other now: a question or the end down, a sum up.

    Raises Stopped if the devices cannot be asked.
    """
    if not below.ready:
        return Passed()
    if above.complete:
        return Passed(below=below.tell(above.state.mean))
    if (question := above.wanted) is None:
        return Passed()
    s = below.state
    if not below.serves(question):
        return Passed(below=below.ask(question))
    if not s.sum:
        return Passed()
    return Passed(above=above.supply(np.frombuffer(s.sum, dtype="<u8").astype(np.uint64), s.summed))


def dealt(nodes: Sequence[str], sizes: Sequence[int]) -> Mapping[str, list[str]]:
    """The devices of each site s1, s2, ...: so many each, in their order."""
    dealt, first = dict[str, list[str]](), 0
    for number, size in enumerate(sizes, 1):
        dealt[f"s{number}"] = list(nodes[first : first + size])
        first += size
    return dealt
