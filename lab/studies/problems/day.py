"""The whole day of a case by one solver that sees everything, in variables that radial networks are solved well in.

It is the program of `grid_cases.zone.cost` over one zone of all buses. For a pair of buses i, j that lines with
admittance of size y join, the solver has, in place of cr and si of V_i conj(V_j),

    V = y^2 ((c_i + c_j)/2 - cr),   S = y si,   W = y (c_i - c_j)

which are of the size of flows and squared currents: a short line's flow is then no difference of two large numbers.
The cone (c_i + c_j)/2 >= |(cr, si, (c_i - c_j)/2)| goes into itself if t + cr is kept and t - cr is multiplied by y^2.
Pairs with a transformer that changes the ratio stay as they are.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from hushgrid.grid_cases.case import Case, Floats, Ints
from hushgrid.grid_cases.matrix import Matrix
from hushgrid.grid_cases.variables import Layout
from hushgrid.grid_cases.zone.conic import ClarabelSolver, Cones
from hushgrid.grid_cases.zone.cost import TOLERANCE, CostStep, stiffness
from hushgrid.grid_cases.zone.horizon import Horizon
from hushgrid.grid_cases.zone.model import ZoneModel

NONE = np.zeros(0, np.int64)


class CentralDay(CostStep):
    """The least-cost day at loads d (T 2 nb,), p.u., period by period: its `least` is what `minimum` gives."""

    def __init__(self, case: Case, model: ZoneModel, d: Floats, voll: float, horizon: Horizon) -> None:
        super().__init__(case, model, d, NONE, np.zeros(0), voll, horizon=horizon)
        layout = Layout.from_case(case, model.buses)
        columns = np.arange(horizon.periods)[:, None] * self._periods.width
        self._solver = BranchFlow(self._cones, self._P, case, layout, columns)


class BranchFlow:
    """A solver of these cones in the variables above. `columns`: (T, 1) where the variables of each period begin."""

    def __init__(self, cones: Cones, P: Floats, case: Case, layout: Layout, columns: Ints) -> None:
        changed, y = plain_pairs(case, layout)
        c = [layout.c[np.searchsorted(layout.seen, layout.pairs[changed, end])] for end in (0, 1)]
        first, second, cr = ((columns + within).ravel() for within in (*c, layout.cr[changed]))
        y = np.tile(y, len(columns))
        A, n, self._extra = cones.A.scipy(), P.size, y.size
        which = np.arange(y.size)
        #: x of the new variables, without W
        self._back = _sparse(
            (n, n),
            (np.delete(np.arange(n), [*cr, *(cr + 1)]),) * 2 + (1.0,),
            *((cr, first, 0.5), (cr, second, 0.5), (cr, cr, -1 / y**2), (cr + 1, cr + 1, 1 / y)),
        )
        drop = _sparse((y.size, n), (which, first, 1.0), (which, second, -1.0))  # of which W/y is less
        new = A @ self._back
        tops = _tops(cones)
        pair_of = np.full(n, -1)
        pair_of[cr] = pair_of[cr + 1] = which
        entries = A.tocoo()
        of_entry = pair_of[entries.col]
        rows, pairs = np.unique(np.stack([entries.row, of_entry])[:, of_entry >= 0], axis=1)
        cone = np.full(A.shape[0], -1)
        cone[rows] = pairs
        tops = tops[cone[tops + 1] >= 0]
        rows, pairs = np.concatenate([rows, tops + 3]), np.concatenate([pairs, cone[tops + 1]])
        dense = new.tocsr()
        half = np.asarray(dense[rows, first[pairs]] - dense[rows, second[pairs]]).ravel() / 2
        times = _sparse((A.shape[0], y.size), (rows, pairs, half))
        new = new - times @ drop
        new.data[np.abs(new.data) < 1e-12] = 0.0
        size = y[cone[tops + 1]]
        turn = _turn(A.shape[0], tops, size)
        of_W = times @ sparse.diags_array(1 / y)
        top = sparse.hstack([drop, sparse.diags_array(-1 / y)])
        whole = sparse.csc_array(sparse.vstack([top, sparse.hstack([turn @ new, turn @ of_W])]))
        whole.sum_duplicates()
        whole.eliminate_zeros()
        whole.sort_indices()
        self._solver = ClarabelSolver(
            Cones(
                Matrix(whole.data, whole.indices.astype(np.int64), whole.indptr.astype(np.int64), whole.shape),
                np.concatenate([np.zeros(y.size), turn @ cones.b]),
                cones.zero + y.size,
                cones.nonneg,
                cones.soc,
            ),
            np.concatenate([P, np.zeros(y.size)]),
            TOLERANCE,
            f"case {case.name}",
        )

    def solve(self, P: Floats, q: Floats) -> tuple[Floats, Floats]:
        """As `Solver.solve`; multipliers of a pair's cone are those of the cone that was solved."""
        none = np.zeros(self._extra)
        x, y = self._solver.solve(np.concatenate([P, none]), np.concatenate([q, none]))
        return self._back @ x[: P.size], y[self._extra :]


def plain_pairs(case: Case, layout: Layout) -> tuple[Ints, Floats]:
    """Pairs whose lines change neither ratio nor angle, and y of each, p.u."""
    lines = case.lines
    turned = (lines.tap != 1) | (lines.shift != 0)
    other = {tuple(sorted(ends)) for ends in zip(lines.from_bus[turned].tolist(), lines.to_bus[turned].tolist(), strict=True)}
    pairs = [tuple(pair) for pair in layout.pairs.tolist()]
    chosen = np.array([k for k, pair in enumerate(pairs) if pair not in other], np.int64)
    keys = [f"cr:{i}-{j}" for i, j in layout.pairs[chosen].tolist()]
    return chosen, np.sqrt(stiffness(case, keys))


def _tops(cones: Cones) -> Ints:
    """The first rows of the cones of pairs: those of four rows."""
    sizes = np.array(cones.soc, np.int64)
    begin = cones.zero + cones.nonneg + np.concatenate([[0], np.cumsum(sizes)[:-1]])
    return begin[sizes == 4]


def _turn(m: int, tops: Ints, y: Floats) -> sparse.csc_array:
    """What takes the cones t >= |(cr, ...)| that begin at these rows into themselves."""
    rest = np.delete(np.arange(m), np.concatenate([tops + k for k in range(4)]))
    near, far = (1 + y**2) / 2, (1 - y**2) / 2
    return _sparse(
        (m, m),
        (rest, rest, 1.0),
        *((tops, tops, near), (tops, tops + 1, far), (tops + 1, tops, far), (tops + 1, tops + 1, near)),
        *((tops + k, tops + k, y) for k in (2, 3)),
    )


def _sparse(shape: tuple[int, int], *entries: tuple[Ints, Ints, float | Floats]) -> sparse.csc_array:
    rows, columns = (np.concatenate([entry[k] for entry in entries]) for k in range(2))
    values = np.concatenate([np.broadcast_to(value, row.shape) for row, _, value in entries])
    return sparse.csc_array((values, (rows, columns)), shape=shape)
