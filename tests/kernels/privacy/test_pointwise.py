"""Sensitivity at a point: the formula against brute force, reference values and fifty digits; the forms that are not
built.
"""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from hushgrid.kernels.privacy.pointwise import diameter, root
from tests.support import examples

#: r: z*, D(r) and D(r, k) for k = .9, .75, .6; None: as D(r).
REFERENCE = {
    0.0: (0.0, 1.0, None, None, None),
    0.1: (0.00497521638321, 1.00124611667, None, None, None),
    0.5: (0.112073972237, 1.02910917042, None, None, None),
    1.0: (0.3584725089, 1.09909547706, None, None, None),
    2.0: (0.910154180605, 1.26984108986, None, None, 1.17508097449),
    4.0: (1.80327315536, 1.53270497661, None, 1.4423150843, 1.19381900812),
    8.0: (2.89980659841, 1.76675499623, 1.73077810115, 1.48578874696, 1.19845774061),
    16.0: (4.06026675189, 1.9017365847, 1.78294649635, 1.49645983914, 1.19961462104),
    64.0: (6.44299568099, 1.98667731939, 1.79893889225, 1.49977898476, 1.19997591744),
    1000.0: (11.3832284991, 1.99984764998, 1.79999565498, 1.49999909479, 1.19999990136),
}


@pytest.mark.parametrize("r", REFERENCE)
def test_the_formula_has_its_reference_values(r):
    z, D, *clipped = REFERENCE[r]
    assert root(r) == pytest.approx(z, rel=1e-10)
    assert diameter(r, 1.0) == diameter(r, 7.0) == pytest.approx(D, rel=1e-10)
    for k, value in zip((0.9, 0.75, 0.6), clipped, strict=True):
        assert diameter(r, k) == pytest.approx(D if value is None else value, rel=1e-10)
    for k in (0.5, 0.25, 1e-9):
        assert diameter(r, k) == pytest.approx(2 * k, rel=1e-10)


def exact(r, k):
    """D in fifty digits."""
    with mpmath.workdps(50):
        r, k = mpmath.mpf(r), mpmath.mpf(k)
        z = mpmath.mpf(root(float(r)))
        for _ in range(3):  # Newton's method from sixteen digits
            f, slope = z * (1 + z + mpmath.exp(z)) - r * r, 1 + 2 * z + (1 + z) * mpmath.exp(z)
            z -= f / slope
        e = mpmath.exp(z)
        if k <= 0.5:
            return 2 * k
        if k < e / (1 + e):
            return 2 * k * mpmath.sqrt(1 - (mpmath.log(k / (1 - k)) / r) ** 2)
        return 2 * e / mpmath.sqrt((1 + e) * (1 + e + z))


@examples.of(200)
@given(st.floats(-6, 5.9), st.one_of(st.floats(1e-6, 2.0), st.floats(0.5, 0.5 + 1e-9), st.floats(0.999, 1.0)))
def test_it_is_never_too_small_and_hardly_too_large(far, k):
    r = 10.0**far
    true = exact(r, k)
    assert true <= diameter(r, k) <= true * (1 + mpmath.mpf(2) ** -36)


@pytest.mark.parametrize("r", [1e6, 1e150, math.inf, math.nan])
def test_far_away_it_is_the_uniform_one(r):
    assert diameter(r, 3.0) == 2.0
    assert diameter(r, 0.6) == pytest.approx(1.2)


# --- brute force: x = (r, 0, ...), R = 1; a record is u = -b a of norm at most 1 ---


def gradient(U, r, k):
    """Of records U (n, d), shortened to k."""
    with np.errstate(over="ignore"):
        G = U / (1 + np.exp(-r * U[:, :1]))
    return G * np.minimum(1, k / np.maximum(np.linalg.norm(G, axis=1, keepdims=True), 1e-300))


def widest(G):
    """The largest distance of two rows."""
    square = np.sum(G * G, axis=1)
    return math.sqrt(float(np.max(square[:, None] + square - 2 * G @ G.T)))


