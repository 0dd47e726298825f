"""The whole day of a case by one solver that sees everything, in variables that radial networks are solved well in.

It is the program of `grid_cases.zone.cost` over one zone of all buses. For a pair of buses i, j that lines with
admittance of size y join, the solver has, in place of cr and si of V_i conj(V_j),

    V = y^2 ((c_i + c_j)/2 - cr),   S = y si,   W = y (c_i - c_j)

which are of the size of flows and squared currents: a short line's flow is then no difference of two large numbers.
The cone (c_i + c_j)/2 >= |(cr, si, (c_i - c_j)/2)| goes into itself if t + cr is kept and t - cr is multiplied by y^2.
Pairs with a transformer that changes the ratio stay as they are.
"""

from __future__ import annotations

import clarabel
import numpy as np
from scipy import sparse

from hushgrid.grid_cases.case import Case, Floats, Ints
from hushgrid.grid_cases.matrix import Matrix
from hushgrid.grid_cases.variables import Layout
from hushgrid.grid_cases.zone.conic import RESIDUAL, UNCHANGED, Cones, SolverResult, StepFailed, built, fresh
from hushgrid.grid_cases.zone.cost import TOLERANCE, CostStep, Least, stiffness
from hushgrid.grid_cases.zone.horizon import Horizon
from hushgrid.grid_cases.zone.model import ZoneModel
from hushgrid.kernels.types import DocumentView

NONE = np.zeros(0, np.int64)
ROUNDING = 1e-12  #: p.u.: what is left of c_i where it was meant to cancel, of coefficients of a few thousand


class CentralDay(CostStep):
    """The least-cost day of the whole case. It is built once, and solved at other loads."""

    def __init__(self, case: Case, model: ZoneModel, voll: float, horizon: Horizon) -> None:
        none = np.zeros(2 * len(model.buses) * horizon.periods)
        super().__init__(case, model, none, NONE, np.zeros(0), voll, horizon=horizon)
        layout = Layout.from_case(case, model.buses)
        columns = np.arange(horizon.periods)[:, None] * self._periods.width
        self._whole = self._solver = BranchFlow(self._cones, self._P, case, layout, columns)

    def least(self, d: Floats) -> Least:
        """The day at loads d (T 2 nb,), p.u., period by period, p then q. Raises StepFailed."""
        self._whole.place(self._balance.ravel(), -d)
        return self.minimum(np.zeros(0), 1.0)


class BranchFlow:
    """A solver of a day's cones in the variables above. `columns`: (T, 1) where the variables of a period begin."""

    def __init__(self, cones: Cones, P: Floats, case: Case, layout: Layout, columns: Ints) -> None:
        chosen, y = plain_pairs(case, layout)
        ends = (layout.c[np.searchsorted(layout.seen, layout.pairs[chosen, end])] for end in (0, 1))
        i, j, cr = ((columns + within).ravel() for within in (*ends, layout.cr[chosen]))  # one of each period's pairs
        y = np.tile(y, len(columns))
        n, self._more = P.size, y.size
        pairs, rest = np.arange(y.size), np.delete(np.arange(n), np.concatenate([cr, cr + 1]))
        to_new = ((cr, i, 0.5), (cr, j, 0.5), (cr, cr, -1 / y**2), (cr + 1, cr + 1, 1 / y))
        self._old = _sparse((n, n), (rest, rest, 1.0), *to_new)  #: x of the new variables, W left out
        drop = _sparse((y.size, n), (pairs, i, 1.0), (pairs, j, -1.0))  # drop x - W/y = 0: rows of their own
        A = cones.A.scipy() @ self._old
        pair_of_row, tops = _pairs_of(cones, cr)
        rows = np.flatnonzero(pair_of_row >= 0)
        pair = pair_of_row[rows]
        # What a row has of c_i - c_j is had of W: half of what its coefficients differ by.
        by_row = A.tocsr()
        half = np.asarray(by_row[rows, i[pair]] - by_row[rows, j[pair]]).ravel() / 2
        of_drop = _sparse((A.shape[0], y.size), (rows, pair, half))
        A = A - of_drop @ drop
        A.data[np.abs(A.data) < ROUNDING] = 0.0
        turn = _turn(A.shape[0], tops, y[pair_of_row[tops + 1]])
        below = sparse.hstack([turn @ A, turn @ of_drop @ sparse.diags_array(1 / y)])
        whole = sparse.csc_array(sparse.vstack([sparse.hstack([drop, sparse.diags_array(-1 / y)]), below]))
        whole.eliminate_zeros()
        whole.sort_indices()
        indices, begins = (part.astype(np.int64) for part in (whole.indices, whole.indptr))
        self._cones = Cones(
            Matrix(whole.data, indices, begins, whole.shape),
            np.concatenate([np.zeros(y.size), turn @ cones.b]),
            cones.zero + y.size,
            cones.nonneg,
            cones.soc,
        )
        self._solver = self._built(self._and_W(P), np.zeros(n + y.size), TOLERANCE)

    def place(self, rows: Ints, right: Floats) -> None:
        """Another right side of equalities."""
        self._cones.b[self._more + rows] = right

    def solve(self, P: Floats, q: Floats) -> tuple[Floats, Floats]:
        """As `Solver.solve`; multipliers of the cone of a pair are those of the cone that was solved."""
        n, P, q = P.size, self._and_W(P), self._and_W(q)
        self._solver.update(P=P, q=q, b=self._cones.b)
        tried = [SolverResult.from_solution(self._solver.solve())]
        if not tried[0].solved:
            tried += fresh(self._built, P, q, TOLERANCE)
        best = min(tried, key=lambda one: (not one.solved, one.residual))
        if not best.solved and best.residual > RESIDUAL:
            raise StepFailed(
                f"a central solve ended {best.status}, its residual {best.residual:.2g} above {RESIDUAL:g}"
            )
        return self._old @ best.x[:n], best.y[self._more :]

    def _built(
        self, P: Floats, q: Floats, feasibility: float, changes: DocumentView = UNCHANGED
    ) -> clarabel.DefaultSolver:
        return built(self._cones, P, q, TOLERANCE, feasibility, changes)

    def _and_W(self, values: Floats) -> Floats:
        """Neither cr, si nor c has a cost, and W has none."""
        return np.concatenate([values, np.zeros(self._more)])


