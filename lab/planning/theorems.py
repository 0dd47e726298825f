"""What a paper's own theorem promises of a plan's error, beside what runs on made-up rows measure."""

from __future__ import annotations

from math import sqrt

from hushgrid.broker.report.quality import mean_square, public_loss
from hushgrid.kernels.algorithms.ladmm import Constants, Params
from hushgrid.node.problems.plan import RunPlan
from hushgrid.node.problems.records.gate import lattice_of
from hushgrid.node.problems.records.section import DataPlan


def promised(plan: RunPlan) -> tuple[str, float] | None:
    """A theorem, and its bound on the excess loss of averaged iterates, per unit of scale; None: none says anything.

    Theorems 5.3 to 5.5 of linearised ADMM in a box, with the gate's own noise in the place of the paper's.
    """
    p, algorithm = plan.problem, plan.algorithm
    if not (isinstance(algorithm, Params) and isinstance(p, DataPlan) and p.box is not None):
        return None
    if p.convexity < 0 or plan.terms is None or plan.terms.masked is not None:
        return None
    noise = slope = unit = 0.0
    for i, node in enumerate(plan.nodes):
        terms = plan.terms_of(node)
        lattice = lattice_of(node, public_loss(p, i), terms, terms.noisiest) if terms else None
        if terms is None or lattice is None or not terms.clip:
            return None
        noise += p.size * mean_square(lattice)
        slope += (p.largest(i, terms) + p.objective.l2 * p.box * sqrt(p.size)) ** 2
        unit += p.node_objective(i).scale
    diameter = 2 * p.box * sqrt(p.size * len(plan.nodes))
    constants = Constants(max(p.L), p.convexity, sqrt(slope), diameter, noise, plan.terms.paper_epsilon)
    if (bound := algorithm.bound(constants)) is None:
        return None
    return bound[0], bound[1] / unit
