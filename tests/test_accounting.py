"""What answers cost: never below the truth, close to it, and the same whichever way it is asked."""

from __future__ import annotations

import copy
import math
import subprocess
import sys
from fractions import Fraction
from math import inf

import dp_accounting
import mpmath
import pytest
from dp_accounting import rdp
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hushgrid.kernels.accounting import (
    ACCOUNTANTS,
    Event,
    Gaussian,
    Laplace,
    NonPrivate,
    Totals,
    calibrate,
    claimed_epsilon,
    per_answer_paper,
    spent_epsilon,
    total_epsilon,
)
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.noise import Lattice

epsilons = st.floats(1e-4, 50)
small = st.floats(1e-4, 3)
deltas = st.floats(1e-12, 0.2)
counts = st.integers(1, 3000)
accountants = st.sampled_from(list(ACCOUNTANTS))


def counted(*events: Event) -> Totals:
    totals = Totals()
    for event in events:
        totals.add(event)
    return totals


# --- the definitions, to 60 digits ---


def exact_gdp_delta(epsilon: float, mu: float) -> mpmath.mpf:
    with mpmath.workdps(60):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


def exact_optimal_delta(target: float, epsilon: float, k: int) -> mpmath.mpf:
    with mpmath.workdps(60):
        e, p = mpmath.mpf(epsilon), 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon)))
        gains = ((j, 1 - mpmath.exp(target - (k - 2 * j) * e)) for j in range(k + 1) if (k - 2 * j) * epsilon > target)
        return mpmath.fsum(mpmath.binomial(k, j) * p ** (k - j) * (1 - p) ** j * gain for j, gain in gains)


def exact_zcdp_delta(epsilon: float, rho: mpmath.mpf, alpha: mpmath.mpf) -> mpmath.mpf:
    with mpmath.workdps(60):
        a = mpmath.mpf(alpha)
        return mpmath.exp((a - 1) * (a * rho - epsilon)) / (a - 1) * (1 - 1 / a) ** a


@given(mu=st.floats(1e-3, 40), delta=deltas)
@example(mu=100.0, delta=1e-5)
@example(mu=1e4, delta=1e-12)
@example(mu=1e-4, delta=1e-9)
def test_gdp_is_the_exact_curve_rounded_up(mu: float, delta: float) -> None:
    epsilon = claimed_epsilon("gdp", mu, 1, delta)
    assert exact_gdp_delta(epsilon, mu) <= delta
    assert epsilon == 0 or exact_gdp_delta(epsilon * (1 - 1e-6), mu) > delta


@given(epsilon=small, k=st.integers(1, 60), delta=deltas)
@example(epsilon=2.1401260350616305, k=41, delta=1e-12)  # within 1e-10 of the plain sum, where differences cancel
@example(epsilon=0.001, k=2000, delta=1e-9)
@settings(max_examples=60)
def test_optimal_composition_is_the_worst_case_of_randomised_response_rounded_up(
    epsilon: float, k: int, delta: float
) -> None:
    total = claimed_epsilon("pure-optimal", epsilon, k, delta)
    assert exact_optimal_delta(total, epsilon, k) <= delta
    assert total <= Fraction(epsilon) * k * (1 + Fraction(1, 2**52))
    assert total == 0 or exact_optimal_delta(total * (1 - 1e-6), epsilon, k) > delta


@given(mu=st.floats(1e-4, 40), delta=deltas)
@example(mu=1e4, delta=1e-12)
def test_zcdp_is_the_best_order_rounded_up(mu: float, delta: float) -> None:
    epsilon = claimed_epsilon("zcdp", mu, 1, delta)
    with mpmath.workdps(60):
        rho, known = mpmath.mpf(mu) ** 2 / 2, -mpmath.log(delta)
        low, high = mpmath.mpf(0), mpmath.mpf(1 / delta)
        for _ in range(200):  # the order's derivative has one root
            a = (low + high) / 2
            low, high = (a, high) if rho * a * a + mpmath.log1p(a) < known else (low, a)
        best = 1 + high
        assert exact_zcdp_delta(epsilon, rho, best) <= delta
        if epsilon > 0:
            less = epsilon * (1 - 1e-9) - 1e-15
            assert all(exact_zcdp_delta(less, rho, 1 + (best - 1) * f) > delta for f in (0.5, 0.9, 1, 1.1, 2))
    assert exact_gdp_delta(epsilon, mu) <= delta  # what a Gaussian answer really costs


