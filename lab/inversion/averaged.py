"""Behind noisy answers: a guess from their mean.

A gate's answers have noise of one size, each its own: the mean of V answers has noise less by the root of V. It is the
gradient at no point, but of rows whose slopes change little from point to point nearly the one at x = 0, of which the
rows are guessed. What an epsilon allows shows in such guesses first: labels, and the direction of a row. None of them
is a find: their residual is the noise.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np

from hushgrid.kernels.problems.losses import SLOPE, Declared
from hushgrid.kernels.types import Matrix
from hushgrid.lab.inversion.classes import class_sums
from hushgrid.lab.inversion.recovered import NONE, Gradients, Rows
from hushgrid.lab.inversion.rows import Sums, rows_of, sums_of

PLAIN = 0.1  #: a residual with which single answers show more than noise


def behind_noise(f: Declared, seen: Gradients) -> Rows:
    """From each answer as if it had no noise, where that explains nearly all of what was heard; else from their mean.

    What a fit to single answers leaves is no measure beside a mean: it fits their noise.
    """
    sums = sums_of(f, seen)
    if not len(sums.H) or not np.any(sums.H):
        return NONE
    alone = rows_of(f, seen)
    if alone.residual <= PLAIN or not len((mean := averaged(f, sums)).rows):
        return alone
    return replace(mean, residual=residual(f, sums, mean))


def averaged(f: Declared, sums: Sums) -> Rows:
    """Rows behind the mean of sums H, as if it were H at x = 0. No row is longer than the public bound.

    Softmax: each of the rows alone in its class, the classes that stand out. Logistic: all rows the same, r = b a;
    least squares: the direction of a single row.
    """
    mean, m = sums.H.mean(axis=0), f.rows
    if f.objective.kind == "softmax":
        present, rows = class_sums(mean, m)
        labels = present.astype(np.float64)
        if len(rows) != m or not len(present):
            return NONE
    elif f.objective.kind == "logistic":
        rows, labels = np.repeat(-2 / m * mean, m, axis=0), np.ones(m)
    elif m == 1:
        rows = mean * ((f.row_bound or 1.0) / float(np.linalg.norm(mean)))
        pulled = sums.X[:, 0] @ rows[0] - sums.H[:, 0] @ rows[0] / float(rows[0] @ rows[0])  # (a.x - b) a = H
        labels = np.array([float(pulled.mean())])
    else:
        return NONE
    return Rows(
        _shortened(rows, f.row_bound), labels, "class-sums" if f.objective.kind == "softmax" else "rank-one", inf
    )


def _shortened(rows: Matrix, bound: float | None) -> Matrix:
    size = np.linalg.norm(rows, axis=1, keepdims=True)
    short: Matrix = rows if bound is None else rows * (bound / np.maximum(size, bound))
    return short


def residual(f: Declared, sums: Sums, rows: Rows) -> float:
    """|G(rows) - G|/|G| over all answers; infinite where a label is not known."""
    if not np.isfinite(rows.labels).all():
        return inf
    slope, softmax = SLOPE[f.objective.kind], f.objective.kind == "softmax"
    target = (np.arange(f.classes)[:, None] == rows.labels).astype(np.float64) if softmax else rows.labels
    norms = np.array(
        [np.atleast_2d(slope(X @ rows.rows.T if softmax else rows.rows @ X[0], target)) @ rows.rows for X in sums.X]
    )
    return float(np.linalg.norm(norms - sums.H) / np.linalg.norm(sums.H))
