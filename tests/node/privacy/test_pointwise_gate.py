"""The gate with `sensitivity: pointwise`: less noise at the same price, whatever point, clip and rows an adversary
picks.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.kernels.errors import InputError, Refused
from hushgrid.kernels.privacy import pointwise
from hushgrid.kernels.privacy.noise import Lattice
from hushgrid.kernels.problems.losses import Loss, Objective
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.privacy.noise_source import SeededNoise, SystemNoise
from tests.support import examples, games
from tests.support.devices.rows_device import commit, device, gate, problem, terms
from tests.support.scenarios.record_scenarios import scenario


def of(clip=1.0, mechanism="gaussian", **over):
    return terms(mechanism, **{"clip": clip, "adjacency": "replace-one-record", "pointwise": True} | over)


def pair(r, k=1.0, m=1, **objective):
    """Two data sets of m unit rows, one of them different, and a point with |x| = r at which it moves the most."""
    z = pointwise.root(r)
    t = (math.log(k / (1 - k)) if 0.5 < k < 1 / (1 + math.exp(-z)) else z) / r if r and k > 0.5 else 0.0
    rest = np.tile([0.6, 0.8], (m - 1, 1))
    rows = (np.concatenate([[[t, way * math.sqrt(1 - t * t)]], rest]) for way in (1, -1))
    return *(Loss(Objective(kind="logistic", **objective), A, -np.ones(m), row_bound=1.0) for A in rows), np.array(
        [r, 0.0]
    )


def unit_of(loss, clip, x):
    return gate(loss, of(clip)).unit(x, of(clip))


def counted(loss, clip, x):
    """What the gate rounds to its grid: the clipped gradient, in units of its sensitivity at x."""
    one = gate(loss, of(clip))
    one._release = lambda question, compute, unit: compute()
    return one.gradient(x)


@pytest.mark.runs
@examples.of(150)
@given(
    m=st.integers(1, 60),
    d=st.integers(1, 5),
    seed=st.integers(0, 2**20),
    far=st.floats(-4, 40),
    tight=st.floats(-9, 3),
    size=st.integers(-4, 4),
    bound=st.floats(-3, 3),
    worst=st.booleans(),
)
def test_replacing_any_record_moves_the_answer_by_at_most_the_unit_priced(m, d, seed, far, tight, size, bound, worst):
    """Exactly: rows and points of any size, the worst record as well as any, clips from nothing to no clip."""
    rng, R, clip = np.random.default_rng(seed), 10.0**bound, 10.0 ** (bound + tight)
    loss = problem(m, d, seed)
    x = rng.normal(size=d) * 10.0**far
    A, b, A2, b2 = loss.A * R * (1 - 1e-15), loss.b, loss.A * R * (1 - 1e-15), loss.b.copy()
    j = seed % m
    if worst and d > 1:
        e = x / np.linalg.norm(x)
        away = np.linalg.qr(np.stack([e, rng.normal(size=d)], axis=1))[0][:, 1]
        r, k = R * np.linalg.norm(x), clip / R
        z = pointwise.root(min(r, 1e6))
        t = (math.log(k / (1 - k)) if 0.5 < k < 1 / (1 + math.exp(-z)) else z) / r if k > 0.5 else 0.0
        b[j] = b2[j] = -1.0
        for rows, way in ((A, 1), (A2, -1)):
            rows[j] = R * (1 - 1e-15) * (t * e + way * math.sqrt(1 - t * t) * away)
    else:
        A2[j] = problem(1, d, seed + 1).A[0] * R * rng.choice([1 - 1e-15, 0.5, 0.0])
        b2[j] = rng.choice([-1.0, 1.0])
    o = Objective(kind="logistic", scale=10.0**size)
    v, w = (counted(Loss(o, rows, labels, row_bound=R), clip, x) for rows, labels in ((A, b), (A2, b2)))
    moved = sum((Fraction(float(p)) - Fraction(float(q))) ** 2 for p, q in zip(v, w, strict=True))
    assert moved <= Fraction(pointwise.UNIT) ** 2
    if worst and d > 1 and R * np.linalg.norm(x) < 1e5 and tight > -8:
        assert moved >= Fraction(99, 100) ** 2


@pytest.mark.parametrize(
    ("r", "k", "saved"), [(0.0, 1.0, 2.0), (1.0, 1.0, 1.819), (8.0, 1.0, 1.131), (8.0, 0.75, 1.0095), (0.0, 0.5, 1.0)]
)
def test_the_noise_is_less_by_as_much_as_the_formula_says_and_never_more(r, k, saved):
    loss, *_ = pair(1.0, m=100)
    x = np.array([r, 0.0])
    assert loss.sensitivity(k) / unit_of(loss, k, x) == pytest.approx(saved, rel=1e-3)


@pytest.mark.parametrize("x", [np.full(2, 1e200), np.full(2, 1e17), np.array([1e308, -1e308])])
def test_far_away_the_unit_is_that_of_every_point(x):
    loss, *_ = pair(1.0, m=100)
    for clip in (1e-12, 0.3, 0.7, 1.0, 1e6):
        assert 0 < unit_of(loss, clip, x) <= loss.sensitivity(clip)
    assert unit_of(loss, 1.0, x) == pytest.approx(loss.sensitivity(1.0), rel=1e-5)


def test_every_answer_costs_the_same_and_has_the_noise_of_its_own_point(tmp_path):
    loss, t = problem(50, 3), of(answers=3)
    ledger, budget_check = device(tmp_path, t)
    one = gate(loss, t, SystemNoise(), budget_check)
    lattice = Lattice.gaussian(t.per_answer, pointwise.UNIT, 3)
    for x in (np.zeros(3), np.ones(3), np.full(3, 1e9)):
        one.gradient(x)
        unit = one.unit(x, t)
        (spend,) = one.spends
        assert (spend.kind, spend.value) == ("gaussian", lattice.mu)
        assert (spend.sensitivity, spend.scale, spend.grid) == tuple(
            v * unit for v in (lattice.sensitivity, lattice.scale, lattice.g)
        )
        commit(ledger, one)
    assert lattice.mu <= t.per_answer
    with pytest.raises(Refused, match="the plan's cap is 3"):
        one.gradient(np.zeros(3))


def test_an_answer_is_the_clipped_gradient_in_units_on_the_grid_plus_noise_times_the_unit_plus_the_public_part():
    loss, t, x = problem(50, 3, l2=0.25), of(0.75), np.array([0.5, -1.0, 2.0])
    one = gate(loss, t, SeededNoise(7, "n0"))
    n = SeededNoise(7, "n0").take(one.lattice, 3, 1)
    unit = one.unit(x, t)
    w = loss.clipped_gradient(x, 0.75, 2) / unit
    assert np.array_equal(one.gradient(x), one.lattice.release(w, n) * unit + 0.25 * x)


@pytest.mark.parametrize("x", [np.array([math.nan, 0.0, 0.0]), np.array([math.inf, 0.0, 0.0])])
def test_a_point_that_is_none_is_refused_whatever_the_rows(x):
    with pytest.raises(InputError, match=r"^x: found shape \(3,\), expected 3 finite numbers$"):
        gate(problem(), of()).gradient(x)


@pytest.mark.runs
@pytest.mark.parametrize(("r", "k"), [(0.0, 1.0), (2.0, 1.0), (8.0, 0.75)])
def test_the_game_proves_nearly_what_is_claimed_and_never_more(r, k):
    N, claimed, answers = 3000, 1.0, []
    *both, x = pair(r, k, m=3, scale=2.0)
    for loss, seed in zip(both, (1, 2), strict=True):
        asked = gate(loss, of(k, answers=N, per_answer=claimed), SeededNoise(seed, "n0"))
        answers.append([])
        for _ in range(N):
            answers[-1].append(asked.gradient(x))
            asked.committed()
    values = [loss.clipped_gradient(x, k, 2) for loss in both]
    assert games.proved(answers, values, games.DOUBT) <= claimed
    assert games.proved(answers, values, 0.05) >= 0.8 * claimed


# --- what is refused ---


@pytest.mark.parametrize(
    ("loss", "over", "line"),
    [
        ({"kind": "softmax"}, {}, r"problem\.kind: found softmax, expected logistic"),
        ({"kind": "least-squares"}, {}, r"problem\.kind: found least-squares, expected logistic"),
        (
            {},
            {"clip": 0.0, "beta": 1.0, "adjacency": "bounded-change 1.0"},
            r"privacy\.adjacency: found bounded-change 1\.0, expected replace-one-record",
        ),
        ({}, {"mechanism": "laplace"}, r"privacy\.mechanism: found laplace, expected gaussian"),
    ],
)
def test_a_gate_that_cannot_promise_it_says_so_from_public_numbers(loss, over, line):
    with pytest.raises(InputError, match=f"^n0: {line} \\(privacy.sensitivity: pointwise\\)$"):
        gate(problem(**loss), of(**over))


GAUSSIAN = {"privacy.mechanism": "gaussian", "privacy.delta": 1e-5, "privacy.sensitivity": "pointwise"}


@pytest.mark.parametrize(
    ("over", "line"),
    [
        (
            {"privacy.adjacency": {"bounded-change": 0.5}},
            r"privacy\.adjacency: found bounded-change 0\.5, expected replace-one-record",
        ),
        (
            {"privacy.mechanism": "laplace", "privacy.delta": None},
            r"privacy\.mechanism: found laplace, expected gaussian",
        ),
        ({"problem.kind": "softmax", "problem.classes": 2}, r"problem\.kind: found softmax, expected logistic"),
        (
            {"algorithm": {"name": "admm", "rounds": 2, "eta": 0.5}},
            r"algorithm: found admm, expected an algorithm that asks for gradients",
        ),
    ],
)
def test_a_scenario_that_asks_it_of_another_gate_is_refused_in_one_line(over, line):
    with pytest.raises(InputError, match=f"{line} \\(privacy.sensitivity: pointwise\\)$"):
        scenario_from(scenario(GAUSSIAN | over))
