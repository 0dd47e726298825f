"""Costs, read as MATPOWER has them (mpc.gencost, mpc.dclinecost): polynomials, and convex piecewise-linear costs.

Source: MATPOWER User's Manual, Table B-4 (Generator Cost Data). The rows behind those of active power are of reactive.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from hushgrid.grid_cases.elements.parts import CostLines
from hushgrid.grid_cases.elements.table import Floats, Ints
from hushgrid.kernels.errors import InputError

_ROUNDED = 1e-6  #: of the largest cost, by which a rounded point may lie above the line between its neighbours


def read(table: Floats, in_service: Ints, mva: float, where: Sequence[str]) -> tuple[Floats, CostLines]:
    """Costs of the generators with these rows: (c2, c1, c0) in $/h of p.u., shape (in_service, 3), and the lines.

    table: mpc.gencost. where: the place of each of its rows in the file. A row that is neither a polynomial of degree
    <= 2 nor piecewise linear is NaN. Raises InputError for a piecewise-linear cost without ascending points, or that is
    not convex.
    """
    polynomials = np.full((len(in_service), 3), np.nan)
    piecewise = list[tuple[int, float, float]]()
    for position, g in enumerate(in_service.tolist()):
        row = table[g]
        if row[0] == 2 and row[3] in range(4) and len(row) >= 4 + int(row[3]):
            terms = row[4 : 4 + int(row[3])]
            polynomials[position] = np.concatenate([np.zeros(3 - len(terms)), terms])
        elif row[0] == 1:
            lines = _lines(_points(row, where[g]), where[g])
            piecewise += [(position, slope * mva, intercept) for slope, intercept in lines]
    columns = np.array(piecewise, np.float64).reshape(-1, 3)
    return polynomials * [mva * mva, mva, 1.0], CostLines(columns[:, 0].astype(np.int64), columns[:, 1], columns[:, 2])


def _points(row: Floats, where: str) -> Floats:
    """The points of a row of model 1, shape (points, 2): MW, $/h."""
    count = row[3]
    if count not in range(2, (len(row) - 4) // 2 + 1):
        raise InputError(
            f"{where}: found {count:g} points of a piecewise-linear cost in {len(row)} columns of mpc.gencost, "
            "expected two or more, MW and $/h each"
        )
    points = row[4 : 4 + 2 * int(count)].reshape(-1, 2)
    if not np.isfinite(points).all():
        raise InputError(f"{where}: found a point of a piecewise-linear cost that is not finite, expected MW and $/h")
    falling = np.flatnonzero(np.diff(points[:, 0]) <= 0)
    if len(falling):
        low, high = points[falling[0] : falling[0] + 2, 0]
        raise InputError(
            f"{where}: found {high:g} MW after {low:g} MW in a piecewise-linear cost, expected ascending MW"
        )
    return points


def _lines(points: Floats, where: str) -> list[tuple[float, float]]:
    """Slope and intercept of each segment, from left to right; points on the line between their neighbours drop out."""
    corners = list[Floats]()  # the lower convex hull
    for point in points:
        while len(corners) > 1 and _slope(corners[-2], corners[-1]) >= _slope(corners[-1], point):
            corners.pop()
        corners.append(point)
    hull = np.array(corners)
    above = points[:, 1] - np.interp(points[:, 0], hull[:, 0], hull[:, 1])
    wrong = np.flatnonzero(above > _ROUNDED * np.abs(points[:, 1]).max())
    if len(wrong):
        raise InputError(
            f"{where}: found a piecewise-linear cost that is concave at {points[wrong[0], 0]:g} MW, "
            "expected a convex one"
        )
    return [(_slope(a, b), float(a[1] - _slope(a, b) * a[0])) for a, b in pairwise(hull)]


def _slope(a: Floats, b: Floats) -> float:
    return float((b[1] - a[1]) / (b[0] - a[0]))
