"""The study of recovered images, small: its lines, its tables and its picture."""

import numpy as np
import pytest

from hushgrid.lab.studies.papers import recovered_images as study
from hushgrid.lab.studies.problems.images import PATHS

pytestmark = pytest.mark.runs


@pytest.fixture(scope="module")
def lines():
    asks = [
        study.Ask("RECAL", study.RECAL, v, e, nodes=3)
        for v, e in (("none", np.inf), ("published", 0.1), ("guarded", 100.0))
    ]
    return [study.measure(ask) for ask in asks]


def test_published_as_without_noise_every_image_comes_out_and_from_the_gate_none(lines):
    for line in lines[:2]:
        assert line.scores["scores"]["psnr_worst"] >= 80
        # rows of norm 1, PSNR against the largest entry: 80 dB are 1e-4 of it
        assert np.max(np.abs(line.images - line.true)) <= 1e-4
    assert not any(r["consistent"] for r in lines[2].scores["rows"].values())


def test_what_is_recovered_of_a_guarded_run_differs_from_the_gradients_by_the_gates_noise(lines):
    # 59 answers of 640 coordinates: the mean of |normal| is known to .76/sqrt(37760) = .4 %.
    assert abs(lines[2].noise - 1) < 0.05


def test_tables_and_picture_have_a_line_each(lines):
    assert [row[3] for row in study.image_table(lines).rows] == [
        "none", "published, epsilon 0.1 claimed", "at the gate, epsilon 100",
    ]  # fmt: skip
    assert study.picture(lines).startswith(b"\x89PNG")
    assert "<svg" in study.curves(lines)


def test_gradients_of_other_losses_are_read_too():
    ask = study.gradients_asked()[1]
    line = study.measure(ask._replace(m=5, nodes=3))
    assert study.gradient_table([line]).rows[0][:2] == ("least squares", "published, epsilon 0.1 claimed")
    assert line.scores["scores"]["gradient_error"] <= 1e-10


def test_images_by_path_are_read_and_recovered_at_their_own_size(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    pixels, labels = rng.integers(0, 256, (20, 12, 12)).astype(np.uint8), rng.integers(0, 10, 20).astype(np.uint8)
    place = tmp_path / "some-images-idx3-ubyte"
    place.write_bytes(bytes([0, 0, 8, 3]) + np.array(pixels.shape, ">u4").tobytes() + pixels.tobytes())
    head = bytes([0, 0, 8, 1]) + np.array([20], ">u4").tobytes()
    (tmp_path / "some-labels-idx1-ubyte").write_bytes(head + labels.tobytes())
    for key in PATHS.values():
        monkeypatch.delenv(key, raising=False)
    assert study.asked_by_path() == []
    monkeypatch.setenv("HUSHGRID_FASHION_MNIST", str(place))
    line = study.measure(study.asked_by_path()[1]._replace(nodes=3))
    study.images_of.cache_clear()
    assert line.ask.images == "Fashion-MNIST"
    assert line.images.shape == (3, 144)
    assert line.scores["scores"]["psnr_worst"] >= 80
    assert study.image_table([line], "by path").rows[0][0] == "Fashion-MNIST: RECAL"
