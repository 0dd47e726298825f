"""The study of the RECAL paper's figures on images of two classes, small."""

import numpy as np
import pytest

from hushgrid.lab.studies.papers import relay_figures as study
from hushgrid.lab.studies.papers.relay_figures import Ask, Seen, match, matched


def gradients(n=2, q=64):
    """(n, 10, q) gradients at 0 of one made-up image each, and the images (n, q)."""
    rng = np.random.default_rng(3)
    true = rng.random((n, q))
    true /= np.linalg.norm(true, axis=1, keepdims=True)
    slopes = 0.1 - np.eye(10)[rng.integers(0, 10, n)]
    return np.einsum("nc,nq->ncq", slopes, true), true


def test_the_images_of_two_classes_have_both_labels_and_pixels_within_one():
    A, b = study.digits()
    assert set(b) == {-1.0, 1.0}
    assert A.min() == 0
    assert A.max() == 1
    assert len(A) == len(b) > 200


@pytest.mark.runs
def test_matching_finds_the_image_behind_a_gradient_and_none_behind_noise():
    H, true = gradients()
    noisy = H + 10 * np.random.default_rng(0).normal(size=H.shape)
    table, picture, ninth = matched([Seen("plain", H, true), Seen("noisy", noisy, true)])
    told = {(figure, source): (cosine, dB) for figure, source, cosine, dB, _ in table.rows}
    for figure in study.MATCHED:
        assert told[figure, "plain"][0] >= 0.999
        assert told[figure, "plain"][1] >= 40
        assert told[figure, "noisy"][1] <= 20
    assert picture.startswith(b"\x89PNG")
    assert ninth.curves["plain"][1][-1] < 1e-6 < ninth.curves["noisy"][1][-1]


def test_a_soft_label_and_the_length_of_a_row_can_be_exchanged():
    """At 0 a gradient is (1/C - y) a': with y nearer to 1/C and a longer it is the same. The best length is then
    scored.
    """
    H, true = gradients(1)
    found = match(H[0], true[0], "squared", 0.0).image
    assert abs(found @ true[0]) / np.linalg.norm(found) >= 0.999
    assert abs(np.linalg.norm(found) - 1) > 0.01


@pytest.mark.runs
@pytest.mark.parametrize("way", ["none", "published"])
def test_a_curve_ends_where_its_way_does(way):
    curve = study.measure(Ask("digits", "least-squares", "ridge", way, 12.0))
    assert (curve.error[-1] < 0.1) == (way == "none")
    assert curve.sent[-1] == 4800
    assert study.rows_of_curves([curve]).rows[0][-1] == curve.final
