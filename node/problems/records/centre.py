"""What the coordinator of nodes with rows is made from: all of it is public. No device needs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any, cast

import numpy as np

from hushgrid.kernels.algorithms.base import Star
from hushgrid.kernels.patterns import masked
from hushgrid.kernels.patterns.star import ServerContext
from hushgrid.kernels.problems.losses import public_gradient
from hushgrid.kernels.problems.verdict import verdict_of
from hushgrid.kernels.types import Document, Vector
from hushgrid.node.problems import masking
from hushgrid.node.problems.kind import Ended, Plan

Table = tuple[Sequence[str], list[tuple[object, ...]]]  #: columns, and rows


def centre(plan: Plan, source: str, warm: str = "") -> ServerContext:
    """Every node shares all of x, and begins at zero. `source`, `warm`: not used, because nothing else is public."""
    p, t, stop = plan.problem, plan.terms, plan.stop
    return ServerContext(
        position=dict.fromkeys(p.nodes, np.arange(p.size)),  # one for all: nobody writes into it
        start=dict.fromkeys(p.nodes, np.zeros(p.size)),
        announced=dict.fromkeys(p.nodes, p.dimension),
        largest=dict.fromkeys(p.nodes, p.size),
        epsilon=t.paper_epsilon if t else inf,
        tolerance=stop.tolerance if stop else 0.0,
        patience=stop.patience if stop else 0,
        prox=p.regularizer.prox if p.constrained else None,
    )


def masked_centre(plan: Plan) -> masked.ServerContext:
    """The same where only sums over the nodes are seen."""
    p, stop = plan.problem, plan.stop
    o = p.objective
    made = masking.centre(plan, lambda x: public_gradient(x, o.l2, o.lam, o.omega), p.regularizer.prox)
    return replace(made, tolerance=stop.tolerance if stop else 0.0, patience=stop.patience if stop else 0)


def held(plan: Plan, full_plan: Plan, source: str, z: Mapping[str, Vector]) -> Vector:
    """Empty: nothing is held where nodes are absent, because the others' problem does not need them."""
    return np.zeros(0)


def concluded(plan: Plan, source: str, state: Any) -> None:
    """Nothing that more than one would ask for."""


def answer(plan: Plan, state: Any, over: None) -> tuple[Document, dict[str, Table]]:
    """Nothing: what a run has found are models, and no figure of them is public."""
    return {}, {}


def view(plan: Plan, ended: Ended, over: None) -> Document:
    """Fields of `AnswerView`: of the common model its error on held-out rows.

    Whether it is the optimum is tested by the gates' own answers, which a coordinator does not see; that the model has
    diverged it does.
    """
    state, masks = ended.state, plan.terms is not None and plan.terms.masked is not None
    if masks or cast(Star, plan.algorithm).server_holds_iterate(plan.problem.constrained):
        x = state.w
    else:
        x = np.mean([ended.z[p] for p in sorted(ended.z)], axis=0)
    verdict = verdict_of(ended.residual, float(np.linalg.norm(x)), len(plan.nodes), met=True)
    return {
        "verdict": verdict if verdict == "diverged" else None,
        "test_error": ended.tests(x) if ended.tests else None,
    }
