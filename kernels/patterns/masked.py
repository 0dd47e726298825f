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
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from hushgrid.kernels.errors import Stopped
from hushgrid.kernels.machine import NOTHING, Malformed, Step
from hushgrid.kernels.patterns.introductions import Introduction
from hushgrid.kernels.patterns.star import FinalState, Prox, StarCentre, StarMember
from hushgrid.kernels.types import Index, Vector

Words = NDArray[np.uint64]


class Masks(Protocol):
    """The pads of one device in one run."""

    def introduction(self) -> Introduction:
        """Its key of this run, signed: the same one after a restart."""
        ...

    def meet(self, introductions: Mapping[str, Introduction]) -> None:
        """Checks all introductions, its own among them, and keeps them with the run. Raises Refused."""
        ...

    def pad(self, round: int, attempt: int, among: Sequence[str], x: Vector, size: int) -> Words:
        """(size,) sum over j > i in `among` of m_ij, which is of this very question, less that over j < i."""
        ...


class Shares(Protocol):
    """What a masked round may ask of a gate."""

    def share(self, x: Vector, question: bytes) -> Index:
        """y_i at x: integers on the common grid, noise included; one answer. `about`: what else it is asked with."""
        ...


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What the plan says of the masking, in numbers; all of it is public."""

    contributors: int  #: s, the fewest devices of a round
    answers: int  #: T, of a device, given up attempts among them
    g: float  #: the common grid
    largest: float  #: no honest device's entry is beyond it, in the unit of a value


@dataclass(frozen=True, kw_only=True)
class NodeContext:
    """What a member's machine is made from."""

    name: str
    gate: Shares
    masks: Masks
    terms: Terms
    start: Vector  #: (d,)


@dataclass(frozen=True, kw_only=True)
class ServerContext:
    """What the coordinator's machine is made from: all of it is public."""

    members: list[str]
    terms: Terms
    start: Vector  #: (d,)
    public: Callable[[Vector], Vector]  #: the gradient, (d,), of what is public of every f_p
    prox: Prox  #: of r and the box
    tolerance: float = 0.0
    patience: int = 0


class KeyRequest(Struct, tag="masked.meet", frozen=True):
    """Centre to member: introduce yourself."""


class Introduced(Struct, tag="masked.introduced", frozen=True):
    """Centre to member: these are all that take part."""

    introductions: dict[str, Introduction]


class KeysAck(Struct, tag="masked.met", frozen=True):
    """Member to centre: it knows them all."""


class Ask(Struct, tag="masked.ask", frozen=True):
    """Centre to member: the share at x, masked among these, names sorted. One (round, attempt) is asked once."""

    round: int
    attempt: int
    among: tuple[str, ...]
    x: np.ndarray


class Masked(Struct, tag="masked.share", frozen=True):
    """Member to centre: d words of 64 bits, little-endian. Without all others of its set they are uniform."""

    share: bytes = msgspec.field(name="words")


class Result(Struct, tag="masked.told", frozen=True):
    """Centre to member: what came of the run."""

    x: np.ndarray


class ResultAck(Struct, tag="masked.kept", frozen=True):
    """Member to centre: it is stored."""


Message = KeyRequest | Introduction | Introduced | KeysAck | Ask | Masked | Result | ResultAck
Answer = Introduction | KeysAck | Masked | ResultAck


