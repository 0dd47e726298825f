"""Rows are read as their owner wrote them, or refused in one line; every row goes to exactly one node."""

import bz2
import gzip
import io
import zipfile
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.problems.losses import Loss, Objective
from hushgrid.node.problems.records import files
from hushgrid.node.problems.records.data import (
    Data,
    Split,
    Synthetic,
    classes,
    even,
    label_skew,
    load,
    load_test,
    unit_rows,
)
from hushgrid.node.problems.records.device import rows_of, shortened
from hushgrid.node.problems.records.files import read_csv, read_libsvm, read_npz
from tests.support import examples
from tests.support.paths import SCENARIOS
from tests.support.scenarios.scenario_texts import LIBSVM, line, npz, write

TABLE = [[0.5, 0, -20], [0, 7, 0], [0, 0, 0]]


# --- formats ---


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress], ids=["plain", "gz", "bz2"])
def test_libsvm_text_is_read_plain_and_packed_whatever_its_name(tmp_path, pack):
    A, b = read_libsvm(write(tmp_path / "rows", pack(LIBSVM)), "logistic")
    assert A.tolist() == TABLE
    assert b.tolist() == [1, -1, 1]


def test_the_first_libsvm_index_is_zero_where_a_zero_occurs_or_it_is_said(tmp_path):
    from_zero = write(tmp_path / "a", b"1 0:5 2:6\n-1 1:7\n")
    from_one = write(tmp_path / "b", b"1 1:5 3:6\n-1 2:7\n")
    assert (
        read_libsvm(from_zero, "logistic").A.tolist()
        == read_libsvm(from_one, "logistic").A.tolist()
        == [[5, 0, 6], [0, 7, 0]]
    )
    assert read_libsvm(from_one, "logistic", first_index=0).A.tolist() == [[0, 5, 0, 6], [0, 0, 7, 0]]
    assert read_libsvm(from_one, "logistic", features=5).A.shape == (2, 5)


def test_csv_is_read_with_or_without_names(tmp_path):
    plain = write(tmp_path / "plain.csv", b"1.5, 2,-1\r\n\n3,4e0,1\n")
    named = write(tmp_path / "named.csv", b'"y",u,v\n-1,1.5,2\n1,3,4\n')
    for shard in (
        read_csv(plain, "logistic"),
        read_csv(named, "logistic", label="y"),
        read_csv(named, "logistic", label=0),
    ):
        assert shard.A.tolist() == [[1.5, 2], [3, 4]]
        assert shard.b.tolist() == [-1, 1]


def test_a_byte_order_mark_costs_no_row_and_no_name(tmp_path):
    rows = "".join(f"{k},{k % 2}\n" for k in range(3000))
    plain = write(tmp_path / "plain.csv", rows.encode("utf-8-sig"))
    named = write(tmp_path / "named.csv", ("age,y\n" + rows).encode("utf-8-sig"))
    assert read_csv(plain, "logistic").A[:, 0].tolist() == list(range(3000))
    assert read_csv(named, "logistic", label="y").features == ("age",)
    assert len(read_csv(named, "logistic").b) == 3000
    assert read_libsvm(write(tmp_path / "rows", b"\xef\xbb\xbf" + LIBSVM), "logistic").A.tolist() == TABLE


FIRST = "expected a finite number (if the line has the columns' names, data.header: true)"


@pytest.mark.parametrize(
    ("first", "found"),
    [
        ("NA,2,1", "column 0: found 'NA'"),
        ("1,,1", "column 1: found ''"),
        ("1,2,one", "column 2: found 'one'"),
        ("nan,u,y", "column 0: found 'nan'"),
        ("0,1,label", "column 2: found 'label'"),
    ],
)
def test_a_first_row_in_which_a_number_is_missing_is_an_error_and_no_header(tmp_path, first, found):
    path = write(tmp_path / "rows.csv", (first + "\n" + "3,4,1\n" * 2999).encode())
    assert line(read_csv, path, "logistic") == f"{path}:1: {found}, {FIRST}"


