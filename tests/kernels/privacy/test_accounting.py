"""What answers cost: never below the truth, close to it, and the same whichever way it is asked."""

from __future__ import annotations

import copy
import math
from fractions import Fraction
from math import inf

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.privacy.accounting import (
    ACCOUNTANTS,
    Event,
    Gaussian,
    Laplace,
    NonPrivate,
    Totals,
    calibrate,
    claimed_epsilon,
    grouped,
    per_answer_paper,
    spent_epsilon,
    total_epsilon,
)
from hushgrid.kernels.privacy.noise import Lattice
from hushgrid.kernels.privacy.totals import reconciled
from tests.support import examples
from tests.support.agents.accountants import deltas, exact_gdp_delta, exact_optimal_delta, small

epsilons = st.floats(1e-4, 50)
counts = st.integers(1, 3000)
accountants = st.sampled_from(list(ACCOUNTANTS))


def counted(*events: Event) -> Totals:
    totals = Totals()
    for event in events:
        totals.add(event)
    return totals


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


def test_totals_of_groups_of_k_cost_k_times_the_epsilon_and_k_squared_the_rho() -> None:
    other, totals = counted(Laplace(0.5), Laplace(0.25), Gaussian(0.25)), counted(Laplace(0.125), Gaussian(0.5))
    totals.include(other, 3)
    assert (totals.laplace, totals.gaussian, totals.largest_epsilon) == (3, 2, 1.5)
    assert totals.epsilon == 0.125 + 3 * 0.75
    assert totals.mu**2 == pytest.approx(0.25 + 9 * 0.0625, rel=1e-15)
    assert totals.rho == (0.125**2 + 9 * (0.25 + 0.0625) + 0.25 + 9 * 0.0625) / 2
    one = counted(*(grouped(event, 3) for event in (Laplace(0.5), Laplace(0.25), Gaussian(0.25))))
    one.include(counted(Laplace(0.125), Gaussian(0.5)))
    assert one == totals
    totals.include(counted(NonPrivate()), 2)
    assert totals.nonprivate


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
@examples.of(60)
def test_more_answers_cost_no_less(accountant: str, p: float, answers: int, more: int, delta: float) -> None:
    less = claimed_epsilon(accountant, p, answers, delta)
    assert less <= claimed_epsilon(accountant, p, answers + more, delta) * (1 + 1e-11)


@given(accountants, small, st.floats(1, 3), counts, deltas)
@examples.of(60)
def test_less_noise_costs_no_less(accountant: str, p: float, factor: float, answers: int, delta: float) -> None:
    less = claimed_epsilon(accountant, p, answers, delta)
    assert less <= claimed_epsilon(accountant, p * factor, answers, delta) * (1 + 1e-11)


@given(accountants, small, counts, deltas, st.floats(1, 5))
@examples.of(60)
def test_a_larger_delta_costs_no_more(accountant: str, p: float, answers: int, delta: float, factor: float) -> None:
    more = claimed_epsilon(accountant, p, answers, delta)
    assert claimed_epsilon(accountant, p, answers, min(delta * factor, 0.9)) <= more * (1 + 1e-11)


@given(accountants, epsilons, deltas, counts)
@examples.of(60)
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
@examples.of(40)
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
@examples.of(60)
def test_answers_of_both_kinds_are_counted_as_gaussian_ones_and_pay_for_delta_once(
    laplace: list[float], gaussian: list[float], delta: float
) -> None:
    totals = counted(*map(Laplace, laplace), *map(Gaussian, gaussian))
    mu = math.sqrt(math.fsum(m * m for m in gaussian) + math.pi / 2 * math.fsum(e * e for e in laplace))
    assert total_epsilon(totals, delta) == pytest.approx(claimed_epsilon("gdp", mu, 1, delta), rel=1e-6)


@given(st.lists(small, max_size=20), deltas)
@settings(deadline=None)
def test_answers_of_one_kind_have_the_whole_delta_for_one_bound(values: list[float], delta: float) -> None:
    laplace, gaussian = counted(*map(Laplace, values)), counted(*map(Gaussian, values))
    assert total_epsilon(laplace, delta) <= laplace.epsilon
    assert total_epsilon(gaussian, delta) == spent_epsilon("gdp", gaussian, delta)


def test_optimal_composition_of_unequal_answers_never_passes_their_sum() -> None:
    totals = counted(Laplace(1.0), *[Laplace(0.001)] * 100)
    assert claimed_epsilon("pure-optimal", 1.0, 101, 1e-6) > 2 * totals.epsilon
    assert spent_epsilon("pure-optimal", totals, 1e-6) == totals.epsilon


def test_a_total_at_delta_zero_is_the_pure_sum_and_infinite_with_a_gaussian_answer() -> None:
    assert total_epsilon(counted(Laplace(0.5), Laplace(0.25)), 0.0) == 0.75
    assert total_epsilon(counted(Laplace(0.5), Gaussian(0.1)), 0.0) == inf


