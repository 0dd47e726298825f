"""The gate's private minimiser: the price and its two lemmas, noise in floating point, the certificate, refusals in one
line.
"""

import math
import os
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.kernels.algorithms import iadmm
from hushgrid.kernels.errors import InputError, Refused
from hushgrid.kernels.privacy import accounting, perturbation
from hushgrid.kernels.problems.losses import Declared, Loss, Nonconvex, Objective
from hushgrid.kernels.problems.minimizer import Minimizer
from hushgrid.kernels.randomness import counter_generator
from hushgrid.node.privacy.noise_source import SeededNoise, SystemNoise
from tests.support import examples, games
from tests.support.agents.agents_without_gate import along, names, walked
from tests.support.devices.rows_device import commit, device, gate, problem, terms

ADJACENCY = "replace-one-record"


def replaced(loss, seed):
    """The same rows but one."""
    other = problem(loss.rows, loss.A.shape[1], seed + 1, loss.objective.kind)
    j = seed % loss.rows
    A, b = loss.A.copy(), loss.b.copy()
    A[j], b[j] = other.A[j], other.b[j]
    return Loss(loss.objective, A, b, loss.classes, loss.row_bound)


def of(mechanism="laplace", **over):
    return terms(mechanism, **{"clip": 1.0, "adjacency": ADJACENCY} | over)


# --- the price ---


numbers = st.tuples(
    st.integers(1, 50),
    st.integers(1, 6),
    st.floats(0.01, 1e3),
    st.floats(0.02, 1.0),
    st.floats(0.3, 1e3),
    st.floats(0.1, 20.0),
    st.integers(0, 2**20),
)


@given(numbers)
def test_the_price_of_an_answer_is_at_most_what_was_asked_for_and_little_less(given_numbers):
    """2 C R alpha/B + ln(1 + C c1 R^2/(B mu)) + (2 sqrt(d) tau/mu + g d)/(g t), in exact arithmetic but for the
    logarithm.
    """
    B, d, C, R, quadratic, epsilon, seed = given_numbers
    loss = problem(B, d, seed, scale=C, l2=0.125)
    loss = Loss(loss.objective, loss.A * R * (1 - 1e-15), loss.b, row_bound=R)
    mu = Fraction(quadratic) + Fraction(1, 8)
    curvature = mpmath.log1p(mpmath.mpf(C) * R**2 / 4 / (B * mpmath.mpf(float(mu))))
    if curvature > epsilon * (1 - perturbation.SHARE) * (1 - 1e-9):
        return
    p = perturbation.objective(loss, epsilon, np.ones(d), quadratic)
    moved = 2 * Fraction(C) * Fraction(R) / B * Fraction(p.alpha)
    inexact = (2 * Fraction(math.sqrt(d)) * Fraction(p.tau) / mu + Fraction(p.lattice.g) * d) / (
        Fraction(p.lattice.g) * Fraction(p.lattice.t)
    )
    price = mpmath.mpf(float(moved)) + curvature + mpmath.mpf(float(inexact))
    assert price <= epsilon
    assert (
        price >= epsilon * (1 - perturbation.SHARE / 50) - 1e-9
    )  # of xi's part, the rounding of its scale to the grid


def test_it_is_at_least_2_8_times_below_the_papers_second_term():
    """2 C 1.4 c1/(B mu) of (32), under the paper's condition 2 c1 < B mu/C."""
    for mu in (0.6, 1.0, 10.0, 1e3):
        loss = problem(1, 2, scale=1.0)
        p = perturbation.objective(loss, 5.0, np.zeros(2), mu)
        ours = 5.0 * (1 - perturbation.SHARE) - p.change * p.alpha
        assert 0 < ours <= 2 * 1.4 * 0.25 / mu / 2.8


