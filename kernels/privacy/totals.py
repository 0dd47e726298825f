"""Noisy entries and their noisy total, made to agree: less noise in sums over many entries, at the same epsilon.

y_i = d_i + noise of variance v_i, and T = sum d_i + noise of variance v_T. Of all d~ with the entries' and the total's
residuals weighed by their variances the nearest is

    d~_i = y_i + v_i / (sum v + v_T) (T - sum y):

with equal variances d~_i = y_i + (T - sum y)/(n + 1). A sum over all n entries then has the variance
v_T sum v / (sum v + v_T) in place of sum v. It is post-processing of the answers. Source: M. Hay, V. Rastogi, G.
Miklau, D. Suciu, Boosting the accuracy of differentially private histograms through consistency, 2010, for a tree of
one level.
"""

from __future__ import annotations

import numpy as np

from hushgrid.kernels.types import Vector

NODES = 200  #: of the integral in `expected_error`: exact to 1e-9 and better


def reconciled(y: Vector, total: float, variance: Vector, of_total: float) -> Vector:
    """d~ (n,), from y and variance (n,), the noisy total, and its noise's variance; only ratios of variances count."""
    if not y.size:
        return y
    shared: Vector = y + variance / (np.sum(variance) + of_total) * (total - np.sum(y))
    return shared


def expected_error(scale: Vector, of_total: float) -> Vector:
    """E|d~_i - d_i| (n,) where the noises are Laplace's, of these scales (n,) and `of_total` for the total.

    d~_i - d_i is a sum of independent w_j L_j, L_j of scale 1, whose characteristic function is the product of
    1/(1 + (w_j s)^2), and E|X| = (2/pi) int_0^inf (1 - phi(s))/s^2 ds: by Gauss's rule in s = tan(theta)/sd.
    """
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    theta = (nodes + 1) * np.pi / 4
    kinds, group, count = np.unique(scale, return_inverse=True, return_counts=True)
    pull = kinds**2 / (np.sum(scale**2) + of_total**2)  # v_i / (sum v + v_T)
    expected = np.zeros(kinds.size)
    for k, (own_scale, kappa) in enumerate(zip(kinds, pull, strict=True)):
        w = np.append(kinds, [of_total, own_scale]) * kappa
        w[-1] = (1 - kappa) * own_scale
        times = np.append(count, [1, 1])
        times[k] -= 1
        sd = np.sqrt(2 * np.sum(times * w**2))
        s = np.tan(theta) / sd
        missing = -np.expm1(-np.sum(times[:, None] * np.log1p((w[:, None] * s) ** 2), axis=0))  # 1 - phi
        expected[k] = sd / 2 * np.sum(weights * missing / np.sin(theta) ** 2)
    error: Vector = expected[group]
    return error
