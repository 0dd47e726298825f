"""What a node's machine is made from, in the plan's pattern, where all nodes of a graph agree on one x."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from hushgrid.kernels.algorithms.base import gossip_of
from hushgrid.kernels.algorithms.mixing import weights_of
from hushgrid.kernels.patterns import neighbours, star
from hushgrid.kernels.patterns import token as walks
from hushgrid.kernels.problems.prox import Box
from hushgrid.node.privacy.gate import Gate
from hushgrid.node.privacy.noise_source import NoiseSource
from hushgrid.node.problems.kind import Plan

QUICK = 16  #: up to so many nodes, a walk's token is back before its sender would ask for a receipt
REPORT = 8  #: the coordinator hears of every so many messages, which is far more often than it would suspect silence


def machine_of(plan: Plan, context: Any) -> Any:
    """A node's machine, with the plan's rounds of averaging if it has any. `at`: its place."""
    made, gossip = plan.running.agent(context), gossip_of(plan.algorithm)
    if gossip:
        made.finish(gossip, weights_of(context), plan.problem.size)
    return made


def place(plan: Plan, run: bytes, i: int, gate: Gate, noise: NoiseSource) -> Any:
    """What the machine of node i is made from, in the plan's pattern. `run`: the run's id."""
    make = {"star": _around_coordinator, "token": _on_walk, "neighbours": _among_neighbours}[plan.algorithm.pattern]
    return make(plan, run, i, gate, noise)


def _around_coordinator(plan: Plan, run: bytes, i: int, gate: Gate, noise: NoiseSource) -> star.NodeContext:
    p, t, stop = plan.problem, plan.terms, plan.stop
    return star.NodeContext(
        gate=gate,
        feasible=lambda D: Box(p.regularizer.box),
        shared=np.arange(p.size),
        start=np.zeros(p.size),
        L=max(p.L),
        alpha=p.convexity,
        mode=t.mode if t else None,
        epsilon=t.paper_epsilon if t else inf,
        patience=stop.patience if stop else 0,
    )


def _on_walk(plan: Plan, run: bytes, i: int, gate: Gate, noise: NoiseSource) -> walks.NodeContext:
    p, nodes = plan.problem, plan.problem.nodes
    t = plan.terms_of(nodes[i])
    n, stop = len(nodes), plan.stop
    return walks.NodeContext(
        gate=gate,
        name=nodes[i],
        neighbours=[nodes[j] for j in p.graph.neighbours[i]],
        graph=p.graph,
        index=i,
        size=p.size,
        L=p.L,
        regularizer=p.regularizer,
        route=p.way(plan.algorithm, run),
        draws=noise.draws,
        cap=t.answers if t else None,
        report=min(n, REPORT),
        receipts=n > QUICK,
        tolerance=stop.tolerance if stop else 0.0,
        patience=stop.patience * n if stop else 0,
    )


def _among_neighbours(plan: Plan, run: bytes, i: int, gate: Gate, noise: NoiseSource) -> neighbours.NodeContext:
    p, nodes = plan.problem, plan.problem.nodes
    return neighbours.NodeContext(
        gate=gate,
        name=nodes[i],
        neighbours=[nodes[j] for j in p.graph.neighbours[i]],
        graph=p.graph,
        index=i,
        size=p.size,
        L=p.L,
        regularizer=p.regularizer,
        report=REPORT,
    )