@examples.of(60)
@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 2**20), st.floats(-2, 3))
def test_one_record_moves_the_gradient_and_the_jacobian_by_no_more_than_is_priced(m, d, seed, far):
    loss = problem(m, d, seed, scale=3.0, l2=0.1)
    other, quadratic = replaced(loss, seed), 0.7
    p = perturbation.objective(loss, 50.0, np.zeros(d), quadratic)
    curvature = 50.0 * (1 - perturbation.SHARE) - p.change * p.alpha
    x = np.random.default_rng(seed).normal(size=d) * 10.0**far
    moved = np.linalg.norm(loss.gradient(x) - other.gradient(x))
    assert moved <= p.change

    def log_det(f):
        s = np.abs(f.slope(x))
        H = (f.A.T * (s * (1 - s))) @ f.A * 3.0 / m + 0.8 * np.eye(d)
        return np.linalg.slogdet(H)[1]

    assert abs(log_det(loss) - log_det(other)) <= curvature * (1 + 1e-9)


def test_both_terms_are_nearly_attained():
    """Far out two records that are both wrong pull in opposite directions; at 0 a record bends most, or not at all."""
    s = 0.01
    A = np.array([[-s, math.sqrt(1 - s * s)], [-s, -math.sqrt(1 - s * s)]])
    one, two = (Loss(Objective(kind="logistic"), row[None, :], np.ones(1), row_bound=1.0) for row in A)
    x = np.array([1e5, 0.0])
    p = perturbation.objective(one, 5.0, np.zeros(2), 0.5)
    assert np.linalg.norm(one.gradient(x) - two.gradient(x)) >= 0.999 * p.change
    bent = math.log((0.5 + 0.25) / 0.5)  # det F''(0) with the record over without
    assert 5.0 * (1 - perturbation.SHARE) - p.change * p.alpha == pytest.approx(bent, rel=1e-9)


# --- the inexact solve ---


@examples.of(40)
@given(st.integers(1, 40), st.integers(1, 6), st.integers(0, 2**20), st.floats(-2, 2), st.floats(-1, 2))
def test_two_data_sets_that_share_their_exact_minimiser_have_answers_2_tau_over_mu_apart(m, d, seed, far, size):
    """For every x* there are eps, eps' that lead to it; what is computed is certified to tau, eps' rounding
    included.
    """
    loss = problem(m, d, seed, scale=10.0**size, l2=0.01)
    other, quadratic, v = replaced(loss, seed), 1.5, np.random.default_rng(seed).normal(size=d)
    p = perturbation.objective(loss, 10.0 ** (size + 1), v, quadratic)
    x = np.random.default_rng(seed + 1).normal(size=d) * 10.0**far / p.alpha  # as far as eps leads
    found = [Minimizer(f)(v - (f.gradient(x) + v + quadratic * x), quadratic) for f in (loss, other)]
    assert max(best.residual for best in found) <= p.tau / 2
    assert np.linalg.norm(found[0].x - found[1].x) <= 2 * p.tau / p.mu


@examples.of(30)
@given(
    st.sampled_from([1, 5, 200, 20_000]),
    st.integers(1, 8),
    st.integers(0, 2**20),
    st.floats(-3, 3),
    st.floats(-1, 3),
    st.floats(-1, 3),
)
def test_whatever_the_public_numbers_are_the_solver_is_certified_and_the_grid_holds_the_answer(
    m, d, seed, size, quadratic, far
):
    C, q = 10.0**size, 10.0**quadratic
    loss = problem(m, d, seed, scale=C)
    epsilon = 0.05 + 1.1 * math.log1p(C / 4 / (m * q))
    one = gate(loss, of(per_answer=epsilon), SeededNoise(seed, "n0"))
    v = 10.0**far * np.random.default_rng(seed).normal(size=d)
    answer = one.minimizer(v, q)
    (spend,) = one.spends
    assert np.all(np.isfinite(answer))
    assert np.array_equal(np.rint(answer / spend.grid) * spend.grid, answer)


