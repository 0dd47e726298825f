"""The least-cost step of a zone: generation cost, value of lost load, and a weighted distance to what it is asked for.

    minimise    (c2 x^2 + c1 x + VOLL b 1'(s+ + s-)) / cs + sum_k rho_k/2 (z_k - v_k)^2
    subject to  A z + d = s+ - s-,  s+, s- >= 0,  and (D.2d)-(D.2l)

in each period of the horizon (`grid_cases.zone.horizon`; one of an hour where there is none), with the storage's costs,
over the zone's own variables z, with x the powers among them that cost something (p_g; where they do, q_g and dc lines;
a piecewise-linear cost is t >= each of its lines) and k over the entries it shares. s+ is load that is not served, s-
is power that nobody takes; b is the case's base. Solved by Clarabel on the canonicalised constraints, built once and
then updated: of a step only v and the common factor of rho change. The slack variables are in MW and MVAr and costs are
divided by cs: with slack in p.u. the solver fails on large cases.  Model: docs/papers/power-flow.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np

from hushgrid.grid_cases.case import Case, CostLines, Floats, Ints
from hushgrid.grid_cases.costs import Costs, cost_scale, of_controls
from hushgrid.grid_cases.matrix import Matrix
from hushgrid.grid_cases.variables import Layout
from hushgrid.grid_cases.zone.backends import solver
from hushgrid.grid_cases.zone.bound import lower_bound
from hushgrid.grid_cases.zone.branch_flow import BranchFlow, FlowSolver
from hushgrid.grid_cases.zone.conic import UNREFINED, Cones, Solver, multipliers
from hushgrid.grid_cases.zone.horizon import SNAPSHOT, Horizon
from hushgrid.grid_cases.zone.model import ZoneModel
from hushgrid.grid_cases.zone.periods import Periods, over_time

TOLERANCE = 1e-9  #: of the solver, relative and absolute, feasibility and gap


def stiffness(case: Case, keys: Sequence[str], joint: Mapping[str, float] | None = None) -> Floats:
    """|y|^2 of the entries cr, si and c among these, p.u.; nan for flows. Public, shape (len(keys),).

    |y_ij|^2 is the sum over the parallel lines of a pair of 1/(r^2 + x^2); of c_i it is the largest over the pairs ij
    that are named in `keys` (those of the lines between zones), and of `joint`, where that has bus i.
    """
    lines = case.lines
    low, high = np.minimum(lines.from_bus, lines.to_bus), np.maximum(lines.from_bus, lines.to_bus)
    pairs: dict[str, float] = {}
    for i, j, y2 in zip(low.tolist(), high.tolist(), (1 / (lines.r**2 + lines.x**2)).tolist(), strict=True):
        pairs[f"{i}-{j}"] = pairs.get(f"{i}-{j}", 0.0) + y2
    at_bus = dict(joint or {})
    for key in keys:
        kind, _, element = key.partition(":")
        if kind == "cr":
            for bus in element.split("-"):
                at_bus[bus] = max(at_bus.get(bus, 0.0), pairs[element])
    kinds = {"cr": pairs, "si": pairs, "c": at_bus}
    parted = (key.partition(":") for key in keys)
    return np.array([kinds[kind][element] if kind in kinds else np.nan for kind, _, element in parted])


def joint_stiffness(case: Case, shared: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """|y|^2 of c_i over all lines between zones, by bus, where a zone that shares c_i does not see the stiffest of
    them.

    `shared`: the keys that each zone shares. With a weight of its own in such a zone, the multipliers of c_i would not
    sum to zero, and the zones would agree on a point that is not the optimum.
    """
    keys = tuple(dict.fromkeys(key for mine in shared.values() for key in mine))
    together = dict(zip(keys, stiffness(case, keys).tolist(), strict=True))
    raised: dict[str, float] = {}
    for mine in shared.values():
        for key, y2 in zip(mine, stiffness(case, mine).tolist(), strict=True):
            if y2 < together[key]:
                raised[key.partition(":")[2]] = together[key]
    return raised


@dataclass(frozen=True, slots=True, eq=False)
class Least:
    """The minimiser of one step over T periods; of d = (p, q) of nb buses everything is at the loads the step was
    given.
    """

    z: Floats  #: (T n,) p.u., period by period, as all that follows
    value: float  #: $: generation, storage and lost load; of one period of an hour, $/h
    unserved: Floats  #: (T 2 nb,) s+, p then q, p.u.
    spilled: Floats  #: (T 2 nb,) s-, p.u.
    price: Floats  #: (T 2 nb,) what one more MW, MVAr of load costs at each bus, $/MWh, $/MVArh
    storage: Floats  #: (3, T, K) charging and discharging MW, energy MWh at the end of each period


class CostStep:
    """The least-cost step of one zone at loads d (T 2 nb,), p.u.: p, then q of its buses, period by period.

    shared, weight: (m,) positions in z and rho_k at factor 1. The bits of a step depend on (model, horizon, d, weight,
    v, factor) alone, not on earlier ones.
    """

    def __init__(
        self,
        case: Case,
        model: ZoneModel,
        d: Floats,
        shared: Ints,
        weight: Floats,
        voll: float,
        kind: str = "clarabel",
        horizon: Horizon = SNAPSHOT,
    ) -> None:
        self.model, self.d, self.shared, self.weight, self.voll = model, d, shared, weight, voll
        self.base, self.scale, self.horizon = case.base_mva, cost_scale(case), horizon
        n, rows, T = model.n, 2 * len(model.buses), horizon.periods
        layout = Layout.from_case(case, model.buses)
        #: positions among the case's controls that this zone pays for, and in z; active power of generators first
        self._paid, self._columns = layout.paid()
        self._generators = layout.generators.size
        self._costs = [
            priced(of_controls(case), layout.generators, each) for each in horizon.price_of(layout.generators)
        ]
        lines = [own_lines(costs.lines, self._paid) for costs in self._costs]
        tops = np.unique(lines[0].generator).size
        width = n + 2 * rows + tops
        self._periods = Periods(horizon, width, horizon.storage.at(np.array(model.buses)))
        #: $ of what is not in the solver's objective
        self._constant = T * horizon.hours * float(self._costs[0].c0[self._paid].sum())
        #: of x = (z, s+, s-, t) a period, then of storage: the quadratic's diagonal without rho, and the linear part
        self._P, self._q = np.zeros(self._periods.size), np.zeros(self._periods.size)
        for costs, P, q in zip(self._costs, *(self._by_period(part) for part in (self._P, self._q)), strict=True):
            P[self._columns] = horizon.hours * (2 * costs.c2[self._paid]) / self.scale
            q[self._columns] = horizon.hours * costs.c1[self._paid] / self.scale
            q[n : n + 2 * rows] = horizon.hours * voll / self.scale
            q[n + 2 * rows :] = horizon.hours
        flows = self._periods.paths(self._q)[:2]
        flows += horizon.hours * self._periods.storage.cost / self.scale
        blocks = [
            cones(model, load, self.base, self._epigraphs(own)) for load, own in zip(np.split(d, T), lines, strict=True)
        ]
        self._balance = np.arange(T)[:, None] * blocks[0].zero + model.zero + np.arange(rows)
        self._shared = (shared // n) * width + shared % n  #: positions in x
        self._cones = over_time(blocks, self._periods, case, layout, model.name, model.zero)
        self._solver = self._own_solver(kind, case, layout)

    def _own_solver(self, kind: str, case: Case, layout: Layout) -> Solver:
        """Over a horizon in other variables; of one period in its own, whose bits are on record."""
        label, P = f"zone {self.model.name}", self._diagonal(1.0)
        if self.horizon.periods == 1:
            return solver(kind, self._cones, P, TOLERANCE, label)
        y2 = stiffness(case, [f"cr:{i}-{j}" for i, j in layout.pairs.tolist()])
        begins = self._periods.width * np.arange(self.horizon.periods)
        flows = BranchFlow(self._cones, case, layout, begins, y2, self._shared)
        inside = solver(kind, flows.cones, flows.diagonal(P), TOLERANCE, label, changes=UNREFINED)
        return FlowSolver(flows, inside)

    def _by_period(self, x: Floats) -> Floats:
        """(T, variables of a period): a view."""
        return x[: self._periods.first].reshape(self.horizon.periods, -1)

    def _epigraphs(self, lines: CostLines) -> Epigraphs:
        """t cs >= slope x + intercept for each of the lines of piecewise-linear costs, one t for each power x."""
        _, top = np.unique(lines.generator, return_inverse=True)
        column = self._columns[np.searchsorted(self._paid, lines.generator)]
        return Epigraphs(lines.slope / self.scale, column, top, -lines.intercept / self.scale)

    def _diagonal(self, factor: float) -> Floats:
        P = self._P.copy()
        P[self._shared] += factor * self.weight
        return P

    def minimum(self, v: Floats, factor: float) -> Least:
        """The step at v (m,) and rho = factor * weight. Raises StepFailed."""
        q = self._q.copy()
        q[self._shared] -= factor * self.weight * v
        x, y = self._solver.solve(self._diagonal(factor), q)
        n, rows, hours = self.model.n, 2 * len(self.model.buses), self.horizon.hours
        each, paths = self._by_period(x), self._periods.paths(x)
        z, slack = each[:, :n], np.maximum(each[:, n : n + 2 * rows], 0.0)
        cost = 0.0
        for costs, values in zip(self._costs, z, strict=True):
            controls = np.zeros(len(costs.c2))
            controls[self._paid] = values[self._columns]
            active, others = np.split(costs.each(controls)[self._paid], [self._generators])
            cost += float(active.sum()) + float(others.sum())
        cost += self.voll * float(slack.sum())
        cost = hours * (cost + float((paths[:2] * self._periods.storage.cost).sum()))
        unserved, spilled = (part.ravel() / self.base for part in (slack[:, :rows], slack[:, rows:]))
        price = (y[self._balance] * self.scale / (self.base * hours)).ravel()
        return Least(z.ravel(), cost, unserved, spilled, price, paths)

    def bound(self, lam: Floats) -> float:
        """At most the least of f(z) + cs <lam, z> over the zone's own limits, $; lam (m,), whatever it is.

        It is the dual's value at multipliers that a solver has found, less what they lack (`zone.bound`): true where
        the solver has not reached an optimum too, and -inf where it has come to nothing.
        """
        q = self._q.copy()
        q[self._shared] += lam
        bounds = [lower_bound(self._P, q, self._cones, y) for y in multipliers(self._cones, self._P, q, TOLERANCE)]
        return self.scale * max(bounds, default=-inf) + self._constant


def priced(costs: Costs, generators: Ints, factors: Floats) -> Costs:
    """These costs with c1 of each of these generators, or its lines, times its factor."""
    if np.all(factors == 1):
        return costs
    each = np.ones(len(costs.c1))
    each[generators] = factors
    lines, times = costs.lines, each[costs.lines.generator]
    return Costs(
        costs.c2, costs.c1 * each, costs.c0, CostLines(lines.generator, lines.slope * times, lines.intercept * times)
    )


class Epigraphs(NamedTuple):
    """slope z_column - t_top <= bound: a row for each line of piecewise-linear costs, a t for each generator that has
    any.
    """

    slope: Floats
    column: Ints
    top: Ints
    bound: Floats


def own_lines(lines: CostLines, positions: Ints) -> CostLines:
    """The lines of piecewise-linear costs of these powers (positions, ascending)."""
    chosen = np.isin(lines.generator, positions)
    return CostLines(lines.generator[chosen], lines.slope[chosen], lines.intercept[chosen])


def cones(model: ZoneModel, d: Floats, base: float, costs: Epigraphs) -> Cones:
    """The constraints on x = (z, s+, s-, t), s in MW and MVAr: b - A x in cones, the balance behind the equalities."""
    n, rows, count = model.n, 2 * len(model.buses), len(costs.bound)
    linear, total = model.zero + model.nonneg, len(model.cone_b) + 3 * rows + count
    first, balance, inside, positive, above, curved = np.split(
        np.arange(total), np.cumsum([model.zero, rows, model.nonneg, 2 * rows, count])
    )
    limits, slack = np.concatenate([first, inside, curved]), n + np.arange(2 * rows)
    unit = np.full(rows, 1.0 / base)
    entries = [
        (limits[model.cone_A.indices], model.cone_A.columns, model.cone_A.data),
        (balance[model.A.indices], model.A.columns, model.A.data),
        (np.tile(balance, 2), slack, np.concatenate([-unit, unit])),
        (positive, slack, np.full(2 * rows, -1.0)),
        (above, costs.column, costs.slope),
        (above, n + 2 * rows + costs.top, np.full(count, -1.0)),
    ]
    shape = total, n + 2 * rows + (int(costs.top.max()) + 1 if count else 0)
    A = Matrix.from_entries(shape, *(np.concatenate(column) for column in zip(*entries, strict=True)))
    right = model.cone_b
    parts = [right[: model.zero], -d, right[model.zero : linear], np.zeros(2 * rows), costs.bound, right[linear:]]
    nonneg = model.nonneg + 2 * rows + count
    return Cones(A, np.concatenate(parts), model.zero + rows, nonneg, model.soc)
