"""The program of an AC optimal power flow for casadi, which differentiates it and brings Ipopt with it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
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
        self._solve = ca.nlpsol("opf", "ipopt", _expressions(program), _options(limit_s))

    def solve(self, loads: Floats, x: Floats, bounds: Part | None = None) -> Ended:
        """`bounds`: of x, if they are not the program's own."""
        bounds, rows = bounds or self._bounds, self._rows
        solution = self._solve(x0=x, p=loads, lbx=bounds.low, ubx=bounds.high, lbg=rows.low, ubg=rows.high)
        stats = self._solve.stats()
        word = str(stats["return_status"])
        x, multipliers = (np.array(solution[key]).ravel() for key in ("x", "lam_g"))
        return Ended(ACCEPTED.get(word), word, int(stats["iter_count"]), x, multipliers)


class Together:
    """Programs of one network in consecutive periods, as one: generation changes by at most `steps` from each to the
    next."""

    def __init__(self, programs: Sequence[Program], steps: Floats, limit_s: float) -> None:
        """steps: (ng,), p.u.; inf: no limit."""
        self._programs, self._limited = programs, np.flatnonzero(np.isfinite(steps))
        self._steps = np.tile(steps[self._limited], len(programs) - 1)
        xs, ds, rows, generation = list[Any](), list[Any](), list[Any](), list[Any]()
        goal: Any = 0.0
        scale = programs[0].scale
        for program in programs:
            one = _expressions(program)
            period = ca.Function("period", [one["x"], one["p"]], [one["f"], one["g"]])
            x, d = ca.MX.sym("x", one["x"].shape[0]), ca.MX.sym("d", one["p"].shape[0])
            f, g = period(x, d)
            xs.append(x)
            ds.append(d)
            goal += f * (program.scale / scale)
            rows.append(g)
            first = 2 * len(program.case.buses)
            generation.append(_entries(x[first : first + len(steps)], self._limited))
        changes = [later - earlier for earlier, later in pairwise(generation)]
        nlp = {"x": ca.vertcat(*xs), "p": ca.vertcat(*ds), "f": goal, "g": ca.vertcat(*rows, *changes)}
        self._solve = ca.nlpsol("opf", "ipopt", nlp, _options(limit_s))

    def solve(self, loads: Sequence[Floats], starts: Sequence[Floats]) -> list[Ended]:
        """One outcome a period; without a solution all are without."""
        bounds, rows = ([getattr(p, name)() for p in self._programs] for name in ("bounds", "rows"))
        solution = self._solve(
            x0=np.concatenate(starts),
            p=np.concatenate(loads),
            lbx=np.concatenate([part.low for part in bounds]),
            ubx=np.concatenate([part.high for part in bounds]),
            lbg=np.concatenate([*(part.low for part in rows), -self._steps]),
            ubg=np.concatenate([*(part.high for part in rows), self._steps]),
        )
        stats = self._solve.stats()
        word, count = str(stats["return_status"]), int(stats["iter_count"])
        x, multipliers = (np.array(solution[key]).ravel() for key in ("x", "lam_g"))
        parts = (np.split(x, np.cumsum([len(part.low) for part in bounds])[:-1]),
                 np.split(multipliers, np.cumsum([len(part.low) for part in rows])))  # fmt: skip
        return [Ended(ACCEPTED.get(word), word, count, *each) for each in zip(parts[0], parts[1], strict=False)]


def _options(limit_s: float) -> Any:
    ipopt = {"print_level": 0, "sb": "yes", "bound_relax_factor": 0.0, "max_cpu_time": limit_s}
    return {"print_time": 0, "ipopt": ipopt}


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
