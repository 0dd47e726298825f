"""A simulated run over the zones of a case: what is prepared, and what it leaves.

A trace row is a function of gate answers, except its noise cell. What is computed from raw data or from the noise is
filled only where the run is not private; of an upheld run nothing here has ever read a load.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hushgrid.broker.prepare import Observer, Setup
from hushgrid.broker.results import Finished, Result, summarise
from hushgrid.broker.traces import CoordinatorTrace, MemberTrace, coordinator_rows, member_rows
from hushgrid.grid_cases.case import loads
from hushgrid.grid_cases.central import solve
from hushgrid.grid_cases.zone import ZoneModel, objective, setpoints, violation
from hushgrid.grid_cases.zone_model import zone_models
from hushgrid.grid_cases.zone_solvers import make_step
from hushgrid.kernels import ladmm
from hushgrid.kernels.errors import HushgridError, InputError
from hushgrid.kernels.ladmm import Vector
from hushgrid.node.assemble import make_plan
from hushgrid.node.config import Scenario
from hushgrid.node.plan import Terms
from hushgrid.node.problem import ZonesProblem
from hushgrid.node.wire import COORDINATOR
from hushgrid.node.zone_gate import expected_l1
from hushgrid.node.zones import Zone, ZoneLoss, layout, public


class ZoneSetup(Setup):
    """Only `loads`, `zone`, `optimum` and what they are used in touch raw data."""

    def __init__(self, scenario: Scenario, file: str = "scenario") -> None:
        assert isinstance(scenario.problem, ZonesProblem)
        self.problem = scenario.problem
        try:
            self.case, self.zones, shown = public(self.problem)
        except InputError as error:
            raise InputError(f"{file}: problem.{error}") from None
        super().__init__(*make_plan(scenario, shown, file))
        self.models = zone_models(self.case, [list(b) for b in self.zones.values()])
        self.keys_w, self.position, _ = layout(self.case, self.zones)
        if self.problem.solver != "clarabel":  # an absent one is refused here, not in a child
            first = next(iter(self.models.values()))
            make_step(first, np.ones(first.n), self.problem.solver)
        self.about = f"{self.problem.case} in {len(self.zones)} zones"

    def loads(self, name: str) -> Vector:
        """A zone's private data, p.u."""
        return loads(self.case, self.models[name].buses)

    def device(self, name: str) -> Zone:
        return Zone(name, self.case, self.models[name], self.loads(name), self.problem.solver)

    def child(self, name: str, place: Path) -> dict[str, Any]:
        return {"case": self.problem.case, "buses": list(self.zones.get(name, ())), "solver": self.problem.solver}

    def trace(self, name: str, place: Path) -> Observer:
        return CoordinatorTrace(place) if name == COORDINATOR else MemberTrace(place, self.models[name], self.reveal)

    def optimum(self) -> float | None:
        """The central optimum of the load shedding."""
        try:
            return float(solve(self.case, "shedding").value)
        except HushgridError:
            return None

    @property
    def expected_l1(self) -> float | None:
        """Expected sum of |noise| of one answer of every node."""
        if self.terms is None:
            return None
        public_part = {name: ZoneLoss(m, np.zeros(2 * len(m.buses))) for name, m in self.models.items()}
        return sum(expected_l1(name, loss, self.terms) for name, loss in public_part.items())

    def written_out(self, resolved: dict[str, Any]) -> dict[str, Any]:
        resolved["problem"] |= {"zones": [list(b) for b in self.zones.values()]}
        return resolved

    def collect(self, f: Finished) -> Result:
        T = max((r[0] for r in f.travelled), default=0)
        plan, t, models, nodes = self.plan, self.terms, self.models, self.plan.nodes
        assert isinstance(plan.algorithm, ladmm.Params)
        w = coordinator_rows(f.trace, len(self.keys_w), T)
        z, lam, drawn = {}, {}, {}
        for p in nodes:
            z[p], lam[p], drawn[p] = member_rows(f.trace, models[p], T)
        gap = sum(np.sum((w[:, self.position[p]] - z[p][:, models[p].shared]) ** 2, axis=1) for p in nodes)
        residual = np.sqrt(gap)
        worst = [max(violation(models[p], z[p][k]) for p in nodes) for k in range(T)]
        objectives: list[float | None] = [None] * T
        noise: list[float | None] = [None] * T
        if self.reveal:
            d = {p: self.loads(p) for p in nodes}
            objectives = [sum(objective(models[p].A, z[p][k], d[p]) for p in nodes) for k in range(T)]
            if t is not None:
                noise = [float(v) if np.isfinite(v := sum(drawn[p][k] for p in nodes)) else None for k in range(T)]
        answers = [
            0 if t is None else 1 if t.mode == "input" else k * plan.algorithm.local_updates for k in range(1, T + 1)
        ]
        expected: list[float | None] = [None] * T
        if t is not None and self.expected_l1 is not None:
            each = self.expected_l1 * (1 if t.mode == "input" else plan.algorithm.local_updates)
            expected = [each if k == 0 or t.mode != "input" else 0.0 for k in range(T)]
        so_far = {r[0]: r for r in f.travelled}
        messages = [so_far.get(k, (k, 0.0, 0, 0))[2] for k in range(T + 1)]
        size = [so_far.get(k, (k, 0.0, 0, 0))[3] for k in range(T + 1)]
        history: dict[str, list[float | int | None]] = {
            "round": list(range(1, T + 1)),
            "objective": list(objectives),
            "consensus_residual": [float(v) for v in residual],
            "max_violation": list(worst),
            "noise_l1": list(noise),
            "noise_l1_expected": list(expected),
            "messages": [messages[k] - messages[k - 1] for k in range(1, T + 1)],
            "bytes": [size[k] - size[k - 1] for k in range(1, T + 1)],
        }
        if t is not None:
            for p in nodes:
                true = honest(t, models[p])
                costs = {k: true.cost(k) if true else None for k in set(answers)}
                history[f"epsilon_{p}"] = [costs[k] for k in answers]
        final = objectives[-1] if T else None
        optimum = self.optimum() if self.reveal and final is not None else None
        summary = summarise(
            f, rounds_done=T, objective=final, optimality_gap=final - optimum if final is not None and optimum is not None else None,
            consensus_residual=float(residual[-1]) if T else None, max_violation=worst[-1] if T else None,
            messages=messages[T], bytes=size[T], capped=nodes if t is not None and t.capped else [],
        )  # fmt: skip
        solution = {"w": w[-1] if T else np.zeros(len(self.keys_w)), "keys_w": np.array(self.keys_w)}
        for p in nodes:
            solution[f"z_{p}"] = z[p][-1] if T else models[p].start
            solution[f"keys_{p}"] = np.array(models[p].keys)
        trajectory = None
        if self.scenario.run.record == "trajectory":
            trajectory = {"w": w} | {f"z_{p}": z[p] for p in nodes} | {f"lam_{p}": lam[p] for p in nodes}
        points = [(p, *row) for p in nodes for row in setpoints(models[p], solution[f"z_{p}"], self.case.base_mva)]
        return Result(summary, history, solution, points, trajectory, f.transcript)


def honest(t: Terms, model: ZoneModel) -> Terms | None:
    """The terms at what an answer really costs: the paper's noise at 2 beta |a_i|; None where (3.4) has no bound."""
    if not t.published:
        return t
    row = model.row_l1 if t.mechanism == "laplace" else model.row_l2
    return None if t.mode.startswith("output") else msgspec.structs.replace(t, per_answer=t.per_answer * row)
