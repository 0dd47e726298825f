"""What generation costs, in $/h: polynomials of degree <= 2 in the active power, none of them concave."""

from __future__ import annotations

import numpy as np

from hushgrid.grid_cases.case import Case, Floats
from hushgrid.kernels.errors import InputError

VOLL = 10_000.0  #: value of lost load, $/MWh and $/MVArh: the price of load that is not served and of power spilled
UNIT = 0.01  #: p.u. of one unit of a solver's slack variable: in p.u. itself their price spoils the scaling


def require_convex(case: Case) -> None:
    """Raises InputError where a generator has no polynomial cost of degree <= 2, or a concave one."""
    generators = case.generators
    unknown = np.flatnonzero(np.isnan(generators.cost_2))
    if len(unknown):
        raise InputError(
            f"case {case.name}: generator row {generators.rows[unknown[0]]}: found no polynomial cost of degree "
            "<= 2, expected one (mpc.gencost, model 2)"
        )
    concave = np.flatnonzero(generators.cost_2 < 0)
    if len(concave):
        row = generators.rows[concave[0]]
        raise InputError(f"case {case.name}: generator row {row}: found a concave cost, expected c2 >= 0")


def generation_cost(case: Case, p_g: Floats) -> float:
    """$/h of the active power p_g, (generators,) p.u.; constant terms included."""
    generators = case.generators
    return float(np.sum(generators.cost_2 * p_g**2 + generators.cost_1 * p_g + generators.cost_0))


def cost_scale(case: Case) -> float:
    """$/h by which a solver's objective is divided: the median of the generators' largest marginal costs per p.u.

    |c1| + 2 c2 min(p_max, 1000) of the generators where it is positive; public. 1 where there is none.
    """
    generators = case.generators
    marginal = np.abs(generators.cost_1) + 2 * generators.cost_2 * np.minimum(generators.p_max, 1000.0)
    positive = marginal[marginal > 0]
    return float(np.median(positive)) if len(positive) else 1.0


def highest_marginal(case: Case) -> float:
    """$/MWh: the most that one more MWh of any generator costs, at its largest power."""
    g = case.generators
    return float(np.max((2 * g.cost_2 * np.minimum(g.p_max, 1000.0) + g.cost_1) / case.base_mva, initial=0.0))
