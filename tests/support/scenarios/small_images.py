"""A few images in the files that studies of images read."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np

from hushgrid.lab.studies.papers.federated import Images


def small_images(place: Path) -> Images:
    """Thirty rows of two features for three nodes, and thirty to test on."""
    draw = np.random.default_rng(2)
    for name in ("train.csv", "test.csv"):
        A = draw.random((30, 2))
        lines = [",".join(map(str, [*a.round(3), int(a[0] > a[1])])) for a in A]
        (place / name).write_text("\n".join(lines))
    return Images(str(place / "train.csv"), str(place / "test.csv"), 2, 3)


def as_mnist(place: Path) -> tuple[Path, Path]:
    """Thirty images of 4 x 4 pixels, and thirty to test on, as MNIST's files are laid out: to train, to test."""
    draw = np.random.default_rng(3)
    for name in ("train", "t10k"):
        images, labels = draw.integers(0, 256, (30, 4, 4), np.uint8), np.arange(30, dtype=np.uint8) % 3
        for what, array in (("images-idx3", images), ("labels-idx1", labels)):
            head = struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
            (place / f"{name}-{what}-ubyte").write_bytes(head + array.tobytes())
    return place / "train-images-idx3-ubyte", place / "t10k-images-idx3-ubyte"


def as_femnist(place: Path) -> tuple[Path, Path]:
    """Six writers' images of 4 x 4 pixels, five to eleven each, and two writers' to test on, as LEAF lays them out."""
    draw = np.random.default_rng(4)
    for name, writers in (("train.json", 6), ("test.json", 2)):
        data = {
            f"f{i:04}": {"x": draw.random((5 + i, 16)).tolist(), "y": (np.arange(5 + i) % 3).tolist()}
            for i in range(writers)
        }
        counts = [len(samples["y"]) for samples in data.values()]
        (place / name).write_text(json.dumps({"users": sorted(data), "num_samples": counts, "user_data": data}))
    return place / "train.json", place / "test.json"
