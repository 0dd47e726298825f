"""What one answer about a zone's loads is made of: entries, each in a unit of its own, and sums over them.

The noise of an answer is the same in every coordinate, so each coordinate is released in a unit in which it has the
same right to it: one p.u., or under a relative change beta_i, the largest change of its entry. What is released:

    y_i = d_i / unit_i                              of each entry that may carry load
    T = sum of the d_i of one kind / the largest of their units    of `release: totals`, p and q each (of each period),
    if
                                                                   there is a d_i

One entry moves y_i by at most beta (relative: 1), and T by no more. Of a pair q_i moves too, by beta tan(phi).

Over a horizon of H periods of h hours, d is (H 2 nb,), and the unit of an entry is 1/(h base) p.u., so that y is in MWh
and MVArh: a customer's whole day of E MWh moves y by at most E (1 + tan phi) in all, and the sums of the periods by no
more. The scale of the noise does not grow with H.
If d is the mean of n days, hour by hour, one of their readings moves the answer by an n-th of that. What rounding adds
is counted n times, so that a reading moves an answer on the grid by at most an n-th of the sensitivity too.
Made to agree (`kernels/privacy/totals.py`) and put together, the noisy answer is d~: post-processing.
"""

from __future__ import annotations

from math import fsum, sqrt
from typing import Protocol

import numpy as np

from hushgrid.kernels.privacy.noise import Lattice
from hushgrid.kernels.privacy.totals import expected_error, reconciled
from hushgrid.kernels.types import Index, Vector
from hushgrid.node.privacy.terms import Terms
from hushgrid.node.schema.sections import ROUNDED

LOAD_BOUND = 1e4  #: p.u.; a load beyond it is no load, and is refused when it is read
#: A load is clipped at so many times its beta_i, and a sum at so many times the largest, so that the rounding of the
#: quotient is bounded. With changes of 5 % that is 838,861 times the capacity; clipping never raises a sensitivity.
RATIO_BOUND = 2.0**24


class Loads(Protocol):
    """Of the loads d (2 nb,), p then q: what is public."""

    @property
    def loaded(self) -> Index:
        """Positions in the data of the entries that may be other than zero; only these carry noise."""
        ...

    @property
    def size(self) -> int: ...
    @property
    def periods(self) -> int: ...
    @property
    def unit(self) -> Vector | None:
        """beta_i (2 nb,), p.u., above 0 at the loaded entries, or over a horizon what one MWh is of a period's load;
        None: there is one bound for all.
        """
        ...


