"""What a scenario's `data` section stands for: every node's rows, read from files and split, or made up from a seed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
from msgspec import Meta, Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.problems.losses import Kind
from hushgrid.kernels.randomness import counter_generator
from hushgrid.kernels.types import AnyArray, Matrix, Vector
from hushgrid.node.problems.records.files import (
    LARGEST_TABLE,
    RecordTable,
    Shard,
    check_widths,
    lines_of,
    printable,
    read_csv,
    read_libsvm,
    read_npz,
    shard_of,
)
from hushgrid.node.problems.records.images import IMAGES, read_idx, read_leaf

Count = Annotated[int, Meta(ge=1, le=10_000_000)]
Rows = NDArray[np.int64]


class Arrays(NamedTuple):
    """Rows that `run` was given in Python."""

    shards: Sequence[tuple[AnyArray, AnyArray]]  #: A (m, q) and b (m,) of each node
    features: tuple[str, ...] = ()  #: a name for each column of A, if they have names
    notes: tuple[str, ...] = ()  #: what was done to the columns


class Loaded(NamedTuple):
    """What a scenario's `data` section stands for."""

    shards: list[Shard]  #: one a node
    features: tuple[str, ...] = ()  #: a name for each column of A
    notes: tuple[str, ...] = ()  #: what was changed in the rows on reading them


# --- the scenario's `data` section ---


