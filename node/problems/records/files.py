"""Files of rows as their owners have them: NumPy archives, LIBSVM text, CSV. What is read is finite and labelled right.

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
from typing import IO, Any, NamedTuple

import numpy as np

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.problems.losses import Kind
from hushgrid.kernels.types import AnyArray, Matrix, Vector

LARGEST_FILE = 2**30  #: bytes, unpacked
LARGEST_TABLE = 2**27  #: numbers of A: 1 GB
KNOWN = 2**14  #: different words `index:value` of a file that are kept once read


class Shard(NamedTuple):
    """One node's rows."""

    A: Matrix  #: (m, q)
    b: Vector  #: (m,)


class RecordTable(NamedTuple):
    """The rows of a file with the names of its columns, if it has any."""

    A: Matrix  #: (m, q)
    b: Vector  #: (m,)
    features: tuple[str, ...] = ()  #: a name for each column of A


def read_npz(path: Path, kind: Kind) -> Shard:
    """A (m, q) and b (m,) of a NumPy archive; nothing in it is executed."""
    return shard_of(*archive_of(path, str(path)), kind, str(path))


def archive_of(file: Path | IO[bytes], path: str) -> tuple[AnyArray, AnyArray]:
    """A and b of a NumPy archive as they stand there. `path`: its name in error lines.

    Raises InputError if it is no such archive, or too large.
    """
    arrays: dict[str, AnyArray] = {}
    try:
        with zipfile.ZipFile(file) as archive:
            size = sum(info.file_size for info in archive.infolist() if info.filename in ("A.npy", "b.npy"))
            if size > LARGEST_FILE:
                raise InputError(f"{path}: found {size} bytes unpacked, expected at most {LARGEST_FILE}")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for name in ("A", "b"):
                    with archive.open(f"{name}.npy") as part:
                        arrays[name] = np.lib.format.read_array(io.BytesIO(part.read(size + 1)), allow_pickle=False)
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}, expected a NumPy archive (.npz)") from None
    except Exception as error:  # of a dozen kinds, by what is broken: zip, compression, header, length
        raise InputError(
            f"{path}: {str(error)[:120] or type(error).__name__}, expected a NumPy archive of A and b"
        ) from None
    return arrays["A"], arrays["b"]


