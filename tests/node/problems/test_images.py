"""Images as their collections publish them: MNIST's IDX and LEAF's JSON, by path."""

import gzip
import json
import struct

import numpy as np
import pytest

from hushgrid.broker.simulation import run
from hushgrid.kernels.errors import InputError
from hushgrid.node.problems.records.data import Data, load, load_test
from hushgrid.node.problems.records.images import read_idx, read_leaf

DRAW = np.random.default_rng(3)
IMAGES, LABELS = DRAW.integers(0, 256, (30, 4, 6), np.uint8), np.arange(30, dtype=np.uint8) % 3


def idx(directory, images=IMAGES, labels=LABELS, name="train", packed=False):
    """The two files of a collection, by the published layout."""
    end, write = (".gz", gzip.compress) if packed else ("", bytes)
    head = struct.pack(">4B3I", 0, 0, 8, 3, *images.shape)
    path = directory / f"{name}-images-idx3-ubyte{end}"
    path.write_bytes(write(head + images.tobytes()))
    beside = struct.pack(">4BI", 0, 0, 8, 1, len(labels)) + labels.tobytes()
    (directory / f"{name}-labels-idx1-ubyte{end}").write_bytes(write(beside))
    return path


def leaf(directory, users=4, rows=5, width=6):
    data = {
        f"f{i:04}": {"x": DRAW.random((rows + i, width)).tolist(), "y": (np.arange(rows + i) % 3).tolist()}
        for i in range(users)
    }
    path = directory / "all_data_0.json"
    path.write_text(json.dumps({"users": sorted(data), "num_samples": [], "user_data": data}))
    return path, data


@pytest.mark.parametrize("packed", [False, True])
def test_a_pixel_is_a_share_of_255_and_a_label_stands_beside_its_image(packed, tmp_path):
    A, b = read_idx(idx(tmp_path, packed=packed), "softmax")
    assert np.array_equal(A, IMAGES.reshape(30, 24) / 255)
    assert np.array_equal(b, LABELS)


def test_pooled_pixels_are_means_of_squares(tmp_path):
    A, _ = read_idx(idx(tmp_path), "softmax", pool=2)
    assert A.shape == (30, 6)
    assert A[7, 5] == pytest.approx(IMAGES[7, 2:, 4:].mean() / 255)


def test_a_user_of_LEAF_is_a_node(tmp_path):
    path, data = leaf(tmp_path)
    for shard, user in zip(read_leaf(path, "softmax"), sorted(data), strict=True):
        assert shard.A.tolist() == data[user]["x"]
        assert shard.b.tolist() == data[user]["y"]
    loaded = load(Data(leaf=path.name, nodes=2), tmp_path, "softmax")
    assert [len(s.b) for s in loaded.shards] == [5, 6]


def test_both_are_learned_from_and_tested_on(tmp_path):
    train, test, (users, _) = idx(tmp_path), idx(tmp_path, name="t10k"), leaf(tmp_path)
    for data, held, nodes in (
        ({"idx": str(train), "nodes": 3, "pool": 2}, str(test), 3),
        ({"leaf": str(users)}, str(users), 4),
    ):
        result = run({
            "hushgrid": 1, "name": "images",
            "problem": {"kind": "softmax", "classes": 3, "data": data, "test": held, "scale": "share", "box": 1.0},
            "algorithm": {"name": "ladmm", "variant": "none", "rounds": 3, "rho": 0.1},
        })  # fmt: skip
        assert result.nodes == nodes
        assert 0 <= result.test_error < 1


@pytest.mark.runs
def test_writers_of_FEMNIST_s_shape_learn_in_private(tmp_path):
    """62 classes of 28 x 28 pixels; each writer has rows of its own number, and `share` weighs them by it."""
    path, data = leaf(tmp_path, users=6, rows=3, width=784)
    raw = json.loads(path.read_text())
    raw["hierarchies"] = [f"class_{k}" for k in range(6)]  # of files that are split by writers
    raw["user_data"]["f0005"]["y"][0] = 61
    path.write_text(json.dumps(raw))
    result = run({
        "hushgrid": 1, "name": "femnist", "seed": 1,
        "problem": {
            "kind": "softmax", "classes": 62, "data": {"leaf": str(path), "normalize": "unit-rows"}, "test": str(path),
            "row_bound": 1.0, "scale": "share", "box": 1.0,
        },
        "algorithm": {"name": "ladmm", "rounds": 2, "rho": 0.1, "eta": 1.0},
        "privacy": {"mechanism": "gaussian", "accountant": "gdp", "epsilon": 10.0, "delta": 1e-6,
                    "adjacency": {"replace-one-record": {"clip": 1.0}}},
    })  # fmt: skip
    assert result.nodes == len(data) == 6
    assert result.solution["x"].shape == (62 * 784,)
    assert 0 <= result.test_error <= 1
    assert 0 < result.privacy.spent.epsilon <= 10


def test_a_test_file_is_read_by_its_name(tmp_path):
    path, data = leaf(tmp_path)
    assert len(load_test(Data(), path, "softmax", 6).b) == sum(len(user["y"]) for user in data.values())
    assert load_test(Data(pool=2), idx(tmp_path), "softmax", 6).A.shape == (30, 6)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda p: p.write_bytes(p.read_bytes()[:-1]), r"found 719 numbers, expected 720 of the shape \[30, 4, 6\]"),
        (lambda p: p.write_bytes(b"\x00\x00\x0d\x03" + p.read_bytes()[4:]), "found 00000d03 at its beginning"),
        (lambda p: p.write_bytes(b""), "found nothing at its beginning"),
        (lambda p: (p.parent / "train-labels-idx1-ubyte").unlink(), "labels-idx1-ubyte: No such file"),
    ],
)
def test_a_spoiled_file_is_one_line(spoil, said, tmp_path):
    path = idx(tmp_path)
    spoil(path)
    with pytest.raises(InputError, match=said):
        read_idx(path, "softmax")


def test_what_does_not_fit_is_one_line(tmp_path):
    with pytest.raises(InputError, match="expected sides that 4 divides"):
        read_idx(idx(tmp_path), "softmax", pool=4)
    with pytest.raises(InputError, match=r"found A \(30, 24\) and b \(9,\)"):
        read_idx(idx(tmp_path, labels=LABELS[:9]), "softmax")
    other = tmp_path / "images.bin"
    other.write_bytes(b"")
    with pytest.raises(InputError, match="expected one with images-idx3 in it"):
        read_idx(other, "softmax")
    with pytest.raises(InputError, match=r"data\.pool: found 2, expected none"):
        load(Data(csv="x.csv", pool=2), tmp_path, "softmax", 2)
    path, _ = leaf(tmp_path)
    with pytest.raises(InputError, match="found 4 users, expected 9"):
        load(Data(leaf=path.name, nodes=9), tmp_path, "softmax")
    for content in ("{", '{"users": ["a"], "user_data": {}}', '{"users": [], "user_data": {}}', '{"users": [1]}',
                    '{"users": ["a"], "user_data": {"a": {"x": [[1], [1, 2]], "y": [0, 1]}}}'):  # fmt: skip
        path.write_text(content)
        with pytest.raises(InputError) as refused:
            read_leaf(path, "softmax")
        assert "\n" not in str(refused.value)
