"""The central solution of a case by one solver that sees everything: the reference the zones are compared with.

The second-order-cone relaxation of the AC optimal power flow, with the zones' own constraints (D.2d)-(D.2l). Its
optimum is a lower bound of the AC optimum; it is not a dispatch, for its losses may be fictitious. With a value of lost
load, slack s+ (load not served) and s- (power spilled) of each p_i and q_i is priced at it,
so that there always is one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hushgrid.grid_cases.case import Case, Floats
from hushgrid.grid_cases.case import loads as own_loads
from hushgrid.grid_cases.costs import UNIT, cost_scale, dispatch_cost, of_controls, require_convex, require_modelled
from hushgrid.grid_cases.variables import Layout
from hushgrid.kernels.errors import InputError, Stopped

OBJECTIVES = ("shedding", "cost")


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """Rows of arrays follow the case's own tables (buses, generators, lines)."""

    objective: str  #: shedding or cost
    value: float  #: shedding: sum of squares, p.u.^2; cost: $/h, constant terms and the price of slack included
    cost: float | None  #: of generation and dc lines alone, $/h; None of the objective shedding
    status: str  #: the solver's: optimal, or optimal_inaccurate
    p_g: Floats  #: (generators,) p.u.
    q_g: Floats  #: (generators,) p.u.
    c: Floats  #: (buses,) squared voltage magnitude, p.u.
    flows: Floats  #: (lines, 4) p_F, q_F, p_T, q_T, p.u.
    dc: Floats  #: (dc lines, 4) the same
    shed: Floats  #: (buses, 2) s^p, s^q of (D.2b), (D.2c), p.u.: load not served, or where negative power spilled
    prices: Floats | None  #: (buses, 2) $ of one more MWh or MVArh of load at a bus; None of the objective shedding
    keys: tuple[str, ...]  #: (n,) names of the entries of z, as in a zone model
    z: Floats  #: (n,) every variable, p.u.


def solve(case: Case, objective: str = "shedding", voll: float | None = None, loads: Floats | None = None) -> Solution:
    """Least load shedding (D.2), or least generation cost: with every load served, or with slack at a price.

    voll: value of lost load, $/MWh, of the objective cost; None: every load is served. loads: (p_d, q_d),
    shape (2 nb,), p.u.; None: the case's own. Raises InputError for another objective,
    a cost that is no polynomial of degree <= 2 or concave, a part of the case that is not modelled,
    and loads of another shape or not finite; raises Stopped if the relaxation has no solution.
    """
    import cvxpy as cp

    if objective not in OBJECTIVES:
        raise InputError(f"objective: found {objective!r}, expected one of {', '.join(OBJECTIVES)}")
    buses = tuple(case.buses.numbers.tolist())
    layout, d = Layout.from_case(case, buses), own_loads(case, buses) if loads is None else np.asarray(loads)
    if d.shape != (2 * len(buses),) or not np.all(np.isfinite(d)):
        raise InputError(f"case {case.name}: loads: found shape {d.shape}, expected {(2 * len(buses),)} finite numbers")
    z = cp.Variable(len(layout.keys))
    constraints, shed, balance, scale = layout.constraints(z), layout.balance().scipy() @ z + d, None, 1.0
    if objective == "shedding":
        goal = cp.sum_squares(shed)
    else:
        require_convex(case)
        require_modelled(case)
        scale, costs = cost_scale(case), of_controls(case)
        positions, columns = layout.paid()
        lines, x = costs.lines, z[columns]
        c2, c1, c0 = (column[positions] for column in (costs.c2, costs.c1, costs.c0))
        cost = c2 @ cp.square(x) + c1 @ x + c0.sum()
        if len(lines):  # t >= each line of a piecewise-linear cost
            _, order = np.unique(lines.generator, return_inverse=True)
            top, priced = cp.Variable(costs.lined.size), x[np.searchsorted(positions, lines.generator)]
            constraints.append(top[order] >= cp.multiply(lines.slope / scale, priced) + lines.intercept / scale)
            cost = cost + scale * cp.sum(top)
        if voll is None:
            balance, goal = shed == 0, cost / scale
        else:
            unserved, spilled = cp.Variable(d.shape, nonneg=True), cp.Variable(d.shape, nonneg=True)
            lost = voll * case.base_mva * UNIT / scale
            balance, goal = shed == UNIT * (unserved - spilled), cost / scale + lost * cp.sum(unserved + spilled)
        constraints.append(balance)
    program = cp.Problem(cp.Minimize(goal), constraints)
    try:
        program.solve(solver=cp.CLARABEL, max_threads=1, direct_solve_method="qdldl")
    except cp.SolverError as error:
        raise Stopped(f"case {case.name}: the central solver failed: {error}") from None
    if program.status not in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
        served = " with every load served" if voll is None else ""
        raise Stopped(f"case {case.name}: found status {program.status}, expected a solution{served}")
    minimiser = np.asarray(z.value)
    flows, dc = (np.stack([minimiser[first + k] for k in range(4)], axis=1) for first in (layout.p_F, layout.dc_p_F))
    prices = None if balance is None else balance.dual_value.reshape(2, -1).T * (scale / case.base_mva)
    return Solution(
        objective=objective,
        value=float(program.value) * scale,
        cost=dispatch_cost(case, minimiser[layout.p_g], minimiser[layout.p_g + 1], dc) if objective == "cost" else None,
        status=str(program.status),
        p_g=minimiser[layout.p_g],
        q_g=minimiser[layout.p_g + 1],
        c=minimiser[layout.c],
        flows=flows,
        dc=dc,
        shed=(layout.balance() @ minimiser + d).reshape(2, -1).T,
        prices=prices,
        keys=layout.keys,
        z=minimiser,
    )
