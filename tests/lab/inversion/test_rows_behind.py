"""From gradients the rows behind them: one row of each loss, batches of softmax regression,
and what noise makes of it.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import check_grad

from hushgrid.kernels.problems.losses import Declared
from hushgrid.lab.inversion.averaged import behind_noise
from hushgrid.lab.inversion.matching import Batch, matched, total_variation
from hushgrid.lab.inversion.recovered import Gradients
from hushgrid.lab.inversion.rows import rows_of, sums_of
from hushgrid.lab.inversion.scores import cosine
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
    hidden = Gradients(seen.points, np.full_like(seen.g, np.nan), seen.when, "gradient")
    assert rows_of(loss, hidden).method == "none"


def test_a_batch_that_may_be_spread_over_classes_in_too_many_ways_is_given_up_at_once():
    loss, seen = asked("softmax", 15, 30, 2, labels=[*range(8), 0, 1, 2, 3, 4, 5, 6])
    assert not rows_of(Declared(loss.objective, 40, loss.features, loss.classes, None), seen).consistent


def noisy(kind, m, V, seed, noise):
    loss, seen = asked(kind, m, V, seed, noise)
    return loss, replace(seen, what="noisy answer")


@pytest.mark.runs
@pytest.mark.parametrize("kind", ["softmax", "logistic", "least-squares"])
def test_of_noisy_answers_the_mean_of_many_tells_a_row_that_each_alone_does_not_and_is_no_find(kind):
    """Noise of twice the largest entry of a gradient; 400 answers have a tenth of it in their mean."""
    near = []
    for seed in range(10):
        loss, seen = noisy(kind, 1, 400, seed, 2.0)
        rows = behind_noise(loss, seen)
        assert not rows.consistent
        assert rows.residual > 0.5
        near.append(abs(cosine(rows.rows[0], loss.A[0])))
    assert np.median(near) > 0.8


def test_of_a_batch_the_mean_tells_class_sums():
    loss, seen = asked("softmax", 4, 400, 0, 1.0, labels=[0, 3, 5, 7])
    rows = behind_noise(loss, replace(seen, what="noisy answer"))
    assert sorted(rows.labels) == [0, 3, 5, 7]
    assert not rows.consistent


@pytest.mark.parametrize("kind", ["softmax", "logistic", "least-squares"])
def test_where_there_is_hardly_noise_every_answer_by_itself_is_the_better_guess(kind):
    loss, seen = noisy(kind, 1, 20, 3, 1e-5)
    assert abs(cosine(behind_noise(loss, seen).rows[0], loss.A[0])) > 1 - 1e-8


def test_no_guess_is_longer_than_the_public_bound_allows():
    loss, seen = noisy("softmax", 1, 20, 1, 100.0)
    f = Declared(loss.objective, 1, loss.features, loss.classes, 1.0)
    assert np.linalg.norm(behind_noise(f, seen).rows[0]) <= 1 + 1e-12


# --- Gradient matching, where no closed form is known: its slopes are those of its distances, and what it finds it  ---


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
