"""A plan over periods that is carried on, run after run: with which period one begins, and what stands then.

All of it is public: what the plans before have come to, as their coordinator keeps it. Periods are counted on over the
days; a point is what stands between two of them. Of a plan that was missed the one before is followed on.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from hushgrid.kernels.types import Vector


class Periods(NamedTuple):
    """Of a problem that is planned over them."""

    first: int  #: that a plan begins with, from 1
    total: int  #: of a whole day
    length_s: float  #: of each


class Point(Struct, frozen=True):
    """What stands between two periods; empty: nothing went before."""

    energy: dict[str, float] = {}  #: MWh by storage unit
    generation: dict[str, float] = {}  #: MW by generator, as it was dispatched


class Course(Struct, frozen=True):
    """What the plans have come to."""

    digest: str = ""  #: of their public data
    period: int = 0  #: with which the last plan begins, from 0
    since: int = 0  #: the period before which the first of the points stands
    points: tuple[Point, ...] = ()  #: of the last plan that was done: before it, and after each of its periods

    @property
    def point(self) -> Point:
        """Where the period begins; beyond the last plan, where that ends."""
        if not self.points:
            return Point()
        return self.points[min(max(self.period - self.since, 0), len(self.points) - 1)]

    def followed(self, points: tuple[Point, ...]) -> Course:
        """A plan was done: it has these points after each of its periods."""
        return replace(self, since=self.period, points=(self.point, *points))


def to_come(state: Vector, first: int, periods: Periods) -> Vector | None:
    """Of a state of the periods from `first` on the part of those that a plan is about; None: it does not fit.

    A state has as many entries of each period, one period after the other.
    """
    each = _entries(state, first, periods)
    return None if each is None else state[each * (periods.first - first) :]


def passed(state: Vector, first: int, periods: Periods) -> Vector | None:
    """The other part, of the periods that are over."""
    each = _entries(state, first, periods)
    return None if each is None else state[: each * (periods.first - first)]


def _entries(state: Vector, first: int, periods: Periods) -> int | None:
    """Of one period."""
    each, rest = divmod(state.size, periods.total - first + 1)
    return None if rest or first > periods.first else each
