"""What the coordinator of zones is made from: all of it is public. No device needs it."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf, isfinite, nan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hushgrid.grid_cases import load
from hushgrid.grid_cases.case import Case
from hushgrid.grid_cases.costs import cost_scale
from hushgrid.grid_cases.dispatch import Dispatch
from hushgrid.grid_cases.zone.cost import stiffness
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.patterns.star import ServerContext
from hushgrid.kernels.problems.verdict import verdict_of
from hushgrid.kernels.types import Document, Vector
from hushgrid.node.problems.kind import Ended, Plan
from hushgrid.node.problems.power_flow.conclusion import (
    Dispatched,
    Standing,
    conclusion,
    dispatched,
    figures_of_some,
    largest_violation,
    proven,
)
from hushgrid.node.problems.power_flow.costs import TOTALS
from hushgrid.node.problems.power_flow.day import Day
from hushgrid.node.problems.power_flow.device import Wiring, largest_message, wiring
from hushgrid.node.problems.power_flow.section import ZonesPlan
from hushgrid.node.problems.rolling import Point

OF_A_ZONE, OF_SUMS = 100, 4000  #: numbers as long as names and status in a site's message, and as its sums
Table = tuple[Sequence[str], list[tuple[Any, ...]]]  #: columns, and rows


def centre(plan: Plan, source: str, warm: str = "") -> ServerContext:
    """`source`: the case, by its name or path. `warm`: the directory of an earlier run, or "". Raises InputError."""
    case = load(source).without(plan.problem.ignore).without_loads()
    wired, cost = wiring(case, plan.problem), plan.problem.objective == "cost"
    t, stop, T = plan.terms, plan.stop, wired.horizon.periods
    state, factor = _left(Path(warm), wired) if warm else (None, 1.0)
    return ServerContext(
        stiffness=_stiffness(case, wired, plan) if cost else np.zeros(0),
        scale=cost_scale(case) if cost else 1.0,
        bounds=cost,
        periods=T,
        totals=2 * len(TOTALS),
        widths={
            z: (T * 2 * len(one.buses), len(wired.own_keys[z]), T * 2 * len(one.buses))
            for z, one in wired.layouts.items()
        },
        announced={z: one.shared().size for z, one in wired.layouts.items()},
        largest=largest_messages(wired, plan.problem),
        sites=plan.problem.sites,
        conclude=conclusion(case, plan, wired.layouts, horizon=wired.horizon) if cost else None,
        warm=state,
        factor=factor,
        position=wired.position,
        start=wired.start,
        epsilon=t.paper_epsilon if t else inf,
        tolerance=stop.tolerance if stop else 0.0,
        patience=stop.patience if stop else 0,
    )


def largest_messages(wired: Wiring, problem: ZonesPlan) -> dict[str, int]:
    """Numbers in the largest message on the edges of each zone, and of each site."""
    zones = {z: largest_message(one, problem) for z, one in wired.layouts.items()}
    as_told = {z: most + 3 * wired.shared[z].size + OF_A_ZONE for z, most in zones.items()}
    return zones | {site: OF_SUMS + sum(as_told[z] for z in members) for site, members in problem.sites.items()}


def _stiffness(case: Case, wired: Wiring, plan: Plan) -> Vector:
    """(N,) of w: an entry's is the same in each period."""
    return stiffness(case, [key.partition("@")[0] for key in wired.keys], plan.problem.stiffness)


def _left(run_dir: Path, wired: Wiring) -> tuple[dict[str, Vector], float]:
    """The state s and the factor that an earlier run has left. Raises InputError if they are not of these zones."""
    file = run_dir / "solution.npz"
    try:
        with np.load(file, allow_pickle=False) as saved:
            same = saved["keys_w"].tolist() == list(wired.keys)
            state = {p: saved[f"s_{p}"].astype(np.float64) for p in wired.position}
            factor = float(saved["factor"])
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        raise InputError(f"run.warm_start: {file}: found no state, expected a run of consensus-admm") from None
    if (
        not same
        or any(state[p].shape != entries.shape for p, entries in wired.position.items())
        or not 0 < factor <= 1000
    ):
        raise InputError(f"run.warm_start: {file}: found a run of other zones, expected one of the same")
    return state, factor


def holding(
    centre: ServerContext,
    plan: Plan,
    source: str,
    full_plan: Plan,
    z: Mapping[str, Vector],
    standing: Mapping[str, Vector],
) -> ServerContext:
    """The centre of a run of `plan` in which the zones of `whole` that are not in it are held.

    z, standing: what those zones said last of the entries that they share, and what stands at their buses.
    """
    case = load(source).without(plan.problem.ignore).without_loads()
    here, there = wiring(case, plan.problem), wiring(case, full_plan.problem)
    held = constants(here.keys, there, z)
    if plan.problem.objective != "cost":
        return replace(centre, held=held)
    absent = {zone: Standing.unpacked(there.layouts[zone], values) for zone, values in standing.items() if values.size}
    return replace(centre, held=held, conclude=conclusion(case, plan, here.layouts, absent))