def test_it_can_be_said_whether_a_csv_has_a_header(tmp_path):
    path = write(tmp_path / "rows.csv", b"0,1,label\n3,4,1\n")
    assert read_csv(path, "logistic", label="label", header=True).features == ("0", "1")
    path = write(tmp_path / "other.csv", b"a,b,c\n3,4,1\n")
    assert line(read_csv, path, "logistic", header=False) == f"{path}:1: column 0: found 'a', expected a finite number"
    path = write(tmp_path / "third.csv", b"5,6,1\n3,4,1\n")
    assert len(read_csv(path, "logistic", header=False).b) == 2
    assert len(read_csv(path, "logistic", header=True).b) == 1
    assert line(load, Data(libsvm="rows", nodes=1, header=True), tmp_path, "logistic").startswith("data.header: found")


def test_labels_of_0_and_1_are_those_of_logistic_regression_and_it_is_said(tmp_path):
    write(tmp_path / "rows.csv", b"u,v,y\n1,2,0\n3,4,1\n5,6,0\n")
    section = Data(csv="rows.csv", nodes=1)
    assert load(section, tmp_path, "logistic").shards[0].b.tolist() == [-1, 1, -1]
    assert load(section, tmp_path, "logistic").notes == ("labels 0 and 1 are taken for -1 and 1",)
    for kind in ("least-squares", "softmax"):
        loaded = load(section, tmp_path, kind)
        assert (loaded.shards[0].b.tolist(), loaded.notes) == ([0, 1, 0], ())
    write(tmp_path / "signs.csv", b"1,-1\n3,1\n")
    assert load(Data(csv="signs.csv", nodes=1), tmp_path, "logistic").notes == ()


def test_a_node_of_one_class_has_its_labels_by_what_the_others_have(tmp_path):
    for name, labels in (("zeros", [0, 0]), ("ones", [1, 1]), ("signs", [-1, 1])):
        npz(tmp_path / name, A=np.ones((2, 3)), b=labels)
    shards = load(Data(files=["zeros.npz", "ones.npz"]), tmp_path, "logistic").shards
    assert [s.b.tolist() for s in shards] == [[-1, -1], [1, 1]]
    expected = "data.files: found labels of 0 and labels of -1, expected -1 and 1, or 0 and 1 (logistic)"
    assert line(load, Data(files=["zeros.npz", "signs.npz"]), tmp_path, "logistic") == expected


def test_npz_holds_a_and_b_of_any_number_type(tmp_path):
    A, b = read_npz(
        npz(tmp_path / "n.npz", A=np.array(TABLE, dtype=np.float32, order="F"), b=[1, -1, 1], note="x"), "logistic"
    )
    assert A.tolist() == TABLE
    assert A.dtype == b.dtype == np.float64
    assert A.flags.c_contiguous