@given(st.lists(st.one_of(st.builds(Laplace, small), st.builds(Gaussian, small)), max_size=20), deltas)
@examples.of(40)
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


# --- the ends of the public ranges ---


ENDS = [(e, d, k) for e in (1e-9, 1.0, 50.0, 1e9) for d in (1e-30, 1e-5, 0.5) for k in (1, 1000, 10**6)]


@pytest.mark.runs
@pytest.mark.parametrize(
    ("epsilon", "delta", "answers"), examples.few(ENDS, [end for end in ENDS if end[1] != 1e-5 and end[2] != 1000])
)
@pytest.mark.parametrize("accountant", ["zcdp", "gdp", "pure-optimal"])
def test_an_answer_calibrated_at_an_end_of_the_ranges_costs_what_was_asked(
    accountant: str, epsilon: float, delta: float, answers: int
) -> None:
    p = calibrate(accountant, epsilon, delta, answers)
    assert epsilon * (1 - 1e-2) <= claimed_epsilon(accountant, p, answers, delta) <= epsilon
    exact = exact_gdp_delta(epsilon, p * math.sqrt(answers)) if accountant != "pure-optimal" else 0
    if accountant == "pure-optimal" and answers <= 1000:
        exact = exact_optimal_delta(epsilon, p, answers)
    assert exact <= delta * (1 + 1e-14)  # sqrt is rounded here


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 1.0, 50.0, 709.0, 710.0, 1e9])
@pytest.mark.parametrize("delta", [1e-30, 1e-5, 0.5])
@pytest.mark.parametrize("k", [1, 2, 40, 300])
def test_optimal_composition_is_an_upper_bound_whatever_an_answer_costs(epsilon: float, delta: float, k: int) -> None:
    total = claimed_epsilon("pure-optimal", epsilon, k, delta)
    assert exact_optimal_delta(total, epsilon, k) <= delta
    assert total <= Fraction(epsilon) * k * (1 + Fraction(1, 2**52))
    assert total <= 1e-30 or exact_optimal_delta(total * (1 - 1e-6), epsilon, k) > delta


def test_a_long_composition_of_large_answers_is_summed_from_its_likeliest_term() -> None:
    """From the last term downwards these were millions of steps each, or an overflow of e^epsilon."""
    assert claimed_epsilon("pure-optimal", 1e6, 10**6, 1e-6) == pytest.approx(1e12, rel=1e-9)
    assert claimed_epsilon("pure-optimal", 5.0, 10**6, 0.5) < 5e6


@pytest.mark.parametrize(("epsilon", "delta"), [(1e-308, 1e-300), (1.7e308, 0.9), (5e-324, 0.5)])
@pytest.mark.parametrize("accountant", ["zcdp", "gdp", "pure-optimal"])
def test_where_a_calibration_would_not_end_it_does_not_begin(accountant: str, epsilon: float, delta: float) -> None:
    with pytest.raises(InputError, match=r"^epsilon: found .*, expected a number from 1e-12 to 1e12$"):
        calibrate(accountant, epsilon, delta, 7)


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
        (lambda: calibrate("pure-optimal", 1.0, 1e-5, 2**20 + 1), "answers: found 1048577, expected at most 1048576"),
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


# --- Noisy entries made to agree with their noisy total ---


def test_with_equal_variances_each_entry_takes_its_share_of_the_difference():
    y = np.array([1.0, 2.0, 4.0])
    assert reconciled(y, 11.0, np.ones(3), 1.0) == pytest.approx(y + (11.0 - 7.0) / 4)


def test_it_is_the_weighted_least_squares_estimate():
    rng = np.random.default_rng(1)
    for n in (1, 2, 7):
        y, variance, of_total, total = rng.normal(size=n), rng.uniform(0.5, 3.0, n), 2.0, 5.0
        A = np.vstack([np.eye(n), np.ones(n)]) / np.sqrt(np.append(variance, of_total))[:, None]
        b = np.append(y, total) / np.sqrt(np.append(variance, of_total))
        assert reconciled(y, total, variance, of_total) == pytest.approx(np.linalg.lstsq(A, b, rcond=None)[0])


@pytest.mark.runs
def test_the_error_of_a_sum_falls_as_it_should():
    """Plain 2 n (beta/eps)^2; totals 8 (beta/eps)^2 n/(n + 1), with every scale doubled."""
    rng, n = np.random.default_rng(2), 20
    noise = rng.laplace(scale=2.0, size=(100_000, n + 1))
    sums = np.array([reconciled(row[:n], row[n], np.ones(n), 1.0).sum() for row in noise[:20_000]])
    assert np.var(sums) == pytest.approx(8 * n / (n + 1), rel=0.06)  # five standard errors of a variance


def test_no_entry_has_no_total():
    assert reconciled(np.zeros(0), 3.0, np.zeros(0), 1.0).size == 0
