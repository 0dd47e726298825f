"""A lower bound of min 1/2 x' diag(P) x + q'x subject to b - A x in cones, from any multipliers: never above the
minimum.

For y in the dual of the cones, with y = 0 on the rows that bound a single variable, and these bounds [l, u] in their
stead,

    d(y) = -b'y + sum_k min over l_k <= x_k <= u_k of (1/2 P_k x_k^2 + g_k x_k),        g = q + A'y,

is a lower bound by weak duality, whoever has found y and however well: a solver's multipliers are only made to belong
to the cones. What they lack of stationarity costs |g_k| (u_k - l_k) an entry, and nothing is assumed of it. The bounds
are public: those of the rows, and what follows from them for each cone's members and for the variables that an equality
gives (flows, of voltages). A variable without an upper bound needs g_k >= 0: the multipliers of its rows are made
smaller until that is so, which zero multipliers allow where q_k >= 0. At the end the most that rounding can have added
is taken off.
"""

from __future__ import annotations

from math import fsum, inf

import numpy as np

from hushgrid.grid_cases.case import Floats, Ints
from hushgrid.grid_cases.zone.conic import Cones

OUTWARD = (
    1e-12  #: relative; bounds that are computed are wider by it, multipliers that are made smaller are smaller by it
)
PASSES = 2  #: over the rows in search of bounds: cones, and then what equalities make of them
UNIT = 2.0**-52


def lower_bound(P: Floats, q: Floats, cones: Cones, y: Floats) -> float:
    """d(y) of the module's text; -inf if there is none. P, q (n,); y (m,), made to belong to the dual of the cones."""
    if not np.isfinite(y).all():
        return -inf
    lowest, highest = bounds(cones)
    y = _finite_minimum(q, cones, _projected(cones, y), lowest, highest, P)
    g = q + cones.A.T @ y
    with np.errstate(divide="ignore", invalid="ignore"):
        best = np.where(P > 0, -g / P, np.where(g > 0, -inf, np.where(g < 0, inf, 0.0)))
        best = np.clip(best, lowest, highest)
        each = 0.5 * P * best**2 + g * best
    each[(P == 0) & (g == 0)] = 0.0
    if not np.isfinite(each).all():
        return -inf
    A, b = cones.A, cones.b
    sizes = np.abs(q) + np.bincount(A.columns, np.abs(A.data * y[A.indices]), q.size)
    reach = np.maximum(np.abs(lowest), np.abs(highest))
    reach = np.where(np.isfinite(reach), reach, np.abs(best))  # where it is infinite, g has its sign for certain
    sum_of_sizes = float(np.abs(b) @ np.abs(y)) + float(sizes @ reach) + float(0.5 * P @ best**2)
    terms = int(np.diff(A.indptr).max(initial=0)) + 16
    return fsum([*(-b * y).tolist(), *each.tolist()]) - terms * UNIT * sum_of_sizes


def bounds(cones: Cones) -> tuple[Floats, Floats]:
    """(lowest, highest), (n,) each: what no feasible x is beyond; infinite where no row says it."""
    entries = cones.A.data != 0
    rows, columns, data = cones.A.indices[entries], cones.A.columns[entries], cones.A.data[entries]
    n = cones.A.shape[1]
    lowest, highest = np.full(n, -inf), np.full(n, inf)
    linear = cones.zero + cones.nonneg
    single = (np.bincount(rows, minlength=cones.b.size) == 1)[rows]
    _bound(lowest, highest, columns, data, cones.b[rows], rows < cones.zero, single & (rows < linear))
    for _ in range(PASSES):
        tops, member = _tops(cones)
        if tops.size:
            most = _highest(cones, rows, columns, data, lowest, highest)[tops]
            simple = np.flatnonzero(single & (rows >= linear))
            simple = simple[~np.isin(rows[simple], tops)]
            reach = most[member[rows[simple] - linear]]
            for sign in (1.0, -1.0):  # |b - a x| <= reach
                beyond = sign * cones.b[rows[simple]] + reach
                _bound(lowest, highest, columns[simple], sign * data[simple], beyond, np.False_, np.isfinite(reach))
        _by_the_others(cones, rows, columns, data, lowest, highest)
    return lowest, highest


