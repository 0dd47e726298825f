"""A day that is carried on: the problem of the periods that are left, from where storage and generators stand."""

from __future__ import annotations

from msgspec.structs import replace

from hushgrid.node.problems.power_flow.section import ZonesPlan
from hushgrid.node.problems.rolling import Course

HOUR_S = 3600.0


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
