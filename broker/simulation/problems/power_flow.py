"""Simulated runs over the zones of a case: what is prepared, and what they are worth.

In mode input the gate's one answer is the noisy loads themselves: what is generated, served and missed of them is
post-processing, and shown.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from math import inf, sqrt
from pathlib import Path
from typing import cast

import msgspec
import numpy as np

from hushgrid.broker.report import quality
from hushgrid.broker.simulation.problems import dispatch
from hushgrid.broker.simulation.problems.base import Figures, Finished, Setup
from hushgrid.broker.simulation.recorders.base import Recorded, Shape
from hushgrid.broker.simulation.recorders.star import noisy_data
from hushgrid.broker.sites.zones import ZoneSite
from hushgrid.grid_cases import load
from hushgrid.grid_cases.case import Case, loads
from hushgrid.grid_cases.centralised import solve
from hushgrid.grid_cases.setpoints import setpoints
from hushgrid.grid_cases.zone.build import zone_models
from hushgrid.grid_cases.zone.cost import CostStep
from hushgrid.grid_cases.zone.model import ZoneModel, objective, violation
from hushgrid.grid_cases.zone.projection import ZoneStep
from hushgrid.kernels.algorithms.base import Star
from hushgrid.kernels.errors import HushgridError, InputError
from hushgrid.kernels.types import Document, Vector
from hushgrid.node.config.planning import make_plan
from hushgrid.node.config.scenario import Scenario
from hushgrid.node.durable import stamp
from hushgrid.node.privacy.terms import Terms
from hushgrid.node.problems.plan import step_ratio
from hushgrid.node.problems.power_flow.device import Zone, ZoneLoss, capacities, loss_of, model_of, public, wiring
from hushgrid.node.problems.power_flow.gate import expected_l1, sum_error
from hushgrid.node.problems.power_flow.horizon import read_profiles
from hushgrid.node.problems.power_flow.rolling import carried_on
from hushgrid.node.problems.power_flow.section import HorizonProblem
from hushgrid.node.problems.rolling import Course, Point
from hushgrid.node.schema.sections import Adjacency


class ZoneSetup(Setup):
    """Only `loads`, `device`, `optimum` and what they are used in touch raw data."""

    own_figures: tuple[str, ...] = (
        *("generation_mw", "load_mw", "served_mw", "unserved_mw", "spilled_mw"),
        *dispatch.FIGURES,
    )

    def __init__(self, scenario: Scenario, file: str = "scenario", before: Point | None = None) -> None:
        """before: where storage and generators stood when the day began."""
        self.problem = scenario.problem
        try:
            self.case, self.zones, public_part = public(self.problem, scenario.algorithm)
        except InputError as error:
            raise InputError(f"{file}: problem.{error}") from None
        if before is not None:
            public_part = carried_on(public_part, Course(points=(before,)), 0.0)
        if self.problem.horizon is not None:
            self.own_figures = (*self.own_figures, *dispatch.OF_A_DAY)
            self.threads = min(len(self.zones), os.cpu_count() or 1)  # Clarabel leaves the interpreter to others
        self.network = self.case.without_loads()
        self.adjacency = scenario.privacy.adjacency if scenario.privacy else None
        capacities(self.adjacency, self.case, self.case.buses.numbers.tolist())
        super().__init__(scenario, make_plan(scenario, public_part, file))
        self.models = zone_models(self.case, [list(b) for b in self.zones.values()])
        self.wired = wiring(self.case, self.plan.problem)
        self.shape = Shape(
            size=len(self.wired.keys),
            own_sizes={p: len(keys) for p, keys in self.wired.own_keys.items()},
            shared=self.wired.shared,
            position=self.wired.position,
        )
        if self.problem.solver != "clarabel":  # an absent one is refused here, not in a child
            first = next(iter(self.models.values()))
            ZoneStep(first, np.ones(first.n), self.problem.solver)
        path = Path(self.problem.case)
        self.stamp = stamp(path) if path.is_file() else self.problem.case
        self.notes = tuple(load(self.problem.case).left_out(self.problem.ignore))
        self.description = f"{self.problem.case} in {len(self.zones)} zones"

    def loads(self, name: str) -> Vector:
        """A zone's private data, p.u."""
        return own_loads(self.case, self.models[name].buses, self.problem.horizon)

    def device(self, name: str) -> Zone:
        contracts = capacities(self.adjacency, self.case, self.models[name].buses)
        parts = (name, self.case, self.models[name], self.loads(name), self.problem.solver)
        return Zone(*parts, contracts=contracts, ignore=self.problem.ignore)

    def site(self, name: str) -> ZoneSite:
        return self.site_of(name, self.site_child(name, Path()))

    def site_child(self, name: str, place: Path) -> Document:
        return {"case": self.problem.case, "ignore": self.problem.ignore}

    @classmethod
    def site_of(cls, name: str, data: Document) -> ZoneSite:
        return ZoneSite(name, data["case"], data["ignore"])

    def child(self, name: str, place: Path) -> Document:
        return {
            "case": self.problem.case,
            "ignore": self.problem.ignore,
            "buses": list(self.zones[name]),
            "solver": self.problem.solver,
            "adjacency": msgspec.to_builtins(self.adjacency),
            "horizon": msgspec.to_builtins(self.problem.horizon),
        }

    @classmethod
    def node(cls, name: str, data: Document) -> Zone:
        case, buses = load(data["case"]).without(data["ignore"]), tuple(sorted(data["buses"]))
        contracts = capacities(msgspec.convert(data["adjacency"], Adjacency | None), case, buses)
        horizon = msgspec.convert(data["horizon"], HorizonProblem | None)
        model, d = model_of(name, data["case"], buses, None, data["ignore"]), own_loads(case, buses, horizon)
        return Zone(name, case, model, d, data["solver"], contracts=contracts, ignore=data["ignore"])

    def optimum(self, d: Mapping[str, Vector]) -> float | None:
        """The central optimum of the load shedding, at these loads of the zones; None where the solver finds none."""
        try:
            return float(solve(with_loads(self.case, self.models, d), "shedding").value)
        except HushgridError:
            return None

    def shown_loads(self, trace: Path) -> dict[str, Vector] | None:
        """The loads that what is served may be told of: the gate's own in mode input, else raw ones where they may be
        shown.
        """
        if self.terms is not None and self.terms.mode == "input":
            noisy = {p: noisy_data(trace, p) for p in self.plan.nodes}
            known = {p: d for p, d in noisy.items() if d is not None}
            return known if len(known) == len(noisy) else None
        return {p: self.loads(p) for p in self.plan.nodes} if self.reveal else None

    @property
    def expected_l1(self) -> float | None:
        """Expected sum of |noise| of one answer of every node."""
        if self.terms is None:
            return None
        return sum(expected_l1(name, self.public_loss(name), self.terms) for name in self.models)

    @property
    def load_noise(self) -> float | None:
        """Standard deviation of the noise in the sum of all active loads, p.u.; None if there is none of ours."""
        if self.terms is None or self.terms.published:
            return None
        each = [sum_error(name, self.public_loss(name), self.terms) for name in self.models]
        return None if None in each else sqrt(sum(sd**2 for sd in each if sd is not None))

    def public_loss(self, name: str) -> ZoneLoss:
        """A zone's loss at no load: what noise needs of it."""
        model = self.models[name]
        contracts = capacities(self.adjacency, self.case, model.buses)
        nothing = np.zeros(2 * len(model.buses) * self.wired.horizon.periods)
        return loss_of(model, nothing, self.plan.problem, self.terms, contracts, base_mva=self.case.base_mva)

    def least_cost(self, d: Mapping[str, Vector]) -> float | None:
        """The central optimum at these loads of the zones, $/h, over a horizon $; None where the solver finds none."""
        (model,) = zone_models(self.case, [self.case.buses.numbers.tolist()]).values()
        horizon, none = self.wired.horizon, np.zeros(0, np.int64)
        each = [self._in_period(d, t) for t in range(horizon.periods)]
        whole = np.concatenate([loads(with_loads(self.case, self.models, one), model.buses) for one in each])
        if horizon.reserve:  # each zone's own
            return None
        try:
            step = CostStep(self.case, model, whole, none, np.zeros(0), self.plan.problem.voll, horizon=horizon)
            return step.minimum(np.zeros(0), 1.0).value
        except HushgridError:
            return None

    def start_of(self, name: str) -> Vector:
        """Where a zone's iterate begins."""
        start = np.tile(self.models[name].start, self.wired.horizon.periods)
        return np.concatenate([start, np.zeros(len(self.wired.own_keys[name]) - start.size)])

    def _in_period(self, d: Mapping[str, Vector], t: int) -> dict[str, Vector]:
        return {p: np.split(values, self.wired.horizon.periods)[t] for p, values in d.items()}

    @property
    def spread(self) -> float:
        """How far apart the answers' noise explains that the zones lie, p.u."""
        zones = [(m, self.public_loss(p)) for p, m in self.models.items()]
        return quality.spread_of_zones(self.plan, self.terms, zones, self.plan.problem.L)

    def written_out(self, resolved: Document) -> Document:
        resolved["problem"] |= {"zones": [list(b) for b in self.zones.values()]}
        problem = self.plan.problem
        if problem.objective == "cost":
            resolved["problem"] |= {
                "objective": "cost",
                "voll": problem.voll,
                "ac": problem.ac,
                "margins": problem.margins,
            }
        return resolved

    def cost(self, name: str, answers: int) -> float | None:
        assert self.terms is not None
        true = honest(self.terms, self.models[name])
        return true.cost(answers) if true else None

    def figures(self, seen: Recorded, over: Finished) -> Figures:
        if self.plan.problem.objective == "cost":
            return dispatch.figures(self, seen, over)
        T, t, models, nodes, z = seen.rounds_done, self.terms, self.models, self.plan.nodes, seen.own_iterates
        worst = [max(violation(models[p], z[p][k]) for p in nodes) for k in range(T)]
        objectives: list[float | None] = [None] * T
        if self.reveal:
            d = {p: self.loads(p) for p in nodes}
            objectives = [sum(objective(models[p].A, z[p][k], d[p]) for p in nodes) for k in range(T)]
        expected: list[float | None] = [None] * T
        if t is not None and self.expected_l1 is not None:
            each = self.expected_l1 * (1 if t.mode == "input" else cast(Star, self.plan.algorithm).per_round)
            expected = [each if k == 0 or t.mode != "input" else 0.0 for k in range(T)]
        final, gap_to, loads = None, None, self.shown_loads(over.trace) if T else None
        if loads is not None:
            d = {p: self.loads(p) for p in nodes} if self.reveal else loads
            final = sum(objective(models[p].A, z[p][-1], d[p]) for p in nodes)
            optimum = self.optimum(d)
            gap_to = final - optimum if optimum is not None else None
        shared = np.concatenate([z[p][-1, models[p].shared] for p in nodes]) if T else np.zeros(0)
        judged = quality.judged(
            seen.residual[-1] if T else None,
            float(np.linalg.norm(shared)),
            1,
            self.spread,
            inf,
            step_ratio(self.plan),
            over.stopped_because == "tolerance",
        )
        solution = {"w": seen.x, "keys_w": np.array(self.wired.keys)}
        for p in nodes:
            solution[f"z_{p}"] = z[p][-1] if T else models[p].start
            solution[f"keys_{p}"] = np.array(models[p].keys)
        base = self.case.base_mva
        served = power(models, {p: z[p][-1] for p in nodes}, loads, base) if loads is not None else {}
        return Figures(
            objective=objectives,
            max_violation=list(worst),
            expected_noise=expected,
            quality=judged,
            solution=solution,
            setpoints=[(p, *row) for p in nodes for row in setpoints(self.case, models[p].keys, solution[f"z_{p}"])],
            at_the_end={"objective": final, "optimality_gap": gap_to, **served},
        )


