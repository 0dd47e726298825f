"""The gate of data problems: the sensitivity of what is computed, exact noise, honest prices, refusals in one line."""

import math
from fractions import Fraction
from math import inf

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.kernels.errors import InputError, Refused
from hushgrid.kernels.privacy import accounting
from hushgrid.kernels.privacy.noise import EXACT
from hushgrid.kernels.problems.losses import Loss, Nonconvex, Objective
from hushgrid.kernels.problems.minimizer import Minimizer
from hushgrid.kernels.randomness import counter_generator
from hushgrid.node import wire
from hushgrid.node.privacy.gate import POOL, GateState
from hushgrid.node.privacy.noise_source import PAPER_SAMPLER, SeededNoise, SystemNoise
from hushgrid.node.problems.records.gate import LABEL_BOUND, order_of, paper_sd, rounding
from tests.support import examples
from tests.support.devices.gated_device import budget
from tests.support.devices.rows_device import BETA, CLIP, commit, device, gate, terms

KINDS = ["least-squares", "logistic", "softmax"]
MECHANISMS = ["laplace", "gaussian"]
ADJACENCIES = {"clip": {"clip": CLIP, "adjacency": "replace-one-record"}, "bounded": {"beta": BETA}}
mpmath.mp.dps = 50


def rows(kind, m=6, q=3, seed=0, bound=4.0, **objective):
    rng = np.random.default_rng(seed)
    A, b = np.clip(rng.normal(size=(m, q)), -2, 2), rng.normal(size=m)
    if kind != "least-squares":
        b = np.sign(b) if kind == "logistic" else rng.integers(0, 3, m).astype(float)
    return Loss(Objective(kind=kind, **objective), A, b, classes=3 if kind == "softmax" else 1, row_bound=bound)


def distance(x, y, order):
    """|x - y| in L1, or its square in L2, exactly."""
    moved = [Fraction(float(a)) - Fraction(float(b)) for a, b in zip(x, y, strict=True)]
    return sum(abs(v) ** order for v in moved)


# --- the sensitivity of what is released ---


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("kind", KINDS)
@examples.of(40)
@given(data=st.data())
def test_replacing_any_record_moves_the_released_value_by_at_most_the_sensitivity_priced(kind, mechanism, data):
    m, seed = data.draw(st.integers(1, 5)), data.draw(st.integers(0, 2**20))
    scale, far = 10.0 ** data.draw(st.integers(-3, 3)), 10.0 ** data.draw(st.integers(-3, 200))
    t = terms(mechanism, clip=CLIP)
    loss = rows(kind, m=m, seed=seed, scale=scale)
    A, b = loss.A.copy(), loss.b.copy()
    j = data.draw(st.integers(0, m - 1))
    A[j] *= data.draw(st.sampled_from([-1.0, 0.0, 1.0]))
    b[j] = {"least-squares": -1e3, "logistic": -1.0, "softmax": 2.0}[kind] * np.sign(b[j])
    other = Loss(loss.objective, A, b, classes=loss.classes, row_bound=loss.row_bound)
    x = far * np.random.default_rng(seed).normal(size=loss.size)
    one, two = gate(loss, t), gate(other, t)
    order = order_of(t)
    assert one.lattice == two.lattice
    assert distance(one.gradient(x), two.gradient(x), order) <= Fraction(one.lattice.sensitivity) ** order


