"""Rows that a caller has in a data frame or in arrays, and the scenario that is made around them if there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.types import AnyArray, Document, DocumentView, Matrix, Vector
from hushgrid.node.problems.records.data import Arrays, even

if TYPE_CHECKING:
    from pandas import DataFrame

Ranges = Mapping[str, tuple[float, float]]  #: column -> (lowest, highest), public
#: Keys by which a caller says how long a row is at most; the columns are then taken as they are.
BOUNDS = ("problem.row_bound", "problem.data.normalize")
ROUNDS = {False: 500, True: 30}  #: by whether the run is private: each round's noise grows with their number


class Table(NamedTuple):
    """All rows before they go to the nodes."""

    A: Matrix  #: (m, q)
    b: Vector  #: (m,)
    columns: tuple[str, ...]  #: of A, (q,)
    label: str  #: the column that b is
    classes: bool  #: the label is of type bool
    owners: AnyArray | None = None  #: (m,) whose row each is; None: the rows are dealt evenly

    def nodes(self, number: int | None) -> int:
        """How many nodes the rows are for. Raises InputError if nothing says it, or there are fewer rows."""
        if self.owners is not None:
            return len(np.unique(self.owners))
        if number is None:
            raise InputError("nodes: missing, expected the number of nodes, or the column that names each row's node")
        if not 0 < number <= len(self.b):
            raise InputError(f"nodes: found {number} for {len(self.b)} rows, expected 1 to {len(self.b)}")
        return number

    def dealt(self, nodes: int, notes: tuple[str, ...] = ()) -> Arrays:
        """The rows of every node, named as the columns are."""
        if self.owners is None:
            each = even(len(self.b), nodes)
        else:
            names = np.unique(self.owners)
            each = [np.flatnonzero(self.owners == name) for name in names]
            notes = (*notes, f"nodes in order: {', '.join(map(str, names[:20]))}{', ...' * (nodes > 20)}")
        return Arrays([(self.A[rows], self.b[rows]) for rows in each], self.columns, notes)


def table_of_frame(frame: DataFrame, label: str | None, nodes: int | str | None) -> Table:
    """The columns of a frame: features, label and, if `nodes` is a column, the node of each row. Raises InputError."""
    columns = list(frame.columns)
    owners = nodes if isinstance(nodes, str) else None
    for what, name in (("label", label), ("nodes", owners)):
        if (name is not None or what == "label") and name not in columns:
            raise InputError(f"{what}: found {name!r}, expected a column of the frame: {', '.join(map(str, columns))}")
    features = [name for name in columns if name not in (label, owners)]
    if not features:
        raise InputError(f"frame: found no column beside {label}, expected at least one feature")
    b = np.asarray(frame[label])
    A = np.column_stack([_numbers(name, np.asarray(frame[name])) for name in features])
    whose = None if owners is None else np.asarray(frame[owners])
    return Table(A, _numbers(label, b), tuple(map(str, features)), str(label), b.dtype == bool, whose)


def table_of_arrays(rows: ArrayLike, labels: ArrayLike | None) -> Table:
    """rows (m, q) and labels (m,); the columns are called x0, x1, ... and label. Raises InputError."""
    A, b = np.asarray(rows), np.asarray(labels)
    if A.ndim != 2 or not A.size or b.shape != A.shape[:1]:
        raise InputError(f"rows: found shapes {A.shape} and labels {b.shape}, expected (m, q) and (m,)")
    names = tuple(f"x{k}" for k in range(A.shape[1]))
    return Table(_numbers("rows", A), _numbers("labels", b), names, "label", b.dtype == bool)


def _numbers(name: object, values: AnyArray) -> NDArray[np.float64]:
    if values.dtype.kind not in "fiub":
        raise InputError(f"column {name}: found {values.dtype}, expected numbers or booleans (encode text first)")
    numbers = values.astype(np.float64)
    if not np.all(np.isfinite(numbers)):
        raise InputError(f"column {name}: found an empty cell or infinity, expected numbers in every row")
    return numbers


def is_private(over: DocumentView) -> bool:
    """Whether a caller's keys ask for privacy."""
    return any(key.split(".")[0] == "privacy" for key in over)


