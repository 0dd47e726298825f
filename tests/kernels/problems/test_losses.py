"""What the losses promise: the formulas, their public bounds, the sensitivity of what the machine computes,
certificates.

The referee is the formula of f_i in 50-digit arithmetic, differentiated numerically, never the code under test.
"""

import dataclasses
import warnings
from fractions import Fraction

import mpmath
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.kernels.errors import InputError, Refused
from hushgrid.kernels.problems.losses import CURVATURE, LARGEST, Loss, Nonconvex, Objective
from hushgrid.kernels.problems.minimizer import Minimizer, _Function
from tests.support import examples

KINDS = ["least-squares", "logistic", "softmax"]
mpmath.mp.dps = 50


def problem(kind: str, *, m: int = 6, q: int = 3, seed: int = 0, rows: float = 1.0, **objective) -> Loss:
    rng = np.random.default_rng(seed)
    A, b = rows * rng.normal(size=(m, q)), rng.normal(size=m)
    if kind != "least-squares":
        b = np.sign(b) if kind == "logistic" else rng.integers(0, 3, m).astype(float)
    return Loss(Objective(kind=kind, **objective), A, b, classes=3 if kind == "softmax" else 1)


def formula(loss: Loss, x) -> mpmath.mpf:
    """f_i(x), word for word, in 50 digits."""
    o, total = loss.objective, mpmath.mpf(0)
    q = loss.A.shape[1]
    for row, label in zip(loss.A.tolist(), loss.b.tolist(), strict=True):
        t = [mpmath.fdot(row, x[c * q : (c + 1) * q]) for c in range(loss.classes)]
        if o.kind == "least-squares":
            total += (t[0] - label) ** 2 / 2
        elif o.kind == "logistic":
            total += mpmath.log(1 + mpmath.exp(-label * t[0]))
        else:
            total -= mpmath.log(mpmath.exp(t[int(label)]) / mpmath.fsum(mpmath.exp(a) for a in t))
    penalty = mpmath.fsum(mpmath.mpf(o.omega) * a * a / (1 + mpmath.mpf(o.omega) * a * a) for a in x)
    return o.scale * total / loss.rows + mpmath.mpf(o.l2) / 2 * mpmath.fdot(x, x) + mpmath.mpf(o.lam) * penalty


def derivative(function, x) -> list:
    """All partial derivatives at x, by central differences of step 1e-15 in 50 digits: error about 1e-30."""
    h = mpmath.mpf(10) ** -15
    point = [mpmath.mpf(float(a)) if not isinstance(a, mpmath.mpf) else a for a in x]
    return [
        (function([*point[:k], point[k] + h, *point[k + 1 :]]) - function([*point[:k], point[k] - h, *point[k + 1 :]]))
        / (2 * h)
        for k in range(len(point))
    ]


NONCONVEX = {"scale": 3.0, "l2": 0.5, "nonconvex": Nonconvex(lam=0.1, omega=2.0)}


@pytest.mark.parametrize("kind", KINDS)
def test_value_and_gradient_are_those_of_the_formula(kind):
    loss = problem(kind, **NONCONVEX)
    x = np.random.default_rng(9).normal(size=loss.size)
    point = [mpmath.mpf(a) for a in x.tolist()]
    assert loss.value(x) == pytest.approx(float(formula(loss, point)), rel=1e-14)
    expected = [float(a) for a in derivative(lambda p: formula(loss, p), x)]
    np.testing.assert_allclose(loss.gradient(x), expected, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(loss.data_gradient(x) + loss.public_gradient(x), expected, rtol=1e-13, atol=1e-14)


def test_the_gram_form_is_used_where_it_is_cheaper_and_is_the_same_gradient():
    tall, wide = problem("least-squares", m=40, q=4), problem("least-squares", m=4, q=40)
    assert tall.gram is not None
    assert wide.gram is None
    assert problem("logistic", m=40, q=4).gram is None
    x = np.random.default_rng(9).normal(size=4)
    np.testing.assert_allclose(tall.gradient(x), tall.data_gradient(x), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 10**6), far=st.sampled_from([1e-3, 1.0, 30.0]))
