"""What the network-wide optimum promises: closed forms met, conic solvers agreed with, its certificate true.

Referees: exact rational arithmetic (least squares, and the conditions of optimality), 50 digits (logistic), cvxpy with
Clarabel (about 1e-8) for everything.
"""

from fractions import Fraction
from math import inf

import cvxpy as cp
import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.problems import centralised as room
from hushgrid.kernels.problems.centralised import optimum
from hushgrid.kernels.problems.losses import Loss, Nonconvex, Objective, U
from hushgrid.kernels.problems.prox import Regularizer

KINDS = ["least-squares", "logistic", "softmax"]
REGULARIZERS = {
    "none": {}, "ridge": {"l2": 0.1}, "lasso": {"l1": 0.05}, "elastic net": {"l1": 0.02, "l2": 0.1},
    "box": {"box": 0.1}, "all": {"l1": 0.01, "l2": 0.05, "box": 0.2},
}  # fmt: skip


def network(kind="least-squares", *, nodes=3, rows=20, q=4, seed=0, classes=3, **objective) -> list[Loss]:
    rng = np.random.default_rng(seed)
    model = rng.normal(size=q)
    made = []
    for _ in range(nodes):
        A = rng.normal(size=(rows, q))
        b = A @ model + rng.normal(size=rows)
        if kind != "least-squares":
            b = np.where(b > 0, 1.0, -1.0) if kind == "logistic" else rng.integers(0, classes, rows).astype(float)
        made.append(Loss(Objective(kind=kind, **objective), A, b, classes=classes if kind == "softmax" else 1))
    return made


def exact(array) -> list:
    return [exact(row) if np.ndim(row) else Fraction(float(row)) for row in array]


def solved(H, h) -> list:
    """H^-1 h in rational arithmetic."""
    d, rows = len(h), [[*row, number] for row, number in zip(H, h, strict=True)]
    for k in range(d):
        top = next(j for j in range(k, d) if rows[j][k])
        rows[k], rows[top] = rows[top], rows[k]
        rows[k] = [a / rows[k][k] for a in rows[k]]
        rows = [row if j == k else [a - row[k] * c for a, c in zip(row, rows[k], strict=True)]
                for j, row in enumerate(rows)]  # fmt: skip
    return [row[-1] for row in rows]


def normal_equations(losses, r) -> tuple[list, list]:
    """H and h with F'(x) = H x - h, exactly, of least squares."""
    d = losses[0].size
    H = [[len(losses) * Fraction(r.l2) * (j == k) for k in range(d)] for j in range(d)]
    h = [Fraction(0)] * d
    for loss in losses:
        A, b, weight = exact(loss.A), exact(loss.b), Fraction(loss.objective.scale) / loss.rows
        for j in range(d):
            h[j] += weight * sum(row[j] * c for row, c in zip(A, b, strict=True))
            H[j][j] += Fraction(loss.objective.l2)
            for k in range(d):
                H[j][k] += weight * sum(row[j] * row[k] for row in A)
    return H, h


def true_optimum(losses, r, near) -> list:
    """The exact optimum of strongly convex least squares: solved on the face of `near`, its conditions checked
    exactly.
    """
    H, h = normal_equations(losses, r)
    l1, box, d = len(losses) * Fraction(r.l1), r.box, len(h)
    x = exact(near)
    free = [k for k in range(d) if not ((l1 and near[k] == 0) or abs(near[k]) == box)]
    right = [h[j] - l1 * int(np.sign(near[j])) - sum(H[j][k] * x[k] for k in range(d) if k not in free) for j in free]
    for k, value in zip(free, solved([[H[j][k] for k in free] for j in free], right), strict=True):
        x[k] = value
        assert abs(value) <= box
        assert not l1 or (value > 0) == (near[k] > 0)
    for k in set(range(d)) - set(free):
        g = sum(H[k][j] * x[j] for j in range(d)) - h[k]
        side = int(np.sign(near[k]))
        assert abs(g) <= l1 if side == 0 else side * g + l1 <= 0
    return x