LINES = [
    (b"1 1:2\n-1 3:4 2:5\n", ":2: found index 2 after 3, expected ascending indices"),
    (b"1 1:2\n-1 2:4 2:5\n", ":2: found index 2 after 2, expected ascending indices"),
    (b"1 1:2\n-1 2:nan\n", ":2: found value 'nan', expected a finite number"),
    (b"1 1:2\n-1 2:1e999\n", ":2: found value '1e999', expected a finite number"),
    (b"1 1:2\n-1 2:\n", ":2: found value '', expected a finite number"),
    (b"1 1:1_0\n", ":1: found value '1_0', expected a finite number"),
    (b"1 1:2\n\nx 1:2\n", ":3: found label 'x', expected a finite number"),
    (b"1 1\n", ":1: found '1', expected index:value"),
    (b"1 -1:2\n", ":1: found '-1:2', expected index:value"),
    (b"1 qid:3 1:2\n", ":1: found 'qid:3', expected index:value"),
    (b"1 99999999999:2\n", ":1: found '99999999999:2', expected index:value"),
    (b"\xff\x00\n", r":1: found label '\xff\x00', expected a finite number"),
    (b"-1 1:2\n\n0 1:2\n", ":3: found label 0, expected -1 or 1 (logistic)"),
    (b"1 1:2\n2 1:2\n0 1:2\n", ":2: found label 2, expected -1 or 1, or 0 or 1 (logistic)"),
    (b"1 999999999:2\n", ": found 1 rows of 999999999 columns, expected at most 134217728 numbers"),
    (b" # nothing\n", ": found no rows, expected LIBSVM text"),
    (b"", ": found no rows, expected LIBSVM text"),
    (bz2.compress(LIBSVM)[:-4], ": Compressed file ended before the end-of-stream marker was reached, "
                                "expected a whole packed file"),
    (gzip.compress(LIBSVM, mtime=0)[:-9], ": Compressed file ended before the end-of-stream marker was reached, "
                                 "expected a whole packed file"),
    (b"BZhello", ": Invalid data stream, expected a readable file"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "expected"), LINES)
def test_libsvm_text_that_is_wrong_is_one_line_with_its_number(tmp_path, content, expected):
    path = write(tmp_path / "rows", content)
    assert line(read_libsvm, path, "logistic") == f"{path}{expected}"


def test_an_index_beyond_the_stated_features_is_refused(tmp_path):
    path = write(tmp_path / "rows", b"1 1:5\n-1 4:7\n")
    assert line(read_libsvm, path, "logistic", features=3) == f"{path}:2: found index 4, expected an index of 1..3"
    path = write(tmp_path / "rows", b"1 1:5\n-1 0:7\n")
    assert line(read_libsvm, path, "logistic", first_index=1) == f"{path}:2: found index 0, expected an index of 1..1"


@pytest.mark.parametrize(
    ("content", "label", "expected"),
    [
        (b"u,v\n1,2\n1\n", -1, ":3: found 1 fields, expected 2 as in the first line"),
        (b"1,2\n1,x\n", -1, ":2: column 1: found 'x', expected a finite number"),
        (b"u,v\n1,inf\n", -1, ":2: column 1 ('v'): found 'inf', expected a finite number"),
        (b"u,v\n,0\n", -1, ":2: column 0 ('u'): found '', expected a finite number"),
        (b"u,v\n1,0.5\n", -1, ":2: found label 0.5, expected a class, 0 to 9999 (softmax)"),
        (b"u,v\n1,-1\n", -1, ":2: found label -1, expected a class, 0 to 9999 (softmax)"),
        (b"u,v\n1,2\n", "w", ": found u, v, expected one column named 'w'"),
        (b"1,2\n", "w", ": found no column names, expected one column named 'w'"),
        (b"u,u\n1,2\n", "u", ": found u, u, expected one column named 'u'"),
        (b"1,2\n", 2, ": found 2 columns, expected a column 2"),
        (b"u,v\n", -1, ": found 0 rows of 2 columns, expected rows of a label and features"),
        (b"1\n2\n", -1, ": found 2 rows of 1 columns, expected rows of a label and features"),
    ],
)
def test_a_csv_that_is_wrong_is_one_line_with_its_number(tmp_path, content, label, expected):
    path = write(tmp_path / "rows.csv", content)
    assert line(read_csv, path, "softmax", label=label) == f"{path}{expected}"


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ({"A": TABLE}, "expected a NumPy archive of A and b"),
        ({"A": TABLE, "b": [1.0]}, "found A (3, 3) and b (1,), expected (m, q) and (m,), m and q > 0"),
        ({"A": np.zeros((0, 3)), "b": []}, "found A (0, 3) and b (0,), expected (m, q) and (m,), m and q > 0"),
        ({"A": TABLE, "b": ["1", "2", "3"]}, "b: found type <U1, expected numbers"),
        ({"A": TABLE, "b": np.array([1, None, 1])}, "expected a NumPy archive of A and b"),
        ({"A": [[1.0, np.nan]], "b": [1]}, "A[0, 1]: found nan, expected a finite number"),
        ({"A": TABLE, "b": [1, -1, np.inf]}, "b[2]: found inf, expected a finite number"),
        ({"A": TABLE, "b": [1, -1, 0]}, "b[2]: found label 0, expected -1 or 1 (logistic)"),
    ],
)
def test_an_archive_that_is_wrong_is_one_line(tmp_path, arrays, expected):
    path = npz(tmp_path / "n.npz", **arrays)
    found = line(read_npz, path, "logistic")
    assert found.startswith(f"{path}: ")
    assert found.endswith(expected)


