"""Collections of images by path, on files of their published layout."""

import numpy as np
import pytest

from hushgrid.kernels.errors import InputError
from hushgrid.lab.studies.papers import recovered_images, relay_figures
from hushgrid.lab.studies.problems import images

DRAW = np.random.default_rng(5)


def cifar(folder, batches=5, records=20):
    """CIFAR-10's binary version: (label, 3072 pixels) of every record, written as it is published."""
    folder.mkdir(exist_ok=True)
    every = DRAW.integers(0, 256, (batches, records, 3073), np.uint8)
    every[:, :, 0] = np.arange(records) % 10
    for k, batch in enumerate(every, 1):
        (folder / f"data_batch_{k}.bin").write_bytes(batch.tobytes())
    (folder / "test_batch.bin").write_bytes(every[0].tobytes())
    (folder / "batches.meta.txt").write_text("airplane\n")
    return every.reshape(-1, 3073)


def fashion(folder, m=40):
    """The two IDX files of a collection of 28 x 28 pixels."""
    pixels, labels = DRAW.integers(0, 256, (m, 28, 28), np.uint8), (np.arange(m) % 10).astype(np.uint8)
    place = folder / "train-images-idx3-ubyte"
    place.write_bytes(bytes([0, 0, 8, 3]) + np.array(pixels.shape, ">u4").tobytes() + pixels.tobytes())
    head = bytes([0, 0, 8, 1]) + np.array([m], ">u4").tobytes()
    (folder / "train-labels-idx1-ubyte").write_bytes(head + labels.tobytes())
    return place, pixels.reshape(m, -1), labels


def test_cats_and_dogs_of_all_five_batches_are_rows_of_3072_pixels(tmp_path, monkeypatch):
    every = cifar(tmp_path / "cifar-10-batches-bin")
    monkeypatch.setenv("HUSHGRID_CIFAR10", str(tmp_path / "cifar-10-batches-bin"))
    A, b = images.two_of("CIFAR-10")
    chosen = every[np.isin(every[:, 0], (3, 5))]
    assert np.array_equal(A, chosen[:, 1:] / 255)
    assert np.array_equal(b, np.where(chosen[:, 0] == 5, 1.0, -1.0))
    assert len(b) == 20


def test_of_one_batch_all_ten_classes_are_read(tmp_path, monkeypatch):
    every = cifar(tmp_path)
    monkeypatch.setenv("HUSHGRID_CIFAR10", str(tmp_path))
    A, b = images.collection("CIFAR-10", batches=1)
    assert np.array_equal(A, every[:20, 1:] / 255)
    assert np.array_equal(b, every[:20, 0])


def test_all_rows_of_the_first_two_classes_of_an_IDX_collection_are_taken(tmp_path, monkeypatch):
    place, pixels, labels = fashion(tmp_path)
    monkeypatch.setenv("HUSHGRID_FASHION_MNIST", str(place))
    A, b = images.two_of("Fashion-MNIST")
    assert np.array_equal(A, pixels[labels <= 1] / 255)
    assert np.array_equal(b, np.where(labels[labels <= 1] == 1, 1.0, -1.0))


def test_what_is_not_of_CIFARs_layout_is_one_line(tmp_path):
    with pytest.raises(InputError, match=r"found no data_batch_\*.bin, expected CIFAR-10's binary version"):
        images.read_cifar(tmp_path)
    (tmp_path / "data_batch_1.bin").write_bytes(bytes(3072))
    with pytest.raises(InputError, match="found 3072 bytes, expected a multiple of 3073"):
        images.read_cifar(tmp_path)
    (tmp_path / "data_batch_1.bin").write_bytes(bytes([10]) + bytes(3072))
    with pytest.raises(InputError, match="found label 10, expected 0 to 9"):
        images.read_cifar(tmp_path)


def test_the_studies_take_the_collections_that_are_there(tmp_path, monkeypatch):
    cifar(tmp_path)
    for key in images.PATHS.values():
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setenv("HUSHGRID_CIFAR10", str(tmp_path))
    assert list(relay_figures.sets()) == ["digits", "CIFAR-10"]
    assert relay_figures.sets()["CIFAR-10"]().A.shape == (20, 3072)
    assert {ask.images for ask in recovered_images.asked_by_path()} == {"CIFAR-10"}
    assert recovered_images.images_of("CIFAR-10").shape == (20, 3073)
    recovered_images.images_of.cache_clear()
