"""What a scenario's `data` section stands for: every node's rows, read from files and split, or made up from a seed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from msgspec import Meta, Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.problems.losses import Kind
from hushgrid.kernels.randomness import counter_generator
from hushgrid.kernels.types import Matrix, Vector
from hushgrid.node.problems.records.files import (
    LARGEST_TABLE,
    Shard,
    Table,
    check_widths,
    lines_of,
    read_csv,
    read_libsvm,
    read_npz,
    shard_of,
    shown,
)

Count = Annotated[int, Meta(ge=1, le=10_000_000)]
Rows = NDArray[np.int64]
Arrays = Sequence[tuple[NDArray[Any], NDArray[Any]]]  #: A (m, q) and b (m,) of each node, as they were given in Python


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
    """Where the rows are: one of files, libsvm, csv, synthetic, devices, arrays. Paths are relative to the scenario."""

    files: list[str] | None = None  #: one .npz a node: A (m, q), b (m,)
    libsvm: str | None = None  #: a LIBSVM text file, plain or packed by gzip or bzip2
    csv: str | None = None  #: a CSV file of numbers, a row a line, plain or packed
    synthetic: Synthetic | None = None  #: rows that are made up
    devices: Devices | None = None  #: on the devices themselves: for `hushgrid coordinator`
    arrays: list[tuple[Count, Count]] | None = (
        None  #: given to `run` in Python: each node's number of rows and features
    )
    nodes: Count | None = None  #: how many share the rows of one file [the network's number]
    split: Literal["even"] | Split = "even"  #: which rows of one file each node gets: dealt evenly, or a section
    normalize: Literal["unit-rows"] | None = None  #: unit-rows: every row divided by its norm, zero rows stay
    features: Count | None = None  #: libsvm: q [the largest index of the rows]
    first_index: Literal[0, 1] | None = None  #: libsvm [0 if an index 0 occurs, else 1]
    label: str | int = -1  #: csv: the label's column, by its name or number (from 0, or from the end)
    header: bool | None = None  #: csv: whether the first line has names [it does if no field of it is a number]

    def at(self, base: Path) -> Data:
        """With every path absolute."""

        def found(path: str | None) -> str | None:
            return path and str((base / path).resolve())

        split = self.split if isinstance(self.split, str) else replace(self.split, given=found(self.split.given))
        files = [str((base / path).resolve()) for path in self.files] if self.files is not None else None
        return replace(self, files=files, libsvm=found(self.libsvm), csv=found(self.csv), split=split)


def load(data: Data, base: Path, kind: Kind, nodes: int | None = None, arrays: Arrays | None = None) -> Loaded:
    """Every node's rows. `nodes`: the network's number, where it says one. `arrays`: those of `data.arrays`.

    InputError on whatever is wrong.

    Logistic labels of 0 and 1 become -1 and 1, and a note says so.
    """
    if data.devices is not None:
        raise InputError("data.devices: found rows that are on devices, expected files, libsvm, csv or synthetic ones")
    sources = [name for name in ("files", "libsvm", "csv", "synthetic", "arrays") if getattr(data, name) is not None]
    if len(sources) != 1:
        raise InputError(
            f"data: found {', '.join(sources) or 'no source'}, expected one of files, libsvm, csv, synthetic"
        )
    if data.header is not None and data.csv is None:
        raise InputError(f"data.header: found a value, expected none ({sources[0]} has no header)")
    if data.arrays is not None and arrays is None:
        raise InputError(
            "data.arrays: found the shapes of arrays alone, expected the arrays too (in Python: run(..., data=[(A, b), ...]))"
        )
    each: Sequence[object] | None = data.files if data.files is not None else arrays
    n = len(each) if each is not None else data.nodes or nodes
    if not n:
        raise InputError("data.nodes: missing, expected the number of nodes")
    for name, other in (("data.nodes", data.nodes), ("network.nodes", nodes)):
        if other is not None and other != n:
            raise InputError(f"data: found {n} nodes, expected {other} ({name})")
    features: tuple[str, ...] = ()
    if data.files is not None:
        places = [str(base / name) for name in data.files]
        shards = [read_npz(base / name, kind) for name in data.files]
        check_widths(places, shards, "file")
    elif arrays is not None:
        places = [f"data.arrays[{i}]" for i in range(n)]
        shards = [shard_of(A, b, kind, place) for (A, b), place in zip(arrays, places, strict=True)]
        check_widths(places, shards, "array")
    elif data.synthetic is not None:
        shards = synthetic(data.synthetic, kind, n)
    else:
        table = _read(data, base, kind)
        shards, features = _split(data, base, table, n), table.features
    shards, notes = _as_declared(data, shards, kind)
    return Loaded(shards, features, notes)


def load_test(data: Data, path: Path, kind: Kind, features: int) -> Shard:
    """Rows of `features` entries to test a model on: A (m, q), b (m,). InputError on whatever is wrong.

    A file named .npz or .csv is read as one, any other as the nodes' file is: CSV or LIBSVM text, its labels, indices and
    norms as theirs.
    """
    if path.suffix == ".npz":
        shard = read_npz(path, kind)
    elif data.csv is not None or ".csv" in path.suffixes:
        shard = Shard(*read_csv(path, kind, label=data.label, header=data.header)[:2])
    else:
        shard = read_libsvm(path, kind, features=features, first_index=data.first_index)
    if shard.A.shape[1] != features:
        raise InputError(f"{path}: found {shard.A.shape[1]} features, expected {features} as the nodes' rows have")
    return _as_declared(data, [shard], kind)[0][0]


def _as_declared(data: Data, shards: list[Shard], kind: Kind) -> tuple[list[Shard], tuple[str, ...]]:
    """The rows with the labels and norms that are declared, and what was changed in the labels."""
    notes: tuple[str, ...] = ()
    if kind == "logistic" and any(np.any(s.b == 0) for s in shards):
        if any(np.any(s.b < 0) for s in shards):
            raise InputError("data.files: found labels of 0 and labels of -1, expected -1 and 1, or 0 and 1 (logistic)")
        shards = [Shard(s.A, np.where(s.b == 0, -1.0, s.b)) for s in shards]
        notes = ("labels 0 and 1 are taken for -1 and 1",)
    if data.normalize:
        shards = [Shard(unit_rows(s.A), s.b) for s in shards]
    return shards, notes


def _read(data: Data, base: Path, kind: Kind) -> Table:
    if data.libsvm is not None:
        A, b = read_libsvm(base / data.libsvm, kind, features=data.features, first_index=data.first_index)
        return Table(A, b)
    return read_csv(base / (data.csv or ""), kind, label=data.label, header=data.header)


def _split(data: Data, base: Path, table: Table, n: int) -> list[Shard]:
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
        path = base / (data.libsvm or data.csv or "")
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

    0 is `even`, 1 gives most nodes one label. Sizes differ by at most one. (The skewness of K. Hsieh et al., The non-IID
    data quagmire of decentralized machine learning, 2020.)
    """
    order = _shuffled(len(b))
    by_label, rest = np.split(order, [round(skew * len(b))])
    by_label = by_label[np.argsort(b[by_label], kind="stable")]
    blocks = np.array_split(by_label, n)  # the first nodes get one more of these, the last ones of the rest
    return [np.sort(np.concatenate([blocks[i], rest[n - 1 - i :: n]])) for i in range(n)]


def read_split(path: Path, m: int, n: int) -> list[Rows]:
    """A text file: one line a row, its node's number, 0..n-1."""
    owner = np.empty(m, dtype=np.int64)
    lines = list(lines_of(path))
    if len(lines) != m:
        raise InputError(f"{path}: found {len(lines)} lines, expected {m}, a node for each row")
    for j, (where, line) in enumerate(lines):
        text = line.strip()
        if not (text.isdigit() and len(text) < 10 and int(text) < n):
            raise InputError(f"{where}: found {shown(text)}, expected a node, 0..{n - 1}")
        owner[j] = int(text)
    return [np.flatnonzero(owner == i) for i in range(n)]


# --- made up ---


def synthetic(spec: Synthetic, kind: Kind, n: int) -> list[Shard]:
    """n nodes' rows by one common model X of N(0, 1) entries; each node's own are drawn apart from the others'.

    least-squares b = a.X + noise N(0, 1); logistic b = 1 with probability 1/(1 + exp(-a.X)); softmax accordingly.
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
