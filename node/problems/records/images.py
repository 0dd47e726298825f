"""Files of images as their collections publish them: IDX (MNIST) and LEAF's JSON (FEMNIST). A pixel becomes a number of
0..1.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.problems.losses import Kind
from hushgrid.node.problems.records.files import LARGEST_TABLE, Shard, check_widths, shard_of, unpacked

IMAGES, LABELS = "images-idx3", "labels-idx1"  #: in the names of the two files of a collection
UBYTE = 0x08  #: the type of an IDX file's numbers


def read_idx(path: Path, kind: Kind, pool: int = 1) -> Shard:
    """Images (m, h, w) of bytes, plain or packed, and the labels of the file beside it: A (m, h w / pool^2), b (m,).

    The labels' file has the same name, with labels-idx1 for images-idx3. `pool`: squares of so many pixels a side are
    one number, their mean. Source of the format: Y. LeCun, C. Cortes, C. J. C. Burges, The MNIST database.
    Raises InputError if a file is none of its format.
    """
    if IMAGES not in path.name:
        raise InputError(f"{path}: found another name, expected one with {IMAGES} in it")
    images, labels = _idx(path, 3), _idx(path.with_name(path.name.replace(IMAGES, LABELS)), 1)
    m, h, w = images.shape
    if h % pool or w % pool:
        raise InputError(f"{path}: found images of {h} x {w}, expected sides that {pool} divides (data.pool)")
    squares = images.reshape(m, h // pool, pool, w // pool, pool)
    A = squares.sum(axis=(2, 4), dtype=np.int64) / (255.0 * pool * pool)
    return shard_of(A.reshape(m, -1), labels, kind, str(path))


def _idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """An IDX file: two zeros, the type, the number of dimensions, their sizes (big-endian), the numbers."""
    content = unpacked(path)
    head = 4 + 4 * dimensions
    if content[:4] != bytes([0, 0, UBYTE, dimensions]) or len(content) < head:
        raise InputError(
            f"{path}: found {content[:4].hex() or 'nothing'} at its beginning, expected 0000080{dimensions} (IDX of "
            "bytes)"
        )
    shape = tuple(int(size) for size in np.frombuffer(content[4:head], ">u4"))
    size = 1
    for side in shape:
        size *= side
    if not 0 < size <= LARGEST_TABLE or len(content) != head + size:
        raise InputError(f"{path}: found {len(content) - head} numbers, expected {size} of the shape {list(shape)}")
    return np.frombuffer(content[head:], np.uint8).reshape(shape)


class _Samples(Struct):
    x: list[list[float]]
    y: list[float]


class _Leaf(Struct):
    users: list[str]
    user_data: dict[str, _Samples]


def read_leaf(path: Path, kind: Kind) -> list[Shard]:
    """The rows of each user, in the file's order. Raises InputError if the file is none of its format.

    Source of the format: S. Caldas and others, LEAF (2018).
    """
    try:
        leaf = msgspec.json.decode(unpacked(path), type=_Leaf)
        each = [(f"{path}: user {user!a:.40}", leaf.user_data[user]) for user in leaf.users]
    except (msgspec.DecodeError, ValueError, KeyError, RecursionError) as error:
        raise InputError(f"{path}: {str(error)[:120]}, expected LEAF's JSON of users and user_data") from None
    if sum(len(row) for _, data in each for row in data.x) > LARGEST_TABLE:
        raise InputError(f"{path}: found more than {LARGEST_TABLE} numbers, expected at most as many")
    for place, data in each:
        if len({len(row) for row in data.x}) != 1:
            raise InputError(f"{place}: found no rows, or rows of several widths, expected rows of one")
    shards = [shard_of(np.array(data.x), np.array(data.y), kind, place) for place, data in each]
    if not shards:
        raise InputError(f"{path}: found no users, expected at least one")
    check_widths([place for place, _ in each], shards, "user")
    return shards