@examples.of(40)
def test_l_and_mu_bound_the_curvature(kind, seed, far):
    loss = problem(kind, seed=seed, scale=3.0, l2=0.2, nonconvex=Nonconvex(lam=0.5, omega=2.0))
    x, y = far * np.random.default_rng(seed).normal(size=(2, loss.size))
    moved = loss.gradient(x) - loss.gradient(y)
    # gradients of size up to L |x| are known to some 2^-45 of it
    rounding = 2.0**-45 * loss.L * (np.linalg.norm(x) + np.linalg.norm(y) + 1)
    assert np.linalg.norm(moved) <= loss.L * np.linalg.norm(x - y) + rounding
    assert moved @ (x - y) >= loss.objective.convexity * np.sum((x - y) ** 2) - rounding * np.linalg.norm(x - y)


@pytest.mark.parametrize(("kind", "labels"), [("least-squares", [0.0]), ("logistic", [1.0]), ("softmax", [0.0])])
def test_the_curvature_of_each_loss_is_attained(kind, labels):
    # One row a = (2, 0). Least squares everywhere; logistic at t = 0; softmax with two even classes along (1, -1).
    loss = Loss(Objective(kind=kind), np.array([[2.0, 0.0]]), np.array(labels), classes=2 if kind == "softmax" else 1)
    x = np.zeros(loss.size)
    along = np.array([1.0, 0.0] if loss.size == 2 else [1.0, 0.0, -1.0, 0.0])
    h = 1e-4
    measured = along @ (loss.gradient(x + h * along) - loss.gradient(x - h * along)) / (2 * h) / (along @ along)
    assert measured == pytest.approx(CURVATURE[kind] * 4, rel=1e-6)
    assert CURVATURE[kind] * 4 == loss.L


def test_the_nonconvex_term_bends_by_two_omega_at_zero_and_minus_half_omega_at_one():
    o = Objective(kind="logistic", nonconvex=Nonconvex(lam=1.0, omega=4.0))
    loss, h = Loss(o, np.array([[0.0]]), np.array([1.0])), 1e-4
    bend = [
        (loss.public_gradient(np.array([a + h])) - loss.public_gradient(np.array([a - h])))[0] / 2 / h for a in (0, 0.5)
    ]
    assert bend == pytest.approx([2 * 4.0, -4.0 / 2], rel=1e-6)
    assert (o.convexity, o.lipschitz(0.0)) == (-2.0, 8.0)


# --- clipping and sensitivity ---


def norm(v, order: int) -> Fraction:
    """|v| of exact numbers; for L2 its square."""
    return sum((abs(Fraction(a)) if order == 1 else Fraction(a) ** 2) for a in v)


def replaced(loss: Loss, row, label) -> Loss:
    A, b = loss.A.copy(), loss.b.copy()
    A[-1], b[-1] = row, label
    return Loss(loss.objective, A, b, classes=loss.classes)


WILD = st.one_of(st.floats(-3, 3), st.sampled_from([0.0, 1e-200, 1e-30, 1e9, -1e100, LARGEST, -LARGEST]))
LABEL = {"least-squares": WILD, "logistic": st.sampled_from([-1.0, 1.0]), "softmax": st.sampled_from([0.0, 1.0, 2.0])}


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@examples.of(60)
def test_replacing_any_record_moves_the_clipped_gradient_by_at_most_its_sensitivity(kind, order, data):
    seed, c = data.draw(st.integers(0, 99)), data.draw(st.sampled_from([1e-6, 0.3, 1.0, 50.0]))
    loss = problem(kind, seed=seed, m=data.draw(st.integers(1, 5)), scale=data.draw(st.sampled_from([0.1, 1.0, 7.0])))
    row = data.draw(st.lists(WILD, min_size=3, max_size=3))
    other = replaced(loss, row, data.draw(LABEL[kind]))
    x = np.array(data.draw(st.lists(st.one_of(WILD, st.just(1e308)), min_size=loss.size, max_size=loss.size)))
    with np.errstate(under="ignore"):
        moved = [Fraction(a) - Fraction(b) for a, b in zip(
            loss.clipped_gradient(x, c, order).tolist(), other.clipped_gradient(x, c, order).tolist(), strict=True
        )]  # fmt: skip
    assert norm(moved, order) <= Fraction(loss.sensitivity(c)) ** order