def test_a_file_that_is_not_there_or_no_file_is_one_line(tmp_path):
    gone = tmp_path / "gone"
    assert line(read_npz, gone, "logistic") == f"{gone}: No such file or directory, expected a NumPy archive (.npz)"
    assert line(read_libsvm, gone, "logistic") == f"{gone}: No such file or directory, expected a readable file"
    assert line(read_csv, tmp_path, "logistic") == f"{tmp_path}: Is a directory, expected a readable file"


def test_a_file_that_unpacks_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LARGEST_FILE", 10_000)
    path = write(tmp_path / "bomb.bz2", bz2.compress(b"1 1:1\n" * 100_000))
    assert line(read_libsvm, path, "logistic") == f"{path}: found more than 10000 bytes, expected at most as many"
    path = npz(tmp_path / "bomb.npz", A=np.zeros((1000, 10)), b=np.ones(1000))
    assert line(read_npz, path, "logistic").endswith("bytes unpacked, expected at most 10000")


def archive(head: bytes) -> bytes:
    """An .npz whose A.npy is these bytes."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("A.npy", head)
        made.writestr("b.npy", head)
    return file.getvalue()


def huge(shape: str) -> bytes:
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return archive(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)


WORDS = [
    b"1",
    b"-1",
    b" ",
    b"\n",
    b",",
    b":",
    b"1:2",
    b"0:1",
    b"nan",
    b"#",
    b"\r",
    b"\xff",
    b"1e308",
    b"BZh",
    b"\x1f\x8b\x08",
]
CONTENT = st.one_of(
    st.binary(max_size=60),
    st.lists(st.sampled_from(WORDS), max_size=20).map(b"".join),
    st.binary(max_size=40).map(bz2.compress),
    st.binary(max_size=40).map(archive),
    st.tuples(st.sampled_from([gzip.compress(LIBSVM), bz2.compress(LIBSVM), huge("(3,)")]), st.integers(0, 300),
              st.integers(0, 255)).map(lambda t: t[0][: t[1]] + bytes([t[2]]) + t[0][t[1] + 1 :]),
)  # fmt: skip


def rows_or_line(read, path: Path, kind: str):
    try:
        return read(path, kind)
    except InputError as error:
        return str(error)


@given(content=CONTENT, kind=st.sampled_from(["least-squares", "logistic", "softmax"]))
@example(content=huge("(10000000000000, 3)"), kind="logistic")
@example(content=huge("(-1, 3)"), kind="logistic")
@example(content=huge("((((1"), kind="logistic")
@examples.of(400, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_rows_or_one_line(tmp_path, content, kind):
    path = write(tmp_path / "any", content)
    for read in (read_npz, read_libsvm, read_csv):
        found = rows_or_line(read, path, kind)
        if isinstance(found, str):
            assert found.startswith(f"{path}:")
            assert "expected" in found
            assert "\n" not in found
        else:
            assert found.A.shape == (len(found.b), found.A.shape[1])
            assert found.A.size > 0
            assert np.all(np.isfinite(found.A))
            assert np.all(np.isfinite(found.b))


@given(
    rows=st.lists(
        st.tuples(st.sampled_from([-1.0, 1.0]), st.lists(st.floats(-1e300, 1e300), min_size=3, max_size=3)),
        min_size=1,
        max_size=8,
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_written_in_any_format_comes_back_bit_for_bit(tmp_path, rows):
    b, A = np.array([label for label, _ in rows]), np.array([values for _, values in rows])
    text = "".join(f"{label!r} " + " ".join(f"{k + 1}:{v!r}" for k, v in enumerate(a)) + "\n" for label, a in rows)
    comma = "".join(",".join(map(repr, [*a, label])) + "\n" for label, a in rows)
    for shard in (
        read_libsvm(write(tmp_path / "l", text.encode()), "logistic"),
        read_csv(write(tmp_path / "c", comma.encode()), "logistic"),
        read_npz(npz(tmp_path / "n.npz", A=A, b=b), "logistic"),
    ):
        assert np.array_equal(shard.A, A)
        assert np.array_equal(shard.b, b)


def test_nodes_files_may_be_csv_packed_too_and_numbers_become_classes_by_a_threshold(tmp_path):
    npz(tmp_path / "n0.npz", A=[[1.0], [2.0]], b=[0.5, 0.0])
    write(tmp_path / "n1.csv.bz2", bz2.compress(b"a,b\n3,-2\n4,1e-3\n"))
    section = Data(files=["n0.npz", "n1.csv.bz2"], threshold=0.0)
    shards = load(section, tmp_path, "logistic").shards
    assert [s.A.tolist() for s in shards] == [[[1], [2]], [[3], [4]]]
    assert [s.b.tolist() for s in shards] == [[1, -1], [-1, 1]]
    assert load_test(section, tmp_path / "n1.csv.bz2", "logistic", 1).b.tolist() == [-1, 1]
    numbers = load(Data(files=["n0.npz", "n1.csv.bz2"]), tmp_path, "least-squares").shards
    assert numbers[1].b.tolist() == [-2, 1e-3]
    expected = "data.threshold: found 0, expected none (least-squares)"
    assert line(load, section, tmp_path, "least-squares") == expected


def test_a_device_reads_its_rows_from_a_csv_file(tmp_path):
    write(tmp_path / "n0.csv", b"1,2,0.7\n3,4,-0.2\n")
    shard = rows_of("n0", tmp_path / "n0.csv", None, None).shard
    assert (shard.A.tolist(), shard.b.tolist()) == ([[1, 2], [3, 4]], [0.7, -0.2])


def test_a_device_makes_zero_of_numbers_on_which_a_processor_is_slow_before_anybody_asks(tmp_path):
    write(tmp_path / "n0.csv", b"1e-310,2,5e-324\n3,-1e-61,-0.2\n")
    shard = rows_of("n0", tmp_path / "n0.csv", None, None).shard
    assert (shard.A.tolist(), shard.b.tolist()) == ([[0, 2], [3, 0]], [0, -0.2])
    assert shortened(np.array([[2.0**-199, 1.0]]), 0.25).tolist() == [[0, pytest.approx(0.25)]]


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ({"rows": 7}, "data.rows: found 7, expected 6 as the rows have"),
        ({"rows": (4, 2)}, r"data.rows: found \(4, 2\), expected \(3, 3\) as the rows have"),
        ({"features": 5}, "data.features: found 5, expected 2 as the rows have"),
        ({"rows": 6, "features": 2}, None),
        ({"rows": (3, 3)}, None),
    ],
)
def test_the_shape_that_is_declared_is_that_of_the_rows(declared, said, tmp_path):
    (tmp_path / "rows.csv").write_text("\n".join(f"{k},{k * k % 5},{k % 2}" for k in range(6)))
    data = Data(csv="rows.csv", nodes=2, **declared)
    if said is None:
        assert len(load(data, tmp_path, "logistic").shards) == 2
        return
    with pytest.raises(InputError, match=said):
        load(data, tmp_path, "logistic")


# --- Every row of a data set goes to exactly one node; what the section of a scenario may say ---

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
