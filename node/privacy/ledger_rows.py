"""What stands in a ledger: its rows by name, the events that its spends are priced by, and what they protect."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import ceil, inf, nextafter
from typing import Literal, NamedTuple

from msgspec import Struct

from hushgrid.kernels.privacy.accounting import Event, Gaussian, Laplace, NonPrivate

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

    @property
    def event(self) -> Event:
        return event_of(self.kind, self.value)

    @property
    def mu2(self) -> float:
        """mu^2 of a Gaussian answer, else 0."""
        return self.value * self.value if self.kind == "gaussian" else 0.0


def event_of(kind: str, value: float) -> Event:
    if kind == "laplace":
        return Laplace(value)
    return Gaussian(value) if kind == "gaussian" else NonPrivate()


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


@lru_cache(maxsize=256)
def steps(of: str, at: str) -> int:
    """k: so many changes of the size that `of` protects make one of the size of `at`; group privacy counts k times.

    Both adjacencies are of one relation. Their sizes are decimals that somebody wrote, and are compared as such: seven
    steps of 0.01 make 0.07, though not in binary.
    """
    if relation(of) != "bounded-change" or of == at:
        return 1
    size, wanted = (Fraction(adjacency.partition(" ")[2]) for adjacency in (of, at))
    return max(1, ceil(wanted / size))


class StoredRun(NamedTuple):
    """A row of `run`."""

    id: bytes
    plan: bytes
    status: str  #: joined | running | owed (done, its outcome is not on the disk yet) | done | refused | stopped
    state: bytes | None
    last: bytes | None  #: the last message, repeated for ever once the run is over
    started: str  #: UTC


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