class Section(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A section of a file: unknown keys are refused."""


class Synthetic(Section, frozen=True, kw_only=True):
    """Rows of N(0, 1/q) features; labels from one common model, a function of the seed."""

    rows: Count  #: m, of each node
    features: Count  #: q
    noise: Annotated[float, Meta(ge=0)] = 0.1  #: least squares: standard deviation of the targets
    classes: Annotated[int, Meta(ge=2, le=10_000)] = 3  #: softmax
    seed: Annotated[int, Meta(ge=0)] = 0  #: of the rows


class Devices(Section, frozen=True, kw_only=True):
    """What the coordinator of real devices declares of rows that it never sees; each device compares its own."""

    features: Count  #: q
    rows: Count | tuple[Count, ...]  #: m_i, of all nodes alike or of each


class Split(Section, frozen=True, kw_only=True):
    """How a file's rows go to nodes other than evenly; one of the two."""

    #: the share of rows dealt in order of their labels: 0 is even, 1 gives most nodes one label
    label_skew: Annotated[float, Meta(ge=0, le=1)] | None = field(default=None, name="label-skew")
    given: str | None = None  #: a text file: a node number for each row


class Data(Section, frozen=True, kw_only=True):
    """Where the rows are: one of files, libsvm, csv, idx, leaf, synthetic, devices, arrays.

    Paths are relative to the scenario.
    """

    files: list[str] | None = None  #: one a node: .npz of A (m, q) and b (m,), or .csv, plain or packed
    libsvm: str | None = None  #: a LIBSVM text file, plain or packed by gzip or bzip2
    csv: str | None = None  #: a CSV file of numbers, a row a line, plain or packed
    #: images as MNIST's, IDX of bytes, plain or packed; the labels stand beside it, labels-idx1 in place of images-idx3
    idx: str | None = None
    leaf: str | None = None  #: LEAF's JSON (FEMNIST): a user is a node, in the file's order
    synthetic: Synthetic | None = None  #: rows that are made up
    devices: Devices | None = None  #: on the devices themselves: for `hushgrid coordinator`
    arrays: list[tuple[Count, Count]] | None = (
        None  #: given to `run` in Python: each node's number of rows and features
    )
    #: how many rows there are, of all nodes together or of each: public, checked when they are read [counted then].
    #: It is what `hushgrid plan` goes by
    rows: Count | tuple[Count, ...] | None = None
    #: how many share the rows of one file, or of LEAF's users the first so many [the network's number; leaf: all users]
    nodes: Count | None = None
    split: Literal["even"] | Split = "even"  #: which rows of one file each node gets: dealt evenly, or a section
    normalize: Literal["unit-rows"] | None = None  #: unit-rows: every row divided by its norm, zero rows stay
    features: Count | None = None  #: q: entries of a row, public [as the rows have; libsvm: the largest index]
    first_index: Literal[0, 1] | None = None  #: libsvm [0 if an index 0 occurs, else 1]
    pool: Annotated[int, Meta(ge=1, le=1000)] = 1  #: idx: a square of pool x pool pixels is one feature, their mean
    label: str | int = -1  #: csv: the label's column, by its name or number (from 0, or from the end)
    header: bool | None = None  #: csv: whether the first line has names [it does if no field of it is a number]
    threshold: float | None = None  #: logistic: labels are numbers, and stand for 1 above it, for -1 otherwise

    def relative_to(self, base: Path) -> Data:
        """With every path absolute."""

        def absolute(file: str | None) -> str | None:
            return file and str((base / file).resolve())

        split = self.split if isinstance(self.split, str) else replace(self.split, given=absolute(self.split.given))
        files = [str((base / path).resolve()) for path in self.files] if self.files is not None else None
        one = {key: absolute(getattr(self, key)) for key in ("libsvm", "csv", "idx", "leaf")}
        return replace(self, files=files, split=split, **one)


def load(data: Data, base: Path, kind: Kind, nodes: int | None = None, arrays: Arrays | None = None) -> Loaded:
    """Every node's rows. `nodes`: the network's number, where it says one. `arrays`: those of `data.arrays`.

    Raises InputError on whatever is wrong.

    Logistic labels of 0 and 1 become -1 and 1, and a note says so.
    """
    if data.devices is not None:
        raise InputError("data.devices: found rows that are on devices, expected files, libsvm, csv or synthetic ones")
    known = ("files", "libsvm", "csv", "idx", "leaf", "synthetic", "arrays")
    sources = [name for name in known if getattr(data, name) is not None]
    if len(sources) != 1:
        raise InputError(
            f"data: found {', '.join(sources) or 'no source'}, expected one of files, libsvm, csv, idx, leaf, synthetic"
        )
    if data.pool != 1 and data.idx is None:
        raise InputError(f"data.pool: found {data.pool}, expected none ({sources[0]} has no images)")
    if data.header is not None and data.csv is None and data.files is None:
        raise InputError(f"data.header: found a value, expected none ({sources[0]} has no header)")
    if data.arrays is not None and arrays is None:
        raise InputError(
            "data.arrays: found the shapes of arrays alone, expected the arrays too (in Python: run(..., data=[(A, "
            "b), ...]))"
        )
    kind = _as_written(data, kind)
    each: Sequence[object] | None = data.files if data.files is not None else arrays.shards if arrays else None
    users: list[Shard] = [] if data.leaf is None else read_leaf(base / data.leaf, kind)
    if users and len(users) < (data.nodes or nodes or 1):
        raise InputError(f"{base / (data.leaf or '')}: found {len(users)} users, expected {data.nodes or nodes}")
    n = len(each) if each is not None else data.nodes or nodes or len(users)
    if not n:
        raise InputError("data.nodes: missing, expected the number of nodes")
    for name, other in (("data.nodes", data.nodes), ("network.nodes", nodes)):
        if other is not None and other != n:
            raise InputError(f"data: found {n} nodes, expected {other} ({name})")
    features: tuple[str, ...] = arrays.features if arrays else ()
    if data.files is not None:
        places = [str(base / name) for name in data.files]
        shards = [_read_file(data, base / name, kind) for name in data.files]
        check_widths(places, shards, "file")
    elif arrays is not None:
        places = [f"data.arrays[{i}]" for i in range(n)]
        shards = [shard_of(A, b, kind, place) for (A, b), place in zip(arrays.shards, places, strict=True)]
        check_widths(places, shards, "array")
    elif users:
        shards = users[:n]
    elif data.synthetic is not None:
        shards = synthetic(data.synthetic, kind, n)
    else:
        table = _read(data, base, kind)
        shards, features = _split(data, base, table, n), table.features
    _check_declared(data, shards)
    shards, notes = _as_declared(data, shards, kind)
    return Loaded(shards, features, (*(arrays.notes if arrays else ()), *notes))


def _check_declared(data: Data, shards: Sequence[Shard]) -> None:
    """Raises InputError unless rows and features are as many as the section says."""
    each = tuple(len(s.b) for s in shards)
    has: tuple[object, object] = (each if isinstance(data.rows, tuple) else sum(each)), shards[0].A.shape[1]
    for key, declared, actual in zip(("rows", "features"), (data.rows, data.features), has, strict=True):
        if declared is not None and declared != actual:
            raise InputError(f"data.{key}: found {declared!s:.80}, expected {actual!s:.80} as the rows have")


def load_test(data: Data, path: Path, kind: Kind, features: int) -> Shard:
    """Rows of `features` entries to test a model on: A (m, q), b (m,). Raises InputError on whatever is wrong.

    A file named .npz, .csv or .json (LEAF's) is read as one, one with images-idx3 in its name as IDX,
    any other as the nodes' file is: CSV or LIBSVM text, its labels, indices and norms as theirs.
    """
    kind = _as_written(data, kind)
    if path.suffix == ".npz":
        shard = read_npz(path, kind)
    elif IMAGES in path.name:
        shard = read_idx(path, kind, data.pool)
    elif ".json" in path.suffixes:
        users = read_leaf(path, kind)
        shard = Shard(np.concatenate([A for A, _ in users]), np.concatenate([b for _, b in users]))
    elif data.csv is not None or ".csv" in path.suffixes:
        shard = _read_file(data, path, kind)
    else:
        shard = read_libsvm(path, kind, features=features, first_index=data.first_index)
    if shard.A.shape[1] != features:
        raise InputError(f"{path}: found {shard.A.shape[1]} features, expected {features} as the nodes' rows have")
    return _as_declared(data, [shard], kind)[0][0]


def _as_written(data: Data, kind: Kind) -> Kind:
    """The kind of problem whose labels stand in the files: with a threshold they are numbers."""
    if data.threshold is None:
        return kind
    if kind != "logistic":
        raise InputError(f"data.threshold: found {data.threshold:g}, expected none ({kind})")
    return "least-squares"


def _read_file(data: Data, path: Path, kind: Kind) -> Shard:
    """Rows of a CSV file if its name says so, else of a NumPy archive."""
    if ".csv" not in path.suffixes and data.csv is None:
        return read_npz(path, kind)
    return Shard(*read_csv(path, kind, label=data.label, header=data.header)[:2])


def _as_declared(data: Data, shards: list[Shard], kind: Kind) -> tuple[list[Shard], tuple[str, ...]]:
    """The rows with the labels and norms that are declared, and what was changed in the labels."""
    notes: tuple[str, ...] = ()
    if data.threshold is not None:
        shards = [Shard(s.A, np.where(s.b > data.threshold, 1.0, -1.0)) for s in shards]
    if kind == "logistic" and any(np.any(s.b == 0) for s in shards):
        if any(np.any(s.b < 0) for s in shards):
            raise InputError("data.files: found labels of 0 and labels of -1, expected -1 and 1, or 0 and 1 (logistic)")
        shards = [Shard(s.A, np.where(s.b == 0, -1.0, s.b)) for s in shards]
        notes = ("labels 0 and 1 are taken for -1 and 1",)
    if data.normalize:
        shards = [Shard(unit_rows(s.A), s.b) for s in shards]
    return shards, notes


def _read(data: Data, base: Path, kind: Kind) -> RecordTable:
    if data.libsvm is not None:
        A, b = read_libsvm(base / data.libsvm, kind, features=data.features, first_index=data.first_index)
        return RecordTable(A, b)
    if data.idx is not None:
        return RecordTable(*read_idx(base / data.idx, kind, data.pool))
    return read_csv(base / (data.csv or ""), kind, label=data.label, header=data.header)


def _split(data: Data, base: Path, table: RecordTable, n: int) -> list[Shard]:
    A, b = table.A, table.b
    if isinstance(data.split, str):
        parts = even(len(b), n)
    elif (data.split.given is None) == (data.split.label_skew is None):
        raise InputError("data.split: found none or both of label-skew and given, expected one")
    elif data.split.given is not None:
        parts = read_split(base / data.split.given, len(b), n)
    else:
        parts = label_skew(b, n, data.split.label_skew or 0.0)
    if not all(part.size for part in parts):
        path = base / (data.libsvm or data.csv or data.idx or "")
        raise InputError(f"{path}: found {len(b)} rows for {n} nodes, expected at least one for each")
    return [Shard(A[part], b[part]) for part in parts]


def unit_rows(A: Matrix) -> Matrix:
    """a/|a|_2; zero rows stay. Shape (m, q)."""
    top = np.max(np.abs(A), axis=1, keepdims=True)  # squares of what it leaves neither over- nor underflow
    scaled = A / np.where(top > 0, top, 1.0)
    norm = np.sqrt(np.sum(scaled * scaled, axis=1, keepdims=True))
    unit: Matrix = scaled / np.where(norm > 0, norm, 1.0)
    return unit


def classes(shards: Sequence[Shard]) -> int:
    """C of a softmax problem: one more than the largest label of all."""
    return 1 + int(max(float(np.max(shard.b)) for shard in shards))


# --- splits: which rows each node gets, in ascending order ---


def _shuffled(m: int) -> Rows:
    """The rows in one fixed random order: no order of the file, sorted or periodic, then favours a node."""
    return np.argsort(counter_generator(0, "split", 0).random(m), kind="stable")


def even(m: int, n: int) -> list[Rows]:
    """Shuffled and dealt; sizes differ by at most one."""
    order = _shuffled(m)
    return [np.sort(order[i::n]) for i in range(n)]


def label_skew(b: Vector, n: int, skew: float) -> list[Rows]:
    """A share `skew` of the rows goes to the nodes in order of label, in blocks; the rest is dealt.

    0 is `even`, 1 gives most nodes one label. Sizes differ by at most one. (The skewness of K. Hsieh et al.,
    The non-IID data quagmire of decentralized machine learning, 2020.)
    """
    order = _shuffled(len(b))
    by_label, rest = np.split(order, [round(skew * len(b))])
    by_label = by_label[np.argsort(b[by_label], kind="stable")]
    blocks = np.array_split(by_label, n)  # the first nodes get one more of these, the last ones of the rest
    return [np.sort(np.concatenate([blocks[i], rest[n - 1 - i :: n]])) for i in range(n)]


def read_split(path: Path, m: int, n: int) -> list[Rows]:
    """A text file: one line a row, its node's number, 0..n-1. Raises InputError if it is none of m rows."""
    owner = np.empty(m, dtype=np.int64)
    lines = list(lines_of(path))
    if len(lines) != m:
        raise InputError(f"{path}: found {len(lines)} lines, expected {m}, a node for each row")
    for j, (where, line) in enumerate(lines):
        text = line.strip()
        if not (text.isdigit() and len(text) < 10 and int(text) < n):
            raise InputError(f"{where}: found {printable(text)}, expected a node, 0..{n - 1}")
        owner[j] = int(text)
    return [np.flatnonzero(owner == i) for i in range(n)]


# --- made up ---


def synthetic(spec: Synthetic, kind: Kind, n: int) -> list[Shard]:
    """n nodes' rows by one common model X of N(0, 1) entries; each node's own are drawn apart from the others'.

    least-squares b = a.X + noise N(0, 1); logistic b = 1 with probability 1/(1 + exp(-a.X)); softmax accordingly.
    Raises InputError if the rows are too many.
    """
    m, q = spec.rows, spec.features
    if n * m * q > LARGEST_TABLE:
        raise InputError(
            f"data.synthetic: found {n} nodes of {m} rows of {q} features, expected at most {LARGEST_TABLE} numbers"
        )
    C = spec.classes if kind == "softmax" else 1
    X = counter_generator(spec.seed, "data model", 0).normal(size=(q, C)) * (1 if kind == "least-squares" else q**0.5)
    shards = []
    for i in range(n):
        draw = counter_generator(spec.seed, "data", i)
        A = draw.normal(size=(m, q)) / q**0.5
        t = A @ X
        if kind == "least-squares":
            b = t[:, 0] + spec.noise * draw.normal(size=m)
        elif kind == "logistic":
            b = np.where(draw.random(m) * (1 + np.exp(-t[:, 0])) < 1, 1.0, -1.0)
        else:  # the largest of t + Gumbel noise is softmax distributed
            b = np.argmax(t + draw.gumbel(size=t.shape), axis=1).astype(np.float64)
        shards.append(Shard(A, b))
    return shards
