"""An adversary that looks at Gaussian answers and then chooses when to ask one Laplace answer for all that is left."""

from __future__ import annotations

from math import exp, pi, sqrt

import numpy as np
import pytest

from hushgrid.kernels.privacy.accounting import gdp_epsilon
from hushgrid.kernels.privacy.limits import limit, mu_max

EPSILON, DELTA = 5.0, 1e-2
LOSS = np.linspace(-25, 25, 20001)  #: ln P/Q of what was seen
STEP = LOSS[1] - LOSS[0]


def told(spent, left):
    """The largest P(S) - e^EPSILON Q(S) over all stops, by dynamic programming.

    `spent`: mu^2 after each Gaussian answer. `left(mu2)`: the pure epsilon that the rule then still lets pass, which
    randomised response uses in full.
    """
    value = None
    for k in reversed(range(len(spent))):
        e = left(spent[k])
        p, q = 1 / (1 + exp(-e)), 1 / (1 + exp(e))
        stop = np.maximum(p - np.exp(EPSILON - LOSS) * q, 0) + np.maximum(q - np.exp(EPSILON - LOSS) * p, 0)
        value = stop if value is None else np.maximum(stop, value)
        mu2 = spent[k] - (spent[k - 1] if k else 0.0)
        x = np.arange(-9 * sqrt(mu2), 9 * sqrt(mu2), STEP)
        weights = np.exp(-(x**2) / (2 * mu2))
        weights /= weights.sum()
        value = np.convolve(np.interp(LOSS + mu2 / 2, LOSS, value), weights, mode="same")
    return float(value[LOSS.size // 2])


def growing(most, answers, ratio=2.0):
    return [most / ratio ** (2 * (answers - 1 - k)) for k in range(answers)]


@pytest.mark.runs
def test_the_filter_of_a_budget_holds_against_it():
    most = limit(EPSILON, DELTA).mu2 / 2**256

    def left(mu2):
        return sqrt(max(most - mu2, 0.0) * 2 / pi)

    for answers in (1, 2, 4, 6):
        found = told(growing(most, answers), left)
        assert 0.5 * DELTA < found <= DELTA * (1 + 1e-3)  # of the grid's own error


def test_the_sum_of_the_two_bounds_at_half_of_delta_does_not():
    """Why budgets take one test for both kinds, and pay with delta once."""

    def left(mu2):
        return max(EPSILON - gdp_epsilon(sqrt(mu2), DELTA / 2), 0.0)

    most = mu_max(EPSILON, DELTA / 2) ** 2
    assert told(growing(most, 1), left) <= DELTA
    assert told(growing(most, 6), left) > 1.4 * DELTA
