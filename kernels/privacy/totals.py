"""Noisy entries and their noisy total, made to agree: less noise in sums over many entries, at the same epsilon.

y_i = d_i + noise of variance v_i, and T = sum d_i + noise of variance v_T. Of all d~ with the entries' and the total's
residuals weighed by their variances the nearest is

    d~_i = y_i + v_i / (sum v + v_T) (T - sum y):

with equal variances d~_i = y_i + (T - sum y)/(n + 1). A sum over all n entries then has the variance
v_T sum v / (sum v + v_T) in place of sum v. It is post-processing of the answers. Source: M. Hay, V. Rastogi, G. Miklau,
D. Suciu, Boosting the accuracy of differentially private histograms through consistency, 2010, for a tree of one level.
"""

from __future__ import annotations

import numpy as np

from hushgrid.kernels.types import Vector


def reconciled(y: Vector, total: float, variance: Vector, of_total: float) -> Vector:
    """d~ (n,), from y and variance (n,), the noisy total, and its noise's variance; only ratios of variances count."""
    if not y.size:
        return y
    shared: Vector = y + variance / (np.sum(variance) + of_total) * (total - np.sum(y))
    return shared
