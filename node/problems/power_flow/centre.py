"""What the coordinator of zones is made from: all of it is public. No device needs it."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np

from hushgrid.grid_cases import load
from hushgrid.grid_cases.costs import cost_scale
from hushgrid.grid_cases.zone.cost import stiffness
from hushgrid.kernels.patterns.star import Centre
from hushgrid.node.problems.kind import Plan
from hushgrid.node.problems.power_flow.conclusion import conclusion, dispatched
from hushgrid.node.problems.power_flow.costs import TOTALS
from hushgrid.node.problems.power_flow.device import largest_message, wiring

Table = tuple[Sequence[str], list[tuple[Any, ...]]]  #: columns, and rows


def centre(plan: Plan, source: str) -> Centre:
    """`source`: the case, by its name or path. Raises InputError if it cannot be read."""
    case = load(source).without_loads()
    wired, cost = wiring(case, plan.problem), plan.problem.objective == "cost"
    t, stop = plan.terms, plan.stop
    return Centre(
        stiffness=stiffness(case, wired.keys) if cost else np.zeros(0),
        scale=cost_scale(case) if cost else 1.0,
        totals=2 * len(TOTALS),
        widths={z: (2 * len(one.buses), len(one.keys), 2 * len(one.buses)) for z, one in wired.layouts.items()},
        announced={z: one.shared().size for z, one in wired.layouts.items()},
        largest={z: largest_message(one, plan.problem) for z, one in wired.layouts.items()},
        conclude=conclusion(case, plan, wired.layouts) if cost else None,
        position=wired.position,
        start=wired.start,
        epsilon=t.paper_epsilon if t else inf,
        tolerance=stop.tolerance if stop else 0.0,
        patience=stop.patience if stop else 0,
    )


def answer(plan: Plan, source: str, state: Any) -> tuple[dict[str, Any], dict[str, Table]]:
    """What a run that is over has found, from the coordinator's last state: figures, and tables by name.

    Of a run at least cost, as in result.json and its tables; of load shedding nothing: no zone hands over its part.
    """
    if plan.problem.objective != "cost":
        return {}, {}
    case = load(source).without_loads()
    done = dispatched(case, plan.problem, wiring(case, plan.problem).layouts, state)
    if done is None:
        return {}, {}
    measured = dict(zip(plan.running.figures, state.measured.tolist(), strict=True))
    apart = {"gap_estimate": measured["gap_estimate"], "disagreement_mw": measured["disagreement"] * case.base_mva}
    return done.figures | apart, dict(done.dispatch.tables())