def test_the_sensitivity_is_twice_the_clip_over_m_and_the_rounding_of_the_sum():
    loss = problem("logistic", m=50, q=3, scale=7.0)
    exact = 2 * 0.3 * 7.0 / 50
    assert exact + 2 * (50 + 3 + 4) * 2.0**-53 * 0.3 * 7.0 <= loss.sensitivity(0.3) <= exact * (1 + 1e-12)


def test_without_the_rounding_the_sensitivity_would_be_passed():
    m, passed = 300, 0
    for seed in range(100):
        A, b = np.ones((m, 1)), -np.random.default_rng(seed).uniform(0.5, 1.0, m)  # gradients of one sign: a large sum
        loss = Loss(Objective(kind="least-squares"), A, b)
        one, other = (replaced(loss, [5.0], b).clipped_gradient(np.zeros(1), 1.0, 1)[0] for b in (99.0, -99.0))
        moved = abs(Fraction(one) - Fraction(other))
        passed += moved > Fraction(2, m)
        assert moved <= Fraction(loss.sensitivity(1.0))
    assert passed > 0


def test_no_record_as_the_machine_holds_it_passes_the_clip():
    # One row: what is returned is the record itself, but for the two roundings of its scaling.
    rng = np.random.default_rng(0)
    for kind in ("least-squares", "logistic", "softmax"):
        for seed in range(300):
            loss = problem(kind, m=1, seed=seed, rows=30.0)
            c = float(rng.uniform(0.1, 1.0))
            g = loss.clipped_gradient(rng.normal(size=loss.size), c, 1)
            assert norm(g.tolist(), 1) <= Fraction(c)


