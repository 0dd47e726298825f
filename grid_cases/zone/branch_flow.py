"""Another choice of variables for a zone's program, in which short lines are solved well.

For a pair of buses i, j that lines with admittance of size y join, the solver has, in place of cr and si of
V_i conj(V_j),

    V = y^2 ((c_i + c_j)/2 - cr),   S = y si,   W = y (c_i - c_j)

which are of the size of flows and squared currents: a short line's flow is then no difference of two large numbers.
The cone (c_i + c_j)/2 >= |(cr, si, (c_i - c_j)/2)| goes into itself if t + cr is kept and t - cr is multiplied by y^2.
A cr with a cost of its own stays a variable beside V. Pairs with a transformer that changes the ratio stay as they are.
"""

from __future__ import annotations

import numpy as np

from hushgrid.grid_cases.case import Case, Floats, Ints
from hushgrid.grid_cases.matrix import Matrix
from hushgrid.grid_cases.variables import Layout
from hushgrid.grid_cases.zone.conic import Cones, Solver

ROUNDING = 1e-12  #: p.u.: what is left of c_i where it was meant to cancel, of coefficients of a few thousand

Entries = tuple[Ints, Ints, Floats]  #: rows, columns, values


class BranchFlow:
    """Cones over x with V, S where cr, si stood, then W of each pair, then cr of those where it has a cost."""

    def __init__(self, cones: Cones, case: Case, layout: Layout, columns: Ints, y2: Floats, paid: Ints) -> None:
        """columns: (T,) where the variables of a period begin; y2: |y|^2 of each of the layout's pairs; paid: those
        positions in x that may have a cost.
        """
        plain = _plain(case, layout)
        ends = np.searchsorted(layout.seen, layout.pairs[plain].T)
        within = [layout.c[ends[0]], layout.c[ends[1]], layout.cr[plain]]
        self._i, self._j, self._V = ((columns[:, None] + each).ravel() for each in within)  # pairs of each period
        self._y = np.tile(np.sqrt(y2[plain]), columns.size)
        self._kept = np.flatnonzero(np.isin(self._V, paid))  #: the pairs whose cr stays
        #: variables that there were; rows and variables that there are beside them
        self._n, self.more = (
            cones.A.shape[1],
            self._y.size + self._kept.size,
        )
        self._W, self._cr = np.split(self._n + np.arange(self.more), [self._y.size])
        pair_of, self._tops = _pairs_of(cones, self._V)
        self._turned = self._y[pair_of[self._tops]]
        entries = [*self._definitions(), *self._rows(cones, pair_of), *self._curved(pair_of[self._tops])]
        rows, columns, values = (np.concatenate(part) for part in zip(*entries, strict=True))
        shape = cones.b.size + self.more, self._n + self.more
        b = np.concatenate([np.zeros(self.more), cones.b])
        A = Matrix.from_entries(shape, rows, columns, values)
        self.cones = Cones(A, b, cones.zero + self.more, cones.nonneg, cones.soc)

    def diagonal(self, P: Floats) -> Floats:
        """The quadratic's diagonal in the new variables."""
        return self._placed(P, self._y**2)

    def linear(self, q: Floats) -> Floats:
        """The linear part."""
        return self._placed(q, self._y)

    def _placed(self, values: Floats, size: Floats) -> Floats:
        """Those of cr go to where it stays; S is si times y."""
        placed = np.concatenate([values, np.zeros(self.more)])
        placed[self._cr], placed[self._V] = values[self._V[self._kept]], 0.0
        placed[self._V + 1] /= size
        return placed

    def variables(self, x: Floats) -> Floats:
        """The old variables."""
        old = x[: self._n].copy()
        old[self._V] = (x[self._i] + x[self._j]) / 2 - x[self._V] / self._y**2
        old[self._V + 1] /= self._y
        return old

    def multipliers(self, u: Floats) -> Floats:
        """Those of the old rows."""
        old, top, y = u[self.more :].copy(), self._tops, self._turned
        near, far = old[top] + old[top + 1], y**2 * (old[top] - old[top + 1])
        old[top], old[top + 1] = (near + far) / 2, (near - far) / 2
        for k in (2, 3):
            old[top + k] *= y
        return old

    def _definitions(self) -> list[Entries]:
        """c_i - c_j - W/y = 0, and cr - (c_i + c_j)/2 + V/y^2 = 0 where cr stays."""
        i, j, V, y, kept = self._i, self._j, self._V, self._y, self._kept
        first, second = np.split(np.arange(self.more), [y.size])
        return [
            *_entries(first, (i, 1.0), (j, -1.0), (self._W, -1 / y)),
            *_entries(second, (self._cr, 1.0), (i[kept], -0.5), (j[kept], -0.5), (V[kept], 1 / y[kept] ** 2)),
        ]

    def _rows(self, cones: Cones, pair_of: Ints) -> list[Entries]:
        """The rows of all but the cones of the pairs: what one has of c_i - c_j, half of what its coefficients differ
        by, it has of W.
        """
        A, m = cones.A, cones.b.size
        cones_of_pairs = (self._tops[:, None] + np.arange(4)).ravel()
        mine = ~np.isin(A.indices, cones_of_pairs)
        rows, columns, values = A.indices[mine], A.columns[mine], A.data[mine]
        place = np.full(self._n, -1)
        place[self._V] = place[self._V + 1] = np.arange(self._y.size)
        k, real = place[columns], np.isin(columns, self._V)
        a, b = np.flatnonzero(real), np.flatnonzero((k >= 0) & ~real)
        values = values.copy()
        halves = values[a] / 2
        ends = [(rows[a], self._i[k[a]], halves), (rows[a], self._j[k[a]], halves)]
        values[a] /= -(self._y[k[a]] ** 2)
        values[b] /= self._y[k[b]]
        rows, columns, values = _summed([(rows, columns, values), *ends], m)
        pair = pair_of[rows]
        at = {}
        for name, end in (("i", self._i), ("j", self._j)):
            here = (pair >= 0) & (columns == end[pair])
            at[name] = np.bincount(rows[here], values[here], m)
        chosen = np.setdiff1d(np.flatnonzero(pair_of >= 0), cones_of_pairs)
        half, pair = (at["i"][chosen] - at["j"][chosen]) / 2, pair_of[chosen]
        less = [(chosen, self._i[pair], -half), (chosen, self._j[pair], half)]
        rows, columns, values = _summed([(rows, columns, values), *less], m)
        left, of_W = np.abs(values) >= ROUNDING, half != 0
        return [
            (rows[left] + self.more, columns[left], values[left]),
            (chosen[of_W] + self.more, self._W[pair[of_W]], (half / self._y[pair])[of_W]),
        ]

    def _curved(self, pair: Ints) -> list[Entries]:
        """The cones of these pairs, turned: ((c_i + c_j)/2 - V/(2 y^2)) +- V/2, S and W/2."""
        i, j, V, W, y2 = self._i[pair], self._j[pair], self._V[pair], self._W[pair], self._y[pair] ** 2
        rows = self._tops + self.more
        return [
            *_entries(rows, (i, -0.5), (j, -0.5), (V, (1 / y2 - 1) / 2)),
            *_entries(rows + 1, (i, -0.5), (j, -0.5), (V, (1 / y2 + 1) / 2)),
            *_entries(rows + 2, (V + 1, -1.0)),
            *_entries(rows + 3, (W, -0.5)),
        ]


