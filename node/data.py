"""Rows of data problems, from files as their owners have them: what is read is finite, of one width, and labelled right.

Whatever else a file holds becomes one line with file, line number, found and expected; no file makes it take more than
LARGEST_FILE bytes of text or LARGEST_TABLE numbers of memory.
"""

from __future__ import annotations

import bz2
import gzip
import io
import warnings
import zipfile
import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from msgspec import Meta, Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.jit import Matrix, Vector
from hushgrid.kernels.losses import Kind
from hushgrid.kernels.noise import counter_generator

LARGEST_FILE = 2**30  #: bytes, unpacked
LARGEST_TABLE = 2**27  #: numbers of A: 1 GB
Count = Annotated[int, Meta(ge=1, le=10_000_000)]
Rows = NDArray[np.int64]


class Shard(NamedTuple):
    """One node's rows."""

    A: Matrix  #: (m, q)
    b: Vector  #: (m,)


# --- the scenario's `data` section ---


class Section(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A section of a file: unknown keys are refused."""


class Synthetic(Section, frozen=True, kw_only=True):
    """Rows of N(0, 1/q) features; labels from one common model, a function of the seed."""

    rows: Count  #: m, of each node
    features: Count  #: q
    noise: Annotated[float, Meta(ge=0)] = 0.1  #: least squares: standard deviation of the targets
    classes: Annotated[int, Meta(ge=2, le=10_000)] = 3  #: softmax
    seed: Annotated[int, Meta(ge=0)] = 0


class Devices(Section, frozen=True, kw_only=True):
    """What the coordinator of real devices declares of rows that it never sees; each device compares its own."""

    features: Count  #: q
    rows: Count | tuple[Count, ...]  #: m_i, of all nodes alike or of each


class Split(Section, frozen=True, kw_only=True):
    """How a file's rows go to nodes other than evenly; one of the two."""

    label_skew: Annotated[float, Meta(ge=0, le=1)] | None = field(default=None, name="label-skew")
    given: str | None = None  #: a text file: a node number for each row


class Data(Section, frozen=True, kw_only=True):
    """Where the rows are: one of files, libsvm, csv, synthetic, devices. Paths are relative to the scenario."""

    files: list[str] | None = None  #: one .npz a node: A (m, q), b (m,)
    libsvm: str | None = None
    csv: str | None = None
    synthetic: Synthetic | None = None
    devices: Devices | None = None  #: on the devices themselves: for `hushgrid coordinator`
    nodes: Count | None = None
    split: Literal["even"] | Split = "even"
    normalize: Literal["unit-rows"] | None = None
    features: Count | None = None  #: libsvm: q where the rows do not show it
    first_index: Literal[0, 1] | None = None  #: libsvm [0 where an index 0 occurs, else 1]
    label: str | int = -1  #: csv: the label's column, by its name or number (from 0, or from the end)

    def at(self, base: Path) -> Data:
        """With every path absolute."""

        def found(path: str | None) -> str | None:
            return path and str((base / path).resolve())

        split = self.split if isinstance(self.split, str) else replace(self.split, given=found(self.split.given))
        files = [str((base / path).resolve()) for path in self.files] if self.files is not None else None
        return replace(self, files=files, libsvm=found(self.libsvm), csv=found(self.csv), split=split)


def load(data: Data, base: Path, kind: Kind, nodes: int | None = None) -> list[Shard]:
    """Every node's rows. `nodes`: the network's number, where it says one. InputError on whatever is wrong."""
    if data.devices is not None:
        raise InputError("data.devices: found rows that are on devices, expected files, libsvm, csv or synthetic ones")
    sources = [name for name in ("files", "libsvm", "csv", "synthetic") if getattr(data, name) is not None]
    if len(sources) != 1:
        raise InputError(
            f"data: found {', '.join(sources) or 'no source'}, expected one of files, libsvm, csv, synthetic"
        )
    n = len(data.files) if data.files is not None else data.nodes or nodes
    if not n:
        raise InputError("data.nodes: missing, expected the number of nodes")
    for name, other in (("data.nodes", data.nodes), ("network.nodes", nodes)):
        if other is not None and other != n:
            raise InputError(f"data: found {n} nodes, expected {other} ({name})")
    if data.files is not None:
        shards = [read_npz(base / name, kind) for name in data.files]
        for name, shard in zip(data.files, shards, strict=True):
            if shard.A.shape[1] != shards[0].A.shape[1]:
                width = shards[0].A.shape[1]
                raise InputError(
                    f"{base / name}: A: found {shard.A.shape[1]} columns, expected {width} as the first file"
                )
    elif data.synthetic is not None:
        shards = synthetic(data.synthetic, kind, n)
    else:
        shards = _read_and_split(data, base, kind, n)
    return [Shard(unit_rows(s.A), s.b) for s in shards] if data.normalize else shards


def _read_and_split(data: Data, base: Path, kind: Kind, n: int) -> list[Shard]:
    if data.libsvm is not None:
        path = base / data.libsvm
        A, b = read_libsvm(path, kind, features=data.features, first_index=data.first_index)
    else:
        path = base / (data.csv or "")
        A, b = read_csv(path, kind, label=data.label)
    if isinstance(data.split, str):
        parts = even(len(b), n)
    elif (data.split.given is None) == (data.split.label_skew is None):
        raise InputError("data.split: found none or both of label-skew and given, expected one")
    elif data.split.given is not None:
        parts = read_split(base / data.split.given, len(b), n)
    else:
        parts = label_skew(b, n, data.split.label_skew or 0.0)
    if not all(part.size for part in parts):
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
    lines = list(_lines(path))
    if len(lines) != m:
        raise InputError(f"{path}: found {len(lines)} lines, expected {m}, a node for each row")
    for j, (where, line) in enumerate(lines):
        text = line.strip()
        if not (text.isdigit() and len(text) < 10 and int(text) < n):
            raise InputError(f"{where}: found {_shown(text)}, expected a node, 0..{n - 1}")
        owner[j] = int(text)
    return [np.flatnonzero(owner == i) for i in range(n)]


# --- files ---


def read_npz(path: Path, kind: Kind) -> Shard:
    """A (m, q) and b (m,) of a NumPy archive; nothing in it is executed."""
    found: dict[str, NDArray[Any]] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(info.file_size for info in archive.infolist() if info.filename in ("A.npy", "b.npy"))
            if size > LARGEST_FILE:
                raise InputError(f"{path}: found {size} bytes unpacked, expected at most {LARGEST_FILE}")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for name in ("A", "b"):
                    with archive.open(f"{name}.npy") as part:
                        found[name] = np.lib.format.read_array(io.BytesIO(part.read(size + 1)), allow_pickle=False)
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}, expected a NumPy archive (.npz)") from None
    except Exception as error:  # of a dozen kinds, by what is broken: zip, compression, header, length
        raise InputError(
            f"{path}: {str(error)[:120] or type(error).__name__}, expected a NumPy archive of A and b"
        ) from None
    for name, table in found.items():
        if table.dtype.kind not in "fiub":
            raise InputError(f"{path}: {name}: found type {table.dtype}, expected numbers")
    A, b = (np.asarray(found[name], dtype=np.float64) for name in ("A", "b"))
    if A.ndim != 2 or not A.size or b.shape != A.shape[:1]:
        raise InputError(f"{path}: found A {A.shape} and b {b.shape}, expected (m, q) and (m,), m and q > 0")
    for name, table in (("A", A), ("b", b)):
        if (wrong := np.argwhere(~np.isfinite(table))).size:
            at = ", ".join(map(str, wrong[0].tolist()))
            raise InputError(f"{path}: {name}[{at}]: found {table[tuple(wrong[0])]}, expected a finite number")
    _check_labels(b, kind, lambda j: f"{path}: b[{j}]")
    return Shard(np.ascontiguousarray(A), np.ascontiguousarray(b))


