"""A day that is carried on, plan after plan: which period a plan begins with, and where storage and generators stand.

All of it is public: what the plans before have come to, as their coordinator keeps it. Periods are counted on over the
days; a point is what stands between two of them. Of a plan that was missed the one before is followed on.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from hushgrid.kernels.types import Vector
from hushgrid.node.problems.kind import Public
from hushgrid.node.problems.power_flow.section import HorizonPlan, ZonesPlan

HOUR_S = 3600.0


class Point(Struct, frozen=True):
    """What stands between two periods; empty: nothing went before."""

    energy: dict[str, float] = {}  #: MWh by storage unit
    generation: dict[str, float] = {}  #: MW by generator, as it was dispatched


class Course(Struct, frozen=True):
    """What the plans have come to."""

    digest: str = ""  #: of their case
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


def horizon(problem: Public) -> HorizonPlan | None:
    """Of a problem that is planned over a day."""
    return problem.horizon if isinstance(problem, ZonesPlan) else None


def lasting(problem: Public) -> Public:
    """What of a problem is the same for the plans of all days."""
    plan = horizon(problem)
    return problem if plan is None or not isinstance(problem, ZonesPlan) else replace(problem, horizon=plan.lasting)


def carried_on(problem: ZonesPlan, course: Course, began: float) -> ZonesPlan:
    """The problem from the course's period to the end of its day. began: when the first day began, s since 1970."""
    plan, point = problem.horizon, course.point
    assert plan is not None
    days, passed = divmod(course.period, plan.periods)
    energy = tuple(
        min(max(point.energy.get(unit.name, unit.e_start), 0.0), unit.e_mwh) for unit in plan.storage if point.energy
    )
    before = point.generation if plan.ramps else {}
    start = round(began + days * plan.periods * plan.hours * HOUR_S)
    following = replace(plan, first=passed + 1, energy=energy, before=before, began=max(start, 0))
    return replace(problem, horizon=following)


def to_come(state: Vector, first: int, plan: HorizonPlan) -> Vector | None:
    """Of a state of the periods from `first` on the part of those that a plan is about; None: it does not fit.

    A state has as many entries of each period, one period after the other.
    """
    each = _entries(state, first, plan)
    return None if each is None else state[each * (plan.first - first) :]


def passed(state: Vector, first: int, plan: HorizonPlan) -> Vector | None:
    """The other part, of the periods that are over."""
    each = _entries(state, first, plan)
    return None if each is None else state[: each * (plan.first - first)]


def _entries(state: Vector, first: int, plan: HorizonPlan) -> int | None:
    """Of one period."""
    each, rest = divmod(state.size, plan.periods - first + 1)
    return None if rest or first > plan.first else each
