"""What the coordinator of a sum is made from, and what a sum says: all of it is public. No device needs it."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any

import numpy as np

from hushgrid.kernels.patterns import masked
from hushgrid.kernels.problems.optimality import CONFIDENCE, Noise, noise_norm
from hushgrid.kernels.problems.verdict import verdict_of_sum
from hushgrid.kernels.types import Document
from hushgrid.node.problems import masking
from hushgrid.node.problems.kind import Ended, Plan
from hushgrid.node.problems.masking import noise_shares
from hushgrid.node.problems.records.centre import Table, centre, concluded, held
from hushgrid.node.problems.statistics.gate import lattice_of
from hushgrid.node.problems.statistics.section import StatisticsPlan

COLUMNS = ("entry", "value", "sd")  #: of the table

__all__ = ["answer", "centre", "concluded", "held", "masked_centre", "view"]


def masked_centre(plan: Plan) -> masked.ServerContext:
    """The centre where only the sum is seen."""
    zero = np.zeros(plan.problem.size)
    return masking.centre(plan, lambda x: zero, plan.problem.regularizer.prox)


def answer(plan: Plan, state: Any, over: None) -> tuple[Document, dict[str, Table]]:
    """What a sum says, from the coordinator's last state: whose it is, and the table `sum`."""
    if not state.summed:
        return {}, {}
    figures = {"summed": list(state.summed), "records": records(plan, state.summed)}
    return figures, {"sum": table(plan, state.w, state.summed)}


def noise_of(plan: Plan, summed: Sequence[str]) -> float:
    """What the norm of the noise on a sum over these nodes passes with a chance of 1 - CONFIDENCE at most."""
    law: Noise = plan.terms.mechanism if plan.terms else "none"
    return noise_norm(law, np.array(scales(plan, summed)), plan.problem.size, 1 - CONFIDENCE)


def view(plan: Plan, ended: Ended, over: None) -> Document:
    """Fields of `AnswerView`: the table of the sum, and whether its noise hides it."""
    S, summed = ended.state.w, list(ended.state.summed)
    if not summed:
        return {"verdict": verdict_of_sum(None, 0.0)}
    columns, rows = table(plan, S, summed)
    verdict = verdict_of_sum(float(np.linalg.norm(S)), noise_of(plan, summed))
    return {"verdict": verdict, "columns": tuple(columns), "table": tuple(rows)}


def records(plan: Plan, summed: Sequence[str]) -> int:
    """How many records these nodes have."""
    p = plan.problem
    return sum(p.rows[p.position(node)] for node in summed)


def estimates(plan: Plan, S: np.ndarray, summed: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """What a sum S (d,) over these nodes says, and the standard deviation of its noise."""
    p: StatisticsPlan = plan.problem
    return p.statistic.estimates(S, spread(plan, summed), p.features, max(records(plan, summed), 1))


def table(plan: Plan, S: np.ndarray, summed: Sequence[str], features: Sequence[str] = ()) -> Table:
    """The same for reading. `features`: the columns' names."""
    p = plan.problem
    each = zip(p.statistic.entries(p.names(features)), *(v.tolist() for v in estimates(plan, S, summed)), strict=True)
    return COLUMNS, list(each)


def scales(plan: Plan, summed: Sequence[str]) -> list[float]:
    """Scales of the noise of these nodes' answers: standard deviations, or Laplace's b; none without privacy."""
    p, t = plan.problem, plan.terms
    if t is None:
        return []
    places = [p.position(node) for node in summed]
    return [(noise_shares(plan)[i].lattice if t.masked else lattice_of(p, i, t)).scale for i in places]


def spread(plan: Plan, summed: Sequence[str]) -> float:
    """Standard deviation of the noise on each entry of a sum over these nodes."""
    variance = sum(scale**2 for scale in scales(plan, summed))
    return sqrt(2 * variance if plan.terms is not None and plan.terms.mechanism == "laplace" else variance)