def read_libsvm(path: Path, kind: Kind, *, features: int | None = None, first_index: int | None = None) -> Shard:
    """LIBSVM text, plain or packed by gzip or bzip2: `label index:value ...`, indices ascending, `#` begins a comment."""
    labels, indices, values, ends = array("d"), array("q"), array("d"), array("q", [0])
    places: list[str] = []
    for where, line in _lines(path):
        words = line.split(b"#", 1)[0].split()
        if not words:
            continue
        labels.append(_number(words[0], where, "label"))
        last = -1
        for word in words[1:]:
            index, colon, value = word.partition(b":")
            if not (colon and index.isdigit() and len(index) < 10):
                raise InputError(f"{where}: found {_shown(word)}, expected index:value")
            if (k := int(index)) <= last:
                raise InputError(f"{where}: found index {k} after {last}, expected ascending indices")
            last = k
            indices.append(k)
            values.append(_number(value, where, "value"))
        ends.append(len(indices))
        places.append(where)
    if not places:
        raise InputError(f"{path}: found no rows, expected LIBSVM text")
    column, row = np.array(indices, dtype=np.int64), np.repeat(np.arange(len(places)), np.diff(ends))
    first = first_index if first_index is not None else int(np.min(column, initial=1) > 0)
    width = features or max(int(np.max(column, initial=0)) - first + 1, 1)
    column -= first
    for wrong in np.flatnonzero((column < 0) | (column >= width))[:1].tolist():
        expected = f"an index of {first}..{width + first - 1}"
        raise InputError(f"{places[row[wrong]]}: found index {column[wrong] + first}, expected {expected}")
    if len(places) * width > LARGEST_TABLE:
        raise InputError(
            f"{path}: found {len(places)} rows of {width} columns, expected at most {LARGEST_TABLE} numbers"
        )
    b = np.array(labels)
    _check_labels(b, kind, places.__getitem__)
    A = np.zeros((len(places), width))
    A[row, column] = values
    return Shard(A, b)


