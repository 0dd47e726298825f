"""Which reading a device has taken when, and until when it counts at the most: for its owner, who may audit it.

`hushgrid audit --events` recounts from it, from the ledger and from what travelled what was told of each reading.
It has no value. A line is JSON: the budget that the device claims to keep, or readings that were taken together.
It is written before any answer is made of them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import isfinite
from pathlib import Path

import msgspec
import numpy as np

from hushgrid.kernels.errors import Stopped
from hushgrid.kernels.types import Document
from hushgrid.node.config.device import DeviceConfig
from hushgrid.node.durable import write_file
from hushgrid.node.problems.feed import Readings
from hushgrid.node.schema.durations import seconds

LARGEST = 4 << 20  #: bytes; beyond them the older half is dropped


class IntakeLog:
    """The file of one device. Raises Stopped if the disk does not take it."""

    def __init__(self, config: DeviceConfig, ledger: bytes, rows: int) -> None:
        """`rows`: that a device holds at once; 0: it has entries. Nothing is written yet."""
        self.path = log_file(config.state, config.node)
        self.ledger, self.rows = ledger, rows
        self.claim(config)
        self._written: Document | None = None

    def claim(self, config: DeviceConfig) -> None:
        """What the device claims from now on."""
        budget, retention = config.budget, config.retention
        self._claim = {
            "node": config.node,
            "ledger": self.ledger.hex(),
            "epsilon": budget.epsilon,
            "delta": budget.delta or 0.0,
            "window": budget.span,
            "adjacency": str(budget.adjacency),
            "retention": None if retention is None else seconds(retention),
            "rows": self.rows,
        }

    def add(self, now: float, readings: Readings, new: np.ndarray, names: Sequence[str]) -> None:
        """Those of the readings that are `new` (k,) count from running time `now` on."""
        lines: list[Document] = [] if self._claim == self._written else [{"claim": self._claim}]
        lines.append({"taken": now})  # always, so that it takes as long if nothing is new
        for read, until in sorted({*zip(readings.read[new].tolist(), readings.until[new].tolist(), strict=True)}):
            which = np.flatnonzero(new & (readings.read == read) & (readings.until == until))
            line: Document = {"taken": now, "read": read, "until": until if isfinite(until) else None}
            if self.rows:
                first = readings.number - self.rows + 1
                line["rows"] = [[first + int(part[0]), first + int(part[-1])] for part in _stretches(which)]
            else:
                line["entries"] = [names[k] for k in which.tolist()]
            lines.append(line)
        self._append(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
        self._written = self._claim

    def _append(self, blob: bytes) -> None:
        try:
            size = self.path.stat().st_size if self.path.exists() else 0
            if size + len(blob) > LARGEST:
                rest = self.path.read_bytes()[size // 2 :].partition(b"\n")[2]
                write_file(self.path, msgspec.json.encode({"claim": self._claim}) + b"\n" + rest, mode=0o600)
            with open(self.path, "ab", opener=_private) as file:
                file.write(blob)
        except OSError as error:
            raise Stopped(f"{self.path}: {error.strerror}, expected to log which readings count") from None


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _stretches(numbers: np.ndarray) -> list[np.ndarray]:
    """Numbers that follow each other, together."""
    return np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1)


def log_file(state: str, node: str) -> Path:
    return Path(state) / f"{node}.readings"