def test_an_answer_is_the_minimiser_of_the_perturbed_function_on_the_grid_plus_exact_noise():
    loss, v = problem(20, 4, 3, l2=0.1), np.array([0.5, -1.0, 0.0, 2.0])
    one = gate(loss, of(per_answer=0.8), SeededNoise(5, "n0"))
    for k in (1, 2):
        p = perturbation.objective(loss, 0.8, v, float(k))
        entropy = counter_generator(5, "n0 minimizer", k).bytes
        eps, _ = perturbation.spherical(4, p.alpha, entropy)
        expected = p.lattice.release(Minimizer(loss)(v + eps, float(k)).x, p.lattice.sample(4, entropy))
        assert np.array_equal(one.minimizer(v, float(k)), expected)
        assert p.lattice.scale <= 1e-3 * np.linalg.norm(eps) / p.mu  # the inexact solve costs no accuracy to speak of
        one.committed()


def test_what_is_not_certified_is_not_released_and_its_residual_not_told(monkeypatch):
    monkeypatch.setattr(perturbation, "_tau", lambda *_: 1e-30)  # below any rounding
    one = gate(problem(), of(), SeededNoise(1, "n0"))
    with pytest.raises(Refused, match=r"^n0: no minimiser was certified to 1e-30, expected one; none is released$"):
        one.minimizer(np.zeros(3), 1.0)


# --- noise ---


