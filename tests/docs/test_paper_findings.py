"""Findings of docs/papers/objpert-ladmm.md that are about the paper's text alone: 2.1 its total,
2.2 its sensitivity.
"""

from math import erfc, exp, log, sqrt

import numpy as np
import pytest

from hushgrid.kernels.privacy import accounting
from hushgrid.kernels.privacy.accounting import Gaussian, Totals

DELTA = 1e-6


def paper_total(answers: int, epsilon: float) -> float:
    """Theorem 4.6: what `answers` = T E Gaussian answers of (epsilon, DELTA) each are said to cost at DELTA."""
    return epsilon * sqrt(answers * log(1 / DELTA) / log(1.25 / DELTA))


def mu_of(answers: int, epsilon: float) -> float:
    """All answers together are exactly as private as one Gaussian answer of this mu: of each, mu = Delta/sigma."""
    return sqrt(answers) * epsilon / sqrt(2 * log(1.25 / DELTA))


def delta_at(epsilon: float, mu: float) -> float:
    """The exact delta of mu-GDP at epsilon."""
    a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    return (erfc(a / sqrt(2)) - exp(epsilon) * erfc(b / sqrt(2))) / 2


@pytest.mark.parametrize(
    ("answers", "epsilon", "claimed", "true"),
    [(100, 1.0, 9.92, 10.25), (500, 1.0, 22.2, 28.3), (5000, 1.0, 70.1, 151.6)],
)
def test_theorem_4_6_claims_less_than_the_answers_cost(answers, epsilon, claimed, true):
    """Finding 2.1. Gaussian answers compose exactly: the sum of mu^2 is the total's."""
    total = Totals()
    total.add(Gaussian(mu_of(1, epsilon)), answers)
    assert paper_total(answers, epsilon) == pytest.approx(claimed, rel=5e-3)
    assert accounting.total_epsilon(total, DELTA) == pytest.approx(true, rel=5e-3)
    assert delta_at(paper_total(answers, epsilon), mu_of(answers, epsilon)) > 2 * DELTA


def test_what_5000_answers_claim_is_exceeded_nine_times_of_ten():
    assert delta_at(paper_total(5000, 1.0), mu_of(5000, 1.0)) == pytest.approx(0.909, abs=5e-4)


def test_theorem_4_6_happens_to_hold_for_a_small_epsilon_an_answer():
    assert delta_at(paper_total(5000, 0.05), mu_of(5000, 0.05)) < DELTA


@pytest.mark.parametrize(("classes", "ratio"), [(2, 2.0), (10, 1.491)])
def test_adding_a_record_moves_the_gradient_by_more_than_6_4_says(classes, ratio):
    """Finding 2.2: 1/I becomes 1/(I + 1) for all records; (6.4) counts the new record's own gradient alone."""
    records, x = 1000, np.array([0.6, 0.8])

    def gradient(label: int) -> np.ndarray:
        """Of one record's loss (6.3) at z = 0: x (1/K - [k = label]), shape (J, K)."""
        return np.outer(x, 1 / classes - np.eye(classes)[label])

    before = gradient(1)
    after = (records * gradient(1) + gradient(0)) / (records + 1)
    counted = np.linalg.norm(gradient(0)) / (records + 1)  # (6.4)
    assert np.linalg.norm(after - before) / counted == pytest.approx(ratio, rel=1e-3)
