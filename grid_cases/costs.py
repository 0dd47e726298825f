"""What generation costs, in $/h: convex polynomials of degree <= 2 in the active power, or the largest of some lines."""

from __future__ import annotations

import numpy as np

from hushgrid.grid_cases.case import Case, Floats
from hushgrid.kernels.errors import InputError

VOLL = 10_000.0  #: value of lost load, $/MWh and $/MVArh: the price of load that is not served and of power spilled
UNIT = 0.01  #: p.u. of one unit of a solver's slack variable: in p.u. itself their price spoils the scaling


def require_convex(case: Case) -> None:
    """Raises InputError if a generator's cost is concave, or neither a polynomial of degree <= 2 nor piecewise linear."""
    generators = case.generators
    if (unknown := case.without_cost()).size:
        raise InputError(
            f"case {case.name}: generator row {generators.rows[unknown[0]]}: found no polynomial cost of "
            "degree <= 2, expected one (mpc.gencost, model 2), or a piecewise-linear one (model 1)"
        )
    concave = np.flatnonzero(generators.cost_2 < 0)
    if len(concave):
        row = generators.rows[concave[0]]
        raise InputError(f"case {case.name}: generator row {row}: found a concave cost, expected c2 >= 0")


def polynomials(case: Case) -> tuple[Floats, Floats, Floats]:
    """(c2, c1, c0) of each generator, $/h of p.u.; zeros where its cost is piecewise linear, NaN where there is none.

    Shapes (generators,).
    """
    g = case.generators
    c2, c1, c0 = (column.copy() for column in (g.cost_2, g.cost_1, g.cost_0))
    for column in (c2, c1, c0):
        column[case.piecewise.generator] = 0.0
    return c2, c1, c0


def of_generation(case: Case, p_g: Floats) -> Floats:
    """The cost of each generator at p_g (p.u.), $/h. Shape (generators,)."""
    (c2, c1, c0), piecewise = polynomials(case), case.piecewise
    costs = np.asarray(c2 * p_g**2 + c1 * p_g + c0)
    largest = np.full(len(p_g), -np.inf)
    np.maximum.at(largest, piecewise.generator, piecewise.slope * p_g[piecewise.generator] + piecewise.intercept)
    costs[piecewise.generator] = largest[piecewise.generator]
    return costs


def marginal(case: Case, p_g: Floats) -> Floats:
    """$/h of one more p.u. of each generator at p_g, (generators,); on a corner of a piecewise-linear cost the upper slope."""
    (c2, c1, _), piecewise = polynomials(case), case.piecewise
    slopes = np.asarray(2 * c2 * p_g + c1)
    at, values = piecewise.generator, piecewise.slope * p_g[piecewise.generator] + piecewise.intercept
    top = of_generation(case, p_g)[at]
    held = values >= top - 1e-9 * np.maximum(np.abs(top), 1.0)
    highest = np.full(len(p_g), -np.inf)
    np.maximum.at(highest, at[held], piecewise.slope[held])
    slopes[at] = highest[at]
    return slopes


def generation_cost(case: Case, p_g: Floats) -> float:
    """$/h of the active power p_g, (generators,) p.u.; constant terms included."""
    return float(np.sum(of_generation(case, p_g)))


def cost_scale(case: Case) -> float:
    """$/h by which a solver's objective is divided: the median of the generators' largest marginal costs per p.u.

    |c1| + 2 c2 min(p_max, 1000) of the generators where it is positive; public. 1 where there is none.
    """
    (c2, c1, _), piecewise = polynomials(case), case.piecewise
    largest = np.abs(c1) + 2 * c2 * np.minimum(case.generators.p_max, 1000.0)
    np.maximum.at(largest, piecewise.generator, np.abs(piecewise.slope))
    positive = largest[largest > 0]
    return float(np.median(positive)) if len(positive) else 1.0


def highest_marginal(case: Case) -> float:
    """$/MWh: the most that one more MWh of any generator costs, at its largest power."""
    return float(np.max(marginal(case, np.minimum(case.generators.p_max, 1000.0)) / case.base_mva, initial=0.0))