def test_the_spherical_noise_has_the_law_priced():
    """alpha |eps| is Gamma(d); of three coordinates each is uniform on the sphere, whatever |eps| is
    (Dvoretzky-Kiefer-Wolfowitz).
    """
    n, d, alpha = 4000, 3, 2.5
    eps = np.array([perturbation.spherical(d, alpha, os.urandom)[0] for _ in range(n)])
    norm = np.linalg.norm(eps, axis=1)
    order = np.argsort(norm)
    x = alpha * norm[order]
    cdf = 1 - np.exp(-x) * (1 + x + x * x / 2)
    assert np.max(np.abs(cdf - (np.arange(n) + 0.5) / n)) <= math.sqrt(math.log(2e9) / (2 * n)) + 0.5 / n
    for half in (order[: n // 2], order[n // 2 :]):
        for u in np.sort(eps[half] / norm[half, None], axis=0).T:
            ranks = (np.arange(n // 2) + 0.5) / (n // 2)
            assert np.max(np.abs((u + 1) / 2 - ranks)) <= math.sqrt(math.log(2e9) / n) + 1 / n


@pytest.mark.parametrize("seed", range(6))
def test_every_noise_that_its_bits_stand_for_lies_within_the_rounding_counted(seed):
    """Both ends of each uniform's interval, in fifty digits; some bits as rare as the tail allows."""
    d, alpha, size = 4, 0.01, perturbation.BYTES
    bits = bytearray(np.random.default_rng(seed).bytes((2 * d + 1) * size))
    rare = [b"\xff" * size, (1 << 64).to_bytes(size, "little"), (3 << 64).to_bytes(size, "little")]
    for k, word in enumerate(rare[: seed // 2 + 1]):
        bits[3 * k * size : (3 * k + 1) * size] = word
    taken = iter([bytes(bits[: (d + 1) * size]), bytes(bits[(d + 1) * size :])])
    eps, rounded = perturbation.spherical(d, alpha, lambda n: next(taken))
    words = [int.from_bytes(bits[j : j + size], "little") for j in range(0, len(bits), size)]
    for end in (0, 1):
        with mpmath.workdps(120):
            ideal = [
                (-1) ** (w & 1) * mpmath.sqrt(2) * mpmath.erfinv(1 - mpmath.mpf((w >> 1) + end) / 2**191) for w in words
            ]
            M = mpmath.sqrt(sum(x * x for x in ideal[: d + 1]))
            away = mpmath.sqrt(sum((M * x / alpha - e) ** 2 for x, e in zip(ideal[d + 1 :], eps.tolist(), strict=True)))
        assert away <= rounded
    assert rounded <= 1e-11 * np.linalg.norm(eps)


@pytest.mark.runs
@pytest.mark.parametrize("question", ["minimizer", "output_minimizer"])
def test_the_expected_noise_is_the_mean_of_the_drawn(question):
    N, d, loss = 400, 5, problem(20, 5)
    kind = [] if question == "minimizer" else ["laplace"]
    p = getattr(perturbation, "output" if kind else "objective")(loss, *kind, 0.5, np.zeros(d), 1.0)
    one = gate(loss, of(answers=N), SeededNoise(2, "n0"))
    for _ in range(N):
        getattr(one, question)(np.zeros(d), 1.0)
        one.committed()
    # |eps|_2 is Gamma(d) with sd/mean 1/sqrt d, and |eps|_1 <= sqrt d |eps|_2; Laplace's |n| likewise: six sd of the
    # mean.
    assert one.drawn_l1 / N == pytest.approx(p.expected_l1(d), rel=6 / math.sqrt(N))


def test_the_tail_left_out_is_a_delta_nobody_can_see():
    assert perturbation.tail(105, 10**7) == 213 * 1e7 * 2.0**-128 < 1e-29


def test_minimisers_and_gradients_of_one_seed_have_noise_of_their_own():
    """Twice the same bits would be two answers to one noise."""
    one = gate(problem(), of(), SeededNoise(1, "n0"))
    entropy = counter_generator(1, "n0 minimizer", 1).bytes
    assert entropy(8) != one.noise.entropy("answer", 1)(8)


@pytest.mark.runs
def test_the_one_record_game_measures_less_than_the_claim_and_more_than_nothing():
    """One record or its opposite: thresholds picked on one half of the answers, certified by Hoeffding on the other."""
    N, claimed, halves = 1000, 3.0, []
    for label in (1.0, -1.0):
        loss = Loss(Objective(kind="logistic"), np.ones((1, 1)), np.array([label]), row_bound=1.0)
        one = gate(loss, of(answers=N, per_answer=claimed), SeededNoise(3, f"{label}"))
        answers = []
        for _ in range(N):
            answers.append(round(float(one.minimizer(np.zeros(1), 4.0)[0]), 9))
            one.committed()
        halves.append((np.array(answers[::2]), np.array(answers[1::2])))
    error = math.sqrt(math.log(2 / 1e-6) / N)  # either side's frequency, over N/2 answers

    def measured(half, threshold):
        above, below = (np.mean(side[half] >= threshold) for side in halves)
        return math.log(max(above - error, 1e-9) / (below + error))

    best = max(halves[0][0], key=lambda threshold: measured(0, threshold))
    assert 0.3 < measured(1, best) <= claimed


# --- output perturbation ---


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("kind", ["logistic", "softmax"])
@examples.of(25)
@given(m=st.integers(1, 6), d=st.integers(1, 4), seed=st.integers(0, 2**20), far=st.floats(-2, 3))
def test_replacing_a_record_moves_the_minimiser_by_less_than_output_perturbation_prices(
    kind, mechanism, m, d, seed, far
):
    loss = problem(m, d, seed, kind, scale=3.0)
    other, v = replaced(loss, seed), np.random.default_rng(seed).normal(size=loss.size) * 10.0**far
    p = perturbation.output(loss, mechanism, 0.5, v, 0.3)
    x, y = (np.rint(Minimizer(f)(v, 0.3, tolerance=p.tau).x / p.lattice.g) * p.lattice.g for f in (loss, other))
    assert np.linalg.norm(x - y, 1 if mechanism == "laplace" else 2) <= p.lattice.sensitivity


def far_pair(far=1e3):
    """Two data sets of one record, and a linear term, at which the minimisers are nearly (2 C R/B)/mu apart.

    The term pushes the minimiser to where both records are wrong, so each pulls with all its strength, against the
    other.
    """
    s = 0.01
    rows = np.array([[-s, math.sqrt(1 - s * s)], [-s, -math.sqrt(1 - s * s)]])
    one, other = (Loss(Objective(kind="logistic"), row[None, :], np.ones(1), row_bound=1.0) for row in rows)
    return one, other, np.array([-far, 0.0])


@pytest.mark.runs
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_two_minimisers_come_as_near_to_the_sensitivity_as_the_search_goes(mechanism):
    """No pair of records is farther apart than is priced, and one is nearly: nothing can be saved."""
    one, other, v = far_pair()
    p = perturbation.output(one, mechanism, 0.5, v, 0.5)
    x, y = (Minimizer(f)(v, 0.5, tolerance=p.tau).x for f in (one, other))
    apart = (p.change + 2 * p.tau) / p.mu
    assert 0.999 * apart <= np.linalg.norm(x - y) <= apart
    found, rng = 0.0, np.random.default_rng(0)
    for _ in range(300):
        rows, signs = rng.normal(size=(2, 1, 2)), np.sign(rng.normal(size=2))
        pair = [
            Loss(one.objective, a / np.linalg.norm(a), np.array([b]), row_bound=1.0)
            for a, b in zip(rows, signs, strict=True)
        ]
        ask = 10.0 ** rng.uniform(-2, 3) * rng.normal(size=2)
        found = max(found, float(np.linalg.norm(np.subtract(*(Minimizer(f)(ask, 0.5).x for f in pair)))))
    assert 0.85 * apart < found <= apart


def test_the_solver_s_error_is_part_of_the_sensitivity():
    """Whatever point is certified to tau may be released: two that are as far off as that allows are still priced."""
    one, other, v = far_pair()
    p = perturbation.output(one, "gaussian", 0.5, v, 0.5)
    x, y = (Minimizer(f)(v, 0.5, tolerance=p.tau).x for f in (one, other))
    away = (y - x) / np.linalg.norm(y - x)
    for f, point, sign in ((one, x, -1.0), (other, y, 1.0)):
        least = np.linalg.norm(f.gradient(point) + v + 0.5 * point)
        off = (p.tau - least) / 0.75  # the Hessian's largest eigenvalue is mu + 1/4
        moved = point + sign * off * away
        assert least < np.linalg.norm(f.gradient(moved) + v + 0.5 * moved) <= p.tau
        point[:] = moved
    grid = p.lattice.g
    released = [np.rint(point / grid) * grid for point in (x, y)]
    assert np.linalg.norm(x - y) <= (p.change + 2 * p.tau) / p.mu
    assert np.linalg.norm(released[0] - released[1]) <= p.lattice.sensitivity


def played(question, per_answer, N=3000):
    """Lower bounds of mu, of confidence that accuses and of 95 %: the answers of a gate with noise for `per_answer`."""
    *pair, v = far_pair()
    answers = []
    for loss, seed in zip(pair, (1, 2), strict=True):
        asked = gate(loss, of("gaussian", answers=N, per_answer=per_answer), SeededNoise(seed, "n0"))
        answers.append([])
        for _ in range(N):
            answers[-1].append(getattr(asked, question)(v, 0.5))
            asked.committed()
    values = [Minimizer(f)(v, 0.5).x for f in pair]
    return games.proved(answers, values, games.DOUBT), games.proved(answers, values, 0.05)


@pytest.mark.runs
@pytest.mark.parametrize("question", ["minimizer", "output_minimizer"])
def test_the_game_against_gaussian_minimisers_proves_nearly_what_is_claimed_and_never_more(question):
    accused, likely = played(question, 1.0)
    assert accused <= 1.0
    assert likely >= 0.8


@pytest.mark.runs
def test_the_game_accuses_a_gate_with_two_thirds_of_the_noise():
    assert played("minimizer", 1.5)[0] > 1.0


@pytest.mark.parametrize(("d", "T", "gain"), [(10, 10, 1.9), (10, 100, 2.2), (123, 10, 6.5), (123, 100, 7.5)])
def test_gaussian_noise_on_minimisers_is_several_times_less_than_the_spherical_laplace_s(d, T, gain):
    """E|noise|_2 in x at total (1, 1e-6), 4,000 records, mu = .01: the random linear term moves the minimiser by
    |eps|/mu

    where the data have no curvature (nearly everywhere on real rows), and the Gaussian noise is on the minimiser
    itself.
    """
    loss = Declared(Objective(kind="logistic"), 4000, d, 1, 1.0)
    zero, quadratic = np.zeros(d), 0.01
    pure = max(accounting.calibrate(a, 1.0, 1e-6 * (a == "pure-optimal"), T) for a in ("pure-basic", "pure-optimal"))
    by_objective = perturbation.objective(loss, pure, zero, quadratic)
    by_output = perturbation.output(loss, "gaussian", accounting.calibrate("gdp", 1.0, 1e-6, T), zero, quadratic)
    spherical = d / by_objective.alpha / by_objective.mu  # |eps| is Gamma(d, 1/alpha)
    normal = by_output.lattice.scale * math.sqrt(2) * math.exp(math.lgamma((d + 1) / 2) - math.lgamma(d / 2))
    assert spherical / normal >= gain


def test_softmax_minimisers_are_private_under_gaussian_noise():
    loss = problem(40, 3, kind="softmax")
    one = gate(loss, of("gaussian", answers=2), SeededNoise(1, "n0"))
    v, (p, expected) = (
        np.ones(9),
        (perturbation.output(loss, "gaussian", 0.5, np.ones(9), 2.0), Minimizer(loss)(np.ones(9), 2.0).x),
    )
    assert np.linalg.norm(one.minimizer(v, 2.0) - expected) <= 6 * p.lattice.scale * 3
    assert [s.kind for s in one.spends] == ["gaussian"]


# --- what it costs, and what is refused ---


@pytest.mark.parametrize(
    ("question", "mechanism"),
    [("minimizer", "laplace"), ("minimizer", "gaussian"), ("output_minimizer", "laplace")],
)
def test_every_answer_is_one_spend_and_together_they_cost_what_the_accountant_says(tmp_path, question, mechanism):
    t = of(mechanism)
    ledger, budget_check = device(tmp_path, t)
    one = gate(problem(20), t, SystemNoise(), budget_check)
    for k in range(4):
        getattr(one, question)(np.ones(3), 1.0 + k)  # a growing eta
        commit(ledger, one)
    totals = accounting.Totals()
    totals.add(t.event, 4)
    assert ledger.spends.totals(t.adjacency) == totals
    assert accounting.spent_epsilon(t.accountant, totals, t.delta) <= t.epsilon
    with pytest.raises(Refused, match=r"^n0: 4 answers given, one more asked, the plan's cap is 4$"):
        getattr(one, question)(np.zeros(3), 1.0)


def test_an_answer_of_another_process_is_drawn_anew_and_with_a_seed_alike():
    for noise, alike in ((SystemNoise(), False), (SeededNoise(1, "n0"), True)):
        one = gate(problem(), of(), noise)
        first = one.minimizer(np.zeros(3), 1.0)
        again = gate(problem(), of(), noise)
        assert np.array_equal(first, again.minimizer(np.zeros(3), 1.0)) == alike


REPLACE = r"expected replace-one-record with a clip of at least row_bound = 1 \(private minimiser: nothing is clipped\)"


@pytest.mark.parametrize(
    ("loss", "over", "quadratic", "line"),
    [
        (
            {"kind": "least-squares"},
            {},
            1.0,
            r"private minimiser: found least-squares, expected logistic \(two labels' gradients differ without bound\)",
        ),
        (
            {"kind": "softmax"},
            {},
            1.0,
            r"private minimiser: found softmax, expected logistic \(a record's Hessian has rank C - 1\)",
        ),
        (
            {"nonconvex": Nonconvex(lam=0.1)},
            {},
            1.0,
            r"private minimiser: found a nonconvex term, lambda = 0\.1, expected none",
        ),
        (
            {"bound": 4.0},
            {"clip": 4.0},
            1.0,
            r"private minimiser: found row_bound 4\.0, expected R <= 1, R >= \|a\|_2 of every row",
        ),
        ({}, {}, 0.0, r"private minimiser: found mu = rho \+ l2 = 0, expected a finite number > 0"),
        (
            {},
            {"per_answer": 0.04},
            1.0,
            r"private minimiser: found epsilon 0\.04 an answer, expected more than ln\(1 \+ C c1/\(B mu\)\) = "
            r"0\.0408: fewer answers, or a larger eta",
        ),
        (
            {"kind": "least-squares"},
            {"mechanism": "gaussian"},
            1.0,
            r"private minimiser: found least-squares, expected logistic or softmax \(\|L'\| must be bounded\)",
        ),
        (
            {"bound": 4.0},
            {"mechanism": "gaussian", "clip": 4.0},
            1.0,
            r"private minimiser: found row_bound 4\.0, expected R <= 1, R >= \|a\|_2 of every row",
        ),
        ({}, {"mechanism": "gaussian"}, 1e-200, r"noise: sensitivity: found .*, expected a number from 1e-90 to 1e90"),
        (
            {},
            {"mechanism": "gaussian"},
            math.nan,
            r"private minimiser: found mu = rho \+ l2 = nan, expected a finite number > 0",
        ),
        (
            {},
            {"mechanism": "gaussian", "clip": math.nextafter(1.0, 0.0)},
            1.0,
            "privacy.adjacency: found replace-one-record, " + REPLACE,
        ),
        (
            {},
            {"clip": 0.0, "beta": 0.5, "adjacency": "bounded-change 0.5"},
            1.0,
            "privacy.adjacency: found bounded-change 0.5, " + REPLACE,
        ),
        (
            {},
            {"clip": 0.5, "adjacency": "replace-one-record clip 0.5"},
            1.0,
            "privacy.adjacency: found replace-one-record clip 0.5, " + REPLACE,
        ),
    ],
)
def test_what_cannot_be_promised_is_refused_in_one_line_and_costs_nothing(loss, over, quadratic, line):
    one = gate(problem(**loss), of(**over))
    with pytest.raises(InputError, match=f"^n0: {line}$"):
        one.minimizer(np.zeros(one.loss.size), quadratic)
    assert (one.spends, one.state.answers) == ([], 0)


@pytest.mark.parametrize("question", ["minimizer", "output_minimizer"])
@pytest.mark.parametrize(
    ("t", "line"),
    [
        (None, "a noisy answer was asked for in a run without privacy"),
        (of("gaussian", published=True, step=0.1), "a guarded answer was asked for in a published run"),
    ],
)
def test_a_private_minimiser_is_given_in_a_guarded_run_only(question, t, line):
    one = gate(problem(), t)
    with pytest.raises(Refused, match=f"^n0: {line}$"):
        getattr(one, question)(np.zeros(3), 1.0)
    assert (one.spends, one.state.answers) == ([], 0)


def test_output_perturbation_of_least_squares_is_refused():
    line = r"^n0: private minimiser: found least-squares, expected logistic or softmax \(\|L'\| must be bounded\)$"
    with pytest.raises(InputError, match=line):
        gate(problem(kind="least-squares"), of()).output_minimizer(np.zeros(3), 1.0)


# --- who may ask ---


def test_i_admm_s_exact_update_is_answered_by_it_once_a_visit():
    """PI-ADMM's (4a), guarded: x_i is what was released, and mu = rho + l2."""
    t = of(answers=2)
    gates = [gate(problem(20, 3, i, l2=0.1), t, SeededNoise(1, f"n{i}")) for i in range(4)]
    params = iadmm.Params(rounds=8, rho=2.0, update="exact")
    walk = [0, 1, 2, 3] * 2
    agents = [iadmm.Agent(params, g, 4, 3, f"n{i}", names(range(4)), along(walk)) for i, g in enumerate(gates)]
    assert [hop.i for hop in walked(agents)] == walk
    assert [len(g.spends) for g in gates] == [2] * 4
    for agent, g in zip(agents, gates, strict=True):
        assert np.array_equal(np.rint(agent.state.x / g.spends[-1].grid) * g.spends[-1].grid, agent.state.x)
