"""(4.2) to (4.4): the penalty functions h_m in the place of the projection."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from hushgrid.kernels.problems.prox import Box
from hushgrid.lab.studies.penalty_functions import Penalised, PenalisedTask, measured, study
from tests.support.scenarios.small_images import small_images

POINTS, D = np.array([-3.0, -0.6, 0.0, 0.2, 0.5, 4.0]), np.array([1.0, 2.0, 3.0, 0.5, 1.0, 10.0])


@pytest.mark.parametrize("ell", [0.5, 10.0, 1000.0])
def test_4_3_is_minimised(ell):
    set_ = Penalised(0.5, ell)
    for x, v, d in zip(set_.project(POINTS, D), POINTS, D, strict=True):
        best = minimize_scalar(lambda z: d / 2 * (z - v) ** 2 + set_.value(np.array([z]))[0], bounds=(-4, 4))  # noqa: B023
        assert x == pytest.approx(best.x, abs=1e-4)


def test_as_the_penalty_grows_its_minimiser_goes_to_the_projection():
    """Theorem 4.2."""
    away = [
        np.abs(Penalised(0.5, ell).project(POINTS, D) - Box(0.5).project(POINTS, D)).max() for ell in (1e1, 1e3, 1e5)
    ]
    assert away[0] > away[1] > away[2]
    assert away[2] < 1e-3


@pytest.mark.runs
def test_the_study_plays_both_under_the_same_noise(tmp_path):
    images = small_images(tmp_path)
    projected, near = (measured(PenalisedTask(images, 4.0, ell, (5,))) for ell in (np.inf, 1e8))
    assert np.abs(near.models - projected.models).max() < 1e-4
    (page,) = study(images, seeds=(5,))
    assert [row[0] for row in page.tables[0].rows] == ["1", "10", "100", "1000", "10000", "projection"]