class FlowSolver:
    """A solver of a zone's own program that solves the other one: `inside` has its cones."""

    def __init__(self, flows: BranchFlow, inside: Solver) -> None:
        self._flows, self._inside = flows, inside

    def solve(self, P: Floats, q: Floats) -> tuple[Floats, Floats]:
        """As `Solver.solve`."""
        x, u = self._inside.solve(self._flows.diagonal(P), self._flows.linear(q))
        return self._flows.variables(x), self._flows.multipliers(u)


def _plain(case: Case, layout: Layout) -> Ints:
    """The pairs whose lines change neither ratio nor angle."""
    lines = case.lines
    turned = (lines.tap != 1) | (lines.shift != 0)
    ends = np.sort(np.stack([lines.from_bus[turned], lines.to_bus[turned]], axis=1), axis=1).tolist()
    return np.array([k for k, pair in enumerate(layout.pairs.tolist()) if pair not in ends], np.int64)


def _pairs_of(cones: Cones, cr: Ints) -> tuple[Ints, Ints]:
    """Of each row the pair whose cr or si it has, of a pair's cone in all its rows, else -1; where those begin."""
    pair_of = np.full(cones.A.shape[1], -1)
    pair_of[cr] = pair_of[cr + 1] = np.arange(cr.size)
    rows = np.full(cones.b.size, -1)
    of_entry = pair_of[cones.A.columns]
    rows[cones.A.indices[of_entry >= 0]] = of_entry[of_entry >= 0]
    sizes = np.array(cones.soc, np.int64)
    tops = cones.zero + cones.nonneg + np.cumsum(sizes) - sizes
    tops = tops[sizes == 4]  # the cone of a pair is the only one of four rows
    tops = tops[rows[tops + 1] >= 0]
    rows[tops] = rows[tops + 3] = rows[tops + 1]
    return rows, tops


def _entries(rows: Ints, *parts: tuple[Ints, float | Floats]) -> list[Entries]:
    return [(rows, columns, np.broadcast_to(np.asarray(values, np.float64), rows.shape)) for columns, values in parts]


def _summed(entries: list[Entries], m: int) -> Entries:
    """Each place once, with the sum of what stands there."""
    rows, columns, values = (np.concatenate(part) for part in zip(*entries, strict=True))
    places, which = np.unique(columns * m + rows, return_inverse=True)
    sums: Floats = np.bincount(which, values, places.size).astype(np.float64, copy=False)
    return places % m, places // m, sums
