"""What a dispatch costs, in $/h: convex polynomials of degree <= 2 in each power, or the largest of some lines."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hushgrid.grid_cases.case import Case
from hushgrid.grid_cases.elements.parts import NOT_MODELLED, CostLines
from hushgrid.grid_cases.elements.table import Floats, Ints
from hushgrid.kernels.errors import InputError

VOLL = 10_000.0  #: value of lost load, $/MWh and $/MVArh: the price of load that is not served and of power spilled
COLUMNS = ("cost_2", "cost_1", "cost_0")  #: of a table with polynomial costs
UNIT = 0.01  #: p.u. of one unit of a solver's slack variable: in p.u. itself their price spoils the scaling


def require_modelled(case: Case) -> None:
    """Raises InputError if the case holds what no solver here has (`parts.NOT_MODELLED`)."""
    for word, what in case.held_parts().items():
        if word in NOT_MODELLED:
            raise InputError(
                f"case {case.name}: found {what}, which are not modelled, expected a case without, or ignore: [{word}]"
            )


def require_convex(case: Case) -> None:
    """Raises InputError if a cost is concave, or neither a polynomial of degree <= 2 nor piecewise linear."""
    generators, reactive, dc = case.generators, case.reactive, case.dc_lines
    if (unknown := case.without_cost()).size:
        raise InputError(
            f"case {case.name}: generator row {generators.rows[unknown[0]]}: found no polynomial cost of "
            "degree <= 2, expected one (mpc.gencost, model 2), or a piecewise-linear one (model 1)"
        )
    lined = np.isin(np.arange(len(dc)), case.dc_cost_lines.generator)
    for name, rows, cost_2 in (
        ("generator row", generators.rows, generators.cost_2),
        ("reactive power of generator row", generators.rows[reactive.generator], reactive.cost_2),
        ("dcline row", dc.rows, np.where(lined, 0.0, dc.cost_2)),
    ):
        if name != "generator row" and (higher := np.flatnonzero(np.isnan(cost_2))).size:
            raise InputError(
                f"case {case.name}: {name} {rows[higher[0]]}: found a polynomial cost of degree > 2, expected degree "
                "<= 2"
            )
        if (concave := np.flatnonzero(cost_2 < 0)).size:
            raise InputError(f"case {case.name}: {name} {rows[concave[0]]}: found a concave cost, expected c2 >= 0")


@dataclass(frozen=True, slots=True, eq=False)
class Costs:
    """Convex costs of some powers x (n,), p.u.: c2 x^2 + c1 x + c0 of each, or the largest of its lines."""

    c2: Floats  #: (n,) $/h of p.u.; zeros where the cost is piecewise linear, NaN where there is none
    c1: Floats
    c0: Floats
    lines: CostLines  #: their `generator` is a position in x

    @property
    def lined(self) -> Ints:
        """Positions of the powers whose cost is piecewise linear, ascending."""
        return np.unique(self.lines.generator)

    def each(self, x: Floats) -> Floats:
        """The cost of each power, $/h, (n,)."""
        lines = self.lines
        costs = np.asarray(self.c2 * x**2 + self.c1 * x + self.c0)
        largest = np.full(len(x), -np.inf)
        np.maximum.at(largest, lines.generator, lines.slope * x[lines.generator] + lines.intercept)
        costs[lines.generator] = largest[lines.generator]
        return costs

    def marginal(self, x: Floats) -> Floats:
        """$/h of one more p.u. of each, (n,); on a corner of a piecewise-linear cost the upper slope."""
        lines = self.lines
        slopes = np.asarray(2 * self.c2 * x + self.c1)
        values, top = lines.slope * x[lines.generator] + lines.intercept, self.each(x)[lines.generator]
        highest = np.full(len(x), -np.inf)
        binding = values >= top - 1e-9 * np.maximum(np.abs(top), 1.0)
        np.maximum.at(highest, lines.generator[binding], lines.slope[binding])
        slopes[lines.generator] = highest[lines.generator]
        return slopes


def of_active(case: Case) -> Costs:
    """Of p_g."""
    return Costs(*polynomials(case), case.piecewise)


def of_controls(case: Case) -> Costs:
    """Of everything that a dispatch chooses and pays for: p_g, then q_g, then p of each dc line, (2 ng + nd,)."""
    ng, dc, reactive = len(case.generators), case.dc_lines, case.reactive
    columns = list[Floats]()
    of_dc = [np.where(np.isin(np.arange(len(dc)), case.dc_cost_lines.generator), 0.0, getattr(dc, k)) for k in COLUMNS]
    for quadratic, of_line, of_q in zip(polynomials(case), of_dc, (getattr(reactive, k) for k in COLUMNS), strict=True):
        q = np.zeros(ng)
        q[reactive.generator] = of_q
        columns.append(np.concatenate([quadratic, q, of_line]))
    each = ((case.piecewise, 0), (case.reactive_lines, ng), (case.dc_cost_lines, 2 * ng))
    lines = CostLines(
        np.concatenate([table.generator + first for table, first in each]),
        np.concatenate([table.slope for table, _ in each]),
        np.concatenate([table.intercept for table, _ in each]),
    )
    c2, c1, c0 = columns
    return Costs(c2, c1, c0, lines)


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
    """The cost of each generator's active power at p_g (p.u.), $/h. Shape (generators,)."""
    return of_active(case).each(p_g)


def marginal(case: Case, p_g: Floats) -> Floats:
    """$/h of one more p.u. of each generator at p_g, (generators,); on a corner of a piecewise-linear cost the upper
    slope.
    """
    return of_active(case).marginal(p_g)


def generation_cost(case: Case, p_g: Floats) -> float:
    """$/h of the active power p_g, (generators,) p.u.; constant terms included."""
    return float(np.sum(of_generation(case, p_g)))


def dispatch_cost(case: Case, p_g: Floats, q_g: Floats, dc: Floats) -> float:
    """$/h of a dispatch: active and reactive power of generators, and what dc lines (nd, 4) carry, p.u."""
    count = len(p_g)
    each = of_controls(case).each(np.concatenate([p_g, q_g, dc[:, 0]]))
    return float(np.sum(each[:count])) + float(np.sum(each[count:]))


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
