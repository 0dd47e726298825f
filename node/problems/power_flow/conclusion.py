"""What a run at least cost ends with: from what the zones have handed over to what each is told.

Everything here is a function of the gates' answers and of public data: a zone's part of the relaxation's solution, the
loads that its gate has answered, and its prices. From them the coordinator solves one AC optimal power flow of the
whole network, in a process of its own. Its machine calls this once the rounds are over, and again after a crash: the
same question gives the same answer. Of a zone that is held its last set-points and served loads stand as constants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite, sqrt

import numpy as np

from hushgrid.grid_cases.ac.margins import margins
from hushgrid.grid_cases.ac.network import Point, flows, violations
from hushgrid.grid_cases.ac.opf import AcDispatch, NoDispatch, recover
from hushgrid.grid_cases.ac.program import Margins
from hushgrid.grid_cases.case import Case
from hushgrid.grid_cases.costs import cost_scale, of_controls
from hushgrid.grid_cases.dispatch import SMALLEST, Dispatch, Part
from hushgrid.grid_cases.dispatch import relaxed as together
from hushgrid.grid_cases.elements.table import rows_but
from hushgrid.grid_cases.setpoints import released, released_keys
from hushgrid.grid_cases.variables import Layout
from hushgrid.grid_cases.zone.horizon import SNAPSHOT, Horizon
from hushgrid.kernels.algorithms.consensus_admm import ServerState
from hushgrid.kernels.patterns.star import Closing, Conclude, Concluded, Released
from hushgrid.kernels.types import Document, Vector
from hushgrid.node.problems.kind import Plan
from hushgrid.node.problems.power_flow.day import Day, days_of, paths_of, recovered_periods, relaxed_periods
from hushgrid.node.problems.power_flow.horizon import horizon_of
from hushgrid.node.problems.power_flow.section import ZonesPlan

SOLVED = "solved"  #: of a recovery that has found a dispatch; any other status says why there is none
LEFT_OUT = "left out: ac: none"
LITTLE = 0.01  #: p.u. of generation
UNKNOWN = "left out: nothing is known of the set-points of a zone that is held"


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """What a zone goes on doing while it is not heard, p.u.: its last set-points, at the loads that they served."""

    layout: Layout
    d: Vector  #: (2 nb,) p then q of its buses, without what was not served, with what was spilled
    p_g: Vector  #: (ng,) of its generators
    q_g: Vector
    dc: Vector  #: (4 nd,) flows into the dc lines that touch it

    @classmethod
    def unpacked(cls, layout: Layout, values: Vector) -> Standing:
        nb, ng = len(layout.buses), len(layout.generators)
        return cls(layout, *np.split(values, np.cumsum([2 * nb, ng, ng])))

    @property
    def packed(self) -> Vector:
        return np.concatenate([self.d, self.p_g, self.q_g, self.dc])

    @classmethod
    def from_closing(cls, layout: Layout, closing: Closing, ac: AcDispatch | None) -> Standing:
        """Of the dispatch that was found, else of the relaxation."""
        if ac is None:  # -A z: what reaches its buses, from its own generators and over its lines
            dc = np.stack([closing.z[layout.dc_p_F + k] for k in range(4)], axis=1)
            served = -(layout.balance() @ closing.z)
            return cls(layout, served, closing.z[layout.p_g], closing.z[layout.p_g + 1], dc.ravel())
        slack = ac.slack[layout.case.index(np.array(layout.buses, np.int64))]
        served = closing.data - (slack[:, [0, 2]] - slack[:, [1, 3]]).T.ravel()
        g, dc = layout.generators, ac.dc[layout.dc]
        return cls(layout, served, ac.p_g[g], ac.q_g[g], dc.ravel())


def conclusion(
    case: Case,
    plan: Plan,
    layouts: Mapping[str, Layout],
    absent: Mapping[str, Standing] | None = None,
    horizon: Horizon = SNAPSHOT,
) -> Conclude:
    """The outcome of a run over these zones: the AC recovery that the plan asks for. `absent`: zones that are held."""
    problem, held = plan.problem, absent or {}
    if problem.horizon is not None:
        return _conclusion_of_periods(case, problem, layouts, horizon)

    def conclude(closing: Mapping[str, Closing], measured: Mapping[str, float]) -> Concluded:
        ac, status = None, LEFT_OUT
        if problem.ac == "polish":
            outcome = _recovered(case, plan, layouts, closing, held)
            ac = outcome if isinstance(outcome, AcDispatch) else None
            status = SOLVED if isinstance(outcome, AcDispatch) else outcome.why
        apart = measured["disagreement"] * case.base_mva
        released = {p: Released(status, apart, _own(case, layout, ac)) for p, layout in layouts.items()}
        standing = {p: Standing.from_closing(layout, closing[p], ac).packed for p, layout in layouts.items()}
        return Concluded(released, np.zeros(0) if ac is None else _packed(case, ac, held), standing)

    return conclude


def _conclusion_of_periods(case: Case, problem: ZonesPlan, layouts: Mapping[str, Layout], horizon: Horizon) -> Conclude:
    """The outcome over a horizon. A period without an AC dispatch keeps the relaxation's; with none nothing is
    released.
    """

    def conclude(closing: Mapping[str, Closing], measured: Mapping[str, float]) -> Concluded:
        relaxed = relaxed_periods(case, days_of(layouts, closing, horizon), horizon)
        outcomes: list[AcDispatch | NoDispatch] = []
        if problem.ac == "polish" and covers(case, layouts):
            outcomes = recovered_periods(case, relaxed, horizon, problem.voll)
        found = [one if isinstance(one, AcDispatch) else None for one in outcomes]
        apart = measured["disagreement"] * case.base_mva
        told = {p: _own_of_periods(case, layout, found, relaxed) for p, layout in layouts.items()}
        released = {p: Released(_status(outcomes, horizon.first), apart, values) for p, values in told.items()}
        width = 2 + 2 * len(case.generators) + 8 * len(case.buses) + 4 * len(case.dc_lines)
        packed = [np.full(width, np.nan) if one is None else _packed(case, one, {}) for one in found]
        kept = np.concatenate(packed) if any(one is not None for one in found) else np.zeros(0)
        return Concluded(released, kept, {p: np.zeros(0) for p in layouts})

    return conclude


def _status(outcomes: Sequence[AcDispatch | NoDispatch], first: int) -> str:
    failed = {t: one.why for t, one in enumerate(outcomes, first) if isinstance(one, NoDispatch)}
    if not outcomes:
        return LEFT_OUT
    if not failed:
        return SOLVED
    return (
        f"failed in period{'s' if len(failed) > 1 else ''} {', '.join(map(str, failed))}: {next(iter(failed.values()))}"
    )


def _own_of_periods(
    case: Case, layout: Layout, found: Sequence[AcDispatch | None], relaxed: Sequence[Dispatch]
) -> Vector:
    """What a zone is told, period by period; nothing if no period has an AC dispatch."""
    if not any(one is not None for one in found):
        return np.zeros(0)
    keys, each = released_keys(case, layout), list[Vector]()
    for one, plan in zip(found, relaxed, strict=True):
        of = plan if one is None else one
        each.append(released(case, keys, of.p_g, of.q_g, of.v, of.flows, of.dc))
    return np.concatenate(each)


def _recovered(
    case: Case,
    plan: Plan,
    layouts: Mapping[str, Layout],
    closing: Mapping[str, Closing],
    held: Mapping[str, Standing],
) -> AcDispatch | NoDispatch:
    """One AC dispatch of the whole network, at the loads of those who are there, and around the constants of the
    held.
    """
    d, p_g = np.zeros((len(case.buses), 2)), np.zeros(len(case.generators))
    known = [
        *((layout, closing[p].data) for p, layout in layouts.items()),
        *((one.layout, one.d) for one in held.values()),
    ]
    for layout, loads in known:
        d[case.index(np.array(layout.buses, np.int64))] = loads.reshape(2, -1).T
    for p, layout in layouts.items():
        p_g[layout.generators] = closing[p].z[layout.p_g]
    for one in held.values():
        p_g[one.layout.generators] = one.p_g
    if sum(len(layout.buses) for layout, _ in known) < len(case.buses):
        return NoDispatch("failed", UNKNOWN)
    firm = case.index(np.array([bus for one in held.values() for bus in one.layout.buses], np.int64))
    margins = margins_of(case, plan, p_g)
    return recover(_pinned(case, held), d.T.ravel(), None, plan.problem.voll, margins=margins, firm=firm)


def _pinned(case: Case, held: Mapping[str, Standing]) -> Case:
    """The case in which the generators and dc lines of zones that are held stay where they are."""
    g, dc = case.generators, case.dc_lines
    limits = {key: getattr(g, key).copy() for key in ("p_min", "p_max", "q_min", "q_max")}
    dc_keys = ("p_min", "p_max", "q_from_min", "q_from_max", "q_to_min", "q_to_max")
    dc_limits = {key: getattr(dc, key).copy() for key in dc_keys}
    sides, factors = case.capability, case.power_factors
    for one in held.values():
        k, flows = one.layout.generators, one.dc.reshape(-1, 4)
        limits["p_min"][k] = limits["p_max"][k] = one.p_g
        limits["q_min"][k] = limits["q_max"][k] = one.q_g
        for name, column in (("p", flows[:, 0]), ("q_from", -flows[:, 1]), ("q_to", -flows[:, 3])):
            dc_limits[f"{name}_min"][one.layout.dc] = dc_limits[f"{name}_max"][one.layout.dc] = column
        sides = rows_but(sides, np.isin(sides.generator, k))
        factors = rows_but(factors, np.isin(factors.generator, k))
    generators, dc_lines = replace(g, **limits), replace(dc, **dc_limits)
    return replace(case, generators=generators, dc_lines=dc_lines, capability=sides, power_factors=factors)


def covers(case: Case, layouts: Mapping[str, Layout]) -> bool:
    """Whether the zones are all of the case; else one of them is held."""
    return sum(len(layout.buses) for layout in layouts.values()) == len(case.buses)


def margins_of(case: Case, plan: Plan, p_g: Vector) -> Margins | None:
    """What the recovery keeps from the limits if the relaxation's generation is p_g; None where it asks for none.

    Gaussian noise counts by its standard deviation, as the Laplace noise that has the same.
    """
    t, problem = plan.terms, plan.problem
    if not problem.margins or t is None:
        return None
    noisy = [
        buses if problem.loaded is None else set(buses) & set(problem.loaded.p) for buses in problem.zones.values()
    ]
    epsilon = t.per_answer * (sqrt(2) if t.mechanism == "gaussian" else 1.0)
    return margins(case, t.norm, epsilon, [len(buses) for buses in noisy], t.release, p_g=p_g)


def _own(case: Case, layout: Layout, ac: AcDispatch | None) -> Vector:
    """What a zone is told (`setpoints.released_keys`), p.u.; nothing if there is no dispatch."""
    if ac is None:
        return np.zeros(0)
    keys = released_keys(case, layout)
    return released(case, keys, ac.p_g, ac.q_g, ac.v, ac.flows, ac.dc)


def _packed(case: Case, ac: AcDispatch, held: Mapping[str, Standing]) -> Vector:
    costs = of_controls(case).each(np.concatenate([ac.p_g, ac.q_g, ac.dc[:, 0]]))
    objective = ac.objective - sum(float(costs[one.layout.paid()[0]].sum()) for one in held.values())
    head = [float(ac.iterations), objective]
    of_buses = (ac.v, ac.angle, ac.slack.ravel(), ac.price.ravel())
    return np.concatenate([head, ac.p_g, ac.q_g, *of_buses, ac.dc.ravel()])


def _unpacked(case: Case, packed: Vector) -> list[Vector]:
    """(iterations, objective), then as `_packed`: p_g, q_g, v, angle, slack, price, dc."""
    n, g = len(case.buses), len(case.generators)
    return np.split(packed, np.cumsum([2, g, g, n, n, 4 * n, 2 * n]))


def largest_violation(case: Case, packed: Vector) -> float | None:
    """By how much the AC dispatch in the coordinator's state passes a limit in p.u. at most; None if there is none."""
    if not packed.size:
        return None
    _, p_g, q_g, v, angle, _, _, dc = _unpacked(case, packed)
    beyond = violations(case, Point(v, angle, p_g, q_g, dc.reshape(-1, 4)))
    return max(value for kind, value in beyond.items() if kind != "angle")


