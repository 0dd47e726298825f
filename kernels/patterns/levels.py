"""Rounds in two levels: zones around the coordinator of their site, sites around that of the fleet.

An entry that zones share is averaged at one place: by its site if all its owners are in that, else above. A site is a
member of the fleet above and the centre of its own zones below. Each exchange above makes one below: the site is told
how the entries of all places go on, and what its zones hear of those above. It tells what its zones say of these, and
sums over its own.

Each half is a machine of its own, with a store of its own. What a site does adds nothing to what its zones' gates have
answered: it has no data, draws no noise and spends nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Literal, NamedTuple

import numpy as np
from msgspec import Struct

from hushgrid.kernels.machine import NOTHING, Malformed, Step
from hushgrid.kernels.patterns.star import Closing, Released, StarMember, Taken
from hushgrid.kernels.types import Index, Vector

Exact = tuple[float, ...]  #: numbers that add up to a sum without rounding
SUMS = ("value", "primal", "dual", "size", "force", "worth", "step", "spread", "far")


class Sums(Struct, array_like=True, frozen=True):
    """What a place knows of a round, over its own entries. Squared norms where not said otherwise."""

    apart: float  #: the largest difference of a flow from its mean
    value: Exact  #: sum of the f_p of its zones
    primal: Exact  #: z - zbar
    dual: Exact  #: rho (zbar - w), over the owners
    size: Exact  #: z
    force: Exact  #: lambda
    worth: Exact  #: sum of |lambda (z - zbar)|
    step: Exact  #: R, the step of the plain iteration
    spread: Exact  #: sqrt(rho) (z - zbar)
    far: Exact  #: sqrt(rho) (zbar - w), over the owners
    products: tuple[Exact, ...]  #: <dR_j, dR> of the newest difference dR with each that is kept
    steps: tuple[Exact, ...]  #: <dR_j, R>

    @property
    def bounded(self) -> bool:
        """Whether every number is finite."""
        every = [self.apart, *(v for name in SUMS for v in getattr(self, name))]
        return all(map(isfinite, every)) and all(isfinite(v) for one in (*self.products, *self.steps) for v in one)


class Move(Struct, array_like=True, frozen=True):
    """How the entries of every place go on from a round.

    begin: the first round; they stay. plain: s + F. leap: accelerated, by gamma. back: to the plain state before the
    last leap. balance: plain, under another factor.
    """

    how: Literal["begin", "plain", "leap", "back", "balance"]
    factor: float  #: of all weights from now on
    gamma: np.ndarray  #: (k,); of all but a leap (0,)


class Point(Struct, tag="levels.point", frozen=True):
    """Above to a site, a round: v of the entries above that each of its zones owns, and how its own go on."""

    v: dict[str, np.ndarray]
    move: Move
    s: dict[str, np.ndarray] = {}  #: before the first round, if not flat: where its own entries begin


class Summed(Struct, tag="levels.summed", frozen=True):
    """A site to above: its zones' minimisers on the entries above, and sums over its own."""

    z: dict[str, np.ndarray]
    sums: Sums


class CloseAll(Struct, tag="levels.close", frozen=True):
    """Above to a site: the rounds are over. lam: multipliers of the entries above; {}: no bound is asked for."""

    lam: dict[str, np.ndarray]
    move: Move


class Gathered(Struct, tag="levels.gathered", frozen=True):
    """A site to above: what each of its zones has handed over; the last state and minimisers of its own entries.

    lam: the multipliers there that the zones' bounds were asked at; {}: they were not.
    """

    closing: dict[str, Closing]
    s: dict[str, np.ndarray]
    z: dict[str, np.ndarray]
    lam: dict[str, np.ndarray]


class ReleasedAll(Struct, tag="levels.released", frozen=True):
    """Above to a site: what came of the run, zone by zone; after how many rounds, why then, and their last residual."""

    outcomes: dict[str, Released]
    why: Literal["tolerance", "rounds"]
    rounds: int
    residual: float


Question = Point | CloseAll | ReleasedAll
Answer = Summed | Gathered | Taken
Message = Point | Summed | CloseAll | Gathered | ReleasedAll