# --- the referee: dp-accounting ---

GAUSSIAN_RUNS = [(0.01, 100, 1e-5), (0.1, 100, 1e-5), (1.0, 1, 1e-6), (1.0, 100, 1e-5), (0.3, 1000, 1e-9)]
LAPLACE_RUNS = [(0.1, 100, 1e-5), (1.0, 10, 1e-3), (0.05, 100, 1e-2), (0.5, 7, 1e-6)]


@pytest.mark.parametrize(("mu", "answers", "delta"), GAUSSIAN_RUNS)
def test_gdp_agrees_with_the_referees_gaussian(mu: float, answers: int, delta: float) -> None:
    theirs = dp_accounting.get_epsilon_gaussian(1 / (mu * math.sqrt(answers)), delta)
    assert claimed_epsilon("gdp", mu, answers, delta) == pytest.approx(theirs, rel=1e-9)


@pytest.mark.parametrize(("mu", "answers", "delta"), GAUSSIAN_RUNS)
def test_zcdp_lies_between_the_exact_cost_and_the_referees_renyi_orders(mu: float, answers: int, delta: float) -> None:
    accountant = rdp.RdpAccountant()
    accountant.compose(dp_accounting.GaussianDpEvent(1 / mu), answers)
    ours, theirs = claimed_epsilon("zcdp", mu, answers, delta), accountant.get_epsilon(delta)
    assert claimed_epsilon("gdp", mu, answers, delta) < ours <= theirs
    assert ours > 0.998 * theirs  # the referee tries a list of orders, we find the best one


@pytest.mark.parametrize(("epsilon", "answers", "delta"), LAPLACE_RUNS)
def test_optimal_composition_agrees_with_the_referees_loss_distribution(
    epsilon: float, answers: int, delta: float
) -> None:
    step = epsilon / 1000  # the referee rounds each answer's loss up to a multiple of this
    response = pld.from_randomized_response(2 / (1 + math.exp(epsilon)), 2, value_discretization_interval=step)
    laplace = pld.from_laplace_mechanism(1 / epsilon, value_discretization_interval=step)
    theirs, of_laplace = (p.self_compose(answers).get_epsilon_for_delta(delta) for p in (response, laplace))
    ours = claimed_epsilon("pure-optimal", epsilon, answers, delta)
    assert theirs - answers * step <= ours <= theirs * (1 + 1e-9)
    assert of_laplace - answers * step <= ours  # Laplace noise costs no more than the worst case of its epsilon


@pytest.mark.parametrize(("epsilon", "answers", "delta"), LAPLACE_RUNS)
def test_basic_composition_agrees_with_the_referee_at_a_very_high_order(
    epsilon: float, answers: int, delta: float
) -> None:
    order = 1e6  # Laplace: its Renyi divergence is pure epsilon up to ln 2/(order - 1) an answer
    accountant = rdp.RdpAccountant([order])
    accountant.compose(dp_accounting.LaplaceDpEvent(1 / epsilon), answers)
    close = (answers * math.log(2) + math.log(order / delta) + 1) / (order - 1)
    assert claimed_epsilon("pure-basic", epsilon, answers, 0.0) == pytest.approx(
        accountant.get_epsilon(delta), abs=close
    )


@pytest.mark.parametrize(
    ("epsilon", "times", "mu", "answers"), [(0.5, 2, 0.5, 4), (0.05, 50, 0.1, 50), (2.0, 1, 0.05, 10)]
)
def test_a_mixed_ledger_costs_no_less_than_the_referee_says(
    epsilon: float, times: int, mu: float, answers: int
) -> None:
    step, delta = 1e-3, 1e-5
    laplace = pld.from_laplace_mechanism(
        1 / epsilon, value_discretization_interval=step, pessimistic_estimate=False
    ).self_compose(times)
    gaussian = pld.from_gaussian_mechanism(
        1 / (mu * math.sqrt(answers)), value_discretization_interval=step, pessimistic_estimate=False
    )
    totals = Totals()
    totals.add(Laplace(epsilon), times)
    totals.add(Gaussian(mu), answers)
    least = laplace.compose(gaussian).get_epsilon_for_delta(delta)
    pure, gdp = epsilon * times, claimed_epsilon("gdp", mu, answers, delta / 2)
    assert least <= total_epsilon(totals, delta) <= (pure + gdp) * (1 + 1e-12)


