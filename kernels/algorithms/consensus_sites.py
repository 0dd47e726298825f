"""Consensus ADMM in two levels: the machines of a site's coordinator and of the one above (`consensus_admm.py`).

Whatever one level computes of an entry is computed at the entry's one place, in the same order of zones. What is
decided of all of them together follows from sums without rounding. So the result is that of one level bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import TypeVar

import numpy as np
from msgspec.structs import replace

from hushgrid.kernels.algorithms.consensus_admm import CLOSING, Params, Server, ServerState, check_answer
from hushgrid.kernels.algorithms.owners import same_weights
from hushgrid.kernels.machine import NOTHING, Malformed, Step
from hushgrid.kernels.patterns.levels import (
    ABOVE,
    CloseAll,
    Gathered,
    Move,
    Point,
    Question,
    ReleasedAll,
    SiteMember,
    Summed,
    Sums,
    places,
    shaped,
)
from hushgrid.kernels.patterns.sites import Passed
from hushgrid.kernels.patterns.star import (
    Close,
    Closing,
    FinalState,
    Minimum,
    ServerContext,
    StarCentre,
    Taken,
    V,
)
from hushgrid.kernels.types import Vector

T = TypeVar("T")
BEGIN = Move("begin", 1.0, np.zeros(0))


def above(params: Params, context: ServerContext) -> Above:
    """The machine of the coordinator above the sites of the context."""
    return Above(params, context)


def site(params: Params, context: ServerContext, name: str) -> SiteCentre:
    """The machine of a site's coordinator towards its zones."""
    return SiteCentre(params, context, name)


def member(params: Params, context: ServerContext, name: str) -> SiteMember:
    """A site's machine towards the coordinator above."""
    by_place = places(context.position, context.stiffness.size, context.sites)
    position = {p: by_place[ABOVE].position[p] for p in context.sites[name]}
    return SiteMember(position, by_place[name].position, params.rounds + CLOSING)


@dataclass
class AboveState(ServerState):
    move: Move = field(default_factory=lambda: BEGIN)  #: how the entries of every place go on
    arrived: dict[str, Summed | Gathered | Taken] = field(default_factory=dict)  # type: ignore[assignment]


class Above(Server):
    """The coordinator above sites, which averages the entries that zones of several sites own."""

    state: AboveState

    def __init__(self, params: Params, context: ServerContext) -> None:
        super().__init__(params, context, list(context.sites))
        self.sites, self.warm = context.sites, context.warm is not None

    def first(self, s: dict[str, Vector], factor: float) -> AboveState:
        return AboveState(0, np.zeros(self.entries.size), s, factor, move=replace(BEGIN, factor=factor))

    def of_site(self, site: str, values: Mapping[str, T]) -> dict[str, T]:
        return {p: values[p] for p in self.sites[site]}

    def check(self, member: str, body: object) -> None:
        inner, above = self.averaged[member].position, self.of_site(member, self.averaged[ABOVE].position)
        match body:
            case Summed(z=z, sums=sums):
                k = min(len(self.state.ys), self.params.memory)
                good = shaped(z, above) and sums.bounded and len(sums.products) == len(sums.steps) == k
            case Gathered(closing=closing, s=s, z=z, lam=lam):
                good = closing.keys() == inner.keys() and all(shaped(vectors, inner) for vectors in (s, z, lam))
                for p in inner if good else ():
                    super().check(p, closing[p])
            case _:
                good = isinstance(body, Taken)
        if not good:
            raise Malformed(f"{type(body).__name__}, expected what the zones of {member} say and their sums")

    def due(self, body: object) -> None:
        s = self.state
        expected = Summed if s.why is None else Taken if s.closing else Gathered
        if not isinstance(body, expected):
            raise Malformed(f"{type(body).__name__}, expected {expected.__name__} now")

    def round_body(self, member: str) -> object:
        s = self.state
        if s.closing:
            return ReleasedAll(
                self.of_site(member, s.released),
                "tolerance" if s.why == "tolerance" else "rounds",
                s.rounds,
                s.residual,
            )
        if s.why is not None:
            return CloseAll(self.of_site(member, s.lam) if s.lam else {}, s.move)
        inside = self.averaged[member].inside
        begun = {p: self.begun[p][k] for p, k in inside.items()} if self.warm and s.t == 1 else {}
        return Point({p: self.entries.point(s, p) for p in inside}, s.move, begun)

    def sums(self) -> list[Sums]:
        s = self.state
        s.z = {p: z for site in self.members for p, z in s.arrived[site].z.items()}  # type: ignore[union-attr]
        return [self.entries.measured(s, []), *(s.arrived[site].sums for site in self.members)]  # type: ignore[union-attr]

    def advance(self, move: Move) -> None:
        super().advance(move)
        self.state.move = move

    def gathered(self) -> dict[str, Closing]:
        s, place, closing = self.state, self.averaged[ABOVE], dict[str, Closing]()
        for site in self.members:
            body = s.arrived[site]
            assert isinstance(body, Gathered)
            closing |= body.closing
            for p in self.sites[site]:
                s.s[p], s.z[p] = place.joined(p, s.s[p], body.s[p]), place.joined(p, s.z[p], body.z[p])
                if s.lam:
                    s.lam[p] = place.joined(p, s.lam[p], body.lam[p])
        s.s, s.z = dict(sorted(s.s.items())), dict(sorted(s.z.items()))
        return dict(sorted(closing.items()))


