"""The accountants, and what they are tried on."""

from __future__ import annotations

import mpmath
from hypothesis import strategies as st

small = st.floats(1e-4, 3)
deltas = st.floats(1e-12, 0.2)


def exact_gdp_delta(epsilon: float, mu: float) -> mpmath.mpf:
    with mpmath.workdps(60):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


def exact_optimal_delta(target: float, epsilon: float, k: int) -> mpmath.mpf:
    with mpmath.workdps(60):
        e, p = mpmath.mpf(epsilon), 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon)))
        gains = ((j, 1 - mpmath.exp(target - (k - 2 * j) * e)) for j in range(k + 1) if (k - 2 * j) * epsilon > target)
        return mpmath.fsum(mpmath.binomial(k, j) * p ** (k - j) * (1 - p) ** j * gain for j, gain in gains)
