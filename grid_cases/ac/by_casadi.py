"""The program of an AC optimal power flow for casadi, which differentiates it and brings Ipopt with it."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np

from hushgrid.grid_cases.ac.program import Ended, Part, Program
from hushgrid.grid_cases.case import Floats, Ints
from hushgrid.grid_cases.costs import UNIT

ACCEPTED = {"Solve_Succeeded": "solved", "Solved_To_Acceptable_Level": "acceptable"}


class Solver:
    """One program, built once, solved for any loads and from any start."""

    def __init__(self, program: Program, limit_s: float) -> None:
        self._program = program
        self._bounds, self._rows = program.bounds(), program.rows()
        ipopt = {"print_level": 0, "sb": "yes", "bound_relax_factor": 0.0, "max_cpu_time": limit_s}
        options: Any = {"print_time": 0, "ipopt": ipopt}
        self._solve = ca.nlpsol("opf", "ipopt", _expressions(program), options)

    def solve(self, loads: Floats, x: Floats, bounds: Part | None = None) -> Ended:
        """`bounds`: of x, if they are not the program's own."""
        bounds, rows = bounds or self._bounds, self._rows
        solution = self._solve(x0=x, p=loads, lbx=bounds.low, ubx=bounds.high, lbg=rows.low, ubg=rows.high)
        stats = self._solve.stats()
        word = str(stats["return_status"])
        x, multipliers = (np.array(solution[key]).ravel() for key in ("x", "lam_g"))
        return Ended(ACCEPTED.get(word), word, int(stats["iter_count"]), x, multipliers)


def _expressions(program: Program) -> dict[str, Any]:
    case, sizes = program.case, program.sizes
    nb, i, j = len(case.buses), program.i, program.j
    x, d = ca.MX.sym("x", sum(sizes)), ca.MX.sym("d", 2 * nb)
    angle, v, p_g, q_g, dc, slack, m_v, m_rate, m_p, m_q, top = ca.vertsplit(x, np.cumsum([0, *sizes]).tolist())

    difference, v_i, v_j = _entries(angle, i) - _entries(angle, j), _entries(v, i), _entries(v, j)
    cr, si = v_i * v_j * ca.cos(difference), v_i * v_j * ca.sin(difference)
    c = (v_i**2, v_i**2, v_j**2, v_j**2)
    flow = [
        ca.DM(square) * c[k] + ca.DM(b) * cr + ca.DM(e) * si
        for k, (square, b, e) in enumerate(np.moveaxis(program.terms, 0, 2))
    ]
    at_i, at_j, generated = (_incidence(place, nb) for place in (i, j, program.generator_bus))
    rows = [
        at_i @ flow[0] + at_j @ flow[2] + ca.DM(case.buses.g_s) * v**2 - generated @ p_g + d[:nb],
        at_i @ flow[1] + at_j @ flow[3] - ca.DM(case.buses.b_s) * v**2 - generated @ q_g + d[nb:],
    ]
    if program.voll is not None:
        shed_p, spilled_p, shed_q, spilled_q = ca.vertsplit(slack, nb)
        rows[0] -= UNIT * (shed_p - spilled_p)
        rows[1] -= UNIT * (shed_q - spilled_q)
    if nd := len(case.dc_lines):
        p_dc, q_from, q_to = ca.vertsplit(dc, nd)
        first, second = (_incidence(end, nb) for end in program.dc_ends)
        loss_0, loss_1 = ca.DM(case.dc_lines.loss_0), ca.DM(case.dc_lines.loss_1)
        rows[0] += first @ p_dc + second @ (loss_0 + loss_1 * p_dc - p_dc)
        rows[1] += first @ q_from + second @ q_to
    rate: Any = ca.DM(case.lines.rate[program.rated])
    if program.margins is not None:
        rate = rate - ca.DM(program.keep_rate) + m_rate
    rated = [_entries(of_lines, program.rated) for of_lines in flow]
    rows += [rated[k] ** 2 + rated[k + 1] ** 2 - rate**2 for k in (0, 2)]
    rows.append(_entries(difference, program.limited))
    if program.margins is not None:
        rows += [v + m_v, v - m_v, p_g + m_p, p_g - m_p, q_g + m_q, q_g - m_q]
    slope, of_line, its_top = program.cost_lines
    controls = ca.vertcat(p_g, q_g, dc[:nd])
    rows.append(ca.DM(slope) * _entries(controls, of_line) - _entries(top, its_top))
    coupled, a, b_q = program.relations
    rows.append(ca.DM(a) * _entries(p_g, coupled) + ca.DM(b_q) * _entries(q_g, coupled))
    costs = program.costs
    cost = ca.dot(ca.DM(costs.c2), controls**2) + ca.dot(ca.DM(costs.c1), controls) + costs.c0.sum()
    priced = ca.vertcat(slack, m_v, m_rate, m_p, m_q, top)
    goal = cost / program.scale + ca.dot(ca.DM(program.prices), priced)
    return {"x": x, "p": d, "f": goal, "g": ca.vertcat(*rows)}


def _entries(x: Any, places: Ints) -> Any:
    """x[at] as a column, also where there is none."""
    return x[places.tolist()] if len(places) else ca.MX(0, 1)


def _incidence(rows: Ints, n: int) -> Any:
    """(n, len(at)): 1 in row at[k] of column k."""
    columns = list(range(len(rows)))
    return ca.DM.triplet(rows.tolist(), columns, ca.DM.ones(len(rows)), n, len(rows))
