"""What stands in a ledger: its rows by name, the events that its spends are priced by, and what they protect."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from math import ceil, inf, nextafter
from typing import Literal, NamedTuple

import msgspec
from msgspec import Struct

from hushgrid.kernels.privacy.accounting import Event, Gaussian, Laplace, NonPrivate, Totals, grouped, units
from hushgrid.kernels.privacy.limits import Charge, charge_of, charge_of_totals

DAY = "day"  #: how the names of sums of the readings of one day begin
Kind = Literal["laplace", "gaussian", "nonprivate", "gap"]


class Spend(Struct, frozen=True):
    """One gate answer, as the gate itself reports it."""

    answer: int
    kind: Kind
    value: float  #: laplace: epsilon; gaussian: mu; nonprivate: infinity
    sensitivity: float
    scale: float
    grid: float
    adjacency: str
    sampler: str
    #: h, of a share of a masked sum: `value` is what the sum of h such shares is worth; this one alone is worth sqrt h
    #: times that. 0: it is no share. In the bits from SITE on: h_s, where the site's coordinator sees a sum of these
    honest: int = 0

    @property
    def event(self) -> Event:
        return event_of(self.kind, self.value)

    @property
    def mu2(self) -> float:
        """mu^2 of a Gaussian answer, else 0."""
        return self.value * self.value if self.kind == "gaussian" else 0.0


class Cost(NamedTuple):
    """What decides the cost of one row."""

    kind: str
    value: float
    mu2: float
    adjacency: str
    honest: int = 0  #: as in `Spend`


def costs_of(spends: Iterable[Spend]) -> list[Cost]:
    return [Cost(s.kind, s.value, s.mu2, s.adjacency, s.honest) for s in spends]


@lru_cache(maxsize=256)  # the answers of a run are alike
def event_of(kind: str, value: float) -> Event:
    if kind == "laplace":
        return Laplace(value)
    return Gaussian(value) if kind == "gaussian" else NonPrivate()


#: Bits from which on a second number stands in one field, of a row and of a sum: an older program, which knows the
#: first alone, takes both for it. So it counts too much, never too little, and keeps the second. The first stays below:
#: h is at most NODES, and a life's sum of h mu^2 far below 2^256, for an epsilon is at most 1e9.
SITE, OF_SITE = 32, 512


def counted_of(honest: int, site: int = 0) -> int:
    """`Spend.honest` of a share of h honest ones, h_s of them in its own site; 0: there are no sites."""
    return honest | site << SITE


def honest_of(counted: int) -> tuple[int, int]:
    """(h, h_s) of `Spend.honest`."""
    return counted & ((1 << SITE) - 1), counted >> SITE


def alone(value: float, counted: int) -> int:
    """h mu^2 of a share of a masked sum, in units of 2^-256, rounded up: what it is worth to everybody else
    together.
    """
    return honest_of(counted)[0] * units(value, 2)


def at_site(value: float, counted: int) -> int:
    """h/h_s mu^2 of a share, in units of 2^-256, rounded up: what it is worth to its own site's coordinator; 0 without
    sites.
    """
    honest, site = honest_of(counted)
    return -(-honest * units(value, 2) // site) if site else 0


def events_of(kind: str, value: float, mu2: float) -> list[Event]:
    """A row as events. A gap's price is at least what its lost spends cost, under every accountant."""
    if kind != "gap" or value == inf:
        return [event_of(kind, value)]
    pure: list[Event] = [Laplace(value)] if value else []
    return [*pure, Gaussian(_root(mu2))] if mu2 else pure


def _root(square: float) -> float:
    """The root, never too small."""
    root = square**0.5
    return root if root == inf or Fraction(root) ** 2 >= Fraction(square) else nextafter(root, inf)


def relation(adjacency: str) -> str:
    """Which relation between data sets an adjacency is, whatever its unit: bounded-change or replace-one-record."""
    return adjacency.partition(" ")[0]


def size(adjacency: str) -> Fraction:
    """Of the change: a bounded change's own, or how many records are replaced; 0 of what is never converted."""
    name, _, number = adjacency.partition(" ")
    if name == "bounded-change":
        return Fraction(number)
    return Fraction(number or 1) if name == "replace-one-record" else Fraction(0)