def _bound(
    lowest: Floats, highest: Floats, column: Ints, a: Floats, b: Floats, equal: np.ndarray | np.bool_, where: np.ndarray
) -> None:
    """Takes a x <= b (equal: a x = b) of single variables into their bounds."""
    with np.errstate(divide="ignore", invalid="ignore"):
        value = b / a
    wide = OUTWARD * np.abs(value)
    above, below = where & ((a > 0) | equal), where & ((a < 0) | equal)
    np.minimum.at(highest, column[above], (value + wide)[above])
    np.maximum.at(lowest, column[below], (value - wide)[below])


def _tops(cones: Cones) -> tuple[Ints, Ints]:
    """The first row of each second-order cone, and of each row behind the linear ones which cone it is of."""
    first = cones.zero + cones.nonneg + np.cumsum([0, *cones.soc[:-1]], dtype=np.int64)[: len(cones.soc)]
    return first, np.repeat(np.arange(len(cones.soc)), cones.soc)


def _highest(cones: Cones, rows: Ints, columns: Ints, data: Floats, lowest: Floats, highest: Floats) -> Floats:
    """(m,) the most that b - A x can be in each row."""
    least = data * np.where(data > 0, lowest[columns], highest[columns])
    m = cones.b.size
    sizes = np.bincount(rows, np.abs(least), m)
    total: Floats = cones.b - np.bincount(rows, least, m) + OUTWARD * (sizes + np.abs(cones.b))
    return total


def _by_the_others(cones: Cones, rows: Ints, columns: Ints, data: Floats, lowest: Floats, highest: Floats) -> None:
    """Bounds that a linear row sets to the one variable in it that has none in that direction."""
    linear = cones.zero + cones.nonneg
    for sign in (1.0, -1.0):  # sign (A x - b) <= 0
        within = rows < (linear if sign > 0 else cones.zero)
        a = sign * data
        least = a * np.where(a > 0, lowest[columns], highest[columns])
        free = ~np.isfinite(least)
        alone = (np.bincount(rows, free, cones.b.size) == 1)[rows]
        rest = np.bincount(rows, np.where(free, 0.0, least), cones.b.size)
        sizes = np.bincount(rows, np.where(free, 0.0, np.abs(least)), cones.b.size) + np.abs(cones.b)
        room = sign * cones.b - rest + OUTWARD * sizes  # a x <= room
        _bound(lowest, highest, columns, a, room[rows], np.False_, within & free & alone)


def _projected(cones: Cones, y: Floats) -> Floats:
    """y in the dual of the cones, and zero on the rows that bound a single variable."""
    y, linear = y.copy(), cones.zero + cones.nonneg
    y[cones.zero : linear] = np.maximum(y[cones.zero : linear], 0.0)
    tops, member = _tops(cones)
    if tops.size:
        tail = y.copy()
        tail[tops] = 0.0
        norms = np.sqrt(np.bincount(member, tail[linear:] ** 2, tops.size)) * (1 + 1e-14)
        y[tops] = np.maximum(y[tops], norms)
    counts = np.bincount(cones.A.indices[cones.A.data != 0], minlength=y.size)
    y[:linear][counts[:linear] <= 1] = 0.0
    return y


def _finite_minimum(q: Floats, cones: Cones, y: Floats, lowest: Floats, highest: Floats, P: Floats) -> Floats:
    """y, smaller on the linear rows of every variable whose minimum would be -infinite."""
    A, y = cones.A, y.copy()
    for k in np.flatnonzero((P == 0) & ~(np.isfinite(lowest) & np.isfinite(highest))).tolist():
        column = slice(A.indptr[k], A.indptr[k + 1])
        rows, reduced = A.indices[column], float(A.data[column] @ y[A.indices[column]])
        spare = OUTWARD * abs(q[k])
        up, down = highest[k] == inf and q[k] + reduced < spare, lowest[k] == -inf and q[k] + reduced > -spare
        if reduced and ((up and q[k] >= 0) or (down and q[k] <= 0)):
            inside = rows[rows < cones.zero + cones.nonneg]
            y[inside] *= max(-q[k] / reduced * (1 - 2 * OUTWARD), 0.0)
    return y
