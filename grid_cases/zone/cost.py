"""The least-cost step of a zone: generation cost, value of lost load, and a weighted distance to what it is asked for.

    minimise    (c2 p_g^2 + c1 p_g + VOLL b 1'(s+ + s-)) / cs + sum_k rho_k/2 (z_k - v_k)^2
    subject to  A z + d = s+ - s-,  s+, s- >= 0,  and (D.2d)-(D.2l)

over the zone's own variables z, with k over the entries it shares. s+ is load that is not served, s- is power that
nobody takes; b is the case's base. Solved by Clarabel on the canonicalised constraints, built once and then updated: of
a step only v and the common factor of rho change. The slack variables are in MW and MVAr and costs are divided by cs:
with slack in p.u. the solver fails on large cases.  Model: docs/papers/power-flow.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from hushgrid.grid_cases.case import Case, Floats, Ints
from hushgrid.grid_cases.costs import cost_scale
from hushgrid.grid_cases.variables import Layout
from hushgrid.grid_cases.zone.conic import Cones, solver
from hushgrid.grid_cases.zone.model import ZoneModel

TOLERANCE = 1e-8  #: of the solver, relative and absolute, feasibility and gap


def stiffness(case: Case, keys: tuple[str, ...]) -> Floats:
    """|y|^2 of the entries cr, si and c among these, p.u.; nan for flows. Public, shape (len(keys),).

    |y_ij|^2 is the sum over the parallel lines of a pair of 1/(r^2 + x^2); of c_i it is the largest over the pairs ij
    that are named in `keys`: those of the lines between zones.
    """
    lines = case.lines
    low, high = np.minimum(lines.from_bus, lines.to_bus), np.maximum(lines.from_bus, lines.to_bus)
    pairs: dict[str, float] = {}
    for i, j, y2 in zip(low.tolist(), high.tolist(), (1 / (lines.r**2 + lines.x**2)).tolist(), strict=True):
        pairs[f"{i}-{j}"] = pairs.get(f"{i}-{j}", 0.0) + y2
    at_bus: dict[str, float] = {}
    for key in keys:
        kind, _, element = key.partition(":")
        if kind == "cr":
            for bus in element.split("-"):
                at_bus[bus] = max(at_bus.get(bus, 0.0), pairs[element])
    of = {"cr": pairs, "si": pairs, "c": at_bus}
    parted = (key.partition(":") for key in keys)
    return np.array([of[kind][element] if kind in of else np.nan for kind, _, element in parted])


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

    shared, weight: (m,) positions in z and rho_k at factor 1. The bits of a step depend on (model, d, weight, v, factor)
    alone, not on earlier ones.
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
        layout = Layout.of(case, model.buses)
        g, self._p_g = layout.generators, layout.p_g
        self._c2, self._c1 = case.generators.cost_2[g], case.generators.cost_1[g]
        self._c0 = float(case.generators.cost_0[g].sum())
        #: of x = (z, s+, s-): the quadratic's diagonal without rho, and the linear part
        self._P = np.zeros(n + 2 * rows)
        self._P[self._p_g] = 2 * self._c2 / self.scale
        self._q = np.zeros(n + 2 * rows)
        self._q[self._p_g] = self._c1 / self.scale
        self._q[n:] = voll / self.scale
        self._balance = slice(model.zero, model.zero + rows)
        self._solver = solver(kind, cones(model, d, self.base), self._diagonal(1.0), TOLERANCE, f"zone {model.name}")

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
        z, slack = x[:n], np.maximum(x[n:], 0.0)
        p_g = z[self._p_g]
        cost = float(self._c2 @ p_g**2 + self._c1 @ p_g) + self._c0 + self.voll * float(slack.sum())
        unserved, spilled = slack[:rows] / self.base, slack[rows:] / self.base
        return Least(z, cost, unserved, spilled, y[self._balance] * self.scale / self.base)


def cones(model: ZoneModel, d: Floats, base: float) -> Cones:
    """The constraints on x = (z, s+, s-), s in MW and MVAr: b - A x in cones, the balance behind the model's equalities."""
    rows, m = 2 * len(model.buses), model.cone_A.shape[0]
    linear = model.zero + model.nonneg
    eye = sparse.eye_array(rows, format="csc") / base
    none = sparse.csc_array((m, 2 * rows))
    limits = sparse.hstack([model.cone_A, none], format="csr")
    balance = sparse.hstack([model.A, -eye, eye], format="csr")
    positive = sparse.hstack(
        [sparse.csr_array((2 * rows, model.n)), -sparse.eye_array(2 * rows, format="csr")], format="csr"
    )
    A = sparse.vstack([limits[: model.zero], balance, limits[model.zero : linear], positive, limits[linear:]])
    b = np.concatenate(
        [model.cone_b[: model.zero], -d, model.cone_b[model.zero : linear], np.zeros(2 * rows), model.cone_b[linear:]]
    )
    return Cones(sparse.csc_array(A), b, model.zero + rows, model.nonneg + 2 * rows, model.soc)