def off(x, true) -> float:
    return float(mpmath.sqrt(mpmath.fsum((mpmath.mpf(float(a)) - mpmath.mpf(b.numerator) / b.denominator) ** 2
                                         for a, b in zip(x, true, strict=True))))  # fmt: skip


@pytest.mark.parametrize("name", REGULARIZERS)
@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_least_squares_are_right_to_the_last_place_and_within_the_certificate(name, scale):
    losses, r = network(scale=scale), Regularizer(**REGULARIZERS[name])
    found = optimum(losses, r)
    error = off(found.x, true_optimum(losses, r, found.x))
    assert error <= found.distance
    assert error <= 2 * U * np.linalg.norm(found.x)
    assert found.distance <= 1e-13 * np.linalg.norm(found.x)
    assert found.unique
    assert found.convex


def test_an_ill_conditioned_ridge_is_right_to_the_last_place_where_doubles_would_lose_six():
    rng = np.random.default_rng(1)
    A = rng.normal(size=(12, 1)) + 1e-3 * rng.normal(size=(12, 4))
    losses = [
        Loss(Objective(kind="least-squares"), A[:6], A[:6, 0] + 1),
        Loss(Objective(kind="least-squares"), A[6:], A[6:, 1]),
    ]
    r = Regularizer(l2=1e-8)  # eigenvalues from about 1e-7 to 4
    found = optimum(losses, r)
    error = off(found.x, true_optimum(losses, r, found.x))
    assert error <= min(found.distance, 2 * U * np.linalg.norm(found.x))


def test_one_coordinate_has_a_closed_form():
    # F(x) = n/2 (x - 3)^2: soft threshold, shrinkage, box
    losses = [Loss(Objective(kind="least-squares"), np.ones((2, 1)), np.array([2.0, 4.0])) for _ in range(5)]
    for r, x in (
        ({}, 3.0),
        ({"l1": 1.0}, 2.0),
        ({"l2": 0.5}, 2.0),
        ({"l1": 1.0, "l2": 1.0}, 1.0),
        ({"l1": 3.0}, 0.0),
        ({"l1": 8.0}, 0.0),
        ({"box": 0.25}, 0.25),
        ({"l1": 1.0, "box": 0.3}, 0.3),
    ):
        found = optimum(losses, Regularizer(**r))
        assert found.x == pytest.approx([x], rel=2 * U, abs=0)
        assert found.value == pytest.approx(5 * ((x - 3) ** 2 / 2 + 0.5 + Regularizer(**r).value(np.array([x]))))


def expression(losses, r, x):
    """G in the words of a modelling language."""
    total = len(losses) * (r.l1 * cp.norm1(x) + r.l2 / 2 * cp.sum_squares(x))
    for loss in losses:
        o, A, b = loss.objective, loss.A, loss.b
        if o.kind == "least-squares":
            terms = cp.sum_squares(A @ x - b) / 2
        elif o.kind == "logistic":
            terms = cp.sum(cp.logistic(-cp.multiply(b, A @ x)))
        else:
            T = A @ cp.reshape(x, (loss.classes, A.shape[1]), order="C").T
            terms = cp.sum(cp.log_sum_exp(T, axis=1)) - cp.sum(cp.multiply(T, loss.target.T))
        total += o.scale / loss.rows * terms + o.l2 / 2 * cp.sum_squares(x)
    return total


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", REGULARIZERS)
def test_a_conic_solver_finds_the_same(kind, name):
    losses, r = network(kind, scale=2.0, l2=0.01), Regularizer(**REGULARIZERS[name])
    found = optimum(losses, r)
    x = cp.Variable(losses[0].size)
    problem = cp.Problem(cp.Minimize(expression(losses, r, x)), [cp.abs(x) <= r.box] if r.box < inf else [])
    problem.solve(solver=cp.CLARABEL)
    # 1e-8 of the value is the referee's own tolerance; mu/2 |x - x*|^2 of it, mu >= n l2 = 0.03, bounds its distance
    assert found.value == pytest.approx(problem.value, rel=1e-7)
    assert np.linalg.norm(found.x - x.value) <= np.sqrt(2 * 1e-7 * problem.value / 0.03)
    assert np.max(np.abs(found.x)) <= r.box


