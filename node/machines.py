"""The machine of a data problem's plan on one node: where the algorithms' names meet their classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from msgspec.structs import replace

from hushgrid.kernels import (
    dgd,
    diadsp,
    dpadmm,
    dpladmm,
    dpp2,
    extra,
    iadmm,
    madmm,
    nids,
    perturbation,
    ppdc,
    radmm,
    recal,
    routes,
)
from hushgrid.kernels.baton import Baton, Route
from hushgrid.kernels.losses import Loss
from hushgrid.kernels.mixing import metropolis
from hushgrid.kernels.neighbours import Neighbour
from hushgrid.kernels.noise import counter_generator
from hushgrid.node.gate import Entropy, Seeded
from hushgrid.node.plan import DataPlan, RunPlan
from hushgrid.node.problem import Mixing, Walking, minimizes
from hushgrid.node.rows_gate import RowsGate

QUICK = 16  #: nodes of a walk whose token is back before anybody would ask for it
REPORT = 8  #: the coordinator is told of every so many messages: what it may take for standing still is much longer


def machine_of(plan: RunPlan, run: bytes, i: int, gate: RowsGate, noise: Entropy | Seeded) -> Baton | Neighbour:
    """Node i's machine in a run that it has checked."""
    if isinstance(plan.algorithm, Walking):
        return _walking(plan, run, i, gate, noise)
    return _mixing(plan, i, gate) if isinstance(plan.algorithm, Mixing) else _penalized(plan, i, gate)


def check_minimizers(plan: RunPlan) -> None:
    """InputError where a gate could not answer what is asked at these terms: decided before the run, from what is public."""
    p, t, params = plan.problem, plan.terms, plan.algorithm
    if t is None or not isinstance(p, DataPlan) or not minimizes(params):
        return
    for i, m in enumerate(p.rows):
        loss = Loss(p.objective, np.zeros((m, p.features)), np.ones(m), p.classes, p.row_bound)
        if isinstance(params, iadmm.Params):
            quadratic = params.rho
        else:
            assert isinstance(params, radmm.Params)
            own = params.eta_i(i, 1)
            quadratic = sum(own + (params.eta_i(j, 1) if params.of_edges else own) for j in p.graph.neighbours[i])
        if isinstance(params, dpadmm.Params) and params.perturb == "primal":
            perturbation.output(loss, t.mechanism, t.per_answer, np.zeros(p.size), quadratic)
        else:
            perturbation.objective(loss, t.per_answer, np.zeros(p.size), quadratic)


def _walking(plan: RunPlan, run: bytes, i: int, gate: RowsGate, noise: Entropy | Seeded) -> Baton:
    p, t, params = plan.problem, plan.terms, plan.algorithm
    assert isinstance(p, DataPlan)
    n, node, near = len(p.rows), routes.name(i), [routes.name(j) for j in p.graph.neighbours[i]]
    walk: dict[str, Any] = {"cap": t.answers if t else None, "report": min(n, REPORT), "receipts": n > QUICK}
    if plan.stop:
        walk |= {"tolerance": plan.stop.tolerance, "patience": plan.stop.patience * n}
    route = route_of(plan, run)
    if isinstance(params, recal.Params):
        return recal.Agent(params, gate, p.regularizer, i, n, p.L[i], p.size, node, near, route, **walk)
    assert isinstance(params, iadmm.Params)
    return iadmm.Agent(params, gate, n, p.size, node, near, route, draws=draws_of(node, noise), **walk)


def _mixing(plan: RunPlan, i: int, gate: RowsGate) -> Neighbour:
    p, t, params = plan.problem, plan.terms, plan.algorithm
    assert isinstance(p, DataPlan)
    if t is not None:
        params = replace(params, rounds=t.rounds)
    graph, node, size = p.graph, routes.name(i), p.size
    weights = {routes.name(j): w for j, w in zip(graph.neighbours[i], metropolis(graph, i), strict=True)}
    if isinstance(params, dpp2.Params):
        degree = max(map(len, graph.neighbours))
        return dpp2.Node(params, gate, weights, degree, max(p.L), size, node, report=REPORT)
    if isinstance(params, diadsp.Params):
        return diadsp.Node(params, gate, weights, size, node, report=REPORT)
    if isinstance(params, ppdc.Params):
        return ppdc.Node(params, gate, weights, size, node, report=REPORT)
    if isinstance(params, extra.Params):
        return extra.Node(params, gate, p.regularizer, weights, size, node, report=REPORT)
    if isinstance(params, nids.Params):
        return nids.Node(params, gate, p.regularizer, weights, size, node, report=REPORT)
    assert isinstance(params, dgd.Params)
    return dgd.Node(params, gate, p.regularizer, weights, size, node, report=REPORT)


def _penalized(plan: RunPlan, i: int, gate: RowsGate) -> Neighbour:
    p, t, params = plan.problem, plan.terms, plan.algorithm
    assert isinstance(p, DataPlan)
    assert isinstance(params, radmm.Params)
    if t is not None:
        params = replace(params, rounds=t.rounds)
    near = [routes.name(j) for j in p.graph.neighbours[i]]
    kinds: dict[type[radmm.Params], type[radmm.Agent]] = {
        dpadmm.Params: dpadmm.Agent, dpladmm.Params: dpladmm.Agent, madmm.Params: madmm.Agent
    }  # fmt: skip
    return kinds.get(type(params), radmm.Agent)(params, gate, p.size, routes.name(i), near, report=REPORT)


def draws_of(node: str, noise: Entropy | Seeded) -> Callable[[int], iadmm.Draws]:
    """A node's own random numbers that are no noise of its gate: its start, and what PI-ADMM draws."""
    if isinstance(noise, Seeded):
        seed = noise.seed
        return lambda k: counter_generator(seed, f"{node} draws", k)
    return lambda k: np.random.default_rng()


def route_of(plan: RunPlan, run: bytes) -> Route:
    """The walk, which is public: every node and the coordinator compute the same."""
    p, algorithm = plan.problem, plan.algorithm
    assert isinstance(p, DataPlan)
    assert isinstance(algorithm, recal.Params | iadmm.Params)
    if not isinstance(algorithm.walk, str):
        return routes.given(algorithm.walk)
    if algorithm.walk == "hamiltonian":
        return routes.cyclic(p.graph, p.route)
    return routes.random(p.graph, int.from_bytes(run[:8], "little") if p.walk_seed is None else p.walk_seed)