class LoadQuestion:
    """One answer on the loads, as its terms ask it: from public numbers alone."""

    def __init__(self, loads: Loads, t: Terms, days: int = 1) -> None:
        """`days`: n, of how many days the loads are the mean."""
        self.terms, self.loaded, self.size, self.days = t, loads.loaded, loads.size, days
        n, unit = self.loaded.size, loads.unit
        self.unit: Vector = np.ones(n) if unit is None else unit[self.loaded]
        self.periods = loads.periods
        kind_of = self.loaded // (
            self.size // (2 * self.periods)
        )  #: 2 t of an active load of period t, 2 t + 1 of a reactive
        kinds = [np.flatnonzero(kind_of == k) for k in range(2 * self.periods)] if t.release == "totals" else []
        self.sums = [kind for kind in kinds if kind.size]
        self.of_sum: Vector = np.array([self.unit[kind].max() for kind in self.sums])

    @property
    def width(self) -> int:
        """Coordinates of the answer."""
        return self.loaded.size + len(self.sums)

    @property
    def largest(self) -> float:
        """No coordinate is larger, without its noise."""
        if self.terms.relative:
            return RATIO_BOUND
        return self._most * max([1, *(kind.size for kind in self.sums)])

    @property
    def _most(self) -> float:
        """No entry is larger, in its unit."""
        return LOAD_BOUND / float(self.unit.min(initial=1.0)) if self.terms.day else LOAD_BOUND

    @property
    def sensitivity(self) -> tuple[float, int]:
        """How far one change moves the answer as the machine computes it, L1 (laplace) or L2, and how many coordinates.

        A quotient is off by half a unit in the last place, 2^-53 of at most RATIO_BOUND, a sum of any length too
        (fsum), a beta_i by two: of two neighbours that is below ROUNDED RATIO_BOUND = 2^-26 a coordinate. A sum in p.u.
        is at most n LOAD_BOUND and is off by 2^-53 of it, in either neighbour. An entry in MWh is off by four units, a
        mean of n <= 10 days by n more, in either neighbour: 4 ROUNDED. Of a mean all that is n times (in L2 the
        coordinates are n^2 times as many), so that a reading of one day moves it by an n-th of the sum.
        """
        t, moved = self.terms, 2 if self.terms.pair else 1
        mean = self.days if t.mechanism == "laplace" else self.days**2
        norm = 1 + ROUNDED * RATIO_BOUND if t.relative else t.norm
        if t.day:
            moved *= self.periods * mean
            norm = norm * (1 + ROUNDED) + moved * ROUNDED * self._most * (1 if self.days == 1 else 4)
        if t.release == "plain":
            return norm, moved
        rounding = 0.0 if t.relative else self._most * 2.0**-52 * sum(kind.size for kind in self.sums)
        return (2 * norm + rounding * mean) * (1 + ROUNDED), 2 * moved

    @property
    def text(self) -> str:
        """What of it stands neither in the lattice nor in the relation: part of what an answer is kept under."""
        every = self.loaded.size == self.size
        mask = "" if every else f" on {self.loaded.tolist()}"
        capacities = f" of capacities {self.terms.capacities}" if self.terms.relative else ""
        over = f" in {self.periods} periods, {self.unit[:1].tolist()} p.u. a MWh" if self.terms.day else ""
        return mask + capacities + over + (" with totals" if self.terms.release == "totals" else "")

    @property
    def _in_units(self) -> bool:
        """Whether an entry is released in a unit of its own."""
        return self.terms.day or bool(self.terms.relative)

    def exact(self, d: Vector) -> Vector:
        """(width,): the answer on d (2 nb,), p.u., without noise."""
        loads = np.clip(d[self.loaded], -LOAD_BOUND, LOAD_BOUND)
        totals = [fsum(loads[kind].tolist()) for kind in self.sums]
        with np.errstate(over="ignore"):
            answer: Vector = np.concatenate([loads / self.unit, np.array(totals) / self.of_sum])
        return np.clip(answer, -RATIO_BOUND, RATIO_BOUND) if self.terms.relative else answer

    def answered(self, noisy: Vector) -> Vector:
        """d~ (2 nb,), p.u., of a noisy answer (width,). It is linear."""
        n = self.loaded.size
        y, totals = noisy[:n] * self.unit, noisy[n:] * self.of_sum
        for kind, total, unit in zip(self.sums, totals, self.of_sum, strict=True):
            y[kind] = reconciled(y[kind], total, self.unit[kind] ** 2, unit**2)
        d = np.zeros(self.size)
        d[self.loaded] = y
        return d

    def sum_error(self, lattice: Lattice) -> float:
        """Standard deviation of the sum of the active loads of d~ from that of d, p.u.: d~ is linear in the answer."""
        active = (np.arange(self.size) // (self.size // (2 * self.periods))) % 2 == 0
        share = [self.answered(row)[active].sum() for row in np.eye(self.width)]
        each = lattice.scale * (sqrt(2.0) if lattice.kind == "laplace" else 1.0)
        return float(np.linalg.norm(share)) * each

    def expected_l1(self, lattice: Lattice) -> float:
        """Expected sum of |d~ - d|, p.u."""
        if not self.sums:
            return lattice.expected_l1 * (float(np.sum(self.unit)) if self._in_units else self.width)
        each = [
            expected_error(lattice.scale * self.unit[kind], lattice.scale * unit)
            for kind, unit in zip(self.sums, self.of_sum, strict=True)
        ]
        return float(np.sum(np.concatenate(each)))