def shard_of(A: AnyArray, b: AnyArray, kind: Kind, place: str) -> Shard:
    """A (m, q) and b (m,) as rows. Raises InputError, which names `place`, if they are no finite rows and labels."""
    for name, table in (("A", A), ("b", b)):
        if table.dtype.kind not in "fiub":
            raise InputError(f"{place}: {name}: found type {table.dtype}, expected numbers")
    A, b = np.asarray(A, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if A.ndim != 2 or not A.size or b.shape != A.shape[:1]:
        raise InputError(f"{place}: found A {A.shape} and b {b.shape}, expected (m, q) and (m,), m and q > 0")
    for name, table in (("A", A), ("b", b)):
        if (wrong := np.argwhere(~np.isfinite(table))).size:
            index = ", ".join(map(str, wrong[0].tolist()))
            raise InputError(f"{place}: {name}[{index}]: found {table[tuple(wrong[0])]}, expected a finite number")
    _check_labels(b, kind, lambda j: f"{place}: b[{j}]")
    return Shard(np.ascontiguousarray(A), np.ascontiguousarray(b))


def check_widths(places: Sequence[str], shards: Sequence[Shard], what: str) -> None:
    """Raises InputError unless all nodes' rows are of one width; `places`: where they are from."""
    width = shards[0].A.shape[1]
    for place, shard in zip(places, shards, strict=True):
        if shard.A.shape[1] != width:
            raise InputError(f"{place}: A: found {shard.A.shape[1]} columns, expected {width} as the first {what}")


def read_libsvm(path: Path, kind: Kind, *, features: int | None = None, first_index: int | None = None) -> Shard:
    """LIBSVM text, plain or packed by gzip or bzip2: `label index:value ...`, indices ascending,
    `#` begins a comment.
    """
    labels, indices, values, ends = array("d"), array("q"), array("d"), array("q", [0])
    places: list[str] = []
    known: dict[bytes, tuple[int, float]] = {}  # classes are coded by a few words that stand in every line
    for where, line in lines_of(path):
        fields = line.split(b"#", 1)[0].split()
        if not fields:
            continue
        labels.append(_number(fields[0], where, "label"))
        last = -1
        for word in fields[1:]:
            if (entry := known.get(word)) is None or entry[0] <= last:
                entry = _entry(word, last, where)
                if len(known) < KNOWN:
                    known[word] = entry
            last, value = entry
            indices.append(last)
            values.append(value)
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


def _entry(word: bytes, last: int, where: str) -> tuple[int, float]:
    """index:value, the index after `last`."""
    index, colon, value = word.partition(b":")
    if not (colon and index.isdigit() and len(index) < 10):
        raise InputError(f"{where}: found {printable(word)}, expected index:value")
    if (k := int(index)) <= last:
        raise InputError(f"{where}: found index {k} after {last}, expected ascending indices")
    return k, _number(value, where, "value")


def read_csv(path: Path, kind: Kind, *, label: str | int = -1, header: bool | None = None) -> RecordTable:
    """Numbers separated by commas, a row a line; plain, gzip or bzip2.

    `header`: whether the first line has the columns' names. None: it does if no field of it is a number, so that a row
    in which something is missing is an error, and never lost as a header. Raises InputError if a line is no row.
    """
    names: list[str] = []
    width = 0
    numbers, places = array("d"), []
    for where, line in lines_of(path):
        fields = [part.strip() for part in line.split(b",")]
        if fields == [b""]:
            continue
        first, width = not width, width or len(fields)
        if len(fields) != width:
            raise InputError(f"{where}: found {len(fields)} fields, expected {width} as in the first line")
        parsed = [_parsed(part) for part in fields]
        if first and (all(number is None for number in parsed) if header is None else header):
            names = [part.decode("utf-8", "replace").strip('"') for part in fields]
            continue
        for k, number in enumerate(parsed):
            if number is None or not isfinite(number):
                column = f"column {k}" + (f" ({names[k]!a:.60})" if names else "")
                known = " (if the line has the columns' names, data.header: true)" if first and header is None else ""
                raise InputError(f"{where}: {column}: found {printable(fields[k])}, expected a finite number{known}")
        numbers.extend(number for number in parsed if number is not None)
        places.append(where)
        if len(numbers) > LARGEST_TABLE:
            raise InputError(f"{where}: found more than {LARGEST_TABLE} numbers, expected at most as many")
    if not places or width < 2:
        raise InputError(f"{path}: found {len(places)} rows of {width} columns, expected rows of a label and features")
    table = np.array(numbers).reshape(len(places), width)
    position = _column(path, label, names, width)
    b = table[:, position].copy()
    _check_labels(b, kind, places.__getitem__)
    return RecordTable(np.delete(table, position, axis=1), b, tuple(names[:position] + names[position + 1 :]))


def _column(path: Path, label: str | int, names: list[str], width: int) -> int:
    if isinstance(label, str):
        if names.count(label) != 1:
            known = ", ".join(names)[:80] or "no column names"
            raise InputError(f"{path}: found {known}, expected one column named {label!r}")
        return names.index(label)
    if not -width <= label < width:
        raise InputError(f"{path}: found {width} columns, expected a column {label}")
    return label % width


def _check_labels(b: Vector, kind: Kind, place: Callable[[int], str]) -> None:
    if kind == "logistic":
        wrong, expected = np.abs(b) != 1, "-1 or 1 (logistic)"
        if not np.any(b == -1):
            wrong, expected = wrong & (b != 0), "-1 or 1, or 0 or 1 (logistic)"
    else:
        wrong = (kind == "softmax") & ((b < 0) | (b != np.floor(b)) | (b >= 10_000))
        expected = "a class, 0 to 9999 (softmax)"
    for j in np.flatnonzero(wrong)[:1].tolist():
        raise InputError(f"{place(j)}: found label {b[j]:g}, expected {expected}")


def unpacked(path: Path) -> bytes:
    """What a file holds, unpacked if it is packed by gzip or bzip2. Raises InputError if it is wrong."""
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
    return bytes(content)


def lines_of(path: Path) -> Iterator[tuple[str, bytes]]:
    """(file:line, text) of every line, unpacked."""
    lines = unpacked(path).removeprefix(b"\xef\xbb\xbf").split(b"\n")  # a UTF-8 byte-order mark is no part of the text
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
        raise InputError(f"{where}: found {what} {printable(text)}, expected a finite number")
    return number


def printable(text: bytes) -> str:
    """What a line of an error may show of a file: at most 40 characters, all of them ASCII."""
    printed = ascii(text.decode("latin-1"))
    return printed if len(printed) <= 40 else printed[:37] + "..."