@dataclass(frozen=True, slots=True, eq=False)
class Recovered:
    """A dispatch that satisfies the AC power flow equations, and its figures for result.json."""

    dispatch: Dispatch
    figures: Document


@dataclass(frozen=True, slots=True, eq=False)
class Dispatched:
    """The dispatch that a run has ended with, AC if there is one, and its figures."""

    dispatch: Dispatch | Day
    figures: Document  #: of result.json
    distance: (
        float | None
    )  #: how far the relaxation's cost is from the bound, as a share of it; None: there is no bound


def dispatched(case: Case, problem: ZonesPlan, layouts: Mapping[str, Layout], state: ServerState) -> Dispatched | None:
    """From the coordinator's last state; None if the zones have not handed over their parts, or not all are there."""
    if not state.closing or not covers(case, layouts):
        return None
    if problem.horizon is not None:
        return _dispatched_day(case, problem, layouts, state)
    relaxed = _together(case, layouts, state)
    ac = recovered(case, relaxed, state.dispatch)
    final = ac.dispatch if ac else relaxed
    relaxed_cost = relaxed.generation_cost + problem.voll * case.base_mva * float(relaxed.slack.sum())
    figures: Document = {
        "objective": relaxed_cost,
        **relaxed.power,
        **proven(case, state.bound, relaxed_cost, ac.figures["objective"] if ac else None),
        "prices": _by_bus(case, final.price[:, 0]),
        "prices_relaxed": _by_bus(case, relaxed.price[:, 0]),
        "ac": {"status": next(iter(state.released.values())).status, **(ac.figures if ac else {})},
    }
    distance = proven(case, state.bound, relaxed_cost, None)["gap"]
    return Dispatched(final, figures, distance)


