"""The star pattern: a coordinator sends every member a vector each round, and goes on when all have answered.

Loss, duplication and reordering are handled here, once: a message of the coming round advances, one of the round just
answered is answered with the same bytes again, anything else is nothing. A paper supplies the two updates.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, nan
from typing import Any, ClassVar, NamedTuple, Protocol

import msgspec
import numpy as np
from msgspec import Struct

from hushgrid.kernels.machine import NOTHING, Malformed, Send, Step
from hushgrid.kernels.types import Vector

Index = np.ndarray[Any, np.dtype[np.int64]]


class Feasible(Protocol):
    """W_p, public: the weighted projection onto it."""

    def project(self, v: Vector, D: Vector) -> Vector: ...


class Least(Protocol):
    """What an exact local step found, at the data that the gate has answered."""

    @property
    def z(self) -> Vector:
        """The minimiser, (n,)."""
        ...

    @property
    def value(self) -> float:
        """f_p there."""
        ...

    @property
    def totals(self) -> Vector:
        """Figures that are summed over all members."""
        ...

    @property
    def duals(self) -> Vector:
        """Multipliers of the member's own equations."""
        ...


class Local(Protocol):
    """A member's local problem, its data given."""

    def minimum(self, v: Vector, factor: float) -> Least:
        """argmin f_p(z) + factor sum_k weight_k/2 (z_k - v_k)^2 over the entries k that p shares; v (m,)."""
        ...

    def bound(self, lam: Vector) -> float:
        """At most min f_p(z) + `ServerContext.scale` <lam, z> over W_p; lam (m,) on the shared entries,
        whatever it is.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class NodeContext:
    """What a member's machine is made from: its gate, and what is public of its place in the plan."""

    gate: Any
    feasible: Callable[[Vector], Feasible]  #: W_p, given the weights (n,) of the first projection
    shared: Index  #: (m,) positions in z_p of the entries that p shares
    start: Vector  #: (n,) z_p^1
    L: float  #: the largest smoothness constant of a node
    alpha: float = 0.0  #: every f_p - alpha/2 |x|^2 is convex
    mode: str | None  #: of the privacy section; None without privacy
    epsilon: float  #: of one answer, in the paper's sense; infinite without privacy
    patience: int  #: calm rounds after which the run may end early; 0: it may not
    local: Callable[[Vector, Vector], Local] | None = (
        None  #: of exact steps: from the gate's answer and the weights (m,)
    )
    stiffness: Vector = field(default_factory=lambda: np.zeros(0))  #: (m,) of exact steps: as `ServerContext.stiffness`
    released: int = 0  #: numbers that the coordinator may tell it at the end


@dataclass(frozen=True, kw_only=True)
class ServerContext:
    """What the coordinator's machine is made from: all of it is public."""

    position: dict[str, Index]  #: (m_p,) where p's shared entries stand in w (N,)
    start: dict[str, Vector]  #: (m_p,) z_p^1 there
    epsilon: float
    tolerance: float
    patience: int
    #: Of exact steps, (N,): how stiff the problem is in each shared entry, in the square of its unit; nan: a flow.
    stiffness: Vector = field(default_factory=lambda: np.zeros(0))
    scale: float = 1.0  #: what f_p is divided by in a step
    bounds: bool = False  #: whether members can tell a lower bound of their part (`Local.bound`)
    periods: int = 1  #: of the horizon over which the members plan
    totals: int = 0  #: figures beside f_p that a member tells in each round
    widths: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)  #: of each member's Closing
    #: What each member says in its birth that it exchanges, if that is not what it shares in this run.
    announced: Mapping[str, int] = field(default_factory=dict)
    largest: Mapping[str, int] = field(default_factory=dict)  #: numbers in the largest message on each member's edges
    conclude: Conclude | None = None  #: what a run of exact steps ends with
    #: The state that an earlier run has left, (m_p,) each: the iteration's, of exact steps; else z_p on the shared
    #: entries.
    warm: dict[str, Vector] | None = None
    duals: dict[str, Vector] = field(default_factory=dict)  #: and lambda_p there, of the members that begin warm too
    factor: float = 1.0  #: and its weights' factor
    held: Vector = field(default_factory=lambda: np.zeros(0))  #: (N,) what w is whatever members say; nan: it is free
    prox: Prox | None = None  #: of copies of one x: of r and the box; None: there are none
    sites: Mapping[str, Sequence[str]] = field(default_factory=dict)  #: of two levels: the members of each; {}: of one


