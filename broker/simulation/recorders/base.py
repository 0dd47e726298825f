"""What `hushgrid run` takes down while a run goes on, and reads back when it is over: one recorder a pattern.

A row is written after the commit it belongs to, any number of times: a node that was killed writes it again. A row is a
function of gate answers, except its noise cell, which is written only if the run may reveal it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.types import Vector
from hushgrid.node.problems.plan import RunPlan
from hushgrid.node.runtime.driver import Driver

Widths = Mapping[str, int]  #: how many numbers each vector of a row has, in their order: what a run is read back by


class Observer(Protocol):
    """Simulation's trace of one node, called by its driver after each commit."""

    def __call__(self, driver: Driver, fresh: bool) -> None: ...
    def close(self) -> None: ...


class Nothing:
    """Of a coordinator that sees no iterate nothing is taken down."""

    def __call__(self, driver: Driver, fresh: bool) -> None: ...
    def close(self) -> None: ...


@dataclass(kw_only=True)
class Recorded:
    """What the traces of a run hold, n nodes and T rows of the history."""

    rounds_done: int  #: rounds; activations, of which a row is a block, where a token walks
    x: Vector  #: (d,) the common iterate at the end
    common: np.ndarray  #: (T, d) the common iterate after each row
    own: Mapping[str, np.ndarray]  #: node: (T, n_p) its own iterate after each row, or (1, n_p) at the end alone
    residual: list[float | None]  #: (T,) the consensus residual
    noise: Sequence[float | None]  #: (T,) sum of |noise| as drawn; None where it is not known, or not revealed
    answers: np.ndarray  #: (T, n) of the gates so far, at most the cap
    messages: Sequence[float | int | None]  #: (T,)
    bytes: Sequence[float | int | None]  #: (T,)
    total_messages: int
    total_bytes: int
    capped: list[str]  #: nodes whose cap was reached
    trajectory: dict[str, np.ndarray]
    told: Mapping[str, Any] = field(default_factory=dict)  #: of the pattern alone
    #: (T,) each: what the coordinator has measured of each round, as the algorithm declares it.
    figures: Mapping[str, list[float]] = field(default_factory=dict)


@dataclass(kw_only=True)
class Shape:
    """What a recorder must know of a problem to read a run back."""

    size: int  #: d, of the common iterate
    own: Mapping[str, int] = field(default_factory=dict)  #: star: n_p, of a member's own iterate
    shared: Mapping[str, np.ndarray] = field(default_factory=dict)  #: star: where z_p has the entries that p shares
    position: Mapping[str, np.ndarray] = field(default_factory=dict)  #: star: where w has them


class Recorder(Protocol):
    """A pattern's module."""

    def widths(self, plan: RunPlan, shape: Shape, name: str) -> Widths:
        """The vectors that are written of a node or of the coordinator, as the algorithm declares them."""
        ...

    def observer(self, plan: RunPlan, name: str, place: Path, reveal: bool, widths: Widths) -> Observer:
        """The trace of a node or of the coordinator, in the directory `place`."""
        ...

    def recorded(self, plan: RunPlan, shape: Shape, over: Over, reveal: bool) -> Recorded:
        """What the run has left."""
        ...


@dataclass(kw_only=True)
class Over:
    """A run that is over: where the traces are, what travelled, and the coordinator's last state."""

    trace: Path
    travelled: list[tuple[int, float, int, int]]  #: (round, residual, messages, bytes) so far
    centre: bytes | None


def recorder(plan: RunPlan) -> Recorder:
    """Of the plan's pattern: the module of this folder that is called like it."""
    found: Any = import_module(f"{__package__}.{plan.algorithm.pattern}")
    return found  # type: ignore[no-any-return]


def declared(widths: Widths, algorithm: str, found: Mapping[str, Vector | None]) -> Vector:
    """The vectors of a row behind each other. Raises InputError if one is not there, or not as long as it is declared.

    Rows of another width would be read back as nothing, or as other numbers.
    """
    row = []
    for key, size in widths.items():
        vector = found.get(key)
        if vector is None or vector.shape != (size,):
            what = "none" if vector is None else f"{vector.size} numbers"
            raise InputError(
                f"algorithm {algorithm}: {key}: found {what} in a node's state, expected a vector of {size}, as declared"
            )
        row.append(vector)
    return np.concatenate(row)


def own_of(state: Any, widths: Widths) -> dict[str, Vector | None]:
    """The vectors of a machine's state that are recorded by their names."""
    return {key: getattr(state, key, None) for key in widths}


class Trace:
    """A node's rows, one a round, in a file of float64 in `directory`. Called by the node's driver after each commit."""

    def __init__(self, directory: Path, node: str) -> None:
        self._handle = os.open(path_of(directory, node), os.O_RDWR | os.O_CREAT, 0o600)

    def write(self, t: int, row: Vector, width: int, first: int = 0) -> None:
        """Cells `first`.. of row t (from 1), of `width`."""
        os.pwrite(self._handle, np.ascontiguousarray(row, "<f8").tobytes(), 8 * ((t - 1) * width + first))

    def __call__(self, driver: Driver, fresh: bool) -> None:
        raise NotImplementedError

    def close(self) -> None:
        os.close(self._handle)


def finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def path_of(directory: Path, node: str) -> Path:
    return directory / f"{node}.trace"
