"""What `hushgrid run` records during a run and reads back when it is over: one recorder a pattern.

A row is written after the commit to which it belongs. It may be written several times: a node that was killed writes it
again. A row is a function of gate answers, except its noise cell, which is written only if the run may reveal it.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Protocol

import numpy as np

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.types import DocumentView, Vector
from hushgrid.node.problems.plan import RunPlan
from hushgrid.node.runtime.driver import Driver

Widths = Mapping[str, int]  #: the length of each vector of a row, by its name, in the order of the row


class Observer(Protocol):
    """Simulation's trace of one node, called by its driver after each commit.

    `fresh`: whether a step was just committed; False: a stored state was restored.
    """

    def __call__(self, driver: Driver, fresh: bool) -> None: ...
    def close(self) -> None: ...


class Nothing:
    """The observer of a coordinator that sees no iterate: it records nothing."""

    def __call__(self, driver: Driver, fresh: bool) -> None: ...
    def close(self) -> None: ...


@dataclass(kw_only=True)
class Recorded:
    """What the traces of a run hold, for n nodes and T rows of history."""

    rounds_done: int  #: rounds; if a token walks, activations, of which a row is a block
    x: Vector  #: (d,) the common iterate at the end
    common: np.ndarray  #: (T, d) the common iterate after each row
    own_iterates: Mapping[
        str, np.ndarray
    ]  #: by node: (T, n_p) its own iterate after each row, or (1, n_p) at the end only
    residual: list[float | None]  #: (T,) the consensus residual
    noise: Sequence[float | None]  #: (T,) sum of |noise| as drawn; None if it is not known or not revealed
    answers: np.ndarray  #: (T, n) answers of each gate so far, at most the cap
    messages: Sequence[float | int | None]  #: (T,) messages so far
    bytes: Sequence[float | int | None]  #: (T,) their bytes so far
    total_messages: int
    total_bytes: int
    capped: list[str]  #: names of the nodes that reached their cap
    trajectory: dict[str, np.ndarray]  #: arrays of trajectory.npz, by name
    solution: Mapping[str, np.ndarray] = field(default_factory=dict)  #: further arrays of solution.npz, by name
    extras: DocumentView = field(default_factory=dict)  #: what only this pattern gives, by name
    #: By name, (T,) each: what the coordinator has measured of each round, as the algorithm declares it.
    figures: Mapping[str, list[float]] = field(default_factory=dict)


@dataclass(kw_only=True)
class Shape:
    """What a recorder must know of a problem to read a run back."""

    size: int  #: d, the length of the common iterate
    own_sizes: Mapping[str, int] = field(default_factory=dict)  #: star: n_p, the length of a member's own iterate
    shared: Mapping[str, np.ndarray] = field(default_factory=dict)  #: star: (m_p,) where z_p has the shared entries
    position: Mapping[str, np.ndarray] = field(default_factory=dict)  #: star: (m_p,) where w has them


class Recorder(Protocol):
    """What the recorder module of a pattern offers."""

    def widths(self, plan: RunPlan, shape: Shape, name: str) -> Widths:
        """The vectors that are recorded of a node or of the coordinator, as the algorithm declares them."""
        ...

    def observer(self, plan: RunPlan, name: str, place: Path, reveal: bool, widths: Widths, behind: int) -> Observer:
        """The trace of a node or of the coordinator, in the directory `place`. `reveal`: whether noise is recorded.

        behind: as of `Cells`.
        """
        ...

    def recorded(self, plan: RunPlan, shape: Shape, over: Over, reveal: bool) -> Recorded:
        """The run, read back from its traces."""
        ...


@dataclass(kw_only=True)
class Over:
    """A run that is over: where the traces are, what was sent, and the coordinator's last state."""

    trace: Path  #: directory of the traces
    travelled: list[tuple[int, float, int, int]]  #: (round, residual, messages so far, bytes so far)
    centre: bytes | None  #: the coordinator's stored state


