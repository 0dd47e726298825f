"""Noise shares of masked sums: the theorem's numbers, the shares of the table, and sums against the ideal law."""

from fractions import Fraction
from itertools import pairwise
from math import erf, exp, sqrt

import mpmath
import numpy as np
import pytest

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.privacy.accounting import calibrate, gdp_epsilon
from hushgrid.kernels.privacy.noise import Lattice
from hushgrid.kernels.privacy.shares import LEAST, excess, shares
from hushgrid.kernels.randomness import counter_generator

#: (n, t, epsilon, delta, T, d, Delta/g): mu, t_share, epsilon of a share alone.
TABLE = [
    ((4, 1, 1.0, 1e-6, 100, 10, 2048.0), (0.023670438066, 50030.298968, 1.81378)),
    ((8, 2, 1.0, 1e-6, 100, 123, 125952.0), (0.023670438066, 2172508.013120, 2.65355)),
    ((8, 0, 4.0, 1e-6, 10, 123, 125952.0), (0.264954202992, 168084.435898, 13.52654)),
    ((50, 10, 0.1, 1e-8, 1000, 10, 10240.0), (0.000688389069, 2352719.174952, 0.68931)),
]


@pytest.mark.parametrize(("case", "expected"), TABLE)
def test_the_shares_of_the_table(case, expected):
    n, t, epsilon, delta, T, d, moved = case
    mu = calibrate("gdp", epsilon, delta, T)
    share = shares(mu, [moved], d, n - t, g=1.0)[0]
    assert mu == pytest.approx(expected[0], rel=1e-10)
    assert share.lattice.t == pytest.approx(expected[1], rel=1e-10)
    assert gdp_epsilon(share.alone * sqrt(T), delta) == pytest.approx(expected[2], abs=5e-6)
    assert share.mu <= mu
    assert gdp_epsilon(share.mu * sqrt(T), delta) <= epsilon
    assert share.alone == pytest.approx(share.mu * sqrt(n - t), rel=1e-12)


def test_all_devices_have_one_grid_and_the_share_of_the_one_that_moves_most():
    found = shares(0.05, [1.0, 0.25, 3.0], 10, 4)
    assert {(s.lattice.g, s.lattice.t) for s in found} == {(found[0].lattice.g, found[0].lattice.t)}
    assert found[2].mu <= 0.05
    assert found[2].mu == pytest.approx(0.05, rel=1e-12)
    assert found[1].mu < found[0].mu < found[2].mu
    own = [Lattice.gaussian(0.05, s, 10).g for s in (1.0, 0.25, 3.0)]
    assert found[0].lattice.g == min(own)


def test_what_no_grid_holds_is_refused():
    with pytest.raises(InputError, match="expected at least 1"):
        shares(0.1, [1.0], 10, 0)
    with pytest.raises(InputError, match="expected 32 to 2"):
        shares(1.0, [1.0], 1, 4000)


def law(t: mpmath.mpf, reach: int) -> list[mpmath.mpf]:
    """P(nearest integer to N(0, t^2) = j), j = -reach..reach."""
    cdf = [mpmath.ncdf((j + mpmath.mpf(1) / 2) / t) for j in range(-reach - 1, reach + 1)]
    return [b - a for a, b in pairwise(cdf)]


def ideal(t: mpmath.mpf, h: int, j: int) -> mpmath.mpf:
    """P(round(N(0, h t^2) + U_1 + ... + U_{h-1}) = j): the h-fold difference of an h-fold integral of the density."""
    s, total = t * mpmath.sqrt(h), mpmath.mpf(0)
    # density at j of N + U_1 + ... + U_h: central differences of F_h, F_h^(h) = normal density, F_1 = its distribution
    for k in range(h + 1):
        x = (j + mpmath.mpf(h) / 2 - k) / s
        total += (-1) ** k * mpmath.binomial(h, k) * iterated(h, x) * s ** (h - 1)
    return total


