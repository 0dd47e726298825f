"""The program of an AC optimal power flow for cyipopt, an Ipopt of the system, which wants derivatives by hand.

A line's flows depend on u = (angle_i, angle_j, v_i, v_j) alone, so every first derivative of a row comes from the
(nl, 4, 4) block dF/du, and the Hessian of the Lagrangian is one symmetric 4 x 4 block a line, the shunts, the costs and
the margins of ratings.
"""

from __future__ import annotations

from typing import Any

import cyipopt
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hushgrid.grid_cases.ac.program import SLACK, Ended, Program
from hushgrid.grid_cases.case import Floats, Ints
from hushgrid.grid_cases.costs import UNIT

ACCEPTED = {0: "solved", 1: "acceptable"}
WORDS = {
    2: "Infeasible_Problem_Detected",
    -1: "Maximum_Iterations_Exceeded",
    -2: "Restoration_Failed",
    -4: "Maximum_CpuTime_Exceeded",
    -10: "Not_Enough_Degrees_Of_Freedom",
}
FIRST = [0, 2]  #: of the flows p_F, q_F, p_T, q_T, the active one at each end


class Solver:
    """One program, solved for any loads and from any start."""

    def __init__(self, program: Program, limit_s: float) -> None:
        self._program, self._limit_s = program, limit_s

    def solve(self, loads: Floats, x: Floats) -> Ended:
        derived = Derivatives(self._program, loads)
        bounds, rows = self._program.bounds(), self._program.rows()
        problem = cyipopt.Problem(len(x), len(rows.low), derived, bounds.low, bounds.high, rows.low, rows.high)
        options = {"print_level": 0, "sb": "yes", "bound_relax_factor": 0.0, "max_cpu_time": self._limit_s}
        for option, value in options.items():
            problem.add_option(option, value)
        found, told = problem.solve(x)
        status = told["status"]
        word = WORDS.get(status, f"status {status}")
        return Ended(ACCEPTED.get(status), word, derived.iterations, found, np.array(told["mult_g"]))