def gradient(losses, r, x) -> list:
    """F'(x) of logistic losses in 50 digits."""
    g = [len(losses) * mpmath.mpf(r.l2) * mpmath.mpf(float(a)) for a in x]
    for loss in losses:
        for row, label in zip(loss.A.tolist(), loss.b.tolist(), strict=True):
            s = -label / (1 + mpmath.exp(label * mpmath.fdot(row, x.tolist()))) * loss.objective.scale / loss.rows
            g = [a + s * c for a, c in zip(g, row, strict=True)]
        g = [a + loss.objective.l2 * mpmath.mpf(float(c)) for a, c in zip(g, x, strict=True)]
    return g


@pytest.mark.parametrize("name", REGULARIZERS)
def test_a_logistic_optimum_meets_its_conditions_but_for_the_rounding_of_x(name):
    losses, r = network("logistic", scale=2.0, l2=0.01), Regularizer(**REGULARIZERS[name])
    found = optimum(losses, r)
    # x is within 2 U |x| of the optimum, and F' is L-Lipschitz
    slack = sum(loss.L for loss in losses) + len(losses) * r.l2
    slack *= 2 * U * float(np.linalg.norm(found.x))
    l1 = len(losses) * r.l1
    with mpmath.workdps(50):
        for a, g in zip(found.x, gradient(losses, r, found.x), strict=True):
            w = g + l1 * int(np.sign(a))
            if abs(a) == r.box:
                assert w * int(np.sign(a)) <= slack
            elif a == 0:
                assert abs(g) <= l1 + slack
            else:
                assert abs(w) <= slack
    assert found.distance <= 1e-12 * np.linalg.norm(found.x)


@pytest.mark.runs
@given(st.sampled_from(KINDS), st.integers(1, 3), st.integers(0, 10**6), st.floats(1e-6, 3))
def test_the_certificate_bounds_the_distance_from_points_far_off_too(kind, q, seed, far):
    losses = network(kind, q=q, seed=seed, l2=0.01)
    problem = room._Problem(losses, Regularizer(), np.float64)
    best = optimum(losses, Regularizer())
    e = np.random.default_rng(seed).normal(size=best.x.size)
    x = best.x + far * e / np.linalg.norm(e)
    _, w, rounding = problem.evaluated(x)
    H, error = problem.hessian(x)
    M = room.SELF_CONCORDANCE[kind] * max(float(np.max(loss.row_norms(2))) for loss in losses)
    bound = room._distance(float(np.linalg.norm(w)) + rounding, float(np.linalg.eigvalsh(H)[0]) - error, M)
    assert np.linalg.norm(x - best.x) <= bound + best.distance


def test_the_certificate_of_a_lone_exponential_tail_is_nearly_attained():
    # t = 20..21 on the tail of log(1 + exp(-t)), where l'' = exp(-t) to 1e-8: |l'(20)| - |l'(21)| = l''(20) (1 - 1/e)
    w, curvature = np.exp(-20.0) - np.exp(-21.0), np.exp(-20.0)
    assert room._distance(float(w), float(curvature), 1.0) == pytest.approx(1.0, rel=1e-8)


networks = st.builds(
    network, st.sampled_from(KINDS), nodes=st.integers(1, 4), rows=st.integers(1, 8), q=st.integers(1, 5),
    seed=st.integers(0, 10**6), scale=st.sampled_from([0.01, 1.0, 100.0]), l2=st.sampled_from([0.0, 0.1]),
)  # fmt: skip
regularizers = st.builds(
    lambda l1, l2, box: Regularizer(l1=l1, l2=l2, box=box),
    st.sampled_from([0.0, 1e-3, 0.1, 10.0]), st.sampled_from([0.0, 0.1]), st.sampled_from([inf, 1.0, 0.01]),
)  # fmt: skip


@given(networks, regularizers, st.integers(0, 10**6), st.sampled_from([1e-6, 1e-3, 1.0]))
def test_no_point_is_better(losses, r, seed, far):
    found = optimum(losses, r)
    other = found.x + far * np.random.default_rng(seed).normal(size=found.x.size)
    other = np.clip(other, -r.box, r.box)
    value = sum(loss.value(other) for loss in losses) + len(losses) * r.value(other)
    # the subgradient inequality, and the value's rounding: about 30 operations deep
    assert value >= found.value - found.residual * np.linalg.norm(other - found.x) - 100 * U * abs(found.value)


