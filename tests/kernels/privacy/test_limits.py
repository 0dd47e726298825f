"""The limits of a budget: what answers may cost in all, in each currency, and what a filter of two of them promises."""

from __future__ import annotations

import math
from fractions import Fraction
from math import inf

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.privacy.accounting import UNIT, Gaussian, Laplace, NonPrivate, Totals, total_epsilon
from hushgrid.kernels.privacy.limits import HALF_PI, Charge, charge_of, charge_of_totals, gdp_of_pure, limit, mu_max
from tests.support import examples
from tests.support.agents.accountants import deltas, exact_gdp_delta

WHOLE = 1 << UNIT


@pytest.mark.parametrize(
    ("epsilon", "delta", "gdp", "zcdp"),
    [
        (0.1, 1e-6, 0.0275446502, 0.0253396010),
        (1.0, 1e-6, 0.2367043807, 0.2207078175),
        (1.0, 1e-5, 0.2680511232, None),
        (4.0, 1e-6, 0.8378587571, 0.7887521219),
        (10.0, 1e-6, 1.8481322058, None),
    ],
)
def test_the_limits_are_those_of_the_reference_to_ten_digits(epsilon, delta, gdp, zcdp):
    found = limit(epsilon, delta)
    assert math.sqrt(found.mu2 / WHOLE) == pytest.approx(gdp, abs=1e-10)
    assert found.pure == math.floor(Fraction(epsilon) * WHOLE)
    if zcdp is not None:
        assert math.sqrt(2 * found.rho / WHOLE) == pytest.approx(zcdp, abs=1.5e-10)


@given(st.floats(1e-2, 50), deltas)
@examples.of(60)
def test_no_limit_is_too_large(epsilon: float, delta: float) -> None:
    """mu_max-GDP is (epsilon, delta)-private by 60-digit arithmetic, and a little more than mu_max is not."""
    mu = mu_max(epsilon, delta)
    assert exact_gdp_delta(epsilon, mu) <= delta
    assert exact_gdp_delta(epsilon, mu * (1 + 1e-6)) > delta
    assert Fraction(limit(epsilon, delta).mu2, WHOLE) <= Fraction(mu) ** 2


@given(st.floats(1e-6, 40))
@examples.of(60)
def test_a_pure_answer_costs_in_gdp_at_least_what_it_is(epsilon: float) -> None:
    """m = -2 Phi^-1(1/(1 + e^epsilon)): at that point both curves meet, and m^2 <= (pi/2) epsilon^2."""
    with mpmath.workdps(50):
        alpha = 1 / (1 + mpmath.exp(mpmath.mpf(epsilon)))
        exact = -2 * mpmath.sqrt(2) * mpmath.erfinv(2 * alpha - 1)
        assert exact**2 <= mpmath.mpf(HALF_PI[0]) / HALF_PI[1] * mpmath.mpf(epsilon) ** 2
    assert gdp_of_pure(epsilon) == pytest.approx(float(exact), rel=1e-6)


@given(st.floats(1e-3, 8), st.floats(1e-3, 8))
@examples.of(60)
def test_the_best_test_of_a_pure_answer_is_no_better_than_that_of_its_gaussian(epsilon: float, target: float) -> None:
    """Randomised response at epsilon, the worst pure answer, beside m-GDP: hockey-stick divergences at any target."""
    e = math.exp(epsilon)
    of_pure = max((e - math.exp(target)) / (1 + e), 0.0)
    assert of_pure <= float(exact_gdp_delta(target, gdp_of_pure(epsilon))) + 1e-12


kinds = st.one_of(st.builds(Laplace, st.floats(1e-9, 4)), st.builds(Gaussian, st.floats(1e-9, 2)))
some = st.lists(kinds, max_size=20)


def summed(events):
    total = Charge()
    for event in events:
        total = total.plus(charge_of(event))
    return total


@given(some, some)
def test_what_is_added_can_be_taken_away_again_exactly(first, second):
    assert summed(first + second).plus(summed(second), -1) == summed(first)


@given(some)
def test_totals_and_sums_of_costs_agree(events):
    totals = Totals()
    for event in events:
        totals.add(event)
    assert charge_of_totals(totals) == summed(events)


@given(some, st.floats(0.05, 20), st.sampled_from([0.0, 1e-6, 1e-3]))
@examples.of(60)
def test_a_limit_holds_exactly_where_what_is_spent_is_within_it(events, epsilon, delta):
    cost, cap = summed(events), limit(epsilon, delta)
    spent = cap.spent(cost)
    if cap.holds(cost):
        assert spent <= epsilon * (1 + 1e-9)
        assert cap.share(cost) <= 1
    else:
        assert spent >= epsilon * (1 - 1e-9)
        assert cap.share(cost) > 1 - 1e-15


@given(some, st.sampled_from([0.0, 1e-6, 1e-3]))
@examples.of(60)
def test_where_only_one_kind_answered_the_filter_and_the_total_are_one(events, delta):
    for kind in (Laplace, Gaussian):
        totals = Totals()
        for event in (own := [e for e in events if isinstance(e, kind)]):
            totals.add(event)
        assert limit(1.0, delta).spent(summed(own)) == pytest.approx(total_epsilon(totals, delta), rel=1e-9)


def test_a_laplace_run_beside_a_delta_costs_no_more_than_its_pure_sum():
    cap = limit(5.0, 1e-5)
    assert cap.holds(charge_of(Laplace(5.0)))
    assert not cap.holds(charge_of(Laplace(math.nextafter(5.0, 6))))
    assert not cap.holds(
        charge_of(Laplace(5.0)).plus(charge_of(Gaussian(1e-6)))
    )  # no longer pure: 5 is too much in GDP


def test_many_small_laplace_answers_pass_by_gdp_where_their_sum_would_not():
    many = Charge().plus(charge_of(Laplace(0.01)), 200)
    assert limit(1.0, 1e-5).holds(many)
    assert not limit(1.0).holds(many)


def test_without_a_delta_no_gaussian_answer_is_within_any_limit():
    assert not limit(1e9).holds(charge_of(Gaussian(1e-9)))
    assert limit(1e9).spent(charge_of(Gaussian(1e-9))) == limit(1e9).share(charge_of(Gaussian(1e-9))) == inf


@pytest.mark.parametrize("event", [NonPrivate(), Laplace(inf), Gaussian(inf)])
def test_an_answer_without_noise_is_within_no_limit_until_it_is_taken_away(event):
    cap, cost = limit(1e9, 0.5), charge_of(event)
    assert not cap.holds(cost)
    assert cap.spent(cost) == cap.share(cost) == inf
    assert cap.holds(cost.plus(cost, -1))


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 1e-6), (1e13, 1e-6), (math.nan, 0.0), (1.0, 1.0), (1.0, -1e-9)])
def test_numbers_that_are_no_budget_are_refused(epsilon, delta):
    with pytest.raises(InputError, match="found"):
        limit(epsilon, delta)