class Derivatives:
    """Values, gradient, Jacobian and Hessian in the form that cyipopt asks for: matrices as fixed lists of entries,
    of which several may share a place."""

    def __init__(self, program: Program, loads: Floats) -> None:
        self._program, self._loads, self.iterations = program, loads, 0
        self._first = np.cumsum([0, *program.sizes])
        nb, nl = len(program.case.buses), len(program.i)
        self._u = np.stack([program.i, program.j, nb + program.i, nb + program.j], axis=1)  # (nl, 4) places in x
        ends = np.stack([program.i, nb + program.i, program.j, nb + program.j], axis=1)  # row of each flow's balance
        self._ends = ends
        one = np.ones(4 * nl)
        shape = (2 * nb, 4 * nl)
        self._out = sparse.csr_array((one, (ends.ravel(), np.arange(4 * nl))), shape=shape)
        dc_lines = program.case.dc_lines
        #: of u = (p_g, q_g, p of dc lines), places in x; what dc lines lose whatever they carry
        self._controls = slice(self._first[2], self._first[4] + len(dc_lines))
        self._lost = np.bincount(program.dc_ends[1], weights=dc_lines.loss_0, minlength=2 * nb)
        self._linear = self._constant_rows()
        self._lower = np.tril_indices(4)
        u = np.sort(self._u[:, np.stack(self._lower)], axis=1)  # (nl, 2, 10)
        self._blocks = (u[:, 1].ravel(), u[:, 0].ravel())

    # --- what cyipopt calls ---

    def objective(self, x: Floats) -> float:
        program, costs = self._program, self._program.costs
        controls, priced = x[self._controls], x[self._first[SLACK] :]
        cost = np.sum(costs.c2 * controls**2 + costs.c1 * controls + costs.c0)
        return float(cost / program.scale + program.prices @ priced)

    def gradient(self, x: Floats) -> Floats:
        program, costs = self._program, self._program.costs
        found = np.zeros(len(x))
        found[self._controls] = (2 * costs.c2 * x[self._controls] + costs.c1) / program.scale
        found[self._first[SLACK] :] = program.prices
        return found

    def constraints(self, x: Floats) -> Floats:
        program, v = self._program, x[self._part(1)]
        buses, rated = program.case.buses, program.rated
        flow = self._flows(x)
        shunts = np.concatenate([buses.g_s, -buses.b_s]) * np.tile(v**2, 2)
        found = self._linear @ x
        found[: 2 * len(v)] += self._out @ flow.ravel() + shunts + self._loads + self._lost
        rating = flow[rated] ** 2
        apparent = rating[:, [0, 2]] + rating[:, [1, 3]] - (self._rate(x) ** 2)[:, None]
        found[2 * len(v) : 2 * len(v) + 2 * len(rated)] = apparent.T.ravel()
        return np.asarray(found)

    def jacobianstructure(self) -> tuple[Ints, Ints]:
        program, nb, nr = self._program, len(self._program.case.buses), len(self._program.rated)
        buses, rating = np.arange(2 * nb), 2 * nb + np.arange(2 * nr)
        linear = self._linear.tocoo()
        rows = [linear.row, np.repeat(self._ends.ravel(), 4), buses, np.repeat(rating, 4)]
        at = self._u[program.rated]
        columns = [linear.col, np.repeat(self._u, 4, axis=0).ravel(), nb + buses % nb, np.tile(at.ravel(), 2)]
        if program.margins is not None:
            rows.append(rating)
            columns.append(np.tile(self._places(SLACK + 2), 2))
        return np.concatenate(rows), np.concatenate(columns)

    def jacobian(self, x: Floats) -> Floats:
        program, buses, v = self._program, self._program.case.buses, x[self._part(1)]
        flow, by = self._flows(x)[program.rated], self._by_u(x)
        of_rated = by[program.rated]
        apparent = [2 * (flow[:, [k]] * of_rated[:, k] + flow[:, [k + 1]] * of_rated[:, k + 1]) for k in FIRST]
        shunts = 2 * np.concatenate([buses.g_s, -buses.b_s]) * np.tile(v, 2)
        found = [self._linear.tocoo().data, by.ravel(), shunts, *(part.ravel() for part in apparent)]
        if program.margins is not None:
            found.append(np.tile(-2 * self._rate(x), 2))
        return np.concatenate(found)

    def hessianstructure(self) -> tuple[Ints, Ints]:
        nb, controls = len(self._program.case.buses), np.arange(self._controls.start, self._controls.stop)
        diagonal = [nb + np.arange(nb), controls]
        if self._program.margins is not None:
            diagonal.append(self._places(SLACK + 2))
        at = np.concatenate(diagonal)
        return np.concatenate([self._blocks[0], at]), np.concatenate([self._blocks[1], at])

    def hessian(self, x: Floats, multipliers: Floats, factor: float) -> Floats:
        program, nb, nr = self._program, len(self._program.case.buses), len(self._program.rated)
        buses, rated = program.case.buses, program.rated
        weight = multipliers[self._ends]  # (nl, 4) of each flow
        mu = multipliers[2 * nb : 2 * nb + 2 * nr].reshape(2, nr).T
        flow, by = self._flows(x), self._by_u(x)
        of_ends = np.zeros((len(program.i), 4))
        of_ends[rated] = 2 * np.repeat(mu, 2, axis=1)
        weight = weight + of_ends * flow
        blocks = np.einsum("lk,lkab->lab", weight, self._by_uu(x)) + np.einsum("lk,lka,lkb->lab", of_ends, by, by)
        shunts = 2 * (multipliers[:nb] * buses.g_s - multipliers[nb : 2 * nb] * buses.b_s)
        found = [blocks[:, *self._lower].ravel(), shunts, factor * 2 * program.costs.c2 / program.scale]
        if program.margins is not None:
            found.append(-2 * mu.sum(axis=1))
        return np.concatenate(found)

    def intermediate(self, *told: Any) -> bool:
        self.iterations = int(told[1])
        return True

    # --- the lines ---

    def _part(self, k: int) -> slice:
        return slice(self._first[k], self._first[k + 1])

    def _places(self, k: int) -> Ints:
        return np.arange(*self._first[k : k + 2])

    def _rate(self, x: Floats) -> Floats:
        program = self._program
        rate: Floats = program.case.lines.rate[program.rated]
        return rate if program.margins is None else rate - program.keep_rate + x[self._part(SLACK + 2)]

    def _polar(self, x: Floats) -> tuple[Floats, ...]:
        program, angle, v = self._program, x[self._part(0)], x[self._part(1)]
        difference = angle[program.i] - angle[program.j]
        return v[program.i], v[program.j], np.cos(difference), np.sin(difference)

    def _flows(self, x: Floats) -> Floats:
        v_i, v_j, cos, sin = self._polar(x)
        own, b, e = np.moveaxis(self._program.terms, 2, 0)
        size = (v_i * v_j)[:, None]
        c = np.stack([v_i, v_i, v_j, v_j], axis=1) ** 2
        found: Floats = own * c + b * size * cos[:, None] + e * size * sin[:, None]
        return found

    def _by_u(self, x: Floats) -> Floats:
        """(nl, 4, 4) dF_k/du_a."""
        v_i, v_j, cos, sin = self._polar(x)
        own, b, e = self._program.terms[:, :, 0], *np.moveaxis(self._program.terms[:, :, 1:, None], 2, 0)
        cr, si = v_i * v_j * cos, v_i * v_j * sin
        by = b * np.stack([-si, si, v_j * cos, v_i * cos], axis=1)[:, None]
        by = by + e * np.stack([cr, -cr, v_j * sin, v_i * sin], axis=1)[:, None]
        by[:, :2, 2] += 2 * own[:, :2] * v_i[:, None]
        by[:, 2:, 3] += 2 * own[:, 2:] * v_j[:, None]
        return np.asarray(by)

    def _by_uu(self, x: Floats) -> Floats:
        """(nl, 4, 4, 4) d2F_k/du_a du_b."""
        v_i, v_j, cos, sin = self._polar(x)
        own, b, e = self._program.terms[:, :, 0], *np.moveaxis(self._program.terms[:, :, 1:, None, None], 2, 0)
        of_cr = _symmetric(-v_i * v_j * cos, -v_j * sin, -v_i * sin, cos)[:, None]
        of_si = _symmetric(-v_i * v_j * sin, v_j * cos, v_i * cos, sin)[:, None]
        found: Floats = b * of_cr + e * of_si
        found[:, :2, 2, 2] += 2 * own[:, :2]
        found[:, 2:, 3, 3] += 2 * own[:, 2:]
        return found

    def _constant_rows(self) -> sparse.csr_array:
        """The Jacobian's entries that never change, over all rows: generation, slack, angles, margins."""
        program, nb, first = self._program, len(self._program.case.buses), self._first
        rows, columns, values = list[NDArray[Any]](), list[NDArray[Any]](), list[Floats]()

        def add(row: NDArray[Any], column: NDArray[Any], value: float | Floats) -> None:
            rows.append(row)
            columns.append(column)
            values.append(np.broadcast_to(value, len(row)))

        add(program.at, self._places(2), -1.0)
        add(nb + program.at, self._places(3), -1.0)
        p_dc, q_from, q_to = self._places(4).reshape(3, -1)
        add(program.dc_ends[0], p_dc, 1.0)
        add(program.dc_ends[1], p_dc, program.case.dc_lines.loss_1 - 1.0)
        add(nb + program.dc_ends[0], q_from, 1.0)
        add(nb + program.dc_ends[1], q_to, 1.0)
        if program.voll is not None:
            for k, sign in enumerate((-1.0, 1.0, -1.0, 1.0)):
                add(nb * (k // 2) + np.arange(nb), first[SLACK] + nb * k + np.arange(nb), sign * UNIT)
        row = 2 * nb + 2 * len(program.rated)
        limited = np.arange(len(program.limited))
        add(row + limited, program.i[program.limited], 1.0)
        add(row + limited, program.j[program.limited], -1.0)
        row += len(limited)
        if program.margins is not None:
            for quantity, given_up in ((1, SLACK + 1), (2, SLACK + 3), (3, SLACK + 4)):
                for sign in (1.0, -1.0):
                    at = np.arange(program.sizes[quantity])
                    add(row + at, first[quantity] + at, 1.0)
                    add(row + at, first[given_up] + at, sign)
                    row += len(at)
        slope, of_line, its_top = program.cost_lines
        at = row + np.arange(len(slope))
        add(at, first[-2] + its_top, -1.0)
        add(at, first[2] + of_line, slope)
        coupled, a, b = program.relations
        last = row + len(slope) + np.arange(len(coupled))
        add(last, first[2] + coupled, a)
        add(last, first[3] + coupled, b)
        where = (np.concatenate(rows), np.concatenate(columns))
        return sparse.csr_array((np.concatenate(values), where), shape=(row + len(slope) + len(coupled), first[-1]))


def _symmetric(angles: Floats, by_v_i: Floats, by_v_j: Floats, both: Floats) -> Floats:
    """(nl, 4, 4) second derivatives in (angle_i, angle_j, v_i, v_j) of v_i v_j cos or sin of angle_i - angle_j."""
    zero = np.zeros_like(angles)
    block = [
        [angles, -angles, by_v_i, by_v_j],
        [-angles, angles, -by_v_i, -by_v_j],
        [by_v_i, -by_v_i, zero, both],
        [by_v_j, -by_v_j, both, zero],
    ]
    return np.moveaxis(np.array(block), 2, 0)
