"""From a node's gradients the rows behind them.

Without its public part, and times m/scale, a gradient is the sum of s_j a_j over the node's m rows, s_j the slope of
row j. Of one row it is a multiple of it: rank one. Its length and label follow from the slopes, which are known
functions. Several rows of softmax regression: `classes.py`; where no closed form is known: `matching.py`.
"""

from __future__ import annotations

from math import nan, sqrt
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares

from hushgrid.kernels.problems.losses import SLOPE, Declared, Kind, public_gradient
from hushgrid.kernels.types import Matrix, Vector
from hushgrid.lab.inversion.classes import batch
from hushgrid.lab.inversion.matching import logistic_batch, softmax_batch
from hushgrid.lab.inversion.recovered import NONE, Gradients, Rows

LENGTHS = (1.0, 4.0, 16.0)  #: times the length at which a slope would be steepest: starts of the fit of a length
EXACT = {"xtol": 1e-15, "ftol": 1e-15, "gtol": 1e-15}  #: of a fit: as far as rounding lets it


class Sums(NamedTuple):
    """Sums of s_j a_j over the rows, at V points. C is 1 but for softmax."""

    X: np.ndarray  #: (V, C, q) the points
    H: np.ndarray  #: (V, C, q)

    @property
    def rank_one(self) -> tuple[Vector, Matrix, float]:
        """The unit vector e (q,) nearest to all of H, the coefficients (V, C) of H on it, sigma_2/sigma_1.

        The last is NaN of a single vector, which is always of rank one.
        """
        every = self.H.reshape(-1, self.H.shape[2])
        _, sigma, e = np.linalg.svd(every, full_matrices=False)
        rank = min(len(every) - (self.H.shape[1] > 1), len(sigma))  # softmax: slopes of a row sum to 0
        ratio = float(sigma[1] / sigma[0]) if rank > 1 and sigma[0] > 0 else nan
        return e[0], self.H @ e[0], ratio


def sums_of(f: Declared, seen: Gradients) -> Sums:
    """What gradients without a hidden coordinate say of the rows."""
    o, shape = f.objective, (-1, f.classes, f.features)
    points, g = seen.points[seen.complete], seen.g[seen.complete]
    data = g - public_gradient(points, o.l2, o.lam, o.omega)
    return Sums(points.reshape(shape), data.reshape(shape) * (f.rows / o.scale))


def rows_of(f: Declared, seen: Gradients) -> Rows:
    """The rows behind a node's gradients, as far as they can be told. f: what is public of its function."""
    sums = sums_of(f, seen)
    if not len(sums.H) or not np.any(sums.H):
        return NONE
    if f.rows == 1:
        return {"softmax": softmax_row, "logistic": logistic_row, "least-squares": least_squares_row}[f.objective.kind](
            sums
        )
    if f.objective.kind == "softmax":
        recovered = batch(sums.X, sums.H, f.rows)
        return recovered if len(recovered.rows) else softmax_batch(sums.X, sums.H, f.rows)
    if f.objective.kind == "logistic":
        return logistic_batch(sums.X[:, 0], sums.H[:, 0], f.rows)
    return NONE  # least squares of several rows tells A'A and A'b, and these rows up to a rotation


def softmax_row(sums: Sums) -> Rows:
    """H = (softmax(X a) - e_b) a': the one class whose slope is negative at every point is the label's."""
    e, c, ratio = sums.rank_one
    options = [(sign, b) for sign in (1.0, -1.0) for b in range(c.shape[1])]
    sign, b = max(options, key=lambda option: _single(option[0] * c, option[1]))
    e, c = sign * e, sign * c
    margins, Y = sums.X @ e, np.eye(c.shape[1])[:, [b]]
    t = _length(margins, c, "softmax", Y, 1 - 1 / c.shape[1])
    misfit = t * SLOPE["softmax"](t * margins.T, Y).T - c
    return Rows(t * e[None], np.array([float(b)]), "rank-one", _worse(ratio, misfit, c))


def _single(c: Matrix, b: int) -> float:
    """How much of coefficients (V, C) is negative in class b, less what is negative in others."""
    below = np.maximum(-c, 0.0).sum(axis=0)
    return float(2 * below[b] - below.sum() - np.maximum(c[:, b], 0.0).sum())


def logistic_row(sums: Sums) -> Rows:
    """H = -sigma(-r.x) r, r = b a: (a, b) and (-a, -b) are one record. The row found is r, with label 1."""
    e, coefficients, ratio = sums.rank_one
    c = coefficients[:, 0]
    e, c = (-e, -c) if np.sum(c) > 0 else (e, c)
    margins, one = sums.X[:, 0] @ e, np.ones(len(c))
    t = _length(margins, c, "logistic", one, 0.5)
    misfit = t * SLOPE["logistic"](t * margins, one) - c
    return Rows(t * e[None], np.ones(1), "rank-one", _worse(ratio, misfit, c))


def _length(margins: np.ndarray, c: np.ndarray, kind: Kind, target: Matrix, half: float) -> float:
    """t with t slope(t margins) = c, from the points where no slope is flat, or the one nearest to that.

    margins, c: (V, C) or (V,), the points on e and the coefficients of H. half: the largest slope at margin 0.
    """
    steep = np.abs(margins).reshape(len(c), -1).max(axis=1)
    use = steep <= max(1.0, float(steep.min()))
    m, wanted = margins[use].T, c[use].T
    target = target if kind == "softmax" else target[use]
    start = float(np.max(np.abs(wanted))) / half

    def missed(t: Vector) -> Vector:
        misfit: Vector = (t[0] * SLOPE[kind](t[0] * m, target) - wanted).ravel()
        return misfit

    # Where all slopes are flat, the row is longer than the start says: the same coefficient has two lengths.
    fits = [least_squares(missed, [start * k], x_scale=start * k, **EXACT) for k in LENGTHS]
    return float(min(fits, key=lambda fit: fit.cost).x[0])


def least_squares_row(sums: Sums) -> Rows:
    """H = (a.x - b) a: with a = t e linear in t^2 and t b. The row is found up to the sign of (a, b).

    From one point its direction alone is known: then the row has length 1 and no label.
    """
    e, coefficients, ratio = sums.rank_one
    c, terms = coefficients[:, 0], np.column_stack([sums.X[:, 0] @ e, -np.ones(len(sums.X))])
    (square, product), _, rank, _ = np.linalg.lstsq(terms, c, rcond=None)
    if rank < 2 or square <= 0:
        return Rows(e[None], np.array([nan]), "rank-one", nan if rank < 2 else 1.0)
    t = sqrt(square)
    misfit = terms @ np.array([square, product]) - c
    return Rows(t * e[None], np.array([product / t]), "rank-one", _worse(ratio, misfit if len(c) > 2 else 0 * c, c))


def _worse(ratio: float, missed: Vector, c: Matrix) -> float:
    """sigma_2/sigma_1, or what the fit of the length leaves of the coefficients, if that is more."""
    return max(ratio, float(np.linalg.norm(missed) / np.linalg.norm(c))) if ratio == ratio else nan
