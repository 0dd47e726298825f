"""The central solution of a case by one solver that sees everything: the reference the zones are compared with.

The second-order-cone relaxation of the AC optimal power flow, with the zones' own constraints (D.2d)-(D.2l). Its
optimum is a lower bound of the AC optimum; it is not a dispatch, for its losses may be fictitious.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hushgrid.grid_cases.case import Case, Floats, loads
from hushgrid.grid_cases.variables import Layout
from hushgrid.kernels.errors import InputError, Stopped

OBJECTIVES = ("shedding", "cost")


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """Rows of arrays follow the case's own tables (buses, generators, lines)."""

    objective: str  #: shedding or cost
    value: float  #: shedding: sum of squares, p.u.^2; cost: $/h, constant terms included
    status: str  #: the solver's: optimal, or optimal_inaccurate
    p_g: Floats  #: (generators,) p.u.
    q_g: Floats  #: (generators,) p.u.
    c: Floats  #: (buses,) squared voltage magnitude, p.u.
    flows: Floats  #: (lines, 4) p_F, q_F, p_T, q_T, p.u.
    shed: Floats  #: (buses, 2) s^p, s^q of (D.2b), (D.2c), p.u.
    keys: tuple[str, ...]  #: (n,) names of the entries of z, as in a zone model
    z: Floats  #: (n,) every variable, p.u.


def solve(case: Case, objective: str = "shedding") -> Solution:
    """Least load shedding (D.2), or least generation cost with every load served.

    Raises InputError for another objective or a cost that is no polynomial of degree <= 2, Stopped where the
    relaxation has no solution.
    """
    import cvxpy as cp

    if objective not in OBJECTIVES:
        raise InputError(f"objective: found {objective!r}, expected one of {', '.join(OBJECTIVES)}")
    buses = tuple(case.buses.numbers.tolist())
    layout, d = Layout.of(case, buses), loads(case, buses)
    z = cp.Variable(len(layout.keys))
    constraints, generators = layout.constraints(z), case.generators
    shed = layout.balance() @ z + d
    if objective == "shedding":
        goal = cp.sum_squares(shed)
    else:
        unknown = np.flatnonzero(np.isnan(generators.cost_2))
        if len(unknown):
            raise InputError(
                f"case {case.name}: generator row {generators.rows[unknown[0]]}: found no polynomial cost of degree "
                "<= 2, expected one (mpc.gencost, model 2)"
            )
        if np.any(generators.cost_2 < 0):
            row = generators.rows[np.flatnonzero(generators.cost_2 < 0)[0]]
            raise InputError(f"case {case.name}: generator row {row}: found a concave cost, expected c2 >= 0")
        p_g = z[layout.p_g]
        goal = generators.cost_2 @ cp.square(p_g) + generators.cost_1 @ p_g + generators.cost_0.sum()
        constraints.append(shed == 0)
    program = cp.Problem(cp.Minimize(goal), constraints)
    try:
        program.solve(solver=cp.CLARABEL, max_threads=1, direct_solve_method="qdldl")
    except cp.SolverError as error:
        raise Stopped(f"case {case.name}: the central solver failed: {error}") from None
    if program.status not in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
        raise Stopped(f"case {case.name}: found status {program.status}, expected a solution with every load served")
    at = np.asarray(z.value)
    return Solution(
        objective=objective,
        value=float(program.value),
        status=str(program.status),
        p_g=at[layout.p_g],
        q_g=at[layout.p_g + 1],
        c=at[layout.c],
        flows=np.stack([at[layout.p_F + k] for k in range(4)], axis=1),
        shed=(layout.balance() @ at + d).reshape(2, -1).T,
        keys=layout.keys,
        z=at,
    )