@dataclass(frozen=True, kw_only=True)
class FinalState:
    """What a run leaves its coordinator: where the next one may begin. All of it is public."""

    warm: dict[str, Vector]  #: as in `ServerContext`
    z: dict[str, Vector]  #: (m_p,) each: what the members said last
    duals: dict[str, Vector] = field(default_factory=dict)
    factor: float = 1.0
    standing: dict[str, Vector] = field(default_factory=dict)  #: as in `Concluded`


def held_at(w: Vector, held: Vector) -> Vector:
    """w (N,) with the entries that are held, if there are any, at their values."""
    return np.where(np.isnan(held), w, held) if held.size else w


class W(Struct, tag="ladmm.w", frozen=True):
    """Centre to member p, round t: w^{t+1} on the entries p shares."""

    w: np.ndarray


class Z(Struct, tag="ladmm.z", frozen=True):
    """Member p to centre, round t: z_p^{t+1} on the entries p shares."""

    z: np.ndarray


class V(Struct, tag="star.v", frozen=True):
    """Centre to member p, a round of exact steps: v_p on the entries p shares, and the weights' common factor."""

    v: np.ndarray
    factor: float


class Minimum(Struct, tag="star.minimum", frozen=True):
    """Member p to centre: its minimiser on the entries p shares, f_p there, and the figures that are summed.

    `pull`: |lambda_p|, by the weights that p has; nan of a member that does not say it.
    """

    z: np.ndarray
    value: float
    totals: np.ndarray
    pull: float = nan


class Close(Struct, tag="star.close", frozen=True):
    """Centre to member: the rounds are over; hand over what the outcome is judged by.

    lam: multipliers of the entries p shares; of free ones those of all owners sum to zero. Empty: no bound is asked
    for.
    """

    lam: np.ndarray = msgspec.field(default_factory=lambda: np.zeros(0))


class Closing(Struct, tag="star.closing", frozen=True):
    """Member to centre: the gate's answer, the whole minimiser, and the multipliers of its equations.

    bound: `Local.bound` at the multipliers that it was asked with; -inf: it says none.
    """

    data: np.ndarray
    z: np.ndarray
    duals: np.ndarray
    bound: float = -inf


class Released(Struct, tag="star.released", frozen=True):
    """Centre to member: what came of the run, and the member's own part of it; no values where there is none."""

    status: str
    disagreement: float
    values: np.ndarray


class Taken(Struct, tag="star.taken", frozen=True):
    """Member to centre: the outcome is stored."""


Message = W | Z | V | Minimum | Close | Closing | Released | Taken


class Concluded(NamedTuple):
    """What a run of exact steps ends with."""

    releases: dict[str, Released]  #: what each member is told
    dispatch: Vector  #: all of it, as the problem has it; empty where there is nothing
    standing: dict[str, Vector]  #: what each member goes on doing if it is not heard any more, as the problem has it


#: (v, t): prox_{t r}(v), r with the box, (d,)
Prox = Callable[[Vector, float], Vector]
#: What the members have handed over, and the last round's figures. Deterministic: it is done again after a crash.
Conclude = Callable[[Mapping[str, Closing], Mapping[str, float]], Concluded]


class StarMember(ABC):
    """A member of a star. `state.t` is the last round answered; `answer_body` rebuilds that round's message from it."""

    state: Any
    remembers: ClassVar[bool] = False  #: whether its own state is a part of where a next run may begin

    def __init__(self, centre: str, rounds: int, patience: int = 0) -> None:
        """`patience`: calm rounds after which the centre may end the run early; 0: it may not."""
        self.centre, self.rounds, self.patience = centre, rounds, patience

    @property
    def started(self) -> bool:
        return bool(self.state.t)

    @property
    def hears(self) -> tuple[str, ...]:
        return ()  # the centre speaks to each member

    @property
    def complete(self) -> bool:
        return bool(self.state.t >= min(self.rounds, self.patience or self.rounds))

    @property
    def row(self) -> int:
        """The round after which its recorded vectors are as they are now."""
        t: int = self.state.t
        return t

    @property
    def answered_round(self) -> int:
        """The round in which its gate was asked last."""
        return self.row

    @abstractmethod
    def outcome(self) -> dict[str, Vector]:
        """What the device keeps of a run that is done."""

    @abstractmethod
    def check(self, body: object) -> None:
        """Raise Malformed unless `body` is what the centre may send this member."""

    @abstractmethod
    def update(self, t: int, body: Any) -> None:
        """Round t: take the centre's message and advance the state, all of it or (on an error) nothing."""

    @abstractmethod
    def answer_body(self) -> object:
        """The message of round `state.t`, a function of the state alone."""

    def start(self) -> Step:
        return NOTHING  # the centre speaks first

    def receive(self, sender: str, seq: int, body: object) -> Step:
        if sender != self.centre:
            raise Malformed(f"a message from {sender}, expected from {self.centre}")
        self.check(body)
        if seq == self.state.t + 1 and seq <= self.rounds:
            self.update(seq, body)
            self.state.t = seq
            return self.tick()._replace(taken=True)
        return self.tick() if seq == self.state.t else NOTHING

    def tick(self) -> Step:
        if self.state.t == 0:
            return NOTHING
        return Step((Send(self.centre, self.state.t, self.answer_body()),))


