"""Every row of a data set goes to exactly one node; what the section of a scenario may say."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.kernels.problems.losses import Loss, Objective
from hushgrid.node.problems.records.data import Data, Split, Synthetic, classes, even, label_skew, load, unit_rows
from tests.support.paths import SCENARIOS
from tests.support.scenarios.row_files import LIBSVM, line, npz, write

HERE = SCENARIOS / "data"


# --- splits ---


@given(b=st.lists(st.integers(0, 4), min_size=1, max_size=60).map(np.array), n=st.integers(1, 9), skew=st.floats(0, 1))
def test_every_row_goes_to_exactly_one_node_and_sizes_differ_by_at_most_one(b, n, skew):
    for parts in (even(len(b), n), label_skew(b, n, skew)):
        assert sorted(np.concatenate(parts).tolist()) == list(range(len(b)))
        assert len(parts) == n
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
        assert all(part.tolist() == sorted(part.tolist()) for part in parts)


def test_full_skew_gives_most_nodes_one_label_and_none_gives_all_of_them():
    b = np.tile(np.arange(4), 100)
    for skew, labels in ((0.0, 4), (1.0, 1)):
        assert [len(np.unique(b[part])) for part in label_skew(b, 4, skew)] == [labels] * 4
    for i, part in enumerate(label_skew(b, 4, 0.5)):
        # Half of 100 rows by label (where blocks meet, labels mix a little), half of all four; 5 sigma of 50 draws.
        assert np.bincount(b[part])[i] == pytest.approx(50 + 12.5, abs=5 * (50 * 3 / 16) ** 0.5)


@pytest.mark.parametrize("b", [np.repeat([0, 1], 500), np.tile([0, 1], 500)], ids=["sorted", "periodic"])
def test_a_sorted_or_a_periodic_file_split_evenly_gives_every_node_the_whole_distribution(b):
    for n in (2, 5):
        # a node's ones are hypergeometric: variance below 1000/n/4
        assert all(abs(b[part].sum() - 500 / n) < 5 * (250 / n) ** 0.5 for part in even(1000, n))


def test_a_given_split_is_followed(tmp_path):
    write(tmp_path / "rows", b"1 1:1\n1 1:2\n-1 1:3\n")
    write(tmp_path / "who", b"1\n0\n1\n")
    shards = load(Data(libsvm="rows", nodes=2, split=Split(given="who")), tmp_path, "logistic").shards
    assert [shard.A.ravel().tolist() for shard in shards] == [[2], [1, 3]]
    for content, expected in [
        (b"1\n0\n", ": found 2 lines, expected 3, a node for each row"),
        (b"1\n2\n0\n", ":2: found '2', expected a node, 0..1"),
        (b"1\n\n0\n", ":2: found '', expected a node, 0..1"),
    ]:
        path = write(tmp_path / "who", content)
        assert (
            line(load, Data(libsvm="rows", nodes=2, split=Split(given="who")), tmp_path, "logistic")
            == f"{path}{expected}"
        )


# --- the section ---


def test_one_file_a_node_with_the_same_columns(tmp_path):
    for i in range(2):
        npz(tmp_path / f"n{i}.npz", A=np.full((3, 2), i), b=np.ones(3))
    npz(tmp_path / "n2.npz", A=np.ones((3, 5)), b=np.ones(3))
    shards = load(Data(files=["n0.npz", "n1.npz"]), tmp_path, "logistic", nodes=2).shards
    assert [shard.A[0, 0] for shard in shards] == [0, 1]
    expected = f"{tmp_path / 'n2.npz'}: A: found 5 columns, expected 2 as the first file"
    assert line(load, Data(files=["n0.npz", "n1.npz", "n2.npz"]), tmp_path, "logistic") == expected
    assert (
        line(load, Data(files=["n0.npz"]), tmp_path, "logistic", nodes=2)
        == "data: found 1 nodes, expected 2 (network.nodes)"
    )


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ({}, "data: found no source, expected one of files, libsvm, csv, idx, leaf, synthetic"),
        (
            {"libsvm": "a", "csv": "b"},
            "data: found libsvm, csv, expected one of files, libsvm, csv, idx, leaf, synthetic",
        ),
        ({"libsvm": "rows"}, "data.nodes: missing, expected the number of nodes"),
        ({"libsvm": "rows", "nodes": 4}, "{base}/rows: found 3 rows for 4 nodes, expected at least one for each"),
        (
            {"libsvm": "rows", "nodes": 2, "split": {}},
            "data.split: found none or both of label-skew and given, expected one",
        ),
    ],
)
def test_a_section_that_cannot_be_is_one_line(tmp_path, section, expected):
    write(tmp_path / "rows", LIBSVM)
    assert line(load, msgspec.convert(section, Data), tmp_path, "logistic") == expected.format(base=tmp_path)


@given(
    rows=st.lists(
        st.lists(st.one_of(st.floats(-1e150, 1e150), st.just(1e-300)), min_size=3, max_size=3), min_size=1, max_size=5
    )
)
def test_unit_rows_have_norm_one_and_zero_rows_stay(rows):
    A = np.array(rows)
    for before, after in zip(A, unit_rows(A), strict=True):
        if before.any():
            assert np.linalg.norm(after) == pytest.approx(1, rel=1e-15)
            assert np.all(after * before >= 0)
        else:
            assert not after.any()


@pytest.mark.runs
def test_the_adult_sample_is_read_split_and_meets_a_row_bound_of_one():
    section = msgspec.convert({"libsvm": "adult.tst.bz2", "nodes": 8, "normalize": "unit-rows", "features": 123}, Data)
    shards = load(section, HERE, "logistic", nodes=8).shards
    assert sum(len(shard.b) for shard in shards) == 16_281
    assert sum(int(np.sum(shard.b == 1)) for shard in shards) == 3_846
    assert all(Loss(Objective(kind="logistic"), *shard, row_bound=1.0).size == 123 for shard in shards)


@pytest.mark.parametrize("kind", ["least-squares", "logistic", "softmax"])
def test_synthetic_rows_follow_their_model_and_a_node_s_are_its_own(kind):
    spec = Synthetic(rows=2000, features=3, noise=0.0, seed=5)
    shards = load(Data(synthetic=spec, nodes=4), Path(), kind).shards
    assert np.array_equal(load(Data(synthetic=spec, nodes=2), Path(), kind).shards[1].A, shards[1].A)
    assert not np.array_equal(shards[0].A, shards[1].A)
    C = classes(shards) if kind == "softmax" else 1
    assert (3 if kind == "softmax" else 1) == C
    # One model fits all: a gradient method on node 0's rows explains node 3's.
    losses = [Loss(Objective(kind=kind), *shard, classes=C) for shard in shards]
    x = np.zeros(losses[0].size)
    for _ in range(200):
        x = x - losses[0].gradient(x) / losses[0].L
    assert losses[3].value(x) < 0.95 * losses[3].value(np.zeros_like(x))


def test_synthetic_data_too_large_for_memory_are_refused():
    spec = Synthetic(rows=10_000_000, features=10_000)
    expected = "data.synthetic: found 2 nodes of 10000000 rows of 10000 features, expected at most 134217728 numbers"
    assert line(load, Data(synthetic=spec, nodes=2), Path(), "logistic") == expected