def test_opposite_records_attain_the_sensitivity():
    loss = problem("least-squares", m=4, scale=2.0)
    x = np.zeros(3)
    one, other = (replaced(loss, [5.0, 0, 0], b).clipped_gradient(x, 1.0, 2) for b in (9.0, -9.0))
    assert np.linalg.norm(one - other) == pytest.approx(2 * 1.0 * 2.0 / 4, rel=1e-14)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_each_record_is_clipped_on_its_own_and_a_wide_clip_changes_nothing(kind, order):
    loss = problem(kind, m=5, scale=2.0)
    x = np.random.default_rng(9).normal(size=loss.size)
    alone = [Loss(loss.objective, loss.A[j : j + 1], loss.b[j : j + 1], classes=loss.classes) for j in range(5)]
    each = [one.data_gradient(x) / 2.0 for one in alone]
    sizes = [np.linalg.norm(g, order) for g in each]
    c = float(np.median(sizes))
    expected = 2.0 * np.mean([g * min(1, c / size) for g, size in zip(each, sizes, strict=True)], axis=0)
    np.testing.assert_allclose(loss.clipped_gradient(x, c, order), expected, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(loss.clipped_gradient(x, 1e9, order), loss.data_gradient(x), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("kind", KINDS)
def test_no_finite_point_however_far_makes_an_answer_that_is_not_finite(kind):
    loss = problem(kind, m=5)
    x = np.full(loss.size, 1.7e308)
    x[::2] *= -1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.linalg.norm(loss.clipped_gradient(x, 1.0, 2)) <= 1.0 + 1e-12
        assert np.all(np.isfinite(loss.public_gradient(x)))


extremes = st.sampled_from(
    [0.0, 5e-324, 1e-310, 2.0**-200, 1e-30, 1.0, 300.0, 720.0, 745.0, 1e10, 2.0**200, 1e250, 1.7e308]
)
signed = st.tuples(extremes, st.sampled_from([-1.0, 1.0])).map(lambda of: of[0] * of[1])


def subnormal(v) -> np.ndarray:
    return (v != 0) & (np.abs(v) < np.finfo(float).tiny)


@pytest.mark.parametrize("kind", KINDS)
@examples.of(100)
@given(st.data())
def test_nothing_computed_of_rows_and_a_point_is_subnormal_or_not_finite_whatever_they_are(kind, data):
    """On such numbers a processor is slow: by the time of an answer its rows could be counted."""
    numbers = (
        signed.filter(lambda v: abs(v) <= LARGEST) if kind == "least-squares" else signed.filter(lambda v: abs(v) < 1e9)
    )
    A = np.array(data.draw(st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=2, max_size=4)))
    b = np.ones(len(A)) if kind != "least-squares" else A[:, 0]
    loss = Loss(Objective(kind=kind), A, b, classes=3 if kind == "softmax" else 1)
    x = loss._checked(np.array(data.draw(st.lists(signed, min_size=loss.size, max_size=loss.size))))
    S = loss._slope(x)
    slopes = np.atleast_2d(S)
    computed = [loss.A, x, loss.margins(x), S, *(s[:, None] * loss.A for s in slopes)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        computed.append(loss.clipped_gradient(x, 1.0, 2))
    for values in computed:
        assert np.isfinite(values).all()
        assert not subnormal(values).any()


def test_numbers_too_small_to_matter_are_zero_and_others_stay_as_they_are():
    loss = Loss(
        Objective(kind="least-squares"), np.array([[1e-310, 2.0**-200], [-1e-61, 3.0]]), np.array([1e-320, -1.0])
    )
    assert loss.A.tolist() == [[0.0, 2.0**-200], [0.0, 3.0]]
    assert loss.b.tolist() == [0.0, -1.0]


# --- certified minimisers ---


def true_gradient(loss: Loss, linear, quadratic, x) -> list:
    v = [mpmath.mpf(a) for a in linear.tolist()]
    return derivative(lambda p: formula(loss, p) + mpmath.fdot(v, p) + mpmath.mpf(quadratic) / 2 * mpmath.fdot(p, p), x)


def true_minimiser(loss: Loss, linear, quadratic, near) -> list:
    """Newton's method in 50 digits, the Hessian by differences of the gradient: quadratic until about 1e-25."""
    x = [mpmath.mpf(a) for a in near.tolist()]
    h = mpmath.mpf(10) ** -9
    for _ in range(4):
        g = true_gradient(loss, linear, quadratic, x)
        H = mpmath.matrix(len(x))
        for k in range(len(x)):
            ahead = true_gradient(loss, linear, quadratic, [*x[:k], x[k] + h, *x[k + 1 :]])
            for i in range(len(x)):
                H[i, k] = (ahead[i] - g[i]) / h
        step = mpmath.lu_solve(H, mpmath.matrix(g))
        x = [a - s for a, s in zip(x, step, strict=True)]
    return x


CASES = [
    {"scale": 2.0},
    {"scale": 1.0, "l2": 0.3, "nonconvex": Nonconvex(lam=0.1, omega=2.0)},
    {"scale": 1e3, "rows": 3.0},
]


@pytest.mark.parametrize("quadratic", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("case", CASES, ids=["plain", "nonconvex", "steep"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_certificate_holds_and_the_residual_is_at_the_rounding_s_level(kind, case, quadratic):
    loss = problem(kind, m=4, q=2, **case)
    linear = quadratic**0.5 * np.random.default_rng(5).normal(size=loss.size)
    found = Minimizer(loss)(linear, quadratic)
    true = mpmath.norm(true_gradient(loss, linear, quadratic, found.x.tolist()))
    assert true <= found.residual
    best = true_minimiser(loss, linear, quadratic, found.x)
    assert mpmath.norm([a - b for a, b in zip(best, found.x.tolist(), strict=True)]) <= found.distance
    assert found.residual <= 2 * _Function(loss, linear, quadratic).evaluated(found.x).rounding


def test_the_rounding_bound_holds_far_from_the_minimiser_too():
    for kind in KINDS:
        for seed, far in enumerate([1e-3, 1.0, 20.0]):
            loss = problem(kind, m=3, q=2, seed=seed, **NONCONVEX)
            x = far * np.random.default_rng(seed).normal(size=loss.size)
            point = _Function(loss, np.ones(loss.size), 0.7).evaluated(x)
            true = true_gradient(loss, np.ones(loss.size), 0.7, x.tolist())
            error = mpmath.norm([a - mpmath.mpf(b) for a, b in zip(true, point.g.tolist(), strict=True)])
            assert error <= point.rounding <= 1e-12 * (1 + far)


@pytest.mark.parametrize("kind", KINDS)
def test_newton_s_hessian_is_the_derivative_of_the_gradient(kind):
    loss = problem(kind, **NONCONVEX)
    x, p = np.random.default_rng(9).normal(size=(2, loss.size))
    F, h = _Function(loss, np.ones(loss.size), 0.7), 1e-5
    expected = (F.evaluated(x + h * p).g - F.evaluated(x - h * p).g) / (
        2 * h
    )  # error: h^2 third derivatives, 1e-16/h rounding
    np.testing.assert_allclose(F.hessian(F.evaluated(x))(p), expected, rtol=1e-7, atol=1e-7)


def test_one_factorisation_serves_every_quadratic(monkeypatch):
    loss = problem("least-squares", m=30, q=4, scale=2.0, l2=0.1)
    minimise, calls, eigh = Minimizer(loss), [], np.linalg.eigh
    monkeypatch.setattr(np.linalg, "eigh", lambda H: calls.append(1) or eigh(H))
    v = np.random.default_rng(5).normal(size=4)
    for quadratic in (0.0, 0.5, 30.0):
        H = 2.0 * loss.A.T @ loss.A / 30 + (0.1 + quadratic) * np.eye(4)
        expected = np.linalg.solve(H, 2.0 * loss.A.T @ loss.b / 30 - v)
        np.testing.assert_allclose(minimise(v, quadratic).x, expected, rtol=1e-12)
    assert calls == [1]


def test_the_start_changes_nothing_but_the_way():
    loss = problem("logistic", m=30, q=4)
    near, far = (Minimizer(loss)(np.ones(4), 1e-3, start=np.full(4, s)) for s in (0.0, 1e4))
    assert np.linalg.norm(near.x - far.x) <= near.distance + far.distance


@pytest.mark.parametrize(("kind", "classes"), [("logistic", 1), ("softmax", 3)])
def test_columns_of_unlike_size_cost_the_minimiser_few_products(kind, classes, monkeypatch):
    """Without a preconditioner it takes 67 and 132."""
    draw, products, margins = np.random.default_rng(0), [], Loss.margins
    A = draw.normal(size=(200, 12)) * 10.0 ** np.linspace(-2, 0, 12)
    b = draw.integers(0, 3, 200).astype(float) if classes > 1 else np.where(draw.random(200) < 0.5, 1.0, -1.0)
    loss = Loss(Objective(kind=kind, l2=1e-4), A, b, classes)
    monkeypatch.setattr(Loss, "margins", lambda self, x: products.append(x) or margins(self, x))
    assert Minimizer(loss)(np.zeros(loss.size), 0.0).residual < 1e-12
    assert len(products) <= 40


def test_a_minimiser_that_cannot_be_certified_is_refused():
    minimise = Minimizer(problem("logistic"))
    assert minimise(np.ones(3), 1.0, tolerance=1e-12).residual <= 1e-12
    with pytest.raises(Refused, match=r"found certified residual .*, expected at most 1e-18"):
        minimise(np.ones(3), 1.0, tolerance=1e-18)


@pytest.mark.parametrize(
    ("linear", "quadratic", "line"),
    [
        (np.ones(3), 0.09, "found mu = rho + l2 - lambda omega/2 = -0.01, expected a finite number > 0"),
        (np.ones(3), np.inf, "found mu = rho + l2 - lambda omega/2 = inf, expected a finite number > 0"),
        (np.ones(2), 1.0, "found a linear term of shape (2,), expected 3 finite numbers"),
        (np.full(3, np.nan), 1.0, "found a linear term of shape (3,), expected 3 finite numbers"),
    ],
)
def test_a_problem_without_one_minimiser_is_one_line(linear, quadratic, line):
    loss = problem("logistic", nonconvex=Nonconvex(lam=0.1, omega=2.0))
    with pytest.raises(InputError) as error:
        Minimizer(loss)(linear, quadratic)
    assert str(error.value) == f"minimizer: {line}"


# --- wrong input ---


def test_data_that_cannot_be_are_one_line():
    good = problem("logistic")

    def line(**change) -> str:
        with pytest.raises(InputError) as error:
            dataclasses.replace(good, **change)
        return str(error.value)

    assert line(A=np.ones((2, 3))) == "data: found A (2, 3) and b (6,), expected (m, q) and (m,), m and q > 0"
    assert (
        line(A=np.ones((0, 3)), b=np.ones(0))
        == "data: found A (0, 3) and b (0,), expected (m, q) and (m,), m and q > 0"
    )
    wrong = good.A.copy()
    wrong[2, 1] = np.nan
    assert line(A=wrong) == "data: A: found a number not finite or beyond 1e+150, expected smaller ones"
    assert line(b=np.array([1, -1, 1, 0.0, 1, 1])) == "row 4: found label 0, expected -1 or 1 (logistic)"
    assert line(A=np.full((6, 3), 2.0), row_bound=3.0) == "row 1: found norm 3.4641, expected at most row_bound 3"
    assert line(row_bound=-1.0) == "row_bound: found -1.0, expected a number > 0, at most 1e+150"
    softmax = Objective(kind="softmax")
    assert line(objective=softmax) == "softmax: found 1 classes, expected at least 2"
    assert line(objective=softmax, classes=2) == "row 3: found label -1, expected 0..1 (softmax)"
    with pytest.raises(InputError, match=r"x: found shape \(3,\), expected 3 finite numbers"):
        good.gradient(np.array([1.0, np.inf, 0.0]))


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ({"scale": 0.0}, "Expected `float` >= 1e-12 - at `$.scale`"),
        ({"l2": -1.0}, "Expected `float` >= 0.0 - at `$.l2`"),
        ({"nonconvex": {"lambda": np.inf}}, "Expected `float` <= 1000000.0 - at `$.nonconvex.lambda`"),
        ({"nonconvex": {"lambda": 1.0, "omega": 0.0}}, "Expected `float` >= 1e-12 - at `$.nonconvex.omega`"),
        ({"scale": np.nan}, "Expected `float` >= 1e-12 - at `$.scale`"),
    ],
)
def test_an_objective_out_of_range_is_not_read(wrong, line):
    with pytest.raises(msgspec.ValidationError) as error:
        msgspec.convert({"kind": "logistic"} | wrong, Objective)
    assert str(error.value) == line


def test_unit_rows_meet_a_row_bound_of_one():
    A = np.random.default_rng(3).normal(size=(500, 7))
    A /= np.linalg.norm(A, axis=1, keepdims=True)
    assert Loss(Objective(kind="least-squares"), A, np.ones(500), row_bound=1.0).L == 1.0


@pytest.mark.parametrize("kind", KINDS)
def test_the_zero_row_adds_nothing_to_a_gradient_and_m_stays(kind):
    loss = problem(kind, m=6)
    x = np.linspace(-1.0, 1.0, loss.size)
    gone = np.array([True, False, True, False, False, True])
    rest = Loss(loss.objective, loss.A[~gone], loss.b[~gone], loss.classes, loss.row_bound)
    without = loss.without(gone)
    assert (without.rows, without.R) == (6, loss.R)
    np.testing.assert_allclose(without.data_gradient(x), rest.data_gradient(x) / 2, rtol=1e-13)
    np.testing.assert_allclose(without.clipped_gradient(x, 0.3, 2), rest.clipped_gradient(x, 0.3, 2) / 2, rtol=1e-13)