def _dispatched_day(case: Case, problem: ZonesPlan, layouts: Mapping[str, Layout], state: ServerState) -> Dispatched:
    assert problem.horizon is not None
    horizon = horizon_of(problem, case)
    days = days_of(layouts, state.closing, horizon)
    relaxed, T = relaxed_periods(case, days, horizon), horizon.periods
    packed = state.dispatch.reshape(T, -1) if state.dispatch.size else [np.full(1, np.nan)] * T
    each = [
        None if np.isnan(values[0]) else recovered(one.case, one, values)
        for one, values in zip(relaxed, packed, strict=True)
    ]
    # A price is the plan's: an AC power flow of one period knows nothing of what that period owes to others.
    final = [replace(ac.dispatch, price=one.price) if ac else one for ac, one in zip(each, relaxed, strict=True)]
    day = Day(
        horizon, problem.horizon.storage, final, relaxed, paths_of(problem, days), problem.voll, problem.contingencies
    )
    cost = day.cost(relaxed)
    ac_cost = day.cost(final) if all(each) else None
    ac: Document = {"status": next(iter(state.released.values())).status}
    if any(each):
        losses = [one.figures["losses_mw"] if one else None for one in each]
        failed = [t for t, one in enumerate(each, horizon.first) if one is None]
        ac |= {"objective": ac_cost, "losses_mw": losses, "failed": failed}
    figures = {"objective": cost, **day.figures(), **proven(case, state.bound, cost, ac_cost), "ac": ac}
    return Dispatched(day, figures, proven(case, state.bound, cost, None)["gap"])


