"""What counts prove: exact bounds, their coverage, and the theorems of one run against the chances they are about."""

import numpy as np
import pytest
from scipy.stats import binom, norm

from hushgrid.kernels.privacy import auditing
from hushgrid.kernels.privacy.accounting import gdp_epsilon


@pytest.mark.parametrize(("hits", "games"), [(0, 10), (3, 10), (10, 10), (999, 1000)])
def test_the_bounds_of_a_chance_are_where_the_tails_have_the_doubt(hits, games):
    low, high = float(auditing.at_least(hits, games, 0.05)), float(auditing.at_most(hits, games, 0.05))
    assert hits == 0 or binom.sf(hits - 1, games, low) == pytest.approx(0.05)
    assert hits == games or binom.cdf(hits, games, high) == pytest.approx(0.05)
    assert (low == 0) == (hits == 0)
    assert (high == 1) == (hits == games)


@pytest.mark.parametrize("bound", [auditing.mu_lower, auditing.mu_lower_pooled])
@pytest.mark.parametrize("t", [0.5, 1.5])
def test_a_bound_on_mu_passes_mu_as_often_as_it_may(bound, t):
    """mu = 1, 500 games about either data set, doubt .05; 4000 trials: five standard deviations of a chance of .05 are
    .017.
    """
    dice, games = np.random.default_rng(5), 500
    hits, false = (dice.binomial(games, norm.sf(t - m), 4000) for m in (1.0, 0.0))
    passed = float(np.mean(bound(hits, false, games, 0.05) > 1.0))
    assert passed <= 0.05 + 0.017
    assert t != 0.5 or passed > (0.02 if bound is auditing.mu_lower_pooled else 0.001)  # in the middle little is lost


def test_a_bound_on_epsilon_passes_epsilon_as_often_as_it_may():
    """Randomised response of epsilon 1."""
    dice, games, p = np.random.default_rng(6), 500, np.e / (1 + np.e)
    hits, false = dice.binomial(games, p, 4000), dice.binomial(games, 1 - p, 4000)
    assert np.mean(auditing.epsilon_lower(hits, false, games, 0.0, 0.05) > 1.0) <= 0.05 + 0.017
    assert auditing.epsilon_lower(games, 0, games, 0.0, 0.05) > 4


def test_the_ratios_of_laplace_answers_are_those_of_draws():
    """Three answers of epsilon .5: the chance above each threshold within five standard deviations of 200,000 draws."""
    epsilon, answers, n = 0.5, 3, 200_000
    x = np.random.default_rng(7).laplace(0.0, 1 / epsilon, (n, answers))
    drawn = epsilon * (np.abs(x + 1) - np.abs(x)).sum(axis=1)
    values, chances = auditing.laplace_ratios(epsilon, answers)
    assert chances.sum() == pytest.approx(1)
    for t in (-1.0, -0.3, 0.0, 0.7, 1.2):
        assert np.mean(drawn >= t) == pytest.approx(chances[values >= t].sum(), abs=5 * 0.5 / n**0.5 + 2e-3)


# --- one run ---


def test_the_chance_of_one_run_is_the_binomial_tail_where_there_is_no_delta():
    p = 1 / (1 + np.exp(-1.0))
    assert auditing.one_run_chance(1000, 400, 310, 1.0, 0.0) == pytest.approx(binom.sf(309, 400, p))


def test_the_chance_of_one_run_is_the_theorem_s_with_a_delta():
    """The maximum over i, written out."""
    m, r, v, epsilon, delta = 200, 60, 50, 1.0, 1e-5
    q = 1 / (1 + np.exp(-epsilon))
    alpha = max((binom.cdf(v - 1, r, q) - binom.cdf(v - i - 1, r, q)) / i for i in range(1, v + 1))
    expected = binom.sf(v - 1, r, q) + 2 * m * delta * alpha
    assert auditing.one_run_chance(m, r, v, epsilon, delta) == pytest.approx(expected)


def test_the_chance_of_one_run_does_not_underflow():
    found = auditing.one_run_chance(100_000, 100_000, 100_000, 20.0, 0.0)
    assert found == pytest.approx(np.exp(-100_000 * np.log1p(np.exp(-20.0))))


def gaussian_guesses(dice, mu, canaries, guesses):
    """Right ones among the surest guesses on canaries of mu each."""
    signs = dice.integers(0, 2, canaries) * 2 - 1
    seen = mu / 2 * signs + dice.normal(size=canaries)
    sure = np.argsort(-np.abs(seen))[:guesses]
    return int(np.sum((seen * signs)[sure] > 0))


def test_the_bound_on_mu_of_one_run_holds_and_is_near_the_truth():
    """A run of 500 independent Gaussian answers of mu = 1 is 1-GDP for each canary; 100 runs, doubt .05: 16 or more
    have 2e-5.
    """
    dice = np.random.default_rng(8)
    found = [auditing.one_run_mu(500, 60, gaussian_guesses(dice, 1.0, 500, 60), 0.05) for _ in range(100)]
    assert sum(mu > 1.0 for mu in found) < 16
    assert np.median(found) > 0.5


def test_the_bound_on_epsilon_of_one_run_holds_and_is_near_the_truth():
    """Independent randomised response of epsilon 1."""
    dice, p = np.random.default_rng(9), 1 / (1 + np.exp(-1.0))
    found = [auditing.one_run_epsilon(500, 500, dice.binomial(500, p), 0.0, 0.05) for _ in range(100)]
    assert sum(e > 1.0 for e in found) < 16
    assert np.median(found) > 0.75


def test_more_right_guesses_prove_more():
    found = [auditing.one_run_mu(300, 200, v, 0.05) for v in range(90, 200, 10)]
    assert found == sorted(found)
    assert found[0] == 0
    assert gdp_epsilon(found[-1], 1e-5) > 3