def own_loads(case: Case, buses: tuple[int, ...], horizon: HorizonProblem | None) -> Vector:
    """A simulated zone's loads, p.u.: the case's own, over a horizon those of its profiles, (T 2 nb,)."""
    if horizon is None:
        return loads(case, buses)
    if horizon.profiles is None:
        return np.tile(loads(case, buses), horizon.periods)
    others = frozenset(case.buses.numbers.tolist())
    return read_profiles(Path(horizon.profiles), buses, case.base_mva, horizon.periods, others)


def with_loads(case: Case, models: Mapping[str, ZoneModel], d: Mapping[str, Vector]) -> Case:
    """The case with other loads: d (2 buses,), p.u., of each zone."""
    p_d, q_d = np.zeros(len(case.buses)), np.zeros(len(case.buses))
    for name, model in models.items():
        rows = case.index(np.array(model.buses, np.int64))
        p_d[rows], q_d[rows] = np.split(d[name], 2)
    return replace(case, buses=replace(case.buses, p_d=p_d, q_d=q_d))


def power(
    models: Mapping[str, ZoneModel], z: Mapping[str, Vector], d: Mapping[str, Vector], base_mva: float
) -> dict[str, float]:
    """What is generated, and what of the loads d is served, MW, over all zones.

    s = A z + d of (D.2b): at a bus its positive part is load that is not served, its negative part power that nobody
    takes; served is what is left of the loads.
    """
    generation = sum(value for p in models for key, value in zip(models[p].keys, z[p], strict=True) if key[:3] == "pg:")
    s = np.concatenate([(m.A @ z[p] + d[p])[: len(m.buses)] for p, m in models.items()])
    load = sum(float(np.sum(d[p][: len(m.buses)])) for p, m in models.items())
    unserved, spilled = float(np.sum(np.maximum(s, 0.0))), float(np.sum(np.maximum(-s, 0.0)))
    figures = {
        "generation": generation,
        "load": load,
        "served": load - unserved,
        "unserved": unserved,
        "spilled": spilled,
    }
    return {f"{key}_mw": float(value * base_mva) for key, value in figures.items()}


def honest(t: Terms, model: ZoneModel) -> Terms | None:
    """The terms at what an answer really costs: the paper's noise at 2 beta |a_i|; None where (3.4) has no bound."""
    if not t.published:
        return t
    row = model.row_l1 if t.mechanism == "laplace" else model.row_l2
    return None if t.mode.startswith("output") else msgspec.structs.replace(t, per_answer=t.per_answer * row)


SETUP = ZoneSetup