# --- sums ---


@given(st.lists(st.one_of(st.builds(Laplace, st.floats(0, 1e3)), st.builds(Gaussian, st.floats(0, 1e3))), max_size=30))
def test_sums_are_the_least_floats_not_below_the_exact_ones(events: list[Event]) -> None:
    totals = counted(*events)
    laplace = [Fraction(e.epsilon) for e in events if isinstance(e, Laplace)]
    gaussian = [Fraction(e.mu) for e in events if isinstance(e, Gaussian)]
    rho = sum((x * x for x in laplace + gaussian), Fraction()) / 2
    mu2 = sum((x * x for x in gaussian), Fraction())
    tiny = Fraction(len(events), 2**256)  # numbers below 2^-203 are rounded up to this unit
    for ours, exact in ((totals.epsilon, sum(laplace, Fraction())), (totals.rho, rho)):
        assert Fraction(ours) >= exact
        assert ours == 0 or Fraction(math.nextafter(ours, 0)) < exact + tiny
    assert Fraction(totals.mu) ** 2 >= mu2
    assert Fraction(math.nextafter(totals.mu, 0)) ** 2 <= mu2 + tiny
    assert (totals.laplace, totals.gaussian) == (len(laplace), len(gaussian))


def test_ten_million_answers_cost_what_one_product_says() -> None:
    totals = Totals()
    totals.add(Laplace(0.1), 9_999_999)
    totals.add(Laplace(0.1))
    assert Fraction(totals.epsilon) - 10_000_000 * Fraction(0.1) < Fraction(1, 2**30)
    assert totals.epsilon >= 10_000_000 * Fraction(0.1)


def test_a_copy_of_the_totals_is_independent() -> None:
    totals = counted(Laplace(1.0))
    other = copy.copy(totals)
    other.add(Gaussian(1.0))
    assert (totals.gaussian, totals.mu, other.epsilon, other.mu) == (0, 0.0, 1.0, 1.0)


@pytest.mark.parametrize("event", [NonPrivate(), Laplace(inf), Gaussian(inf)])
def test_one_answer_without_noise_costs_infinity_for_ever(event: Event) -> None:
    totals = counted(event, Laplace(1.0))
    assert total_epsilon(totals, 1e-5) == spent_epsilon("pure-basic", totals, 0.0) == inf


@pytest.mark.parametrize("event", [Laplace(-1.0), Laplace(math.nan), Gaussian(-1.0), Gaussian(math.nan)])
def test_an_event_that_costs_less_than_nothing_is_not_counted(event: Event) -> None:
    with pytest.raises(ValueError, match="expected"):
        counted(event)


def test_nothing_answered_costs_nothing() -> None:
    assert [spent_epsilon(name, Totals(), 1e-5) for name in ACCOUNTANTS] == [0.0] * 4
    assert total_epsilon(Totals(), 0.0) == total_epsilon(Totals(), 1e-5) == 0.0


# --- what every accountant does ---


@given(accountants, small, counts, st.integers(0, 100), deltas)
@settings(max_examples=60, deadline=None)
def test_more_answers_cost_no_less(accountant: str, p: float, answers: int, more: int, delta: float) -> None:
    less = claimed_epsilon(accountant, p, answers, delta)
    assert less <= claimed_epsilon(accountant, p, answers + more, delta) * (1 + 1e-11)


@given(accountants, small, st.floats(1, 3), counts, deltas)
@settings(max_examples=60, deadline=None)
def test_less_noise_costs_no_less(accountant: str, p: float, factor: float, answers: int, delta: float) -> None:
    less = claimed_epsilon(accountant, p, answers, delta)
    assert less <= claimed_epsilon(accountant, p * factor, answers, delta) * (1 + 1e-11)