def iterated(h: int, x: mpmath.mpf) -> mpmath.mpf:
    """The h-fold integral of the normal density from -infinity to x."""
    if h == 0:
        return mpmath.npdf(x)
    if h == 1:
        return mpmath.ncdf(x)
    return (x * iterated(h - 1, x) + iterated(h - 2, x)) / (h - 1)


@pytest.mark.parametrize("h", [2, 3, 4])
@pytest.mark.parametrize(
    ("t", "rho", "at", "error"),
    [
        ("0.5", 0.170, 2, 0.101),
        ("0.7", 1.59e-2, 2, 7.41e-3),
        ("1", 1.034e-4, 2, 4.31e-5),
        ("1.5", 4.54e-10, 4, 1.90e-10),
    ],
)
def test_the_factors_of_the_theorem(t, rho, at, error, h):
    """h shares to 60 digits: at no point are they further from the ideal law than rho. Of two the errors are the known
    ones.
    """
    with mpmath.workdps(60):
        scale, reach = mpmath.mpf(t), 24
        p = law(scale, reach)
        q = p
        for _ in range(h - 1):
            q = [
                sum(q[i - j] * p[j] for j in range(max(0, i - len(q) + 1), min(i, 2 * reach) + 1))
                for i in range(len(q) + 2 * reach)
            ]
        errors = [abs(q[h * reach + k] / ideal(scale, h, k) - 1) for k in range(9)]
    assert max(errors) <= excess([float(t)] * h)
    if h == 2:
        assert excess([float(t)] * 2) == pytest.approx(rho, rel=2e-3)
        assert float(errors[at]) == pytest.approx(error, rel=5e-3)


@pytest.mark.parametrize("h", [2, 3, 4])
@pytest.mark.parametrize("t", [0.5, 0.7, 1.0, 1.5])
def test_the_excess_is_the_product_over_the_devices(t, h):
    expected = 1.0
    for j in range(2, h + 1):
        v = t**2 * (j - 1) / j
        expected *= 1 + 2 * sum(exp(-2 * np.pi**2 * k**2 * v) for k in range(1, 30))
    assert excess([t] * h) == pytest.approx(expected - 1, rel=1e-10)
    assert excess([t] * h) <= 2.01 * (h - 1) * exp(-(np.pi**2) * t**2) * (1.2 if t < 1 else 1)
    assert excess([LEAST] * 4) == 0.0


@pytest.mark.runs
@pytest.mark.parametrize("n", [4, 8])
def test_sums_of_shares_have_the_ideal_law(n):
    """Chi-square of 1e5 sums over bins of equal chance under N(0, n t^2) with n - 1 uniforms: their variance is n t^2 +
    n/12.
    """
    lattice, N, bins = Lattice("gaussian", 1.0, LEAST, 1.0), 100_000, 64
    sums = np.zeros(N, dtype=np.int64)
    for i in range(n):
        sums += lattice.sample(N, counter_generator(7, f"n{i}", n).bytes)
    sd = sqrt(n * LEAST**2 + n / 12)
    edges = np.unique(np.rint(sd * np.sqrt(2) * np.array([_inverse(k / bins) for k in range(1, bins)])))
    chance = np.diff([0.0, *(0.5 + 0.5 * erf((e + 0.5) / (sd * sqrt(2))) for e in edges), 1.0])
    counts = np.bincount(np.searchsorted(edges, sums), minlength=len(chance))
    chi2 = float(np.sum((counts - N * chance) ** 2 / (N * chance)))
    degrees = len(chance) - 1
    assert abs(chi2 - degrees) < 5 * sqrt(2 * degrees)


def _inverse(p: float) -> float:
    """erf^-1(2 p - 1)."""
    return float(mpmath.erfinv(2 * p - 1))


def test_roots_are_rounded_to_the_safe_side():
    for h in (2, 3, 6, 7, 40):
        share = shares(0.01, [1.0], 123, h)[0]
        exact = Fraction(share.lattice.sensitivity) ** 2 / Fraction(share.lattice.scale) ** 2 / h
        assert Fraction(share.mu) ** 2 >= exact
        assert share.mu <= 0.01
