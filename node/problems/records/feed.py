"""A device's rows from the programs of its site: an archive, a table, or lines that are appended one by one."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.problems.losses import LARGEST, settled
from hushgrid.node.problems.feed import Part, Readings, Slot, Times, Values, document_of, number_of, value_at
from hushgrid.node.problems.kind import DeviceFile
from hushgrid.node.problems.masking import masks_of
from hushgrid.node.problems.records.device import Rows, rows_of
from hushgrid.node.problems.records.files import archive_of, shard_of

PACKED = b"PK"  #: the first bytes of an archive


class RowsFeed:
    """`values["A"]` (m, q) and `values["b"]` (m,). m and q are public: those of the rows that `data` names, for ever.

    Each row is a reading of its own. Whatever is read goes behind what is there, and the last m rows count.
    """

    most = 1 << 28
    days = 0
    names: Sequence[str] = ()

    def __init__(self, owner: DeviceFile, path: str) -> None:
        """Reads the rows that the device's file names. Raises InputError if it is wrong, or they are."""
        self.node, self.labels, self.problem = owner.node, owner.labels, owner.problem
        self.rows_named = rows_of(owner.node, Path(owner.data), owner.labels, owner.problem).shard
        self.m, self.q = self.rows_named.A.shape
        self.rows, self.nothing = self.m, {"A": np.zeros((0, self.q)), "b": np.zeros(0)}
        self.masks = masks_of(owner)
        source = owner.source
        bounds = source.bounds.features if source and source.bounds else None
        self.low, self.high = bounds or (-LARGEST, LARGEST)
        self.path = source.mqtt.path if source and source.mqtt and isinstance(source.mqtt.path, str) else None

    @property
    def declared(self) -> Values:
        return self._bounded(self.rows_named.A, self.rows_named.b)

    def first(self, now: float) -> Readings | None:
        """The rows that the device's file names, read now: they are as private as any."""
        return Readings(self.declared, np.full(self.m, now), np.full(self.m, np.inf), self.m)

    def read(self, content: bytes, place: str) -> Part:
        if content[:2] == PACKED:
            return self._archive(content, place)
        # A last line without its end is still being written.
        lines = [(n, line) for n, line in enumerate(content.split(b"\n")[:-1], 1) if line.strip()]
        table, places, wrong = [], [], ""
        for n, line in lines[_has_names(lines) :]:
            try:
                table.append(self._row(line, f"{place}:{n}"))
                places.append(n)
            except InputError as error:
                wrong = wrong or str(error)
        rows = np.array(table, dtype=np.float64).reshape(len(table), self.q + 1)
        return Part(
            self._bounded(rows[:, :-1], rows[:, -1]), np.array(places, np.int64), lines[-1][0] if lines else 0, wrong
        )

    def _archive(self, content: bytes, place: str) -> Part:
        A, b = archive_of(io.BytesIO(content), place)
        if (
            not all(table.dtype.kind in "fiub" for table in (A, b))
            or A.ndim != 2
            or A.shape[1] != self.q
            or b.shape != A.shape[:1]
        ):
            raise InputError(f"{place}: found other rows, expected {self.q} features and a label each, all numbers")
        A, b = np.asarray(A, dtype=np.float64), np.asarray(b, dtype=np.float64)
        complete = ~(np.isnan(A).any(axis=1) | np.isnan(b))
        wrong = (
            "" if complete.all() else f"{place}: row {np.flatnonzero(~complete)[0] + 1}: found no number, expected one"
        )
        return Part(self._bounded(A[complete], b[complete]), np.flatnonzero(complete) + 1, len(b), wrong)

    def merged(self, before: Readings | None, values: Values, read: Times, until: Times) -> Readings:
        assert before is not None  # `first` has rows
        k = len(values["b"])
        joined = {name: np.concatenate([before.values[name], values[name]])[-self.m :] for name in ("A", "b")}
        since, till = (
            np.concatenate([old, np.broadcast_to(new, k)])[-self.m :]
            for old, new in ((before.read, read), (before.until, until))
        )
        return Readings(joined, since, till, before.number + k)

    def slots(self, topic: str) -> Mapping[str, Slot]:
        return {topic: ()}

    def receive(self, slot: Slot, document: object, place: str) -> Part:
        row = np.array([self._numbers(value_at(document, self.path, place), place)])
        return Part(self._bounded(row[:, :-1], row[:, -1]), np.ones(1, np.int64), 1)

    @property
    def public(self) -> Rows:
        return Rows(self.node, self.rows_named, self.labels, self.problem, self.masks)

    def device(self, values: Values, until: Times | None = None) -> Rows:
        shard = shard_of(values["A"], values["b"], "least-squares", self.node)
        rows = Rows(self.node, shard, self.labels, self.problem, self.masks)
        rows.until = until
        return rows

    def values_of(self, device: Rows) -> Values:
        A, b = device.shard
        if A.shape != (self.m, self.q):
            now, at_start = (f"{m} rows of {q}" for m, q in ((self.m, self.q), A.shape))
            raise InputError(f"data: found {now}, expected {at_start} as at the start")
        return self._bounded(A, b)

    def _row(self, line: bytes, place: str) -> list[float]:
        """The features and the label of a line: JSON, or numbers with commas between them."""
        if line.lstrip()[:1] in (b"[", b"{"):
            return self._numbers(document_of(line, place), place)
        return self._numbers(line.decode("utf-8", "replace").split(","), place)

    def _numbers(self, row: object, place: str) -> list[float]:
        """[a, ..., b], or {a: [...], b: ...}."""
        if isinstance(row, dict) and isinstance(row.get("a"), list):
            row = [*row["a"], row.get("b")]
        if not isinstance(row, list) or len(row) != self.q + 1:
            raise InputError(f"{place}: found another row, expected {self.q} features and a label")
        return [number_of(entry, place) for entry in row]

    def _bounded(self, A: ArrayLike, b: ArrayLike) -> Values:
        return {"A": settled(np.clip(A, self.low, self.high)), "b": settled(np.clip(b, -LARGEST, LARGEST))}


def _has_names(lines: Sequence[tuple[int, bytes]]) -> bool:
    """Whether the first line has the columns' names: it has letters, and begins no document."""
    first = lines[0][1].lstrip() if lines else b"0"
    return first[:1] not in (b"[", b"{") and first[:1].isalpha() and not first.lower().startswith((b"inf", b"nan"))