@pytest.mark.runs
@given(networks, regularizers)
def test_the_order_of_the_nodes_moves_a_certified_optimum_by_its_certificate_at_most(losses, r):
    one, two = optimum(losses, r), optimum(losses[::-1], r)
    assert np.linalg.norm(one.x - two.x) <= one.distance + two.distance


def test_dead_columns_leave_many_minimisers_and_a_strict_zero_only_one():
    A = np.random.default_rng(0).normal(size=(9, 4))
    A[:, 3] = A[:, 2]
    losses = [Loss(Objective(kind="least-squares"), A, A @ np.array([1.0, 0.0, 1.0, 1.0]))]
    found = optimum(losses, Regularizer())
    assert (found.unique, found.convex, found.distance) == (False, True, inf)
    assert found.value <= 1e-25  # consistent equations: of rounding's square
    tied = optimum(losses, Regularizer(l1=0.1))  # any split of x_2 + x_3 is as good
    assert not tied.unique
    wide = network(rows=2, q=12, nodes=2)
    lasso = optimum(wide, Regularizer(l1=0.5))
    assert 0 < np.count_nonzero(lasso.x) <= 4
    assert lasso.unique
    assert lasso.distance == inf  # unique by its strict zeros, yet without strong convexity


def test_separable_labels_have_no_minimiser_and_it_says_so():
    loss = Loss(Objective(kind="logistic"), np.array([[1.0], [-1.0]]), np.array([1.0, -1.0]))
    found = optimum([loss], Regularizer())
    assert not found.unique
    assert found.distance == inf
    bounded = optimum([loss], Regularizer(box=2.0))
    assert bounded.x.tolist() == [2.0]


def test_a_nonconvex_optimum_is_a_stationary_point_and_says_so():
    losses = network("logistic", nonconvex=Nonconvex(lam=0.5, omega=4.0))
    found = optimum(losses, Regularizer(l1=0.01))
    assert (found.convex, found.unique, found.distance) == (False, False, inf)
    g = sum(loss.gradient(found.x) for loss in losses)
    w = np.where(found.x == 0, np.maximum(np.abs(g) - 0.03, 0), g + 0.03 * np.sign(found.x))
    assert np.linalg.norm(w) <= 1e-13 * sum(loss.L for loss in losses)  # the doubles of this very check: 60 rows
    convex = optimum(network("logistic", l2=1.5, nonconvex=Nonconvex(lam=0.5, omega=4.0)), Regularizer())
    assert convex.convex
    assert convex.unique
    assert convex.distance <= 1e-13


def test_many_more_columns_than_rows_and_a_small_l1_are_solved():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(60, 200))
    losses = [Loss(Objective(kind="least-squares"), A, A[:, :5].sum(axis=1) + 0.1 * rng.normal(size=60))]
    found = optimum(losses, Regularizer(l1=1e-3))
    assert found.unique
    assert np.count_nonzero(found.x) <= 60
    assert found.residual <= 1e-14 * losses[0].L


def test_a_problem_it_cannot_solve_is_one_line(monkeypatch):
    with pytest.raises(InputError, match=r"^optimum: found losses of \[\] unknowns, expected one length$"):
        optimum([], Regularizer())
    with pytest.raises(InputError, match=r"^optimum: found losses of \[4, 5\] unknowns, expected one length$"):
        optimum([*network(nodes=1), *network(nodes=1, q=5)], Regularizer())
    large = Loss(Objective(kind="logistic", scale=1e10), np.array([[1e150], [1e150]]), np.array([1.0, -1.0]))
    with pytest.raises(
        InputError, match=r"^optimum: found data whose squares are not finite, expected smaller numbers$"
    ):
        optimum([large], Regularizer())
    monkeypatch.setattr(room, "STEPS", 1)
    with pytest.raises(InputError, match=r"^optimum: found \|subgradient\| .* after 1 steps, expected a problem"):
        optimum(network("logistic"), Regularizer())