@dataclass
class SiteState:
    t: int  #: exchange under way
    w: np.ndarray  #: as in `ServerState`, of the site's own entries
    s: dict[str, np.ndarray]
    factor: float = 1.0
    ys: list[np.ndarray] = field(default_factory=list)
    Rs: list[np.ndarray] = field(default_factory=list)
    plain: np.ndarray = field(default_factory=lambda: np.zeros(0))
    z: dict[str, np.ndarray] = field(default_factory=dict)
    lam: dict[str, np.ndarray] = field(default_factory=dict)  #: the multipliers that bounds are asked at
    joined: bool = False  #: whether the zones are there
    run: bytes = b""  #: the run above
    question: Question | None = None  #: of this exchange
    arrived: dict[str, Minimum | Closing | Taken] = field(default_factory=dict)
    rounds: int = 0  #: rounds that are complete, once it is told
    residual: float = inf  #: of the last, as it is told
    done: str | None = None
    measured: np.ndarray = field(default_factory=lambda: np.zeros(0))  #: none here: the sums are of all places


class SiteCentre(StarCentre):
    """A site towards its zones: each exchange is one that the coordinator above has asked for, under its number."""

    state: SiteState

    def __init__(self, params: Params, context: ServerContext, name: str) -> None:
        super().__init__(list(context.sites[name]), params.rounds)
        self.entries, self.params, self.position = params.entries(context, name), params, context.position
        self.place = places(context.position, context.stiffness.size, context.sites)[name]
        self.totals, self.widths, self.weight = context.totals, context.widths, params.weights(context.stiffness)
        start = {p: context.start[p][k] for p, k in self.place.inside.items()}
        self.state = SiteState(0, np.zeros(self.entries.size), start)

    @property
    def telling(self) -> bool:
        """Whether the zones have been told, or are being told, what came of the run."""
        return isinstance(self.state.question, ReleasedAll)

    # --- with the half above ---

    def exchanged(self, member: SiteMember, run: bytes) -> Passed:
        """What goes from one half to the other now: a question down, its answer up. run: that of above."""
        s, question, t = self.state, member.state.question, member.state.t
        if not s.joined or (self.missing() and not self.telling):
            return Passed()
        if question is not None and t == s.t + 1:
            return Passed(below=self.ask(question, run))
        return Passed(above=member.supply(self.answer())) if member.waits and t == s.t else Passed()

    def ask(self, question: Question, run: bytes) -> Step:
        """The next exchange with all zones."""
        s = self.state
        match question:
            case Point(move=move, s=begun):
                s.s = dict(begun) or s.s
                self.entries.move(s, move)
                self.entries.average(s)
            case CloseAll(lam=lam, move=move):
                s.lam = self.entries.centred(s) if lam else {}
                self.entries.move(s, move)
            case ReleasedAll(rounds=rounds, residual=residual):
                s.rounds, s.residual = rounds, residual
        s.t, s.question, s.run, s.arrived = s.t + 1, question, run, {}
        return self.tick()

    def answer(self) -> Summed | Gathered | Taken:
        """What the site has come to in the exchange under way."""
        s, inside = self.state, self.place.inside
        if isinstance(s.question, ReleasedAll):
            return Taken()  # it is stored here, and the zones are told until they have it
        if isinstance(s.question, CloseAll):
            return Gathered({p: s.arrived[p] for p in self.members}, s.s, s.z, s.lam)  # type: ignore[misc]
        answers: dict[str, Minimum] = {p: s.arrived[p] for p in self.members}  # type: ignore[misc]
        others = {p: np.delete(answers[p].z, inside[p]) for p in self.members}
        return Summed(others, self.entries.measured(s, [answers[p].value for p in self.members]))

    # --- the pattern ---

    def start(self) -> Step:
        self.state.joined = True
        return NOTHING  # the first question comes from above

    def check(self, member: str, body: object) -> None:
        check_answer(body, self.position[member].size, self.totals, self.widths[member])

    def due(self, body: object) -> None:
        question = self.state.question
        expected = Minimum if isinstance(question, Point) else Closing if isinstance(question, CloseAll) else Taken
        if not isinstance(body, expected):
            raise Malformed(f"{type(body).__name__}, expected {expected.__name__} now")

    def round_body(self, member: str) -> object:
        s, place = self.state, self.place
        match s.question:
            case Point(v=v):
                return V(place.joined(member, self.entries.point(s, member), v[member]), s.factor)
            case CloseAll(lam=lam):
                return Close(place.joined(member, s.lam[member], lam[member])) if lam else Close()
            case ReleasedAll(outcomes=outcomes):
                return outcomes[member]
        raise AssertionError("a message before the first question")

    def advanced(self) -> Step:
        s = self.state
        match s.question:
            case Point(v=v):
                answers: dict[str, Minimum] = {p: s.arrived[p] for p in self.members}  # type: ignore[misc]
                s.z = {p: answers[p].z[k] for p, k in self.place.inside.items()}
                self.check_weights(answers, v)
            case ReleasedAll(why=why):
                s.done = why
        return Step(done=s.done, taken=True)

    def check_weights(self, answers: Mapping[str, Minimum], v: Mapping[str, Vector]) -> None:
        """Raises Failed if a zone has other weights than this program has."""
        for p, body in answers.items():
            v_p = self.place.joined(p, self.entries.point(self.state, p), v[p])
            rho = self.state.factor * self.weight[self.position[p]]
            same_weights({p: body.pull}, [rho * (body.z - v_p)])

    def missing(self) -> list[str]:
        return super().missing() if self.state.question is not None else []

    def completed(self, state: SiteState) -> int:
        return state.rounds or max(state.t - 1, 0)

    def begin(self) -> None:
        raise AssertionError("a site begins no round by itself")

    def combine(self) -> bool:
        raise AssertionError("a site decides nothing by itself")

    def final_state(self) -> FinalState:
        raise AssertionError("a run is known above")