@pytest.mark.runs
@pytest.mark.parametrize("r", [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 30.0, 200.0])
@pytest.mark.parametrize("k", [0.3, 0.55, 0.6, 0.75, 0.9, 1.0])
def test_no_two_records_are_farther_apart_and_two_are_as_far(r, k):
    z, angle = root(r), np.linspace(0, 2 * math.pi, 721)
    k_angle = math.log(k / (1 - k)) / r if 0.5 < k < 1 and r and k < 1 / (1 + math.exp(-z)) else (z / r if r else 0.0)
    angle = np.concatenate([angle, [math.acos(min(k_angle, 1.0)), -math.acos(min(k_angle, 1.0))]])
    U = np.concatenate([rho * np.stack([np.cos(angle), np.sin(angle)], axis=1) for rho in (1.0, 0.99, 0.9, 0.6, 0.3)])
    found = widest(gradient(U, r, k))
    assert (1 - 1e-9) * diameter(r, k) <= found <= diameter(r, k)


@pytest.mark.runs
@pytest.mark.parametrize("d", [3, 5])
@pytest.mark.parametrize(("r", "k"), [(1.0, 1.0), (4.0, 0.75), (8.0, 0.9), (8.0, 1.0)])
def test_a_search_in_more_dimensions_finds_the_same(r, k, d):
    def apart(v):
        U = v.reshape(2, d)
        G = gradient(U / np.maximum(np.linalg.norm(U, axis=1, keepdims=True), 1.0), r, k)
        return -float(np.linalg.norm(G[0] - G[1]))

    rng = np.random.default_rng(d)
    found = [
        minimize(
            apart,
            rng.normal(size=2 * d),
            method="Nelder-Mead",
            options={"maxiter": 4000, "xatol": 1e-9, "fatol": 1e-13},
        )
        for _ in range(4)
    ]
    best = max(-f.fun for f in found)
    assert 0.999 * diameter(r, k) <= best <= diameter(r, k)


# --- what docs/papers/mechanisms.md says of other losses and norms, and no gate uses ---


def of_least_squares(r, B):
    """D of slopes a.x - b, |b| <= B, in units of R."""
    t = (-B + math.sqrt(B * B + 8 * r * r)) / (4 * r)
    return 2 * (r * t + B) * math.sqrt(1 - t * t)


@pytest.mark.runs
@pytest.mark.parametrize(
    ("r", "B", "value"),
    [
        (0.5, 0.5, 1.29903810568), (0.5, 1, 2.20183473752), (1, 0.5, 1.76017259305), (1, 1, 2.59807621135),
        (1, 3, 6.29760258855), (8, 1, 9.44414037867), (8, 3, 12.4908668486),
    ],
)  # fmt: skip
def test_least_squares_with_labels_of_known_range(r, B, value):
    assert of_least_squares(r, B) == pytest.approx(value, rel=1e-10)
    angle = np.linspace(0, 2 * math.pi, 721)
    G = [
        rho * (r * rho * np.cos(angle) - b)[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        for rho in (1.0, 0.8, 0.4)
        for b in (-B, 0.0, B)
    ]
    assert 0.9999 * value <= widest(np.concatenate(G)) <= of_least_squares(r, B) * (1 + 1e-12)


@pytest.mark.parametrize(
    ("r", "value"), [(0.5, 1.0), (2.0, 1.02002934936), (8.0, 1.03447271771), (64.0, 1.00435100848)]
)
def test_one_dimension_is_hardly_more_than_one(r, value):
    """1 for r <= 1 + W, else s(r) + W/r, W e^(1 + W) = 1."""
    W = 0.278464542761
    assert W * math.exp(1 + W) == pytest.approx(1, rel=1e-10)
    formula = 1.0 if r <= 1 + W else 1 / (1 + math.exp(-r)) + W / r
    u = np.linspace(-1, 1, 200_001)
    g = u / (1 + np.exp(-r * u))
    assert formula == pytest.approx(value, rel=1e-10)
    assert g.max() - g.min() == pytest.approx(value, rel=1e-8)
    assert value <= diameter(r, 1.0)


def test_rows_bounded_in_l1():
    """2 s(|x|_inf) in units of R1, attained where two coordinates tie."""
    value = 2 / (1 + math.exp(-1.0))
    assert value == pytest.approx(1.4621171573, rel=1e-10)
    rng = np.random.default_rng(0)
    U = rng.laplace(size=(400, 2))
    U = np.concatenate([U / np.sum(np.abs(U), axis=1, keepdims=True), np.eye(2)])
    G = U / (1 + np.exp(-U @ np.ones(2)))[:, None]
    apart = np.sum(np.abs(G[:, None] - G), axis=2)
    assert (1 - 1e-12) * value <= apart.max() <= value * (1 + 1e-12)