def decoded(messages: Sequence[bytes], g: float) -> Vector:
    """(d,) the sum of the values behind these messages, in their unit: right if they are those of one whole set."""
    total = np.zeros(len(messages[0]) // 8, dtype=np.uint64)
    for message in messages:
        total += np.frombuffer(message, dtype="<u8")
    values: Vector = total.view(np.int64).astype(np.float64) * g
    return values


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


class MaskedMember(StarMember):
    """A device of a masked run.

    Its gate answers once for each (round, attempt) and its message is repeated, never renewed.
    """

    state: MemberState

    def __init__(self, context: NodeContext, rounds: int) -> None:
        super().__init__("coordinator", rounds)
        self.name, self.gate, self.masks, self.terms = context.name, context.gate, context.masks, context.terms
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
        s, n = self.state, self.state.mean.size
        match body:
            case KeyRequest() if not s.t:
                return
            case Introduced(introductions) if s.t and not s.introductions:
                if self.name not in introductions or len(introductions) < self.terms.contributors:
                    raise Malformed(
                        f"{len(introductions)} introductions, expected {self.terms.contributors}, its own too"
                    )
            case Ask(x=x) | Result(x) if s.introductions and not s.ended:
                if x.shape != (n,):
                    raise Malformed(f"x of {x.size} entries, expected {n}")
                if isinstance(body, Ask):
                    self._check_ask(body.round, body.attempt, body.among)
            case _:
                raise Malformed(f"{type(body).__name__}, expected another message here")

    def _check_ask(self, k: int, a: int, among: tuple[str, ...]) -> None:
        """A device refuses a set that is too small, and a pad that was used."""
        s, least = self.state, self.terms.contributors
        if list(among) != sorted({*among}) or not {*among} <= {*s.introductions} or self.name not in among:
            raise Malformed("a set of others than were introduced, or without this device")
        if len(among) < least:
            raise Malformed(f"a set of {len(among)} devices, expected at least {least}")
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
            case Ask(k, a, among, x):
                if not self._met:  # after a restart
                    self.masks.meet(s.introductions)
                    self._met = True
                y = self.gate.share(x, repr((k, a, among)).encode())
                masked = y.view(np.uint64) + self.masks.pad(k, a, among, x, y.size)
                s.round, s.mean, s.last_answered = k - 1, x, (k, a)
                s.share, s.last_message = masked.astype("<u8").tobytes(), "share"
            case Result(x):
                s.round, s.mean, s.last_message, s.ended = self.rounds, x, "kept", True

    def answer_body(self) -> Answer:
        match self.state.last_message:
            case "introduction":
                return self.masks.introduction()
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
    phase: str = "meet"  #: what the exchange under way is: meet, introduce, ask or tell
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


#: What each phase waits for, and the one after it.
PHASES: dict[str, tuple[type, str]] = {
    "meet": (Introduction, "introduce"),
    "introduce": (KeysAck, "ask"),
    "ask": (Masked, "ask"),
    "tell": (ResultAck, ""),
}


class MaskedCentre(StarCentre):
    """The coordinator of a masked run. A subclass says what a sum is for."""

    state: CentreState
    alike = True

    def __init__(self, context: ServerContext, rounds: int) -> None:
        super().__init__(context.members, rounds)
        self.terms, self.tolerance, self.patience = context.terms, context.tolerance, context.patience
        self.state = CentreState(0, context.start.copy(), among=self.members)

    @abstractmethod
    def advance(self, total: Vector, among: Sequence[str]) -> Vector:
        """The next iterate, from the decoded sum (d,) over these devices at `state.x`."""

    def completed(self, state: CentreState) -> int:
        return state.round

    @property
    def row(self) -> int:
        return self.state.round

    def check(self, member: str, body: object) -> None:
        if not isinstance(body, Introduction | KeysAck | Masked | ResultAck):
            raise Malformed(f"{type(body).__name__}, expected an answer")
        if isinstance(body, Masked) and len(body.share) != 8 * self.state.w.size:
            raise Malformed(f"{len(body.share)} bytes, expected {8 * self.state.w.size}")

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
            case "introduce":
                return Introduced(s.introductions)
            case "ask":
                return Ask(s.round + 1, s.attempt, tuple(s.among), s.w)
        return Result(s.w)

    def receive(self, sender: str, seq: int, body: object) -> Step:
        s = self.state
        if sender in s.absent and sender in s.met:
            s.absent.remove(sender)  # it is back: the next round asks it too
        if sender in self.names and sender not in s.among:
            self.check(sender, body)
            return NOTHING
        return super().receive(sender, seq, body)

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
        elif s.phase == "introduce":
            s.met = list(s.among)
        elif s.phase == "ask":
            shares = [s.arrived[m].share for m in s.among]  # type: ignore[union-attr]
            before, total = s.w, decoded(shares, self.terms.g)
            if not np.all(np.abs(total) <= len(s.among) * self.terms.largest):
                raise Stopped(
                    f"round {s.round + 1}: a sum was decoded that no honest devices have: one of them has spoiled it"
                )
            s.w, s.summed = self.advance(total, s.among), list(s.among)
            s.round, s.attempt = s.round + 1, 1
            s.stable_rounds = s.stable_rounds + 1 if float(np.max(np.abs(s.w - before))) <= self.tolerance else 0
            stable = bool(self.patience and s.stable_rounds >= self.patience)
        over = s.phase == "ask" and (s.round == self.rounds or stable or s.attempts == self.terms.answers)
        s.phase = "tell" if over else PHASES[s.phase][1]
        if s.phase in ("ask", "tell"):
            s.among = [m for m in s.met if m not in s.absent]
        s.attempts += s.phase == "ask"
        return stable

    def without(self, silent: Sequence[str]) -> Step | None:
        """Goes on without these members. None if it cannot: too few are left, or too few answers.

        A round that has begun is asked again, as a new attempt of the smaller set. Nobody sends again what was masked
        for the larger one.
        """
        s = self.state
        remaining = [m for m in s.among if m not in silent]
        fewest = 0 if s.phase == "tell" else self.terms.contributors
        if len(remaining) < fewest or (s.phase == "ask" and s.attempts >= self.terms.answers):
            return None
        s.absent = sorted({*s.absent, *silent})
        s.among = remaining
        if s.phase == "ask":
            s.t, s.attempt, s.attempts, s.arrived = s.t + 1, s.attempt + 1, s.attempts + 1, {}
            return self.tick()
        s.arrived = {m: body for m, body in s.arrived.items() if m in remaining}
        return self.advanced() if len(s.arrived) == len(remaining) else self.tick()

    def final_state(self) -> FinalState:
        last = dict.fromkeys(self.members, self.state.w)  # told to all, so that it is public
        return FinalState(warm=last, z=last)
