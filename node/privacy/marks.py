"""Marks: how far a ledger has come, as others remember it, so that an old copy in its place is noticed.

A mark is (ledger id, last spend's number, epsilon, mu^2, whether anything was answered without privacy). It is kept in
a second file and by every peer. A ledger is behind a mark if any component of the mark is ahead of its own; `accept`
takes the maximum of every component over all sources, so that it never gives budget back. Whoever tells a mark may lie:
a lie can stop a device until its owner accepts, but no lie may make the ledger unreadable.
"""

from __future__ import annotations

from math import inf, nextafter
from pathlib import Path
from typing import NamedTuple

import msgspec

from hushgrid.node.durable import write_file
from hushgrid.node.wire import Mark

#: Spends that a ledger may have lost. A mark that is further ahead is no ledger's, and is dropped: believed, it would
#: use up the numbers that a mark can hold (2^48).
MOST_LOST = 10**9
#: A price above this is none at all: such a mark counts as one without privacy, and all sums stay finite.
LARGEST = 2.0**64
#: Other ledgers that are remembered between two `accept`s; the owner has to look long before there are so many.
MOST_TOLD = 64


class NoMark(Exception):
    """The mark file of a ledger is gone or cannot be read; says which."""


class Price(NamedTuple):
    """What spends cost, as a mark says it: sums in the order of the spends, so that every restart finds the same bits."""

    epsilon: float = 0.0
    mu2: float = 0.0
    nonprivate: bool = False

    def plus(self, kind: str, value: float, mu2: float, group: int = 1) -> Price:
        """One more row of `spend`, by group privacy of `group`: as many times its epsilon, its mu."""
        scale = float(group) if group < 2**1000 else inf
        epsilon = self.epsilon + scale * value if kind in ("laplace", "gap") and 0 < value < inf else self.epsilon
        squares = self.mu2 + scale * scale * mu2 if mu2 else self.mu2
        return Price(epsilon, squares, self.nonprivate or value == inf)

    def mark(self, ledger: bytes, no: int) -> Mark:
        return bounded(Mark(ledger, no, *self))


def bounded(mark: Mark) -> Mark:
    """The same mark with finite sums: a price above LARGEST is no privacy."""
    largest = max(mark.epsilon, mark.mu2)
    if largest <= LARGEST:
        return mark
    return Mark(mark.ledger, mark.no, min(mark.epsilon, LARGEST), min(mark.mu2, LARGEST), True)


def plausible(told: Mark, own: Mark) -> bool:
    """Whether a ledger that stands at `own` can have come as far as this."""
    return told.no <= own.no + MOST_LOST


def above(told: Mark, own: Mark) -> bool:
    """Whether any component of a mark is ahead of one's own. Of what was without privacy no price is left to compare."""
    dearer = told.epsilon > own.epsilon or told.mu2 > own.mu2 or told.nonprivate
    return told.no > own.no or (dearer and not own.nonprivate)


def highest(known: Mark | None, told: Mark) -> Mark:
    """The maximum of every component of two marks of one ledger."""
    if known is None:
        return told
    pairs = zip(msgspec.structs.astuple(known)[1:], msgspec.structs.astuple(told)[1:], strict=True)
    return Mark(known.ledger, *(max(pair) for pair in pairs))


def missing(told: float, own: float) -> float:
    """The least amount that brings a sum to what was told, as floats are added."""
    value = max(told - own, 0.0)
    while own + value < told:
        value = nextafter(value, inf)
    return value


def ahead_in_words(told: Mark, own: Mark) -> str:
    """The first component in which a mark is ahead."""
    if told.no > own.no:
        return f"spend {own.no}, the mark says {told.no}"
    if told.nonprivate:
        return "all it gave was private, the mark says not all"
    if told.epsilon > own.epsilon:
        return f"epsilon {own.epsilon:g}, the mark says {told.epsilon:g}"
    return f"mu^2 {own.mu2:g}, the mark says {told.mu2:g}"


class MarkFile:
    """The mark in a file of its own, preferably on another disk than the ledger."""

    def __init__(self, path: Path, sync: bool) -> None:
        self.path, self.sync = path, sync

    def read(self) -> Mark | None:
        """The mark; None if there is no such file. NoMark if it cannot be read."""
        try:
            blob = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise NoMark(f"{self.path} cannot be read ({error.strerror})") from None
        try:
            mark = bounded(msgspec.msgpack.decode(blob, type=Mark))
        except (msgspec.DecodeError, ValueError):
            raise NoMark(f"{self.path} cannot be read ({len(blob)} bytes that are no mark)") from None
        return mark

    def write(self, mark: Mark) -> None:
        """OSError."""
        write_file(self.path, msgspec.msgpack.encode(mark), sync=self.sync)