@given(accountants, small, counts, deltas, st.floats(1, 5))
@settings(max_examples=60, deadline=None)
def test_a_larger_delta_costs_no_more(accountant: str, p: float, answers: int, delta: float, factor: float) -> None:
    more = claimed_epsilon(accountant, p, answers, delta)
    assert claimed_epsilon(accountant, p, answers, min(delta * factor, 0.9)) <= more * (1 + 1e-11)


@given(accountants, epsilons, deltas, counts)
@settings(max_examples=60, deadline=None)
@example("pure-basic", 5.0, 0.01, 100)
@example("pure-optimal", 1.0, 1e-6, 1)
@example("gdp", 0.00023425661268250145, 1.2046607254242173e-10, 2)  # delta(epsilon) is a small difference
def test_a_calibrated_run_stays_within_its_budget_and_uses_it(
    accountant: str, epsilon: float, delta: float, answers: int
) -> None:
    p = calibrate(accountant, epsilon, delta, answers)
    for smaller in (1, 1 - 1e-15, 1 - 1e-12, 1 - 1e-3):  # what a grid gives of it must fit as well
        assert claimed_epsilon(accountant, p * smaller, answers, delta) <= epsilon
    assert claimed_epsilon(accountant, p * (1 + 1e-6), answers, delta) > epsilon


@given(accountants, st.floats(0.01, 20), st.floats(1e-9, 0.01), st.integers(1, 200), st.integers(1, 50))
@settings(max_examples=40, deadline=None)
def test_the_answers_a_grid_really_gives_fit_the_plan_to_the_last_one(
    accountant: str, epsilon: float, delta: float, answers: int, moved: int
) -> None:
    p = calibrate(accountant, epsilon, delta, answers)
    laplace = ACCOUNTANTS[accountant][0] == "laplace"
    event = (
        Laplace(Lattice.laplace(p, 0.01, moved).epsilon) if laplace else Gaussian(Lattice.gaussian(p, 0.01, moved).mu)
    )
    totals = counted(*[event] * answers)
    assert spent_epsilon(accountant, totals, delta) <= epsilon
    if accountant != "pure-optimal":  # its answers are not to be counted one by one
        assert total_epsilon(totals, 0.0 if accountant == "pure-basic" else delta) <= epsilon


def test_the_finer_accountants_buy_more_answers_of_the_same_kind() -> None:
    run = (1.0, 1e-6, 1000)
    assert calibrate("pure-basic", *run) < calibrate("pure-optimal", *run)
    assert calibrate("zcdp", *run) < calibrate("gdp", *run)


# --- what a device's ledger has spent in all ---


@given(st.lists(small, min_size=1, max_size=20), st.lists(small, min_size=1, max_size=20), deltas)
@settings(max_examples=60, deadline=None)
@example([0.01], [1.0], 1e-6)  # pure sum and GDP is the smaller
@example([0.1] * 20, [0.5], 1e-6)  # zCDP is
def test_the_smaller_of_two_bounds_pays_for_both_deltas(
    laplace: list[float], gaussian: list[float], delta: float
) -> None:
    totals, half = counted(*map(Laplace, laplace), *map(Gaussian, gaussian)), delta / 2
    gdp, zcdp = spent_epsilon("gdp", counted(*map(Gaussian, gaussian)), half), spent_epsilon("zcdp", totals, half)
    assert total_epsilon(totals, delta) == pytest.approx(min(totals.epsilon + gdp, zcdp), rel=1e-14)


@given(st.lists(small, max_size=20), deltas)
@settings(deadline=None)
def test_answers_of_one_kind_have_the_whole_delta_for_one_bound(values: list[float], delta: float) -> None:
    laplace, gaussian = counted(*map(Laplace, values)), counted(*map(Gaussian, values))
    assert total_epsilon(laplace, delta) == min(laplace.epsilon, spent_epsilon("zcdp", laplace, delta))
    assert total_epsilon(gaussian, delta) == spent_epsilon("gdp", gaussian, delta)