def scenario_around(table: Table, nodes: int, ranges: Ranges | None, over: DocumentView) -> tuple[Document, Table, str]:
    """The scenario of rows that come without one, the rows as it takes them, and what was done to them, in words.

    `over`: the caller's keys. A key below `privacy` makes the run private: then the ranges of columns, or a bound on
    the rows, must be the caller's, because a range taken from the data would tell of them. Raises InputError.
    """
    private = is_private(over)
    bounded = any(key in over for key in BOUNDS)
    if private and ranges is None and not bounded:
        raise InputError(
            "ranges: found none in a private run, expected the public range of each column, {column: (low, high)}, or "
            "problem.row_bound in set= (what is taken from the data is not public)"
        )
    if ranges is not None and bounded:
        raise InputError("ranges: found beside problem.row_bound or problem.data.normalize, expected one of them")
    known = dict(ranges or {}) if private or bounded else _measured(table) | dict(ranges or {})
    kind = over.get("problem.kind") or _kind(table, private, table.label in (ranges or {}))
    done = "columns are taken as they are"
    if not bounded:
        table = _scaled(table, known, kind == "least-squares")
        done = f"columns are scaled from their ranges to -1..1, with a constant, over sqrt({len(table.columns)})"
    problem = {"kind": kind, "l2": 0.001} | ({} if bounded else {"row_bound": 1.0})
    algorithm = {"name": "nids", "rounds": ROUNDS[private], "step_size": {"logistic": 4.0}.get(kind, 1.0)}
    raw = {
        "hushgrid": 1,
        "name": "rows",
        "problem": problem,
        "network": {"kind": "ring" if nodes > 2 else "path", "nodes": nodes},
        "algorithm": algorithm | ({} if private else {"variant": "none"}),
    }
    if private:
        clip = 0.75 if kind == "logistic" else 1.0  # as `hushgrid init` writes it
        raw["privacy"] = {"mechanism": "gaussian", "delta": 1e-5, "adjacency": {"replace-one-record": {"clip": clip}}}
    return raw, table, done


def _kind(table: Table, private: bool, ranged: bool) -> str:
    """What the labels are: two classes if their type or, in a run that hides nothing, their values say so.

    `ranged`: the caller says a range of the label, which is then a number.
    """
    two = private or table.classes or set(np.unique(table.b).tolist()) in ({0.0, 1.0}, {-1.0, 1.0})
    return "logistic" if two and not ranged else "least-squares"


def _measured(table: Table) -> dict[str, tuple[float, float]]:
    """The ranges of the columns as the rows have them: of a run that hides nothing."""
    columns = zip((*table.columns, table.label), [*table.A.T, table.b], strict=True)
    return {name: (float(np.min(column)), float(np.max(column))) for name, column in columns}


def _scaled(table: Table, ranges: Ranges, real: bool) -> Table:
    """Each column from its range to -1..1, a constant after the last, every row over sqrt(columns): |a| <= 1."""
    absent = [name for name in (*table.columns, *[table.label] * real) if name not in ranges]
    if absent:
        raise InputError(f"ranges: found none of column {absent[0]}, expected (low, high) of every column")
    scaled = [_to_unit(name, column, ranges[name]) for name, column in zip(table.columns, table.A.T, strict=True)]
    A = np.column_stack([*scaled, np.ones(len(table.b))]) / np.sqrt(len(scaled) + 1)
    b = _to_unit(table.label, table.b, ranges[table.label]) if real else table.b
    return table._replace(A=A, b=b, columns=(*table.columns, "constant"))


def _to_unit(name: str, column: Vector, ends: Sequence[float]) -> Vector:
    try:
        low, high = map(float, ends)
    except (TypeError, ValueError):
        raise InputError(f"ranges: {name}: found {ends!r:.60}, expected (low, high)") from None
    if not low <= high:
        raise InputError(f"ranges: {name}: found {low:g} to {high:g}, expected low <= high")
    return np.clip((column - low) / ((high - low) or 1.0), 0.0, 1.0) * 2.0 - 1.0
