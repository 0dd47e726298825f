"""What answers cost, against the definitions to 60 digits and against dp-accounting."""

from __future__ import annotations

import math
from fractions import Fraction

import dp_accounting
import mpmath
import pytest
from dp_accounting import rdp
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import example, given
from hypothesis import strategies as st

from hushgrid.kernels.privacy.accounting import (
    Gaussian,
    Laplace,
    Totals,
    claimed_epsilon,
    fixed_epsilon,
    total_epsilon,
)
from tests.support import examples
from tests.support.agents.accountants import deltas, exact_gdp_delta, exact_optimal_delta, small

# --- the definitions, to 60 digits ---


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


@pytest.mark.runs
@given(epsilon=small, k=st.integers(1, 60), delta=deltas)
@example(epsilon=2.1401260350616305, k=41, delta=1e-12)  # within 1e-10 of the plain sum, where differences cancel
@example(epsilon=0.001, k=2000, delta=1e-9)
@examples.of(60)
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
    assert least <= fixed_epsilon(totals, delta) <= total_epsilon(totals, delta)


@pytest.mark.runs
@pytest.mark.parametrize(
    ("epsilon", "times", "mu", "answers"), [(0.5, 2, 0.5, 4), (5.0, 1, 0.02, 30), (2.0, 1, 0.05, 10), (0.1, 40, 0.3, 1)]
)
def test_the_exact_curve_of_a_fixed_mixture_is_the_referees(epsilon, times, mu, answers):
    """Randomised responses beside Gaussians; the referee rounds each loss up to a multiple of its step."""
    step, delta = 1e-4, 1e-5
    response = pld.from_randomized_response(2 / (1 + math.exp(epsilon)), 2, value_discretization_interval=step)
    gaussian = pld.from_gaussian_mechanism(1 / (mu * math.sqrt(answers)), value_discretization_interval=step)
    totals = Totals()
    totals.add(Laplace(epsilon), times)
    totals.add(Gaussian(mu), answers)
    theirs = response.self_compose(times).compose(gaussian).get_epsilon_for_delta(delta)
    ours = fixed_epsilon(totals, delta)
    assert theirs - (times + 1) * step <= ours <= theirs * (1 + 1e-9)


def test_one_large_pure_answer_beside_gaussians_costs_a_third_of_what_adaptive_composition_must_say():
    totals = Totals()
    totals.add(Laplace(5.0))
    totals.add(Gaussian(0.02), 30)
    assert total_epsilon(totals, 1e-5) > 3.5 * fixed_epsilon(totals, 1e-5)
    assert fixed_epsilon(totals, 0.0) == total_epsilon(totals, 0.0)