def plain_pairs(case: Case, layout: Layout) -> tuple[Ints, Floats]:
    """The pairs whose lines change neither ratio nor angle, and y of each, p.u."""
    lines = case.lines
    turned = (lines.tap != 1) | (lines.shift != 0)
    ends = np.sort(np.stack([lines.from_bus[turned], lines.to_bus[turned]], axis=1), axis=1).tolist()
    pairs = layout.pairs.tolist()
    chosen = np.array([k for k, pair in enumerate(pairs) if pair not in ends], np.int64)
    return chosen, np.sqrt(stiffness(case, [f"cr:{i}-{j}" for i, j in layout.pairs[chosen].tolist()]))


def _pairs_of(cones: Cones, cr: Ints) -> tuple[Ints, Ints]:
    """Of each row the pair whose cr or si, or c_i - c_j in its cone, it has, else -1; and where those cones begin."""
    pair_of = np.full(cones.A.shape[1], -1)
    pair_of[cr] = pair_of[cr + 1] = np.arange(cr.size)
    rows = np.full(cones.A.shape[0], -1)
    of_entry = pair_of[cones.A.columns]
    rows[cones.A.indices[of_entry >= 0]] = of_entry[of_entry >= 0]
    sizes = np.array(cones.soc, np.int64)
    begins = cones.zero + cones.nonneg + np.cumsum(sizes) - sizes
    tops = begins[sizes == 4]  # the cone of a pair is the only one of four rows
    tops = tops[rows[tops + 1] >= 0]
    rows[tops + 3] = rows[tops + 1]
    return rows, tops


def _turn(m: int, tops: Ints, y: Floats) -> sparse.csc_array:
    """What takes the cones t >= |(cr, si, (c_i - c_j)/2)| that begin at these rows into themselves."""
    rest = np.delete(np.arange(m), np.concatenate([tops + k for k in range(4)]))
    near, far = (1 + y**2) / 2, (1 - y**2) / 2
    t, cr = tops, tops + 1
    turned = ((t, t, near), (t, cr, far), (cr, t, far), (cr, cr, near), *((tops + k, tops + k, y) for k in (2, 3)))
    return _sparse((m, m), (rest, rest, 1.0), *turned)


def _sparse(shape: tuple[int, int], *entries: tuple[Ints, Ints, float | Floats]) -> sparse.csc_array:
    """From (rows, columns, values)."""
    rows, columns = (np.concatenate([entry[k] for entry in entries]) for k in range(2))
    values = np.concatenate([np.broadcast_to(value, row.shape) for row, _, value in entries])
    return sparse.csc_array((values, (rows, columns)), shape=shape)
