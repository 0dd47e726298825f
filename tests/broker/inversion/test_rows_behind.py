"""From gradients the rows behind them: one row of each loss, batches of softmax regression, and what noise makes of it."""

import numpy as np
import pytest

from hushgrid.broker.inversion.found import Gradients
from hushgrid.broker.inversion.rows import rows_of
from hushgrid.kernels.problems.losses import Declared
from tests.support.gradients import asked, distance


@pytest.mark.parametrize("seed", range(5))
def test_one_row_of_softmax_is_found_with_its_label_from_one_gradient(seed):
    loss, seen = asked("softmax", 1, 1, seed)
    rows = rows_of(loss, seen)
    assert (rows.method, rows.consistent) == ("rank-one", True)
    assert distance(loss, rows) <= 1e-12


@pytest.mark.parametrize("seed", range(5))
def test_one_row_of_logistic_regression_is_found_as_its_product_with_its_label(seed):
    loss, seen = asked("logistic", 1, 3, seed)
    rows = rows_of(loss, seen)
    assert rows.consistent
    assert list(rows.labels) == [1.0]
    assert np.linalg.norm(rows.rows[0] - loss.b[0] * loss.A[0]) <= 1e-12


@pytest.mark.parametrize("seed", range(5))
def test_one_row_of_least_squares_is_found_up_to_the_sign_of_row_and_target(seed):
    loss, seen = asked("least-squares", 1, 4, seed)
    rows = rows_of(loss, seen)
    assert rows.consistent
    sign = np.sign(rows.rows[0] @ loss.A[0])
    assert np.linalg.norm(sign * rows.rows[0] - loss.A[0]) <= 1e-11
    assert abs(sign * rows.labels[0] - loss.b[0]) <= 1e-11


@pytest.mark.parametrize("kind", ["logistic", "least-squares"])
def test_from_one_vector_alone_nothing_is_called_consistent(kind):
    """A single vector is of rank one whatever it is, noise too: there is nothing to check a guess with."""
    _, seen = asked(kind, 1, 1, 0)
    rows = rows_of(*asked(kind, 1, 1, 0))
    assert len(seen.g) == len(rows.rows) == 1
    assert not rows.consistent


@pytest.mark.parametrize("labels", [[0, 1, 2, 3], [3, 3, 5, 7], [4, 4, 4, 4], [0, 0, 1, 1, 2, 2, 3, 3]], ids=str)
def test_a_batch_of_softmax_is_found_row_by_row_those_of_one_class_too(labels):
    loss, seen = asked("softmax", len(labels), 20, 3, labels=labels)
    rows = rows_of(loss, seen)
    assert (rows.method, rows.consistent) == ("class-sums", True)
    assert distance(loss, rows) <= 1e-6
    assert sorted(rows.labels) == labels


@pytest.mark.parametrize(
    ("kind", "m"), [("softmax", 1), ("softmax", 4), ("softmax", 8), ("logistic", 1), ("least-squares", 1)]
)
def test_behind_noise_nothing_is_called_consistent(kind, m):
    for noise in (1e-3, 0.1, 10.0):
        loss, seen = asked(kind, m, 20, 5, noise)
        assert not rows_of(loss, seen).consistent


def test_rows_that_are_not_of_this_node_s_number_are_not_called_consistent():
    """The plan says four rows; the gradients are those of six."""
    loss, _ = asked("softmax", 4, 2, 1)
    _, seen = asked("softmax", 6, 20, 1)
    assert not rows_of(loss, seen).consistent


def test_without_a_gradient_or_of_nothing_but_zeros_there_are_no_rows():
    loss, seen = asked("softmax", 2, 3, 0)
    hidden = Gradients(seen.at, np.full_like(seen.g, np.nan), seen.when, "gradient")
    assert rows_of(loss, hidden).method == "none"


def test_a_batch_that_may_be_spread_over_classes_in_too_many_ways_is_given_up_at_once():
    loss, seen = asked("softmax", 15, 30, 2, labels=[*range(8), 0, 1, 2, 3, 4, 5, 6])
    assert not rows_of(Declared(loss.objective, 40, loss.features, loss.classes, None), seen).consistent