def constants(here: Sequence[str], there: Wiring, z: Mapping[str, Vector]) -> Vector:
    """(N,) what w is on the entries `here`: what z of held zones, wired as `there`, say; nan: it is free."""
    total, owners = dict.fromkeys(here, 0.0), dict.fromkeys(here, 0)
    for zone, values in z.items():
        for k, value in zip(there.position[zone].tolist(), values.tolist(), strict=True):
            if (key := there.keys[k]) in total:
                total[key] += value
                owners[key] += 1
    return np.array([total[key] / owners[key] if owners[key] else nan for key in here])


class Concluded(NamedTuple):
    """What a run at least cost has come to, from the coordinator's last state."""

    case: Case
    figures: Document
    done: Dispatched | None  #: None if a zone is held


def concluded(plan: Plan, source: str, state: Any) -> Concluded | None:
    """None of load shedding, and as long as the zones have not handed over their parts."""
    if plan.problem.objective != "cost" or not state.closing:
        return None
    case = load(source).without(plan.problem.ignore).without_loads()
    layouts = wiring(case, plan.problem).layouts
    done = dispatched(case, plan.problem, layouts, state)
    measured = dict(zip(plan.running.figures, state.measured.tolist(), strict=True))
    apart = {"disagreement_mw": measured["disagreement"] * case.base_mva}
    figures = done.figures if done else figures_of_some(case, layouts, state, measured["objective"])
    return Concluded(case, figures | apart, done)


def points(over: Concluded | None) -> tuple[Point, ...]:
    """Where a day stands after each period that a run has planned."""
    if over is None or over.done is None or not isinstance(over.done.dispatch, Day):
        return ()
    case, day = over.case, over.done.dispatch
    numbers = [str(row + 1) for row in case.generators.rows.tolist()]
    names = [unit.name for unit in day.units]
    return tuple(
        Point(
            dict(zip(names, energy, strict=True)),
            dict(zip(numbers, (one.p_g * case.base_mva).tolist(), strict=True)),
        )
        for energy, one in zip(day.paths[2].tolist(), day.periods, strict=True)
    )


def answer(plan: Plan, state: Any, over: Concluded | None) -> tuple[Document, dict[str, Table]]:
    """What a run that is over has found: figures, and tables by name.

    Of a run at least cost, as in result.json and its tables; of load shedding nothing: no zone hands over its part. If
    a zone is held, the figures are the sums of the others, and there are no tables.
    """
    if over is None:
        return {}, {}
    return over.figures, {} if over.done is None else dict(over.done.dispatch.tables())


def view(plan: Plan, ended: Ended, over: Concluded | None) -> Document:
    """Fields of `AnswerView`: what the dispatch serves, costs and is worth. Over a horizon that of its first period,
    with the verdict, gap and AC status of the plan; of load shedding the verdict alone, if noise does not count for it.
    """
    state, t = ended.state, plan.terms
    size = float(np.linalg.norm(np.concatenate([ended.z[p] for p in sorted(ended.z)])))
    if plan.problem.objective != "cost":
        verdict = verdict_of(ended.residual, size, met=ended.met)
        quiet = t is None or t.published or t.mode == "input"
        return {"verdict": verdict if quiet or verdict != "not-converged" else None}
    if over is None:
        return {"verdict": verdict_of(ended.residual, size, met=ended.met, agreed=0.0)}
    case, figures, done = over
    ac, gap = figures["ac"], figures["gap"]
    distance = done.distance if done else proven(case, state.bound, figures["objective"], None)["gap"]
    verdict = verdict_of(ended.residual, size, met=ended.met, agreed=0.0, gap=gap, distance=distance)
    common = {"verdict": verdict, "gap": gap, "ac": ac["status"]}
    if plan.problem.horizon is not None:
        return common | (_of_now(done.dispatch) if done and isinstance(done.dispatch, Day) else {})
    final = ac if "objective" in ac else figures
    return common | {
        "served_mw": final["served_mw"],
        "unserved_mw": final["unserved_mw"],
        "cost": final["objective"],
        "ac_violation": largest_violation(case, state.dispatch),
        "tie_flows": done.dispatch.tie_flows() if done and isinstance(done.dispatch, Dispatch) else {},
        "prices": {int(bus): price for bus, price in figures.get("prices", {}).items()},
    }


def _of_now(day: Day) -> Document:
    """The fields that are of the period that a plan begins with."""
    now, prices = day.periods[0], day.periods[0].price[:, 0]
    power = now.power
    numbers = now.case.buses.numbers.tolist()
    return {
        "served_mw": power["served_mw"],
        "unserved_mw": power["unserved_mw"],
        "cost": now.generation_cost + day.voll * now.case.base_mva * float(now.slack.sum()),
        "tie_flows": now.tie_flows(),
        "prices": {bus: price for bus, price in zip(numbers, prices.tolist(), strict=True) if isfinite(price)},
    }