@lru_cache(maxsize=256)
def steps(adjacency: str, unit: str) -> int:
    """k: so many changes of the size that `adjacency` protects make one of the size of `unit`.

    Group privacy counts k times. 1 if they are not of one relation. Sizes are decimals that somebody wrote, and are
    compared as such: seven steps of 0.01 make 0.07, though not in binary.
    """
    if adjacency == unit or relation(adjacency) != relation(unit) or not (step := size(adjacency)):
        return 1
    return max(1, ceil(size(unit) / step))


@lru_cache(maxsize=256)  # the answers of a run are alike
def most_steps(adjacency: str, unit: float, records: int) -> int:
    """The most changes of the size that `adjacency` protects that make one of the largest units counted at."""
    return max(steps(adjacency, largest) for largest in (f"bounded-change {unit!r}", f"replace-one-record {records}"))


class StoredRun(NamedTuple):
    """A row of `run`."""

    id: bytes
    plan: bytes
    status: str  #: joined | running | owed (done, its outcome is not on the disk yet) | done | refused | stopped
    state: bytes | None
    last: bytes | None  #: the last message, repeated for ever once the run is over
    started: str  #: UTC
    spends: int = 0  #: answers paid in it


class StoredSpend(NamedTuple):
    """A row of `spend`; of a gap (what was lost with an old copy) only number, kind, price and time are known."""

    no: int
    run: bytes | None
    answer: int | None
    kind: Kind
    value: float
    sensitivity: float | None
    scale: float | None
    grid: float | None
    adjacency: str
    sampler: str
    at: str  #: UTC
    ran: float = 0.0  #: running time, s
    version: int = 1  #: of the data
    honest: int = 0  #: as in `Spend`
    mu2: float = 0.0  #: mu^2 of a Gaussian answer; of a gap the sum over those that were lost


class ReadingDays(NamedTuple):
    """The days of which a data version is the mean, hour by hour: a reading of each has the weight 1/n in it."""

    last: int  #: days since 1970
    n: int

    @property
    def dates(self) -> range:
        return range(self.last - self.n + 1, self.last + 1)

    @property
    def scopes(self) -> tuple[str, ...]:
        """The names of the sums of what was answered about each day, at this weight."""
        return tuple(f"{DAY} {day} of {self.n}" for day in self.dates)

    def packed(self) -> str:
        """For the ledger."""
        return f"{self.last} {self.n}"

    @staticmethod
    def unpacked(text: str) -> ReadingDays:
        last, n = text.split()
        return ReadingDays(int(last), int(n))


class Recent(NamedTuple):
    """What was spent under one adjacency at a running time, or in the hour before it: see `Ledger.recent`."""

    ran: float  #: running time, s: of the last of them
    version: int  #: of the data: the latest of them
    adjacency: str
    totals: Totals