def read_csv(path: Path, kind: Kind, *, label: str | int = -1) -> Shard:
    """Numbers separated by commas, a row a line, perhaps under a line of column names; plain, gzip or bzip2."""
    names: list[str] | None = None
    width = 0
    numbers, places = array("d"), []
    for where, line in _lines(path):
        fields = [part.strip() for part in line.split(b",")]
        if fields == [b""]:
            continue
        if not width:
            width = len(fields)
            if any(_parsed(part) is None for part in fields):
                names = [part.decode("utf-8", "replace").strip('"') for part in fields]
                continue
        if len(fields) != width:
            raise InputError(f"{where}: found {len(fields)} fields, expected {width} as in the first line")
        numbers.extend(_number(part, where, "field") for part in fields)
        places.append(where)
        if len(numbers) > LARGEST_TABLE:
            raise InputError(f"{where}: found more than {LARGEST_TABLE} numbers, expected at most as many")
    if not places or width < 2:
        raise InputError(f"{path}: found {len(places)} rows of {width} columns, expected rows of a label and features")
    table = np.array(numbers).reshape(len(places), width)
    at = _column(path, label, names, width)
    b = table[:, at].copy()
    _check_labels(b, kind, places.__getitem__)
    return Shard(np.delete(table, at, axis=1), b)


def _column(path: Path, label: str | int, names: list[str] | None, width: int) -> int:
    if isinstance(label, str):
        if names is None or names.count(label) != 1:
            known = ", ".join(names or [])[:80] or "no column names"
            raise InputError(f"{path}: found {known}, expected one column named {label!r}")
        return names.index(label)
    if not -width <= label < width:
        raise InputError(f"{path}: found {width} columns, expected a column {label}")
    return label % width


def _check_labels(b: Vector, kind: Kind, place: Callable[[int], str]) -> None:
    if kind == "logistic":
        wrong, expected = np.abs(b) != 1, "-1 or 1 (logistic)"
    else:
        wrong = (kind == "softmax") & ((b < 0) | (b != np.floor(b)) | (b >= 10_000))
        expected = "a class, 0 to 9999 (softmax)"
    for j in np.flatnonzero(wrong)[:1].tolist():
        raise InputError(f"{place(j)}: found label {b[j]:g}, expected {expected}")


def _lines(path: Path) -> Iterator[tuple[str, bytes]]:
    """(file:line, text) of every line, unpacked."""
    try:
        with open(path, "rb") as raw:
            start = raw.read(3)
            raw.seek(0)
            opened: Any = nullcontext(raw)
            if start[:2] == b"\x1f\x8b":
                opened = gzip.GzipFile(fileobj=raw)
            elif start == b"BZh":
                opened = bz2.BZ2File(raw)
            with opened as file:
                content = file.read(LARGEST_FILE + 1)
    except (EOFError, zlib.error) as error:
        raise InputError(f"{path}: {error}, expected a whole packed file") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}, expected a readable file") from None
    if len(content) > LARGEST_FILE:
        raise InputError(f"{path}: found more than {LARGEST_FILE} bytes, expected at most as many")
    lines = content.split(b"\n")
    if not lines[-1]:
        lines.pop()
    for number, line in enumerate(lines, 1):
        yield f"{path}:{number}", line


def _parsed(text: bytes) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return None if b"_" in text else number  # Python's, but nobody else's


def _number(text: bytes, where: str, what: str) -> float:
    number = _parsed(text)
    if number is None or not isfinite(number):
        raise InputError(f"{where}: found {what} {_shown(text)}, expected a finite number")
    return number


def _shown(text: bytes) -> str:
    shown = ascii(text.decode("latin-1"))
    return shown if len(shown) <= 40 else shown[:37] + "..."


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
