"""A token's walk, as it is recorded: a row a step, in blocks of n activations."""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import nan
from pathlib import Path
from typing import cast

import numpy as np

from hushgrid.broker.simulation.recorders.base import (
    Nothing,
    Observer,
    Over,
    Recorded,
    Shape,
    Widths,
    declared,
    finite,
    own_of,
    path_of,
)
from hushgrid.kernels.algorithms.base import Walk
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.patterns.routes import index
from hushgrid.kernels.patterns.token import TokenNode, TokenState
from hushgrid.kernels.patterns.token_monitor import MonitorState
from hushgrid.node import wire
from hushgrid.node.problems.plan import RunPlan
from hushgrid.node.runtime.driver import Driver, Stored
from hushgrid.node.wire import COORDINATOR


class WalkTrace:
    """A token's steps, a row each, in one file of float64 per epoch that all its nodes write: who was active (1 + its

    number, negative in a recount), the token's bytes, the noise (that cell only where it may be revealed), the token
    after the step, the node's own two vectors. A step is made once in its epoch, so that no row is another's. Beside
    them `<node>.start` has each node's own two before its first step.
    """

    def __init__(self, directory: Path, node: str, algorithm: Walk, widths: Widths, reveal: bool) -> None:
        self._directory, self.node, self.algorithm, self.reveal = directory, node, algorithm, reveal
        self.token = {key: widths[key] for key in algorithm.token}
        self.own_widths = {key: widths[key] for key in algorithm.recorded}
        self._last = (-1, -1)  #: (epoch, activation) of the row written last
        self._sent = 0  #: bytes of all tokens that it has sent

    def __call__(self, driver: Driver, fresh: bool) -> None:
        machine = cast(TokenNode, driver.machine)
        s = machine.state
        if not s.before_t:
            vectors = dict(zip(machine.node_vectors, s.before, strict=True)) if s.t else own_of(s, self.own_widths)
            declared(self.own_widths, self.algorithm.name, vectors).tofile(self._directory / f"{self.node}.start")
        token, sent = s.out.vectors if s.out else s.final, driver.sent[1] - self._sent
        self._sent += sent
        step = s.epoch, s.t - 1
        if not s.t or not token or step == self._last:
            return
        size = 0 if not s.out else sent if fresh else len(driver.tick()[0][1])
        who = (1.0 + index(self.node)) * (-1 if s.in_recount else 1)
        row = np.concatenate([[who, size, nan], self._token(token), self._own(s)])
        if self.reveal and fresh and driver.gate is not None:
            row[2], driver.gate.drawn_l1 = driver.gate.drawn_l1, 0.0
        data, offset = np.ascontiguousarray(row, "<f8").tobytes(), 8 * row.size * step[1]
        handle = os.open(path_of(self._directory, f"walk-{s.epoch}"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if fresh or not os.pread(handle, 8, offset).strip(b"\0"):
                os.pwrite(handle, data, offset)
            else:  # the noise of a step that was taken down before is not known any more
                os.pwrite(handle, data[:16], offset)
                os.pwrite(handle, data[24:], offset + 24)
        finally:
            os.close(handle)
        self._last = step

    def close(self) -> None:
        """Nothing is held open."""

    def _token(self, vectors: Sequence[np.ndarray]) -> np.ndarray:
        if len(vectors) != len(self.token):
            raise InputError(
                f"algorithm {self.algorithm.name}: token: found {len(vectors)} vectors, expected {len(self.token)} "
                f"({', '.join(self.token)}), as declared"
            )
        return declared(self.token, self.algorithm.name, dict(zip(self.token, vectors, strict=True)))

    def _own(self, state: TokenState) -> np.ndarray:
        return declared(self.own_widths, self.algorithm.name, own_of(state, self.own_widths))


def widths(plan: RunPlan, shape: Shape, name: str) -> Widths:
    algorithm = cast(Walk, plan.algorithm)
    return {} if name == COORDINATOR else dict.fromkeys((*algorithm.token, *algorithm.recorded), shape.size)


def observer(plan: RunPlan, name: str, place: Path, reveal: bool, widths: Widths, behind: int) -> Observer:
    if name == COORDINATOR:
        return Nothing()
    return WalkTrace(place, name, cast(Walk, plan.algorithm), widths, reveal)


def recorded(plan: RunPlan, shape: Shape, over: Over, reveal: bool) -> Recorded:
    caps, nodes, d = plan.caps, plan.nodes, shape.size
    algorithm = cast(Walk, plan.algorithm)
    n, of_token, of_node = len(plan.nodes), algorithm.token, algorithm.recorded
    rows, undone = walk_rows(over.trace, d * (len(of_token) + len(of_node)))
    T = len(rows)
    active, toured = np.abs(rows[:, 0]).astype(np.int64) - 1, rows[:, 0] < 0
    monitor = _monitor(over.centre)
    lost, solved = list(monitor.notice.without), [name for name in nodes if name not in monitor.missing]
    tokens, iterates = np.split(rows[:, 3:].reshape(T, -1, d), [len(of_token)], axis=1)
    starts = np.array([walk_start(over.trace, name, d * len(of_node)) for name in nodes]).reshape(n, -1, d)
    ends = [min(k + n, T) for k in range(0, T, n)]  # of the blocks of n activations
    counted = [i for i, name in enumerate(nodes) if name in solved]
    each, residual = _consensus(starts[:, 0], active, iterates[:, 0], ends, counted)
    visits = np.zeros((len(ends), n), dtype=np.int64)
    np.add.at(visits, (np.arange(T) // n, active), ~toured)
    for k, i in undone:
        visits[min(k, T - 1) // n, i] += 1  # what a step that was undone has spent stays spent
    visits = np.cumsum(visits, axis=0)
    capped = [name for i, name in enumerate(nodes) if caps and len(ends) and visits[-1, i] > caps[i]]
    stacked = np.concatenate([np.zeros((1, len(of_token), d)), tokens])
    return Recorded(
        rounds_done=T,
        x=tokens[-1, 0] if T else np.zeros(d),
        common=tokens[[k - 1 for k in ends], 0],
        own_iterates={name: each[:, i] for i, name in enumerate(nodes)},
        residual=residual,
        noise=_by_block(rows[:, 2], ends) if reveal and caps else [None] * len(ends),
        answers=np.minimum(visits, caps) if caps else visits,
        messages=_by_block((rows[:, 1] > 0).astype(float), ends, int),
        bytes=_by_block(rows[:, 1], ends, int),
        total_messages=int(np.sum(rows[:, 1] > 0)),
        total_bytes=int(np.sum(rows[:, 1])),
        capped=capped,
        trajectory={"active": active}
        | ({"recount": toured} if toured.any() else {})
        | {key: stacked[:, k] for k, key in enumerate(of_token)}
        | {key: iterates[:, k] for k, key in enumerate(of_node)},
        extras={
            "lost": lost,
            "solved": solved,
            "frozen": [name for name in solved if name in capped or name in lost],
            "walk": {"kind": plan.problem.route_is, "cycle": plan.problem.route or None},
        },
    )


def _monitor(stored: bytes | None) -> MonitorState:
    """The coordinator's machine at the end, by its ledger."""
    return wire.decode_state(MonitorState, wire.decode_state(Stored, stored).machine) if stored else MonitorState()


def walk_rows(directory: Path, width: int) -> tuple[np.ndarray, np.ndarray]:
    """(activations, 3 + width) of the steps that stand, from the first on, up to one that was never written; and, of
    the

    superseded ones, (activation, node), those of a recount left out. A later epoch goes on from its first activation,
    whatever came there before.
    """
    rows, undone = np.zeros((0, 3 + width)), []
    files = sorted(directory.glob("walk-*.trace"), key=lambda path: int(path.stem[5:]))
    for path in files:
        new = np.fromfile(path, "<f8")
        new = new[: new.size // (3 + width) * (3 + width)].reshape(-1, 3 + width)
        if not (made := np.flatnonzero(new[:, 0])).size:
            continue
        first = int(made[0])
        undone += [(k, int(row[0]) - 1) for k, row in enumerate(rows[first:], first) if row[0] > 0]
        rows = np.concatenate([rows[:first], new[first:]])
    missing = np.flatnonzero(rows[:, 0] == 0)
    return rows[: missing[0]] if missing.size else rows, np.array(undone, dtype=np.int64).reshape(-1, 2)


def walk_start(directory: Path, node: str, size: int) -> np.ndarray:
    """A node's own vectors before its first step; zeros where it has written nothing."""
    path = directory / f"{node}.start"
    start = np.fromfile(path) if path.exists() else np.zeros(0)
    return start if start.size == size else np.zeros(size)


def _consensus(
    start: np.ndarray, active: np.ndarray, iterates: np.ndarray, ends: Sequence[int], counted: Sequence[int]
) -> tuple[np.ndarray, list[float | None]]:
    """At the end of each block every node's x_i (blocks, n, d), and sqrt(sum_i |x_i - mean x|^2) of the nodes `kept`;

    of no block the start.
    """
    x, done = start.copy(), 0
    residuals: list[np.ndarray] = []
    for k in ends:
        for step in range(done, k):
            x[active[step]] = iterates[step]
        done = k
        residuals.append(x.copy())
    residual = [finite(np.sqrt(np.sum((x[counted] - x[counted].mean(axis=0)) ** 2))) for x in residuals]
    return np.array(residuals or [start]), residual


def _by_block(values: np.ndarray, ends: Sequence[int], kind: type = float) -> list[float | int | None]:
    """Sums over the blocks; None where a value is not known."""
    parts = np.split(values, ends[:-1]) if ends else []
    return [kind(total) if np.isfinite(total := float(np.sum(part))) else None for part in parts]