def _by_bus(case: Case, prices: Vector) -> dict[str, float]:
    numbers = case.buses.numbers.tolist()
    return {str(bus): round(price, 6) for bus, price in zip(numbers, prices.tolist(), strict=True) if isfinite(price)}


def figures_of_some(case: Case, layouts: Mapping[str, Layout], state: ServerState, objective: float) -> Document:
    """The figures of a run in which a zone is held: sums over the others. `objective`: theirs in the last round."""
    relaxed = _together(case, layouts, state)
    ac = recovered(case, relaxed, state.dispatch)
    status = next(iter(state.released.values())).status
    known = proven(case, state.bound, objective, None)
    if ac:  # its flows to the zones that are held are no constants, so that it may cost less than the bound
        known["gap"] = None
    return {
        "objective": objective,
        **relaxed.power,
        **known,
        "ac": {"status": status, **(ac.figures if ac else {})},
    }


def proven(case: Case, bound: float, relaxed: float, ac: float | None) -> dict[str, float | None]:
    """`bound`, $/h, and `gap`, the share of the cost of what is dispatched that is above it; None where none is known.

    The AC dispatch is feasible, so that the least cost lies between. The relaxation's cost is that of zones that agree
    only nearly: it may be below the bound, and the gap is its distance. Where hardly anything is generated there is
    nothing to have a share of: a cost below that of LITTLE counts as that.
    """
    if not isfinite(bound):
        return {"bound": None, "gap": None}
    cost = relaxed if ac is None else ac
    apart = abs(cost - bound) if ac is None else max(cost - bound, 0.0)
    return {"bound": bound, "gap": apart / max(abs(cost), LITTLE * cost_scale(case))}


