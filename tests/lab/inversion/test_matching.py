"""Gradient matching, where no closed form is known: its slopes are those of its distances,
and what it finds it can show.
"""

import numpy as np
import pytest
from scipy.optimize import check_grad

from hushgrid.lab.inversion.matching import Batch, matched, total_variation
from hushgrid.lab.inversion.rows import rows_of, sums_of
from tests.support.gradients import asked, distance


@pytest.mark.parametrize(("how", "tv"), [("squared", 0.0), ("cosine", 0.0), ("squared", 0.1)])
def test_the_slope_of_each_distance_is_its_own(how, tv):
    sums = sums_of(*asked("softmax", 2, 3, 1))
    task = Batch(sums.X, sums.H, 2, how, tv)
    v = np.random.default_rng(0).normal(size=2 * 16 + 20)
    # Central differences of a smooth function of size about 1.
    assert check_grad(lambda u: task.value(u)[0], lambda u: task.value(u)[1], v, epsilon=1e-7) <= 1e-5


def test_an_even_image_varies_least():
    rough = np.random.default_rng(1).normal(size=(1, 16))
    assert total_variation(np.ones((1, 16)))[0] < total_variation(rough)[0]


def test_rows_and_labels_are_found_at_once_from_random_starts():
    loss, seen = asked("softmax", 2, 2, 2)
    sums = sums_of(loss, seen)
    rows = matched(Batch(sums.X, sums.H, 2))
    assert distance(loss, rows) <= 1e-4
    assert sorted(rows.labels) == sorted(loss.b)


@pytest.mark.runs
def test_where_every_class_may_have_a_row_a_batch_is_matched_and_then_sharpened():
    loss, seen = asked("softmax", 10, 8, 9, labels=range(10))
    rows = rows_of(loss, seen)
    assert (rows.method, rows.consistent) == ("matching", True)
    assert distance(loss, rows) <= 1e-6


@pytest.mark.parametrize("m", [2, 4])
def test_a_batch_of_logistic_regression_is_matched_in_the_span_of_its_rows(m):
    loss, seen = asked("logistic", m, 20, m)
    rows = rows_of(loss, seen)
    assert (rows.method, rows.consistent) == ("matching", True)
    true = loss.A * loss.b[:, None]
    assert max(np.linalg.norm(rows.rows - row, axis=1).min() for row in true) <= 1e-10


def test_of_least_squares_several_rows_are_told_up_to_a_rotation_alone_and_none_is_named():
    assert rows_of(*asked("least-squares", 3, 20, 0)).method == "none"
