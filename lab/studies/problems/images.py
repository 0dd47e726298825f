"""Collections of images by path: MNIST and Fashion-MNIST as IDX files, CIFAR-10 in its binary version."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hushgrid.kernels.errors import InputError
from hushgrid.node.problems.records.files import Shard, shard_of, unpacked
from hushgrid.node.problems.records.images import read_idx

PATHS = {"MNIST": "HUSHGRID_MNIST", "Fashion-MNIST": "HUSHGRID_FASHION_MNIST", "CIFAR-10": "HUSHGRID_CIFAR10"}
#: The RECAL paper's two classes: 0 and 1, T-shirt and trouser, cat and dog.
TWO = {"MNIST": (0, 1), "Fashion-MNIST": (0, 1), "CIFAR-10": (3, 5)}
PIXELS = 3 * 32 * 32  #: of CIFAR-10: red, green, blue, each row by row


def by_path() -> list[str]:
    """The collections that are there."""
    return [name for name, key in PATHS.items() if os.environ.get(key)]


def collection(name: str, batches: int | None = None) -> Shard:
    """All images, pixels in [0, 1], with their labels; of CIFAR-10 the first so many batches [all].

    Raises InputError if a file is none of its format.
    """
    path = Path(os.environ[PATHS[name]])
    return read_cifar(path, batches=batches) if name == "CIFAR-10" else read_idx(path, "least-squares")


def two_of(name: str) -> Shard:
    """The paper's two classes of a collection, all their images, labels -1 and 1. Raises InputError as `collection`."""
    first, second = TWO[name]
    if name == "CIFAR-10":
        A, b = read_cifar(Path(os.environ[PATHS[name]]), (first, second))
    else:
        A, b = collection(name)
    return Shard(A[(b == first) | (b == second)], np.where(b[(b == first) | (b == second)] == second, 1.0, -1.0))


def read_cifar(folder: Path, classes: Sequence[int] = range(10), batches: int | None = None) -> Shard:
    """The images of these classes in a folder's data_batch_*.bin, in order: A (m, 3072) in [0, 1], b (m,).

    A record is a byte of label and 3072 of pixels. Source of the format: A. Krizhevsky, The CIFAR-10 dataset (2009).
    Raises InputError if there is no such file, or one is none of its format.
    """
    files = sorted(folder.glob("data_batch_*.bin"))[:batches]
    if not files:
        raise InputError(f"{folder}: found no data_batch_*.bin, expected CIFAR-10's binary version")
    records_of = []
    for file in files:
        content = np.frombuffer(unpacked(file), np.uint8)
        if not content.size or content.size % (1 + PIXELS):
            raise InputError(f"{file}: found {content.size} bytes, expected a multiple of {1 + PIXELS}")
        records = content.reshape(-1, 1 + PIXELS)
        if (largest := int(records[:, 0].max())) > 9:
            raise InputError(f"{file}: found label {largest}, expected 0 to 9")
        records_of.append(records[np.isin(records[:, 0], classes)])
    chosen = np.concatenate(records_of)
    return shard_of(chosen[:, 1:] / 255.0, chosen[:, 0], "least-squares", str(folder))
