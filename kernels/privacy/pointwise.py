"""How far apart two records' logistic gradients can be at a known point x: noise scaled to that, at the same cost.

A record of norm |a| <= R has the gradient -b s(-b a.x) a, s(z) = 1/(1 + e^-z), shortened to c where it is longer. Two
of them lie at most R D apart, D = D(r, k), r = R |x|, k = c/R, and with z* the root of z (1 + z + e^z) = r^2

    k <= 1/2           D = 2 k
    1/2 < k < s(z*)    D = 2 k sqrt(1 - (ln(k/(1 - k))/r)^2)
    s(z*) <= k         D = D(r) = 2 e^z*/sqrt((1 + e^z*)(1 + e^z* + z*))

exactly, in two dimensions and more: from 1 at x = 0 to 2 far away, where `losses.Loss.sensitivity` has 2 c everywhere.
docs/papers/mechanisms.md has the proof. x must be public. The figures are upper bounds in floating point too: D rises
in r, in k and in z*, so each is rounded up by more than the few operations on it err.
"""

from __future__ import annotations

from math import exp, log1p, sqrt

import numpy as np

from hushgrid.kernels.problems.losses import Public, U
from hushgrid.kernels.types import Vector

SLACK = 1 + 2.0**-40
FAR = 1e6  #: of r: D(r) is within 1e-6 of 2 there, and 2 is taken
#: The sensitivity of a gradient in units of `sensitivity`. Each of two quotients errs by 2^-53 of at most m < 2^30
#: units.
UNIT = 1 + 2.0**-20


def root(r: float) -> float:
    """z* of z (1 + z + e^z) = r^2, 0 <= r <= FAR, rounded up by a bit or two. It is at most 2 ln(1 + r) + 1."""
    if r == 0:
        return 0.0
    low, high = 0.0, 2 * log1p(r) + 1
    while low < (z := (low + high) / 2) < high:
        low, high = (z, high) if z * (1 + z + exp(z)) < r * r else (low, z)
    return high


def diameter(r: float, k: float) -> float:
    """D(r, k), rounded up; r >= 0, k > 0."""
    k *= SLACK
    if k <= 0.5:
        return 2 * k * SLACK
    if not r < FAR:  # true for nan too
        return 2 * min(k, 1.0)
    e = exp(z := root(r * SLACK))
    if k < e / (1 + e):
        t = log1p((2 * k - 1) / (1 - k)) * (1 - 2.0**-40) / (r * SLACK)
        return 2 * k * sqrt(1 - t * t) * SLACK
    return 2 * e / sqrt((1 + e) * (1 + e + z)) * SLACK


def sensitivity(loss: Public, x: Vector, c: float, rounding: float, uniform: float, records: int = 1) -> float:
    """L2 sensitivity at x of the mean of m logistic gradients clipped to c, as computed; `uniform`: that of every
    point.

    `records`: k of the m are replaced, each of which moves the mean by itself; k = m replaces them all.

    `rounding`: a bound of |computed - true gradient| without the clip. A clip is a contraction, so the bound holds
    after it; the clip itself errs by (q + 16) units in the last place of at most min(c, R).
    """
    o, q = loss.objective, loss.features
    assert loss.row_bound is not None
    R = loss.row_bound * (1 + (2 * q + 16) * U) * SLACK  # a norm is known to its own rounding
    length = float(np.linalg.norm(x)) * (1 + (x.size + 16) * U)  # infinite where its square overflows
    error = rounding + (q + 16) * U * o.scale * min(c, R) * (1 + 2.0**-10)
    k = min(records, loss.rows)
    pointwise = k * o.scale * R * diameter(R * length, c / R) / loss.rows * SLACK + 2 * error
    return min(uniform, pointwise) if pointwise == pointwise else uniform
