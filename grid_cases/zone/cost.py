"""The least-cost step of a zone: generation cost, value of lost load, and a weighted distance to what it is asked for.

    minimise    (c2 x^2 + c1 x + VOLL b 1'(s+ + s-)) / cs + sum_k rho_k/2 (z_k - v_k)^2
    subject to  A z + d = s+ - s-,  s+, s- >= 0,  and (D.2d)-(D.2l)

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
from hushgrid.grid_cases.costs import cost_scale, of_controls
from hushgrid.grid_cases.matrix import Matrix
from hushgrid.grid_cases.variables import Layout
from hushgrid.grid_cases.zone.backends import solver
from hushgrid.grid_cases.zone.bound import lower_bound
from hushgrid.grid_cases.zone.conic import Cones, multipliers
from hushgrid.grid_cases.zone.model import ZoneModel

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
    """The minimiser of one step. Of d = (p, q) of the zone's nb buses everything is at the loads the step was given."""

    z: Floats  #: (n,) p.u.
    value: float  #: $/h: generation and lost load
    unserved: Floats  #: (2 nb,) s+, p then q, p.u.
    spilled: Floats  #: (2 nb,) s-, p.u.
    price: Floats  #: (2 nb,) what one more MW, MVAr of load costs at each bus, $/MWh, $/MVArh


class CostStep:
    """The least-cost step of one zone at loads d (2 nb,), p.u.

    shared, weight: (m,) positions in z and rho_k at factor 1. The bits of a step depend on (model, d, weight, v,
    factor) alone, not on earlier ones.
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
    ) -> None:
        self.model, self.d, self.shared, self.weight, self.voll = model, d, shared, weight, voll
        self.base, self.scale = case.base_mva, cost_scale(case)
        n, rows = model.n, 2 * len(model.buses)
        layout = Layout.from_case(case, model.buses)
        costs = of_controls(case)
        #: positions among the case's controls that this zone pays for, and in z; active power of generators first
        self._paid, self._columns = layout.paid()
        lines = own_lines(costs.lines, self._paid)
        self._constant = float(costs.c0[self._paid].sum())  #: $/h, of what is not in the solver's objective
        tops = np.unique(lines.generator).size
        self._costs, self._generators = costs, layout.generators.size
        #: of x = (z, s+, s-, t): the quadratic's diagonal without rho, and the linear part
        self._P = np.zeros(n + 2 * rows + tops)
        self._P[self._columns] = 2 * costs.c2[self._paid] / self.scale
        self._q = np.zeros(n + 2 * rows + tops)
        self._q[self._columns] = costs.c1[self._paid] / self.scale
        self._q[n : n + 2 * rows] = voll / self.scale
        self._q[n + 2 * rows :] = 1.0
        self._balance = slice(model.zero, model.zero + rows)
        self._cones = cones(model, d, self.base, self._epigraphs(lines))
        self._solver = solver(kind, self._cones, self._diagonal(1.0), TOLERANCE, f"zone {model.name}")

    def _epigraphs(self, lines: CostLines) -> Epigraphs:
        """t cs >= slope x + intercept for each of the lines of piecewise-linear costs, one t for each power x."""
        _, top = np.unique(lines.generator, return_inverse=True)
        column = self._columns[np.searchsorted(self._paid, lines.generator)]
        return Epigraphs(lines.slope / self.scale, column, top, -lines.intercept / self.scale)

    def _diagonal(self, factor: float) -> Floats:
        P = self._P.copy()
        P[self.shared] += factor * self.weight
        return P

    def minimum(self, v: Floats, factor: float) -> Least:
        """The step at v (m,) and rho = factor * weight. Raises StepFailed."""
        q = self._q.copy()
        q[self.shared] -= factor * self.weight * v
        x, y = self._solver.solve(self._diagonal(factor), q)
        n, rows = self.model.n, 2 * len(self.model.buses)
        z, slack = x[:n], np.maximum(x[n : n + 2 * rows], 0.0)
        controls = np.zeros(len(self._costs.c2))
        controls[self._paid] = z[self._columns]
        active, others = np.split(self._costs.each(controls)[self._paid], [self._generators])
        cost = float(active.sum()) + float(others.sum()) + self.voll * float(slack.sum())
        unserved, spilled = slack[:rows] / self.base, slack[rows:] / self.base
        return Least(z, cost, unserved, spilled, y[self._balance] * self.scale / self.base)

    def bound(self, lam: Floats) -> float:
        """At most the least of f(z) + cs <lam, z> over the zone's own limits, $/h; lam (m,), whatever it is.

        It is the dual's value at multipliers that a solver has found, less what they lack (`zone.bound`): true where
        the solver has not reached an optimum too, and -inf where it has come to nothing.
        """
        q = self._q.copy()
        q[self.shared] += lam
        bounds = [lower_bound(self._P, q, self._cones, y) for y in multipliers(self._cones, self._P, q, TOLERANCE)]
        return self.scale * max(bounds, default=-inf) + self._constant


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