@pytest.mark.parametrize("mechanism", MECHANISMS)
@examples.of(40)
@given(seed=st.integers(0, 2**20), far=st.integers(0, 5))
def test_data_whose_gradients_are_beta_apart_move_the_released_value_by_at_most_the_sensitivity_priced(
    mechanism, seed, far
):
    """Least squares with other labels: the gradients are A'(b - b')/m apart at every x, here exactly known."""
    rng = np.random.default_rng(seed)
    A, b, change = np.rint(rng.normal(size=(4, 3)) * 8) / 8, np.rint(rng.normal(size=4) * 64), rng.integers(-9, 9, 4)
    order = 1 if mechanism == "laplace" else 2
    beta = np.linalg.norm(A.T @ change / 4, order)  # few bits: A'change/4 is exact
    t = terms(mechanism, beta=float(np.nextafter(beta, inf)) if beta else 1.0)
    of = Objective(kind="least-squares")
    one, two = (gate(Loss(of, A, labels, row_bound=10.0), t) for labels in (b, b + change))
    x = rng.normal(size=3) * 10.0**far
    moved = distance(one.gradient(x), two.gradient(x), order)
    assert moved <= Fraction(one.lattice.sensitivity) ** order


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
@examples.of(25)
@given(seed=st.integers(0, 2**20), far=st.integers(-2, 12), m=st.integers(1, 40))
def test_the_rounding_of_a_gradient_is_below_its_public_bound(kind, order, seed, far, m):
    loss = rows(kind, m=m, seed=seed, scale=3.0)
    x = np.random.default_rng(seed).normal(size=loss.size) * 10.0**far
    q, total = loss.A.shape[1], [mpmath.mpf(0)] * loss.size
    for a, label in zip(loss.A.tolist(), loss.b.tolist(), strict=True):
        T = [mpmath.fdot(a, x[c * q : (c + 1) * q].tolist()) for c in range(loss.classes)]
        if kind == "least-squares":
            s = [T[0] - label]
        elif kind == "logistic":
            s = [-label / (1 + mpmath.exp(label * T[0]))]
        else:
            e = [mpmath.exp(v - max(T)) for v in T]
            s = [v / mpmath.fsum(e) - (c == label) for c, v in enumerate(e)]
        total = [v + s[k // q] * a[k % q] for k, v in enumerate(total)]
    moved = [v * 3 / m - mpmath.mpf(float(g)) for v, g in zip(total, loss.data_gradient(x), strict=True)]
    assert mpmath.norm(moved, order) <= rounding(loss, x, order)


def test_where_rounding_is_not_covered_the_answer_is_refused_before_it_costs(tmp_path):
    t = terms()
    loss = rows("least-squares")
    ledger, budget_check = device(tmp_path, t)
    one = gate(loss, t, authority=budget_check)
    with pytest.raises(
        Refused, match=r"^n0: at \|x\| = 1\.73e\+12 the gradient is rounded by up to .*, expected at most"
    ):
        one.gradient(np.full(3, 1e12))
    assert (one.spends, one.state.answers, ledger.spends.rows()) == ([], 0, [])
    with pytest.raises(Refused, match=r"at \|x\| = 0 the gradient is rounded by up to"):
        gate(rows("least-squares", scale=1e12), t)
    assert np.isfinite(gate(loss, terms(clip=CLIP)).gradient(np.full(3, 1e300))).all()  # clipped records need no bound


def test_a_label_whose_rounding_is_not_covered_is_cut_and_not_told():
    of, x = Objective(kind="least-squares"), np.ones(1)
    far, cut = (Loss(of, np.ones((2, 1)), np.array([label, 1.0]), row_bound=1.0) for label in (1e9, LABEL_BOUND))
    assert np.array_equal(gate(far, terms()).gradient(x), gate(cut, terms()).gradient(x))
    assert not np.array_equal(gate(far, None).exact_gradient(x), gate(cut, None).exact_gradient(x))


def test_a_private_gradient_is_computed_from_the_rows_and_never_in_gram_form():
    for over in ADJACENCIES.values():
        loss = rows("least-squares")
        gate(loss, terms(**over)).gradient(np.ones(3))
        assert "gram" not in vars(loss)
    gate(loss, None).exact_gradient(np.ones(3))
    assert "gram" in vars(loss)


# --- what is released, and its price ---


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("over", ADJACENCIES.values(), ids=ADJACENCIES)
def test_an_answer_is_the_data_on_the_grid_plus_exact_noise_plus_the_public_part_behind_it(over, mechanism):
    t = terms(mechanism, **over)
    loss = rows("logistic", l2=0.3, nonconvex=Nonconvex(lam=0.1))
    x = np.array([0.5, -1.0, 2.0])
    one = gate(loss, t, SeededNoise(7, "n0"))
    data = loss.clipped_gradient(x, CLIP, order_of(t)) if t.clip else loss.data_gradient(x)
    for k in (1, 2, 3):
        n = SeededNoise(7, "n0").take(one.lattice, 3, k)
        released = one.lattice.g * (np.rint(data / one.lattice.g) + n)
        assert np.array_equal(one.gradient(x), released + loss.public_gradient(x))


@pytest.mark.parametrize("over", ADJACENCIES.values(), ids=ADJACENCIES)
def test_the_largest_value_on_the_grid_is_decided_without_the_data(over):
    """What the data can say at most is held by the grid, so that no release fails for a reason only the data know."""
    one = gate(rows("logistic", scale=2.0), terms(**over))
    most = 2.0 * (CLIP if "clip" in over else one.loss.R)
    assert most / one.lattice.g < EXACT / 2


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("over", ADJACENCIES.values(), ids=ADJACENCIES)
def test_every_answer_is_one_spend_and_together_they_cost_what_the_accountant_says(tmp_path, over, mechanism):
    t = terms(mechanism, answers=4, **over)
    ledger, budget_check = device(tmp_path, t)
    one = gate(rows("logistic"), t, SystemNoise(), budget_check)
    for _ in range(4):
        one.gradient(np.zeros(3))
        commit(ledger, one)
    price = one.lattice.epsilon if mechanism == "laplace" else one.lattice.mu
    assert 0.99 * t.per_answer < price <= t.per_answer
    assert [row[2:10] for row in ledger.spends.rows()] == [
        (
            k,
            mechanism,
            price,
            one.lattice.sensitivity,
            one.lattice.scale,
            one.lattice.g,
            t.adjacency,
            SystemNoise.sampler,
        )
        for k in (1, 2, 3, 4)
    ]
    assert one.lattice.scale >= one.lattice.sensitivity / t.per_answer
    event = accounting.Laplace(price) if mechanism == "laplace" else accounting.Gaussian(price)
    totals = accounting.Totals()
    totals.add(event, 4)
    assert ledger.spends.totals(t.adjacency) == totals
    assert 0.98 * t.epsilon < accounting.total_epsilon(totals, t.delta) <= t.epsilon


@pytest.mark.runs
@pytest.mark.parametrize(("claimed", "seen"), [(1.0, (0.5, 1.0)), (3.0, (1.5, 3.0))])
def test_the_one_record_game_measures_less_than_the_claim_and_more_than_nothing(claimed, seen):
    """One record, its worst neighbour: thresholds picked on one half of the answers, certified by Hoeffding on the
    other.
    """
    N, far = 4000, np.array([100.0])
    halves = []
    for label, seed in ((1.0, 1), (-1.0, 2)):
        loss = Loss(Objective(kind="least-squares"), np.array([[1.0]]), np.array([1e3 * label]), row_bound=1.0)
        one = gate(loss, terms(answers=N, per_answer=claimed, clip=CLIP), SeededNoise(seed, "n0"))
        answers = []
        for _ in range(N):
            answers.append(round(float(one.gradient(far)[0]), 9))
            one.committed()
        halves.append((np.array(answers[::2]), np.array(answers[1::2])))
    error = math.sqrt(math.log(2 / 1e-6) / N)  # either side's frequency, over N/2 answers

    def measured(half, threshold):
        below, above = (np.mean(side[half] <= threshold) for side in halves)
        return math.log(max(below - error, 1e-9) / (above + error))

    best = max(halves[0][0], key=lambda threshold: measured(0, threshold))
    assert seen[0] < measured(1, best) <= seen[1]


@pytest.mark.runs
def test_the_expected_noise_is_the_mean_of_the_drawn():
    for mechanism in MECHANISMS:
        t, loss = terms(mechanism, answers=2000), rows("logistic")
        one = gate(loss, t, SeededNoise(3, "n0"))
        for _ in range(2000):
            one.gradient(np.zeros(3))
            one.committed()
        # 6000 |n|, standard deviation below their mean: 5 / sqrt(6000)
        assert one.drawn_l1 / 2000 == pytest.approx(one.lattice.expected_l1 * loss.size, rel=5 / 6000**0.5)


# --- the pool, the cap, a crash ---


def test_noise_is_drawn_ahead_for_whole_answers_and_for_no_more_than_the_cap_allows():
    one = gate(rows("softmax"), terms(answers=40), SystemNoise())
    one.refill()
    assert [n.shape for n in one.noise.pool[one.lattice]] == [(9,)] * POOL
    few = gate(rows("softmax"), terms(answers=3), SystemNoise())
    few.refill()
    assert len(few.noise.pool[few.lattice]) == 3
    answers = [few.gradient(np.zeros(9)).tobytes() for _ in range(3)]
    few.refill()
    assert not few.noise.pool
    assert len(set(answers)) == 3


@pytest.mark.parametrize("published", [False, True])
def test_answers_beyond_the_cap_are_refused(published):
    mechanism = "gaussian" if published else "laplace"
    one = gate(rows("logistic"), terms(mechanism, answers=2, published=published, step=0.1))
    ask = one.exact_gradient if published else one.gradient
    for _ in range(2):
        ask(np.zeros(3))
        one.committed()
    with pytest.raises(Refused, match=r"^n0: 2 answers given, one more asked, the plan's cap is 2$"):
        ask(np.zeros(3))
    assert (one.spends, one.state.answers) == ([], 2)


def test_a_gate_goes_on_counting_where_the_stored_state_says():
    one = gate(rows("logistic"), terms(), SystemNoise())
    one.gradient(np.zeros(3))
    one.committed()
    stored = wire.encode(one.state)
    lost = one.gradient(np.zeros(3))
    again = gate(rows("logistic"), terms(), SystemNoise())
    again.restore(wire.decode_state(GateState, stored))
    assert not np.array_equal(again.gradient(np.zeros(3)), lost)
    assert [s.answer for s in again.spends] == [2]


# --- without privacy ---


def test_exact_answers_are_those_of_the_loss_and_cost_infinity(tmp_path):
    loss = rows("logistic", l2=0.5)
    ledger, budget_check = device(tmp_path, None)
    one = gate(loss, None, authority=budget_check)
    x, v = np.array([1.0, -2.0, 0.5]), np.array([0.1, 0.2, -0.3])
    assert np.array_equal(one.exact_gradient(x), loss.gradient(x))
    assert np.array_equal(one.exact_minimizer(v, 2.0), Minimizer(loss)(v, 2.0).x)
    commit(ledger, one)
    assert [row[2:5] for row in ledger.spends.rows()] == [(1, "nonprivate", inf), (2, "nonprivate", inf)]


def test_a_finite_budget_refuses_exact_answers(tmp_path):
    _, budget_check = device(tmp_path, None, budget(1e6))
    one = gate(rows("logistic"), None, authority=budget_check)
    for ask in (lambda: one.exact_gradient(np.zeros(3)), lambda: one.exact_minimizer(np.zeros(3), 1.0)):
        with pytest.raises(Refused, match=r"^n0: an answer without privacy was asked, its budget is 1e.06$"):
            ask()
    assert (one.spends, one.state.answers) == ([], 0)


NONE, GUARDED = None, terms()
PUBLISHED = terms("gaussian", published=True, step=0.1)


@pytest.mark.parametrize(
    ("t", "question", "line"),
    [
        (NONE, "gradient", "a noisy answer was asked for in a run without privacy"),
        (NONE, "perturb", "a noisy answer was asked for in a run without privacy"),
        (GUARDED, "exact_gradient", "an exact gradient was asked for in a private run"),
        (GUARDED, "perturb", "the paper's noise was asked for in a guarded run"),
        (GUARDED, "exact_minimizer", "an exact answer was asked for in a private run"),
        (PUBLISHED, "gradient", "a guarded answer was asked for in a published run"),
        (PUBLISHED, "exact_minimizer", "an exact answer was asked for in a private run"),
    ],
)
def test_a_question_of_another_variant_is_refused_and_costs_nothing(t, question, line):
    one = gate(rows("logistic"), t)
    asked = (np.zeros(3), 1.0) if "minimizer" in question else (np.zeros(3),)
    with pytest.raises(Refused, match=f"^n0: {line}$"):
        getattr(one, question)(*asked)
    assert (one.spends, one.state.answers) == ([], 0)


@pytest.mark.parametrize(
    ("loss", "over", "line"),
    [
        ({"bound": None}, {}, r"row_bound: found none, expected R >= \|a\|_2 of every row \(variant: guarded\)"),
        ({}, {"published": True}, r"privacy.mechanism: found laplace, expected gaussian \(DP-RECAL\)"),
        (
            {},
            {"published": True, "mechanism": "gaussian"},
            r"step: found alpha beta = 0, expected a number > 0 \(DP-RECAL\)",
        ),
        (
            {},
            {"published": True, "mechanism": "gaussian", "step": 0.1, "decay": 0.5},
            r"decay: found R = 0\.5 over 4 answers, expected R >= 1 and R\^answers <= e\^1000",
        ),
        (
            {},
            {"published": True, "mechanism": "gaussian", "step": 0.1, "decay": 1e200},
            r"decay: found R = 1e\+200 over 4 answers, expected R >= 1 .*",
        ),
    ],
)
def test_terms_that_cannot_be_met_are_one_line_at_the_start(loss, over, line):
    with pytest.raises(InputError, match=f"^n0: {line}$"):
        gate(rows("least-squares", **loss), terms(**over))


# --- published DP-RECAL ---


@pytest.mark.parametrize("decay", [1.0, 1.02, 3.0])
def test_the_published_noise_is_the_paper_s_for_the_claim_of_theorem_4(decay):
    """sigma_k^2 = R sigma_{k+1}^2 and epsilon = rho + 2 sqrt(rho ln 1/delta), rho = rho_1 (R^xi - 1)/(R - 1),
    rho_1 = 8 alpha^2 beta^2 c^2/sigma_1^2."""
    alpha, beta, c, xi = 0.4, 1 / 18, 0.5, 30
    t = terms("gaussian", answers=xi, published=True, clip=c, step=alpha * beta, decay=decay, epsilon=12.0, delta=1e-3)
    loss = rows("logistic")
    sd = [paper_sd(loss, t, k) for k in range(1, xi + 1)]
    assert np.allclose(np.square(sd[:-1]), decay * np.square(sd[1:]), rtol=1e-12)
    rho_1 = 8 * (alpha * beta * c) ** 2 / sd[0] ** 2
    rho = rho_1 * (xi if decay == 1 else (decay**xi - 1) / (decay - 1))
    assert rho + 2 * math.sqrt(rho * math.log(1e3)) == pytest.approx(12.0, rel=1e-12)
    # Finding 1.2: whatever the decay, the last noise is that of one answer at the whole rho; it cannot vanish.
    assert sd[-1] >= 4 * alpha * beta * c / math.sqrt(2 * rho) * (1 - 1e-12)


def test_a_bounded_change_stands_where_the_paper_has_2c():
    loss = rows("logistic", scale=5.0)
    by_clip = terms("gaussian", published=True, clip=0.1, step=0.1)
    by_change = terms("gaussian", published=True, beta=2 * 0.1 * 5.0, step=0.1)
    assert paper_sd(loss, by_clip, 1) == pytest.approx(paper_sd(loss, by_change, 1), rel=1e-15)


def test_the_published_noise_stands_on_what_is_sent_and_its_answer_costs_infinity(tmp_path):
    t = terms("gaussian", published=True, step=0.1, decay=2.0)
    ledger, budget_check = device(tmp_path, t)
    loss = rows("logistic", l2=0.5)
    one = gate(loss, t, SeededNoise(5, "n0"), budget_check)
    x, sent = np.ones(3), np.array([0.25, 0.5, -1.0])
    for k in (1, 2):
        assert np.array_equal(one.exact_gradient(x), loss.gradient(x))
        noise = counter_generator(5, "n0", k).normal(0.0, paper_sd(loss, t, k), 3)
        assert np.array_equal(one.perturb(sent), sent + noise)
        commit(ledger, one)
    assert [row[2:10] for row in ledger.spends.rows()] == [
        (k, "nonprivate", inf, inf, paper_sd(loss, t, k), 0.0, t.adjacency, PAPER_SAMPLER) for k in (1, 2)
    ]
    assert ledger.spends.totals(t.adjacency).nonprivate


def test_a_budget_refuses_the_published_variant_at_its_first_answer(tmp_path):
    _, budget_check = device(tmp_path, PUBLISHED, budget(1e6, 1e-5))
    with pytest.raises(Refused, match="an answer without privacy was asked"):
        gate(rows("logistic"), PUBLISHED, authority=budget_check).exact_gradient(np.zeros(3))