class Place(NamedTuple):
    """The entries that are averaged at one place, n of all N."""

    entries: Index  #: (n,) where w has them
    inside: dict[str, Index]  #: by zone: which of its shared entries they are
    position: dict[str, Index]  #: and where among these n they stand

    def joined(self, p: str, here: Vector, beside: Vector) -> Vector:
        """(m_p,) all that zone p shares, of its entries here and of those beside them, each in order."""
        every = np.empty(here.size + beside.size)
        others = np.ones(every.size, bool)
        others[self.inside[p]] = False
        every[self.inside[p]], every[others] = here, beside
        return every


ABOVE = ""  #: the place of the entries that zones of several sites own; in one level of all


def places(position: Mapping[str, Index], size: int, sites: Mapping[str, Sequence[str]]) -> dict[str, Place]:
    """Where each of `size` entries is averaged, by the sites' names and ABOVE. position: as in `ServerContext`."""
    number_of = np.full(size, -1)  # the number of the place: 0 above, a site's from 1
    for number, zones in enumerate(sites.values(), 1):
        for k in (position[zone] for zone in zones):
            number_of[k] = np.where((number_of[k] == -1) | (number_of[k] == number), number, 0)
    number_of = np.maximum(number_of, 0)
    by_place = {}
    for number, (site, zones) in enumerate({ABOVE: list(position), **sites}.items()):
        entries = np.flatnonzero(number_of == number)
        local = np.full(size, -1)
        local[entries] = np.arange(entries.size)
        inside = {zone: np.flatnonzero(number_of[position[zone]] == number) for zone in zones}
        by_place[site] = Place(entries, inside, {zone: local[position[zone][k]] for zone, k in inside.items()})
    return by_place


def shaped(vectors: Mapping[str, Vector], like: Mapping[str, Index]) -> bool:
    """Whether there is a vector of the right size for each zone, and no other."""
    return vectors.keys() == like.keys() and all(vectors[p].shape == k.shape for p, k in like.items())


@dataclass
class MemberState:
    t: int = 0  #: exchanges that were begun
    question: Question | None = None  #: the last one
    answer: Answer | None = None  #: to it; None: it is still to come


class SiteMember(StarMember):
    """A site towards the coordinator above. above, inner: the entries of its zones there and in the site. It makes at
    most `rounds` exchanges."""

    state: MemberState

    def __init__(self, above: Mapping[str, Index], inner: Mapping[str, Index], rounds: int) -> None:
        super().__init__("coordinator", rounds)
        self.above, self.inner = above, inner
        self.state = MemberState()

    @property
    def complete(self) -> bool:
        return isinstance(self.state.question, ReleasedAll) and self.state.answer is not None

    @property
    def waits(self) -> bool:
        """Whether the site's part of the exchange under way is still to come."""
        return self.state.question is not None and self.state.answer is None

    def outcome(self) -> dict[str, Vector]:
        return {}

    def check(self, body: object) -> None:
        before = self.state.question
        match body:
            case Point(v=v, move=move, s=s):
                begins = (move.how == "begin") == (before is None) and (
                    not s or (before is None and shaped(s, self.inner))
                )
                good = begins and isinstance(before, Point | None) and shaped(v, self.above) and 0 < move.factor < inf
            case CloseAll(lam=lam, move=move):
                good = isinstance(before, Point) and (not lam or shaped(lam, self.above)) and 0 < move.factor < inf
            case ReleasedAll(outcomes=outcomes):
                good = outcomes.keys() == self.above.keys() and isinstance(before, CloseAll)
            case _:
                good = False
        if not good:
            raise Malformed(f"{type(body).__name__}, expected a round of this site's zones, or what ends a run")

    def receive(self, sender: str, seq: int, body: object) -> Step:
        if sender == self.centre and seq <= self.state.t:  # what it may be sent depends on what it was sent before
            return self.tick() if seq == self.state.t else NOTHING
        return super().receive(sender, seq, body)

    def update(self, t: int, body: Question) -> None:
        self.state.question, self.state.answer = body, None

    def supply(self, answer: Answer) -> Step:
        """Sends up what the site has come to."""
        self.state.answer = answer
        return self.tick()

    def tick(self) -> Step:
        return NOTHING if self.state.answer is None else super().tick()

    def answer_body(self) -> object:
        return self.state.answer