class StarCentre(ABC):
    """The centre of a star. `state.t` is the round under way, `state.arrived` what has come in for it."""

    state: Any
    alike: bool = False  #: whether an exchange's message is the same for all members

    def __init__(self, members: list[str], rounds: int) -> None:
        self.members = sorted(members)
        self.names = frozenset(members)
        self.rounds = rounds

    @property
    def started(self) -> bool:
        return bool(self.state.t)

    @property
    def complete(self) -> bool:
        return self.state.done is not None

    @property
    def row(self) -> int:
        """The round to which the w of its state belongs."""
        t: int = self.state.t
        return t

    @property
    def awaited(self) -> list[str]:
        """The members of the exchange under way."""
        return self.members

    @abstractmethod
    def check(self, member: str, body: object) -> None:
        """Raise Malformed unless `body` is what this member may send."""

    def due(self, body: object) -> None:
        """Raise Malformed unless this kind of message is an answer to the exchange under way."""
        return None

    @abstractmethod
    def begin(self) -> None:
        """Compute what round `state.t` sends."""

    @abstractmethod
    def combine(self) -> bool:
        """All answers of round `state.t` are in `state.arrived`: take them; True stops before the next round."""

    @abstractmethod
    def round_body(self, member: str) -> object:
        """This round's message to a member, a function of the state alone."""

    def ended(self) -> str | None:
        """Take the answers of exchange `state.t`; why the run is over, or None if another exchange follows."""
        if self.combine():
            return "tolerance"
        return "rounds" if self.state.t == self.rounds else None

    @abstractmethod
    def final_state(self) -> FinalState:
        """What the run leaves for the next one, once it is done."""

    def completed(self, state: Any) -> int:
        """Rounds that are complete."""
        t: int = state.t if state.done else state.t - 1
        return t

    def start(self) -> Step:
        self.state.t = 1
        self.begin()
        return self.tick()

    def receive(self, sender: str, seq: int, body: object) -> Step:
        if sender not in self.names:
            raise Malformed(f"a message from {sender}, which is no member")
        self.check(sender, body)
        s = self.state
        if s.done is not None or seq != s.t or sender in s.arrived:
            return NOTHING
        self.due(body)
        s.arrived[sender] = body
        return self.advanced() if len(s.arrived) == len(self.awaited) else Step(taken=True)

    def advanced(self) -> Step:
        """The step that all answers of exchange `state.t` make."""
        s = self.state
        s.done = self.ended()
        s.arrived = {}
        if s.done is not None:
            return Step(done=s.done, taken=True)
        s.t += 1
        self.begin()
        return self.tick()._replace(taken=True)

    def tick(self) -> Step:
        s = self.state
        if s.done is not None:
            return Step(done=s.done)
        if not self.alike:
            return Step(tuple(Send(m, s.t, self.round_body(m)) for m in self.missing()))
        missing = self.missing()
        body = self.round_body(missing[0]) if missing else None  # one object, so that it is encoded once
        return Step(tuple(Send(m, s.t, body) for m in missing))

    def missing(self) -> list[str]:
        """Members whose answer to the round under way has not come."""
        return [m for m in self.awaited if m not in self.state.arrived]

    def without(self, away: list[str]) -> Step | None:
        """What to do without members that are silent, or refuse. None: the run cannot go on."""
        return None