def recorder(plan: RunPlan) -> Recorder:
    """The recorder of the plan's pattern: the module of this folder that has the pattern's name."""
    return import_module(f"{__package__}.{plan.algorithm.pattern}")


def declared(widths: Widths, algorithm: str, vectors: Mapping[str, Vector | None]) -> Vector:
    """The vectors of a row, concatenated. Raises InputError if one is missing, or has another length than declared.

    A row of another width would be read back as nothing, or as other numbers.
    """
    row = []
    for key, size in widths.items():
        vector = vectors.get(key)
        if vector is None or vector.shape != (size,):
            what = "none" if vector is None else f"{vector.size} numbers"
            raise InputError(
                f"algorithm {algorithm}: {key}: found {what} in a node's state, "
                f"expected a vector of {size}, as declared"
            )
        row.append(vector)
    return row[0] if len(row) == 1 else np.concatenate(row)


def own_of(state: object, widths: Widths) -> dict[str, Vector | None]:
    """The vectors of a machine's state that are recorded, by name; None for one that is missing."""
    return {key: getattr(state, key, None) for key in widths}


CELL = np.dtype("<f8")


class Cells:
    """A file of float64 cells. `behind`: bytes that may wait to be written, where no process can be killed alone."""

    def __init__(self, path: Path, behind: int) -> None:
        self.behind = behind
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._first, self._waiting = 0, bytearray()  #: where the bytes that wait begin; these

    def write(self, first: int, cells: Vector) -> None:
        """Writes the cells `first` and following; wide ones from where they are, without a copy."""
        cells = np.ascontiguousarray(cells, CELL)
        if cells.nbytes > self.behind:
            self._flush()
            if cells.size:
                os.pwrite(self._handle, cells.data, 8 * first)
            return
        if 8 * first != self._first + len(self._waiting):
            self._flush()
            self._first = 8 * first
        self._waiting += cells.data
        if len(self._waiting) > self.behind:
            self._flush()

    def written(self, cell: int) -> bool:
        """Whether anything but zero stands there."""
        self._flush()
        return bool(os.pread(self._handle, 8, 8 * cell).strip(b"\0"))

    def _flush(self) -> None:
        if self._waiting:
            os.pwrite(self._handle, self._waiting, self._first)
            self._first += len(self._waiting)
            self._waiting = bytearray()

    def close(self) -> None:
        self._flush()
        os.close(self._handle)


class Trace:
    """A node's rows, one a round, in a file of float64. The node's driver calls it after each commit."""

    def __init__(self, directory: Path, node: str, behind: int) -> None:
        self._cells = Cells(path_of(directory, node), behind)

    def write(self, t: int, row: Vector, width: int, first: int = 0) -> None:
        """Writes cells `first` and following of row t (from 1); a row has `width` cells."""
        self._cells.write((t - 1) * width + first, row)

    def __call__(self, driver: Driver, fresh: bool) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self._cells.close()


MAPPED = 1 << 20  #: numbers of a file from which on it is mapped, and not read into memory


def read(path: Path, start: int, count: int) -> Vector:
    """So many numbers of a file, from the number `start` on, or those that it has. Raises FileNotFoundError."""
    there = min(max(path.stat().st_size // 8 - start, 0), count)
    if there < MAPPED:
        return np.fromfile(path, "<f8", there, offset=8 * start)
    return np.memmap(path, "<f8", "r", 8 * start, there)


def room(place: Path, rows: int, width: int) -> np.ndarray:
    """An array of this shape to be filled in; a large one in a file of its own."""
    if rows * width < MAPPED:
        return np.empty((rows, width))
    return np.memmap(place / f"room-{secrets.token_hex(4)}", "<f8", "w+", shape=(rows, width))


def finite(value: float) -> float | None:
    """The value, or None if it is not finite."""
    return float(value) if np.isfinite(value) else None


def path_of(directory: Path, node: str) -> Path:
    """The file of a node's trace."""
    return directory / f"{node}.trace"
