"""A device's rows from the programs of its site: an archive, a table, or lines that are appended one by one."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.problems.losses import LARGEST, settled
from hushgrid.node.problems.feed import Slot, Values, at, document_of, number_of
from hushgrid.node.problems.kind import Owner
from hushgrid.node.problems.masking import masks_of
from hushgrid.node.problems.records.device import Rows, rows_of
from hushgrid.node.problems.records.files import archive_of, shard_of

PACKED = b"PK"  #: the first bytes of an archive


class RowsFeed:
    """`values["A"]` (m, q) and `values["b"]` (m,). m and q are public: those of the rows that `data` names, for ever."""

    most = 1 << 28
    accumulates = True

    def __init__(self, owner: Owner, path: str) -> None:
        """Reads the rows that the device's file names. Raises InputError if it is wrong, or they are."""
        self.node, self.labels, self.problem = owner.node, owner.labels, owner.problem
        self.first = rows_of(owner.node, Path(owner.data), owner.labels, owner.problem).shard
        self.m, self.q = self.first.A.shape
        self.masks = masks_of(owner)
        source = owner.source
        bounds = source.bounds.features if source and source.bounds else None
        self.low, self.high = bounds or (-LARGEST, LARGEST)
        self.path = source.mqtt.path if source and source.mqtt and isinstance(source.mqtt.path, str) else None

    @property
    def declared(self) -> Values | None:
        return self._bounded(self.first.A, self.first.b)

    def read(self, content: bytes, place: str) -> Values:
        if content[:2] == PACKED:
            A, b = archive_of(io.BytesIO(content), place)
        else:  # a last line without its end is still being written
            lines = [(n, line) for n, line in enumerate(content.split(b"\n")[:-1], 1) if line.strip()]
            table = [self._row(line, f"{place}:{n}") for n, line in lines[_has_names(lines) :]]
            rows = np.array(table, dtype=np.float64).reshape(len(table), self.q + 1)
            A, b = rows[:, :-1], rows[:, -1]
        if all(table.dtype.kind in "fiub" for table in (A, b)) and A.ndim == 2 and A.shape[1] == self.q:
            A, b = np.asarray(A, dtype=np.float64), np.asarray(b, dtype=np.float64)
            if b.shape == A.shape[:1] and not (np.isnan(A).any() or np.isnan(b).any()):
                return self._bounded(A, b)
        raise InputError(f"{place}: found other rows, expected {self.q} features and a label each, all numbers")

    def joined(self, parts: Sequence[Values]) -> Values:
        A, b = (np.concatenate([part[name] for part in parts])[-self.m :] for name in ("A", "b"))
        if len(b) < self.m:
            raise InputError(f"found {len(b)} rows, expected {self.m} at least")
        return {"A": A, "b": b}

    def slots(self, topic: str) -> Mapping[str, Slot]:
        return {topic: ()}

    def heard(self, before: Values | None, slot: Slot, document: Any, place: str) -> Values:
        row = np.array([self._numbers(at(document, self.path, place), place)])
        new = self._bounded(row[:, :-1], row[:, -1])
        return self.joined([before or self._bounded(self.first.A, self.first.b), new])

    @property
    def public(self) -> Rows:
        return Rows(self.node, self.first, self.labels, self.problem, self.masks)

    def device(self, values: Values) -> Rows:
        shard = shard_of(values["A"], values["b"], "least-squares", self.node)
        return Rows(self.node, shard, self.labels, self.problem, self.masks)

    def values_of(self, device: Rows) -> Values:
        A, b = device.shard
        if A.shape != (self.m, self.q):
            found, at_start = (f"{m} rows of {q}" for m, q in ((self.m, self.q), A.shape))
            raise InputError(f"data: found {found}, expected {at_start} as at the start")
        return self._bounded(A, b)

    def _row(self, line: bytes, place: str) -> list[float]:
        """The features and the label of a line: JSON, or numbers with commas between them."""
        if line.lstrip()[:1] in (b"[", b"{"):
            return self._numbers(document_of(line, place), place)
        return self._numbers(line.decode("utf-8", "replace").split(","), place)

    def _numbers(self, row: Any, place: str) -> list[float]:
        """[a, ..., b], or {a: [...], b: ...}."""
        if isinstance(row, dict) and isinstance(row.get("a"), list):
            row = [*row["a"], row.get("b")]
        if not isinstance(row, list) or len(row) != self.q + 1:
            raise InputError(f"{place}: found another row, expected {self.q} features and a label")
        return [number_of(entry, place) for entry in row]

    def _bounded(self, A: Any, b: Any) -> Values:
        return {"A": settled(np.clip(A, self.low, self.high)), "b": settled(np.clip(b, -LARGEST, LARGEST))}


def _has_names(lines: Sequence[tuple[int, bytes]]) -> bool:
    """Whether the first line has the columns' names: it has letters, and begins no document."""
    first = lines[0][1].lstrip() if lines else b"0"
    return first[:1] not in (b"[", b"{") and first[:1].isalpha() and not first.lower().startswith((b"inf", b"nan"))
