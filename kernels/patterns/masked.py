"""Masked sums: a coordinator learns the sum over a set of devices and nothing of any one of them.

Exchange 1: every device introduces itself with a key of this run. Exchange 2: each is shown all introductions, and
checks them. Then rounds: the coordinator sends a point x and the set S of devices that are to answer, and each device i
of S sends

    y_i + sum_{j in S, j > i} m_ij - sum_{j in S, j < i} m_ij   mod 2^64,

y_i its gate's share in integers, m_ij a pad that i and j alone know and that belongs to one question: round k, attempt
a, S and x. The pads cancel in the sum over S, and in no other. If a device of S is silent nothing can be decoded, and
**no pad is ever revealed**: the round is asked again as attempt a + 1 of a smaller set, with fresh noise, at a new
price. (The same y_i sent again under the smaller set would be the classical mistake: once the late message turns up,
the difference is y_j.) At last every device is told what came of it.

The coordinator may tell different sets to different devices. A set K of messages can be decoded only if every honest i
of it has S_i cut with the honest inside K, for a pad that one side alone has added stays. And |S_i| >= h + t. So K has
h honest shares at least: no round of consistency is needed. Devices that were told different x have no pad in common.
It is no integrity: a device can spoil a sum, but not see into it.

**Among few neighbours** (`Terms.neighbours`) a device has pads with k others of S alone, which it picks itself, and
with those that have picked it. Before the first round the coordinator names S, each device says whom it picks, and is
shown the introductions of its neighbours. A pad is then named by the neighbours of both its ends too, so that no device
ever uses one with two sets of neighbours. A smaller set is drawn for anew. Which sums can be decoded then stands in
`kernels/privacy/mask_graphs.py`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from hushgrid.kernels.errors import Stopped
from hushgrid.kernels.machine import NOTHING, Malformed, Step
from hushgrid.kernels.patterns.introductions import Introduction
from hushgrid.kernels.patterns.masked_context import Masks as Masks
from hushgrid.kernels.patterns.masked_context import NodeContext as NodeContext
from hushgrid.kernels.patterns.masked_context import ServerContext as ServerContext
from hushgrid.kernels.patterns.masked_context import Terms as Terms
from hushgrid.kernels.patterns.masked_context import Words as Words
from hushgrid.kernels.patterns.masked_messages import Answer as Answer
from hushgrid.kernels.patterns.masked_messages import Ask as Ask
from hushgrid.kernels.patterns.masked_messages import Draw as Draw
from hushgrid.kernels.patterns.masked_messages import Edges as Edges
from hushgrid.kernels.patterns.masked_messages import Introduced as Introduced
from hushgrid.kernels.patterns.masked_messages import KeyRequest as KeyRequest
from hushgrid.kernels.patterns.masked_messages import KeysAck as KeysAck
from hushgrid.kernels.patterns.masked_messages import Masked as Masked
from hushgrid.kernels.patterns.masked_messages import Message as Message
from hushgrid.kernels.patterns.masked_messages import Picks as Picks
from hushgrid.kernels.patterns.masked_messages import Result as Result
from hushgrid.kernels.patterns.masked_messages import ResultAck as ResultAck
from hushgrid.kernels.patterns.masked_messages import decoded as decoded
from hushgrid.kernels.patterns.masked_messages import digest
from hushgrid.kernels.patterns.star import FinalState, StarCentre, StarMember
from hushgrid.kernels.types import Vector


@dataclass
class MemberState:
    encoded_names: ClassVar[Mapping[str, str]] = {"last_answered": "asked", "last_message": "said", "share": "words"}

    t: int  #: exchanges answered
    round: int  #: rounds that are over, as far as this device was told
    mean: np.ndarray  #: (d,) the point that it was told last: the iterate after `round` rounds
    last_answered: tuple[int, int] = (0, 0)  #: (round, attempt) that it answered last
    introductions: dict[str, Introduction] = field(default_factory=dict)  #: of all
    last_message: str = ""  #: which kind of message the last answer was
    share: bytes = b""  #: the last masked share
    ended: bool = False  #: whether it was told what came of the run
    draws: int = 0  #: sets that it has picked for
    among: tuple[str, ...] = ()  #: the last of these
    picks: tuple[str, ...] = ()  #: and whom it has picked of it
    digests: dict[str, bytes] = field(default_factory=dict)  #: of its neighbours


@lru_cache(maxsize=8)  # of many devices in one process it is the same
def _without(members: tuple[str, ...], absent: tuple[str, ...]) -> tuple[str, ...]:
    """All but these, sorted."""
    away = {*absent}
    return tuple(sorted(m for m in members if m not in away))


_members: Callable[[tuple[str, ...]], frozenset[str]] = lru_cache(maxsize=8)(frozenset)


class MaskedMember(StarMember):
    """A device of a masked run.

    Its gate answers once for each (round, attempt) and its message is repeated, never renewed.
    """

    state: MemberState

    def __init__(self, context: NodeContext, rounds: int) -> None:
        super().__init__("coordinator", rounds)
        self.name, self.gate, self.masks, self.terms = context.name, context.gate, context.masks, context.terms
        self.members = _without(tuple(context.members), ())
        self.state = MemberState(0, 0, context.start.copy())
        self._met = False  #: whether `masks` knows the others

    @property
    def complete(self) -> bool:
        return self.state.ended

    @property
    def row(self) -> int:
        return self.state.round

    @property
    def answered_round(self) -> int:
        return self.state.last_answered[0]

    def outcome(self) -> dict[str, Vector]:
        return {"z": self.state.mean, "x": self.state.mean}

    def check(self, body: object) -> None:
        s = self.state
        match body:
            case KeyRequest() if not s.t:
                return
            case Introduced(introductions) if s.t and not s.introductions and not self.terms.neighbours:
                if self.name not in introductions or len(introductions) < self.terms.contributors:
                    raise Malformed(
                        f"{len(introductions)} introductions, expected {self.terms.contributors}, its own too"
                    )
            case Draw(absent) if s.t and self.terms.neighbours and not s.ended:
                self._check_draw(absent)
            case Edges(introductions, digests) if s.picks and not s.introductions:
                self._check_edges({*introductions}, {*digests})
            case Ask(x=x) if s.introductions and not s.ended:
                self._check_point(x)
                self._check_ask(body)
            case Result(x) if (s.introductions or s.draws) and not s.ended:
                self._check_point(x)
            case _:
                raise Malformed(f"{type(body).__name__}, expected another message here")

    def _check_point(self, x: Vector) -> None:
        if x.shape != self.state.mean.shape:
            raise Malformed(f"x of {x.size} entries, expected {self.state.mean.size}")

    def _check_draw(self, absent: tuple[str, ...]) -> None:
        """A device picks for few sets, or the coordinator would try until the picks suit it."""
        away = {*absent}
        if list(absent) != sorted(away) or self.name in away or not away <= _members(self.members):
            raise Malformed("a set without this device, or one that is not named in order")
        if (size := len(self.members) - len(absent)) < self.terms.contributors:
            raise Malformed(f"a set of {size} devices, expected at least {self.terms.contributors}")
        if self.state.draws >= self.terms.draws:
            raise Malformed(f"a draw after {self.state.draws}, expected {self.terms.draws} at most")

    def _check_edges(self, introduced: set[str], digests: set[str]) -> None:
        """A device masks with all that it has picked. Who else is named can only spoil a sum."""
        s = self.state
        if not {self.name, *s.picks} <= introduced <= _members(s.among) or digests != introduced - {self.name}:
            raise Malformed("neighbours without one that was picked, or of another set")

    def _check_ask(self, ask: Ask) -> None:
        """A device refuses a set that is too small, and a pad that was used."""
        s, least, k, a = self.state, self.terms.contributors, ask.round, ask.attempt
        if self.terms.neighbours:
            if ask.among:
                raise Malformed("a set, expected the one that was drawn for")
        elif (
            list(ask.among) != sorted({*ask.among})
            or not {*ask.among} <= {*s.introductions}
            or self.name not in ask.among
        ):
            raise Malformed("a set of others than were introduced, or without this device")
        elif len(ask.among) < least:
            raise Malformed(f"a set of {len(ask.among)} devices, expected at least {least}")
        if not (s.last_answered < (k, a) and 1 <= k <= self.rounds and 1 <= a <= self.terms.answers):
            raise Malformed(
                f"round {k}, attempt {a} after {s.last_answered}, of {self.rounds} and {self.terms.answers}"
            )

    def receive(self, sender: str, seq: int, body: object) -> Step:
        if sender != self.centre:
            raise Malformed(f"a message from {sender}, expected from {self.centre}")
        s = self.state
        if seq == s.t:
            return self.tick()
        if seq < s.t:
            return NOTHING  # of an attempt that was given up
        self.check(body)
        self.update(seq, body)
        s.t = seq
        return self.tick()._replace(taken=True)

    def update(self, t: int, body: Any) -> None:
        s = self.state
        match body:
            case KeyRequest():
                s.last_message = "introduction"
            case Introduced(introductions):
                self.masks.meet(introductions)
                s.introductions, s.last_message, self._met = introductions, "met", True
            case Draw(absent):
                s.among = _without(self.members, absent)
                s.picks = self.masks.picks(s.among, self.terms.neighbours)
                s.draws, s.introductions, s.digests, s.last_message = s.draws + 1, {}, {}, "picks"
            case Edges(introductions, digests):
                self.masks.meet(introductions)
                s.introductions, s.digests, s.last_message, self._met = introductions, digests, "met", True
            case Ask(k, a, among, x):
                if self.terms.neighbours:
                    among, question = s.among, repr((k, a, s.among, sorted(s.digests)))
                else:
                    question = repr((k, a, among))
                y = self.gate.share(x, question.encode())
                share = self.masked(y.view(np.uint64), k, a, among, x)
                s.round, s.mean, s.last_answered = k - 1, x, (k, a)
                s.share, s.last_message = share, "share"
            case Result(x):
                s.round, s.mean, s.last_message, s.ended = self.rounds, x, "kept", True

    def masked(self, answer: Words, k: int, a: int, among: Sequence[str], x: Vector) -> bytes:
        """What leaves of an answer (d,), as a message has it."""
        if not self._met:  # after a restart
            self.masks.meet(self.state.introductions)
            self._met = True
        neighbours = self.state.digests if self.terms.neighbours else None
        return (answer + self.masks.pad(k, a, among, x, answer.size, neighbours)).astype("<u8").tobytes()

    def answer_body(self) -> Answer:
        match self.state.last_message:
            case "introduction":
                return self.masks.introduction()
            case "picks":
                return Picks(self.state.picks)
            case "met":
                return KeysAck()
            case "share":
                return Masked(self.state.share)
        return ResultAck()


@dataclass
class CentreState:
    encoded_names: ClassVar[Mapping[str, str]] = {"stable_rounds": "calm"}

    t: int  #: exchange under way
    w: np.ndarray  #: (d,) the iterate after `round` rounds
    round: int = 0  #: rounds that are complete
    attempt: int = 1  #: at the round under way
    phase: str = "meet"  #: what the exchange under way is: meet, draw (among few), introduce, ask or tell
    among: list[str] = field(default_factory=list)  #: the members of the exchange under way
    absent: list[str] = field(default_factory=list)  #: members that were silent, and not heard of since
    introductions: dict[str, Introduction] = field(default_factory=dict)
    met: list[str] = field(default_factory=list)  #: the members that know them
    summed: list[str] = field(default_factory=list)  #: whose shares are in the sum that was decoded last
    attempts: int = 0  #: asked so far
    arrived: dict[str, Answer] = field(default_factory=dict)
    stable_rounds: int = 0  #: rounds in a row with max |x+ - x| within the tolerance
    residual: float = 0.0  #: all hold the same x
    done: str | None = None
    draws: int = 0  #: sets that members have picked for
    picks: dict[str, tuple[str, ...]] = field(default_factory=dict)  #: for the last of these


#: What each phase waits for, and the one after it.
PHASES: dict[str, tuple[type, str]] = {
    "meet": (Introduction, "introduce"),
    "draw": (Picks, "introduce"),
    "introduce": (KeysAck, "ask"),
    "ask": (Masked, "ask"),
    "tell": (ResultAck, ""),
}


class MaskedCentre(StarCentre):
    """The coordinator of a masked run. A subclass says what a sum is for."""

    state: CentreState

    def __init__(self, context: ServerContext, rounds: int) -> None:
        super().__init__(context.members, rounds)
        self.terms, self.tolerance, self.patience = context.terms, context.tolerance, context.patience
        self.sites = context.sites
        self.state = CentreState(0, context.start.copy(), among=self.members)
        self._adjacent: tuple[int, dict[str, set[str]]] = 0, {}

    @abstractmethod
    def advance(self, total: Vector, among: Sequence[str]) -> Vector:
        """The next iterate, from the decoded sum (d,) over these devices at `state.x`."""

    @property
    def devices(self) -> int:
        """How many devices a sum over all members is of."""
        return sum(len(nodes) for nodes, _ in self.sites.values()) or len(self.members)

    def completed(self, state: CentreState) -> int:
        return state.round

    @property
    def row(self) -> int:
        return self.state.round

    def check(self, member: str, body: object) -> None:
        if not isinstance(body, Answer):
            raise Malformed(f"{type(body).__name__}, expected an answer")
        if isinstance(body, Masked) and len(body.share) != 8 * self.state.w.size:
            raise Malformed(f"{len(body.share)} bytes, expected {8 * self.state.w.size}")
        if isinstance(body, Masked):
            self._check_among(member, body.among)
        if isinstance(body, Picks) and not (
            len({*body.names}) == len(body.names) == self.terms.neighbours
            and member not in body.names
            and {*body.names} <= self.names
        ):
            raise Malformed(f"{len(body.names)} picks, expected {self.terms.neighbours} other members")

    def _check_among(self, member: str, among: tuple[str, ...]) -> None:
        """A site says which of its devices are in its sum, and a device says nothing."""
        devices, least = self.sites.get(member, (frozenset[str](), 0))
        if list(among) != sorted({*among}) or not {*among} <= devices or len(among) < least:
            raise Malformed(f"a sum of {len(among)} devices, expected at least {least} of its own")

    def due(self, body: object) -> None:
        expected, _ = PHASES[self.state.phase]
        if not isinstance(body, expected):
            raise Malformed(f"{type(body).__name__}, expected {expected.__name__}")

    def begin(self) -> None:
        return None  # what an exchange sends is a function of the state alone

    def round_body(self, member: str) -> object:
        s = self.state
        match s.phase:
            case "meet":
                return KeyRequest()
            case "draw":
                return Draw(tuple(sorted({*self.members} - {*s.among})))
            case "introduce" if self.terms.neighbours:
                adjacent = self._neighbours()
                introductions = {m: s.introductions[m] for m in sorted({member, *adjacent[member]})}
                return Edges(introductions, {m: digest(adjacent[m]) for m in sorted(adjacent[member])})
            case "introduce":
                return Introduced(s.introductions)
            case "ask":
                return Ask(s.round + 1, s.attempt, () if self.terms.neighbours else tuple(s.among), s.w)
        return Result(s.w)

    def _neighbours(self) -> dict[str, set[str]]:
        """Whom each member of the set has picked, or was picked by. Computed once for each exchange."""
        s = self.state
        if self._adjacent[0] != s.t:
            adjacent: dict[str, set[str]] = {m: {*picked} for m, picked in s.picks.items()}
            for m, picked in s.picks.items():
                for other in picked:
                    adjacent[other].add(m)
            self._adjacent = s.t, adjacent
        return self._adjacent[1]

    def receive(self, sender: str, seq: int, body: object) -> Step:
        s = self.state
        if sender in s.absent and sender in s.met:
            s.absent.remove(sender)  # it is back: the next round asks it too
        if sender in self.names and sender not in s.among:
            self.check(sender, body)
            return NOTHING
        return super().receive(sender, seq, body)

    def tick(self) -> Step:
        self.alike = not (self.terms.neighbours and self.state.phase == "introduce")  # each has its own neighbours
        return super().tick()

    @property
    def awaited(self) -> list[str]:
        return self.state.among

    def ended(self) -> str | None:
        stable = self.combine()
        if self.state.phase:
            return None
        return "tolerance" if stable else "rounds"

    def combine(self) -> bool:
        s = self.state
        stable = bool(self.patience and s.stable_rounds >= self.patience)
        if s.phase == "meet":
            s.introductions = {m: s.arrived[m] for m in s.among}  # type: ignore[misc]
            if self.terms.neighbours:
                s.phase, s.met, s.draws = "draw", list(s.among), 1
                return stable
        elif s.phase == "draw":
            s.picks = {m: s.arrived[m].names for m in s.among}  # type: ignore[union-attr]
        elif s.phase == "introduce" and not self.terms.neighbours:
            s.met = list(s.among)
        elif s.phase == "ask":
            answers: list[Masked] = [s.arrived[m] for m in s.among]  # type: ignore[misc]
            devices = [d for m, body in zip(s.among, answers, strict=True) for d in body.among or (m,)]
            before, total = s.w, self.decoded_sum([body.share for body in answers], len(devices))
            s.w, s.summed = self.advance(total, devices), devices
            s.round, s.attempt = s.round + 1, 1
            s.stable_rounds = s.stable_rounds + 1 if float(np.max(np.abs(s.w - before))) <= self.tolerance else 0
            stable = bool(self.patience and s.stable_rounds >= self.patience)
        over = s.phase == "ask" and (s.round == self.rounds or stable or s.attempts == self.terms.answers)
        s.phase = "tell" if over else PHASES[s.phase][1]
        if s.phase == "tell" or (s.phase == "ask" and not self.terms.neighbours):
            s.among = [m for m in s.met if m not in s.absent]
        s.attempts += s.phase == "ask"
        return stable

    def decoded_sum(self, shares: Sequence[bytes], devices: int) -> Vector:
        """(d,) the sum behind these messages. Raises Stopped if no honest devices, so many, have such a sum."""
        total = decoded(shares, self.terms.g)
        if not np.all(np.abs(total) <= devices * self.terms.largest):
            raise Stopped(
                f"round {self.state.round + 1}: a sum was decoded that no honest devices have: one of them has "
                "spoiled it"
            )
        return total

    def without(self, away: Sequence[str]) -> Step | None:
        """Goes on without these members. None if it cannot: too few are left, or too few answers.

        A round that has begun is asked again, as a new attempt of the smaller set. Nobody sends again what was masked
        for the larger one. What those have answered who go away after that counts; the next round is without them.
        """
        s = self.state
        remaining = [m for m in s.among if m not in away and m not in s.absent]
        fewest = 0 if s.phase == "tell" else self.terms.contributors
        if len(remaining) < fewest:
            return None
        if not {*away} & {*self.missing()}:
            s.absent = sorted({*s.absent, *away})
            return NOTHING
        if s.phase == "ask" and s.attempts >= self.terms.answers:
            return None
        if self.terms.neighbours and s.phase in ("draw", "introduce", "ask"):
            return self._drawn_anew(away)
        s.absent = sorted({*s.absent, *away})
        s.among = remaining
        if s.phase == "ask":
            s.t, s.attempt, s.attempts, s.arrived = s.t + 1, s.attempt + 1, s.attempts + 1, {}
            return self.tick()
        s.arrived = {m: body for m, body in s.arrived.items() if m in remaining}
        return self.advanced() if len(s.arrived) == len(remaining) else self.tick()

    def _drawn_anew(self, away: Sequence[str]) -> Step | None:
        """A set is drawn for as it is: without these all pick again, and those that are back, too."""
        s = self.state
        if s.draws >= self.terms.draws:
            return None
        s.absent = sorted({*s.absent, *away})
        s.among = [m for m in s.met if m not in s.absent]
        s.attempt += s.phase == "ask"
        s.t, s.phase, s.draws, s.picks, s.arrived = s.t + 1, "draw", s.draws + 1, {}, {}
        return self.tick()

    def final_state(self) -> FinalState:
        last = dict.fromkeys(self.members, self.state.w)  # told to all, so that it is public
        return FinalState(warm=last, z=last)
