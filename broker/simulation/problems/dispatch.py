"""What a run at least cost over zones is worth: the dispatch, its tables and its figures.

All of it follows from what the zones have handed over at the end, functions of their gates' answers, so that it is
shown of private runs too.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Protocol

import numpy as np

from hushgrid.broker.report import quality
from hushgrid.broker.simulation.problems.base import Figures, Finished
from hushgrid.broker.simulation.recorders.base import Recorded
from hushgrid.grid_cases.case import Case
from hushgrid.grid_cases.dispatch import Dispatch
from hushgrid.grid_cases.setpoints import Row, released, released_keys, setpoints
from hushgrid.grid_cases.zone.model import ZoneModel, violation
from hushgrid.kernels.algorithms.consensus_admm import ServerState
from hushgrid.kernels.types import Document, Vector
from hushgrid.node import wire
from hushgrid.node.problems.plan import RunPlan
from hushgrid.node.problems.power_flow.conclusion import dispatched
from hushgrid.node.problems.power_flow.device import Wiring
from hushgrid.node.runtime.driver import Stored


class Zones(Protocol):
    """What of a run over zones is read here (`power_flow.ZoneSetup`)."""

    @property
    def case(self) -> Case: ...
    @property
    def plan(self) -> RunPlan: ...
    @property
    def models(self) -> Mapping[str, ZoneModel]: ...
    @property
    def wired(self) -> Wiring: ...
    @property
    def expected_l1(self) -> float | None: ...
    @property
    def load_noise(self) -> float | None: ...
    def least_cost(self, d: Mapping[str, Vector]) -> float | None: ...


#: Of result.json, beside those of every run over zones.
FIGURES = ("load_noise_mw", "slack_mvar", "bound", "gap", "disagreement_mw", "prices", "prices_relaxed", "ac")


def figures(setup: Zones, seen: Recorded, over: Finished) -> Figures:
    """Everything of a run whose objective is cost."""
    T, models, nodes, z, base = seen.rounds_done, setup.models, setup.plan.nodes, seen.own_iterates, setup.case.base_mva
    measured = seen.figures
    solution: dict[str, np.ndarray] = {"w": seen.x, "keys_w": np.array(setup.wired.keys)}
    for p in nodes:
        solution[f"z_{p}"] = z[p][-1] if T else models[p].start
        solution[f"keys_{p}"] = np.array(models[p].keys)
    shared = np.concatenate([z[p][-1, setup.wired.shared[p]] for p in nodes]) if T else np.zeros(0)
    expected: list[float | None] = [None] * T
    if setup.expected_l1 is not None:
        expected = [setup.expected_l1 if k == 0 else 0.0 for k in range(T)]
    state = closed(over.centre)
    done = None if state is None else dispatched(setup.case, setup.plan.problem, setup.wired.layouts, state)
    at_the_end: Document = dict(done.figures) if done else {}
    at_the_end["load_noise_mw"] = None if setup.load_noise is None else setup.load_noise * base
    judged = quality.judged(
        seen.residual[-1] if T else None,
        float(np.linalg.norm(shared)),
        1,
        0.0,
        inf,
        None,
        over.stopped_because == "tolerance",
        agreed=0.0,
        gap=at_the_end.get("gap"),
        distance=None if done is None else done.distance,
    )
    if T:
        at_the_end |= {
            "disagreement_mw": measured["disagreement"][-1] * base,
        }
        if "objective" in at_the_end:
            optimum = setup.least_cost({p: state.closing[p].data for p in nodes}) if state else None
            at_the_end["optimality_gap"] = at_the_end["objective"] - optimum if optimum is not None else None
    final = done.dispatch if done else None
    if state is not None:  # where a later run may begin
        solution |= {f"s_{p}": s for p, s in state.s.items()} | {"factor": np.array(state.factor)}
    return Figures(
        objective=list(measured.get("objective", [])),
        max_violation=[max(violation(models[p], z[p][k]) for p in nodes) for k in range(T)],
        expected_noise=expected,
        quality=judged,
        solution=solution,
        setpoints=[(p, *row) for p in nodes for row in setpoints_of(setup, p, solution[f"z_{p}"], final)],
        at_the_end=at_the_end,
        history={
            "dual_residual": list(measured["dual_residual"]),
            "disagreement_mw": [v * base for v in measured["disagreement"]],
            "factor": list(measured["factor"]),
        },
        tables={} if final is None else dict(final.tables()),
    )


def closed(centre: bytes | None) -> ServerState | None:
    """The coordinator's last state, if the zones have handed over their parts."""
    if not centre:
        return None
    state = wire.decode_state(ServerState, wire.decode_state(Stored, centre).machine)
    return state if state.closing else None


def setpoints_of(setup: Zones, p: str, z: Vector, final: Dispatch | None) -> list[Row]:
    """What the zone's own controller has: the recovered dispatch's generation and voltages, else its part of z."""
    if final is None or final.source == "relaxed":
        return setpoints(setup.case, setup.models[p].keys, z)
    keys = released_keys(setup.case, setup.wired.layouts[p])
    return setpoints(
        setup.case, keys, released(setup.case, keys, final.p_g, final.q_g, final.v, final.flows, final.dc), "ac"
    )
