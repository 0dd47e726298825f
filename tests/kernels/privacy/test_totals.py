"""Noisy entries made to agree with their noisy total."""

import numpy as np
import pytest

from hushgrid.kernels.privacy.totals import reconciled


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