@dataclass
class Counted:
    """What was spent under one adjacency: how often each kind of row, and the sums that price them."""

    kinds: dict[str, int] = field(default_factory=dict)
    totals: Totals = field(default_factory=Totals)
    shares: int = 0  #: sum of h mu^2 over the shares of masked sums, in units of 2^-256: what they are worth alone
    at_site: int = 0  #: and of h/h_s mu^2 over those of sites: what they are worth to the own site's coordinator

    def add(self, kind: str, value: float, mu2: float, times: int = 1, honest: int = 0) -> None:
        """Counts so many more equal rows."""
        self.kinds[kind] = self.kinds.get(kind, 0) + times
        for event in events_of(kind, value, mu2):
            self.totals.add(event, times)
        if honest:
            self.shares += times * alone(value, honest)
            self.at_site += times * at_site(value, honest)

    def plus(self, kind: str, value: float, mu2: float, times: int = 1, honest: int = 0) -> Counted:
        """The same after so many more equal rows."""
        more = Counted(dict(self.kinds), replace(self.totals), self.shares, self.at_site)
        more.add(kind, value, mu2, times, honest)
        return more

    def with_all(self, other: Counted) -> Counted:
        """The same after all that another has counted."""
        kinds = {k: self.kinds.get(k, 0) + other.kinds.get(k, 0) for k in self.kinds | other.kinds}
        shares, at_site = self.shares + other.shares, self.at_site + other.at_site
        more = Counted(kinds, replace(self.totals), shares, at_site)
        more.totals.include(other.totals)
        return more

    @property
    def rows(self) -> int:
        return sum(self.kinds.values())

    def packed(self) -> bytes:
        """For the ledger. The sums are integers of any size."""
        *counts, epsilon, epsilon2, mu2 = astuple(self.totals)
        numbers = [epsilon, epsilon2, mu2, self.shares | self.at_site << OF_SITE]
        sums = [n.to_bytes((n.bit_length() + 7) // 8, "little") for n in numbers]
        return msgspec.msgpack.encode([self.kinds, *counts, *sums])

    @staticmethod
    def unpacked(blob: bytes) -> Counted:
        p = msgspec.msgpack.decode(blob, type=_Packed)
        *sums, both = (int.from_bytes(n, "little") for n in (p.epsilon, p.epsilon2, p.mu2, p.shares))
        shares, at_site = both & ((1 << OF_SITE) - 1), both >> OF_SITE
        return Counted(p.kinds, Totals(p.laplace, p.gaussian, p.largest, p.nonprivate, *sums), shares, at_site)


def empty(totals: Totals) -> bool:
    """Whether nothing was counted."""
    return not (totals.laplace or totals.gaussian or totals.nonprivate)


def without(totals: Totals, part: Totals) -> Totals:
    """What was counted besides `part`, which is a part of the whole.

    The largest epsilon and `nonprivate` stay the whole's, so that no bound is below the truth.
    """
    (n, g, largest, nonprivate, *sums), (of_n, of_g, _, _, *of_sums) = astuple(totals), astuple(part)
    return Totals(n - of_n, g - of_g, largest, nonprivate, *(a - b for a, b in zip(sums, of_sums, strict=True)))


class _Packed(Struct, array_like=True, frozen=True):
    """`Counted` in the ledger."""

    kinds: dict[str, int]
    laplace: int
    gaussian: int
    largest: float
    nonprivate: bool
    epsilon: bytes
    epsilon2: bytes
    mu2: bytes
    shares: bytes


GROUPS = 1000  #: the most that a window is divided into


@dataclass
class Group:
    """Spends that are close together in time."""

    first: float  #: running time of the earliest, s
    last: float  #: of the latest
    charge: Charge


class Window:
    """The spends of the last `span` s, at the unit of `adjacency`. `recent`: those that a ledger has, the last
    first.
    """

    def __init__(self, span: float, adjacency: str, recent: Iterable[Recent] = ()) -> None:
        self.span, self.adjacency = span, adjacency
        self._groups: deque[Group] = deque()
        self._charge = Charge()
        for row in recent:
            if (k := self._steps(row.adjacency)) is not None:
                totals = Totals()
                totals.include(row.totals, k)
                self._put(row.ran, charge_of_totals(totals), before=True)

    def add(self, ran: float, adjacency: str, kind: str, value: float, mu2: float) -> None:
        """A spend was made at running time `ran`, s."""
        if (k := self._steps(adjacency)) is not None:
            for event in events_of(kind, value, mu2):
                self._put(ran, charge_of(grouped(event, k)))

    def charge(self, now: float) -> Charge:
        """Of all spends in [now - span, now], now in s of running time."""
        while self._groups and self._groups[0].last < now - self.span:
            self._charge = self._charge.plus(self._groups.popleft().charge, -1)
        return self._charge

    def wait(self, now: float, fits: Callable[[Charge], bool]) -> float | None:
        """How long, s of running time, until `fits` is true of what the window then holds, if nothing more is spent.

        None if it is not even of an empty window.
        """
        remaining, wait = self.charge(now), 0.0
        if fits(remaining):
            return wait
        for group in self._groups:
            remaining, wait = remaining.plus(group.charge, -1), max(group.last + self.span - now, 0.0)
            if fits(remaining):
                return wait
        return None

    @property
    def groups(self) -> int:
        """How many groups of spends it holds."""
        return len(self._groups)

    def _steps(self, adjacency: str) -> int | None:
        """k of group privacy by which a spend under `adjacency` counts; None if it does not count here."""
        if adjacency == "":  # a gap: it counts everywhere
            return 1
        return steps(adjacency, self.adjacency) if relation(adjacency) == relation(self.adjacency) else None

    def _put(self, ran: float, charge: Charge, *, before: bool = False) -> None:
        """Counts a charge made at `ran`, which is not before the last group, or with `before` not after the first."""
        self._charge = self._charge.plus(charge)
        group = self._groups[0 if before else -1] if self._groups else Group(ran, ran, Charge())
        first, last = min(group.first, ran), max(group.last, ran)
        if not self._groups or last - first > self.span / GROUPS:
            group = Group(ran, ran, Charge())
            (self._groups.appendleft if before else self._groups.append)(group)
            first = last = ran
        group.first, group.last, group.charge = first, last, group.charge.plus(charge)