def test_optimal_composition_of_unequal_answers_never_passes_their_sum() -> None:
    totals = counted(Laplace(1.0), *[Laplace(0.001)] * 100)
    assert claimed_epsilon("pure-optimal", 1.0, 101, 1e-6) > 2 * totals.epsilon
    assert spent_epsilon("pure-optimal", totals, 1e-6) == totals.epsilon


def test_a_total_at_delta_zero_is_the_pure_sum_and_infinite_with_a_gaussian_answer() -> None:
    assert total_epsilon(counted(Laplace(0.5), Laplace(0.25)), 0.0) == 0.75
    assert total_epsilon(counted(Laplace(0.5), Gaussian(0.1)), 0.0) == inf


@given(st.lists(st.one_of(st.builds(Laplace, small), st.builds(Gaussian, small)), max_size=20), deltas)
@settings(max_examples=40, deadline=None)
def test_a_total_never_falls_when_an_answer_is_added(events: list[Event], delta: float) -> None:
    before = 0.0
    totals = Totals()
    for event in sorted(events, key=lambda e: isinstance(e, Gaussian)):
        totals.add(event)
        after = total_epsilon(totals, delta)
        assert after >= before * (1 - 1e-11)
        before = after


# --- the papers' scales ---


@given(st.floats(1e-3, 1), st.floats(1e-9, 0.1), st.floats(1e-3, 1e3))
def test_the_papers_gaussian_keeps_its_promise_up_to_epsilon_one(
    epsilon: float, delta: float, sensitivity: float
) -> None:
    sigma = per_answer_paper("gaussian", epsilon, delta, sensitivity)
    assert sigma == pytest.approx(math.sqrt(2 * math.log(1.25 / delta)) * sensitivity / epsilon, rel=1e-15)
    assert claimed_epsilon("gdp", sensitivity / sigma, 1, delta) <= epsilon


def test_the_papers_gaussian_breaks_it_for_a_large_epsilon() -> None:
    assert claimed_epsilon("gdp", 1 / per_answer_paper("gaussian", 30.0, 1e-5, 1.0), 1, 1e-5) > 30


def test_the_papers_laplace_scale_is_sensitivity_over_epsilon() -> None:
    assert per_answer_paper("laplace", 0.5, None, 0.01) == 0.02


# --- wrong input ---


@pytest.mark.parametrize(
    ("call", "found"),
    [
        (lambda: claimed_epsilon("renyi", 1.0, 1, 1e-5), "accountant: found 'renyi', expected one of pure-basic"),
        (lambda: claimed_epsilon("gdp", 1.0, 1, 0.0), "delta: found 0.0"),
        (lambda: claimed_epsilon("pure-basic", 1.0, 1, 1.0), "delta: found 1.0"),
        (lambda: calibrate("zcdp", 1.0, math.nan, 1), "delta: found nan"),
        (lambda: calibrate("pure-basic", 0.0, 0.0, 1), "epsilon: found 0.0"),
        (lambda: calibrate("pure-basic", inf, 0.0, 1), "epsilon: found inf"),
        (lambda: calibrate("pure-basic", 1.0, 0.0, 0), "answers: found 0"),
        (lambda: spent_epsilon("gdp", counted(Laplace(1.0)), 1e-5), "found 1 laplace answers, expected only gaussian"),
        (lambda: spent_epsilon("pure-basic", counted(Gaussian(1.0)), 0.0), "found 1 gaussian answers"),
        (lambda: total_epsilon(Totals(), 1.0), "delta: found 1.0"),
        (lambda: per_answer_paper("gaussian", 1.0, None, 1.0), "delta: found None"),
    ],
)
def test_what_cannot_be_counted_is_refused_in_one_line(call: object, found: str) -> None:
    with pytest.raises(InputError) as error:
        call()  # type: ignore[operator]
    assert found in str(error.value)


def test_a_device_counts_without_loading_numerical_libraries() -> None:
    code = (
        "import sys; from hushgrid.kernels import accounting as a; a.claimed_epsilon('gdp', 1.0, 10, 1e-5)\n"
        "print(sorted({'numpy', 'scipy', 'mpmath'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ran.stdout.strip(), ran.stderr) == ("[]", "")