def _together(case: Case, layouts: Mapping[str, Layout], state: ServerState) -> Dispatch:
    """What the zones have handed over, as one; where a zone is held, its part is missing."""
    return together(case, {p: Part(layouts[p], c.data, c.z, c.duals) for p, c in sorted(state.closing.items())})


def recovered(case: Case, seen: Dispatch, packed: Vector) -> Recovered | None:
    """The AC dispatch in the coordinator's state, beside the relaxation's as it was `seen`; None if there is none.

    Of a zone that is held there is nothing in it, but for the losses of the lines to it.
    """
    if not packed.size:
        return None
    n = len(case.buses)
    head, p_g, q_g, v, angle, slack, price, dc = _unpacked(case, packed)
    there = list(seen.zone_of)
    known = np.isin(case.generators.bus, there)
    touched = np.isin(case.lines.from_bus, there) | np.isin(case.lines.to_bus, there)
    lines = case.dc_lines
    reached = np.isin(lines.from_bus, there) | np.isin(lines.to_bus, there)
    ac = replace(
        seen,
        source="ac",
        p_g=np.where(known, p_g, 0.0),
        q_g=np.where(known, q_g, 0.0),
        v=v,
        flows=np.where(touched[:, None], flows(case, v, angle), 0.0),
        dc=np.where(reached[:, None], dc.reshape(-1, 4), 0.0),
        slack=np.where(slack > SMALLEST, slack, 0.0).reshape(n, 4),
        price=(price if price.size else np.full(2 * n, np.nan)).reshape(n, 2),  # that of 0.1.0 has none
    )
    losses = float(ac.flows[:, [0, 2]].sum() + ac.dc[:, [0, 2]].sum()) * case.base_mva
    figures = {"objective": float(head[1]), "iterations": int(head[0]), **ac.power, "losses_mw": losses}
    return Recovered(ac, figures)
