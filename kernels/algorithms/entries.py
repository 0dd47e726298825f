"""The entries of a consensus that are averaged at one place: their means, how far the owners are apart, and the next
state of the iteration of `consensus_admm.py`.

Every entry is for itself, and sums over them are made without rounding, so that entries can be dealt to places: the
same numbers come out, bit for bit, of one place with all of them and of many.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise
from math import fsum
from typing import NamedTuple, Protocol

import numpy as np

from hushgrid.kernels.algorithms.owners import Exact, accelerated, centred, exact, mean
from hushgrid.kernels.patterns.levels import SUMS, Move, Place, Sums
from hushgrid.kernels.patterns.star import held_at
from hushgrid.kernels.types import Vector


class Iterates(Protocol):
    """What of a coordinator's state is of its entries."""

    w: np.ndarray
    s: dict[str, np.ndarray]
    factor: float
    ys: list[np.ndarray]
    Rs: list[np.ndarray]
    plain: np.ndarray
    z: dict[str, np.ndarray]


class Totals(NamedTuple):
    """`Sums` of all places, rounded once."""

    apart: float
    value: float
    primal: float
    dual: float
    size: float
    force: float
    worth: float
    step: float
    spread: float
    far: float
    products: Vector  #: (k,)
    steps: Vector  #: (k,)


class _Round(NamedTuple):
    """A round at the entries here, stacked over the members (M,), or over the entries (n,)."""

    old: Vector  #: s
    z: Vector
    middle: Vector  #: zbar of each
    zbar: Vector  #: (n,)
    lam: Vector
    root: Vector  #: sqrt(rho)
    F: Vector
    R: Vector


class Entries:
    """The entries of one place, and the members that own some of them, in their order."""

    def __init__(
        self,
        place: Place,
        weight: Vector,
        flow: Vector,
        held: Vector,
        *,
        relaxation: float,
        memory: int,
        alone: bool = True,
    ) -> None:
        """weight (N,): rho of each entry at factor 1. flow, held (N,): as of `ServerContext`.

        alone: whether there is no other place, and sums may be rounded here.
        """
        self.members = sorted(place.position)
        self.position = place.position
        self.places = [self.position[p] for p in self.members]
        self.size, self.relaxation, self.memory = place.entries.size, relaxation, memory
        self.total = _rounded if alone else exact
        self.common, self.held = weight[place.entries], held[place.entries] if held.size else held
        free = np.isnan(self.held) if held.size else np.full(self.size, True)
        every = np.concatenate(self.places)
        self.owners = np.bincount(every, minlength=self.size).astype(np.float64)
        self.weight, self.flow, self.free = self.common[every], flow[place.entries][every], free[every]
        self.every, self.cuts = every, np.cumsum([k.size for k in self.places])[:-1]

    # --- before a round ---

    def average(self, s: Iterates) -> None:
        """w, the mean of s over the owners of each entry."""
        s.w = held_at(mean([s.s[p] for p in self.members], self.places, self.size), self.held)

    def point(self, s: Iterates, member: str) -> Vector:
        """v_p, on the entries here."""
        v: Vector = 2 * s.w[self.position[member]] - s.s[member]
        return v

    # --- after it ---

    def measured(self, s: Iterates, values: Sequence[float]) -> Sums:
        """What the round with the minimisers s.z was worth here. values: the f_p that count here."""
        one, common, total = self._round(s), s.factor * self.common, self.total
        off, moved = one.z - one.middle, one.zbar - s.w
        Rs = [*s.Rs, one.R][-self.memory - 1 :]
        differences = [after - before for before, after in pairwise(Rs)]
        return Sums(
            apart=float(np.abs(off)[self.flow].max(initial=0.0)),
            value=total(list(map(float, values))),
            primal=self._square(off),
            dual=self._square(common * moved * np.sqrt(self.owners)),
            size=self._square(one.z),
            force=self._square(one.lam),
            worth=total(np.abs(one.lam * off)[self.free].tolist()),
            step=self._square(one.R),
            spread=self._square(one.root * off),
            far=self._square(np.sqrt(common * self.owners) * moved),
            products=tuple(total((d * differences[-1]).tolist()) for d in differences),
            steps=tuple(total((d * one.R).tolist()) for d in differences),
        )

    def multipliers(self, s: Iterates) -> list[Vector]:
        """lambda_p of the round with the minimisers s.z, on the entries here."""
        return np.split(self._round(s).lam, self.cuts)

    def centred(self, s: Iterates) -> dict[str, Vector]:
        """The same, summing to zero over the owners of each entry."""
        return dict(zip(self.members, centred(self.multipliers(s), self.places, self.held), strict=True))

    def move(self, s: Iterates, move: Move) -> None:
        """The next state."""
        if move.how == "begin":
            s.factor = move.factor
            return
        if move.how == "back":
            self._keep(s, s.plain)
            s.ys, s.Rs = [], []
            return
        one = self._round(s)
        plain = one.old + one.F
        if move.how == "balance":
            centre = held_at(mean(np.split(plain, self.cuts), self.places, self.size), self.held)[self.every]
            self._keep(s, centre + (plain - centre) * (s.factor / move.factor))
            s.factor, s.ys, s.Rs = move.factor, [], []
            return
        s.ys = [*s.ys, one.root * one.old][-self.memory - 1 :]
        s.Rs = [*s.Rs, one.R][-self.memory - 1 :]
        s.plain = plain
        self._keep(s, accelerated(s.ys, s.Rs, move.gamma) / one.root if move.how == "leap" else plain)

    # --- inside ---

    def _round(self, s: Iterates) -> _Round:
        old, z = (np.concatenate([each[p] for p in self.members]) for each in (s.s, s.z))
        w, rho = s.w[self.every], s.factor * self.weight
        zbar = held_at(mean([s.z[p] for p in self.members], self.places, self.size), self.held)
        F, root = self.relaxation * (z - w), np.sqrt(rho)
        return _Round(old, z, zbar[self.every], zbar, rho * (z - (2 * w - old)), root, F, root * F)

    def _square(self, values: Vector) -> Exact:
        return self.total((values * values).tolist())

    def _keep(self, s: Iterates, following: Vector) -> None:
        s.s = dict(zip(self.members, np.split(following, self.cuts), strict=True))


def _rounded(values: Sequence[float]) -> Exact:
    return (fsum(values),)


def joined(each: Sequence[Sums]) -> Totals:
    """The sums over several places. All have told as many products."""
    sums = {name: fsum(chain.from_iterable(getattr(one, name) for one in each)) for name in SUMS}
    products, steps = (
        np.array([fsum(chain.from_iterable(parts)) for parts in zip(*many, strict=True)])
        for many in ([one.products for one in each], [one.steps for one in each])
    )
    return Totals(apart=max(one.apart for one in each), **sums, products=products, steps=steps)


def widened(normal: Vector, products: Vector) -> Vector:
    """<dR_i, dR_j> (k, k), as k^2 numbers, with the newest difference's `products` (k,) as its last row and column."""
    k, before = len(products), round(len(normal) ** 0.5)
    wider = np.zeros((k, k))
    if k > 1:
        wider[:-1, :-1] = np.reshape(normal, (before, before))[before - (k - 1) :, before - (k - 1) :]
    wider[-1:] = products
    wider[:, -1:] = products[:, None]
    return wider.ravel()
