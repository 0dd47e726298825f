"""Synchronous rounds among neighbours, as they are recorded: a row a step of every node."""

from __future__ import annotations

from math import nan
from pathlib import Path
from typing import cast

import numpy as np

from hushgrid.broker.simulation.recorders.base import (
    Cells,
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
from hushgrid.kernels.algorithms.base import Rounds, answers_in, gossip_of
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.patterns.neighbours import Neighbour
from hushgrid.node.problems.plan import RunPlan
from hushgrid.node.runtime.driver import Driver
from hushgrid.node.wire import COORDINATOR

MESSAGE = "a message"  #: the row's last vector
MIXED = "mixed"  #: before it, of a run with rounds of averaging: x after the step


class RoundTrace:
    """A node's steps of synchronous rounds, a row each in a file of float64, and before them one of its start: its
    messages

    and bytes so far, the noise of the step (that cell only where it may be revealed, nan where a crash has lost it),
    its own vectors after the step and the message that it was made with.
    """

    def __init__(
        self, directory: Path, node: str, algorithm: Rounds, widths: Widths, reveal: bool, behind: int
    ) -> None:
        self.algorithm, self.widths, self.reveal = algorithm, widths, reveal
        self.messages = algorithm.rounds * algorithm.messages
        self._cells = Cells(path_of(directory, node), behind)

    def __call__(self, driver: Driver, fresh: bool) -> None:
        machine = cast(Neighbour, driver.machine)
        s, t = machine.state, machine.steps
        if not machine.started:
            return
        name, used = self.algorithm.name, s.last if s.done else s.before if t else np.zeros(machine.size)
        if machine.messages != self.messages:
            raise InputError(
                f"algorithm {name}: messages: found {machine.messages} of a node, expected {self.messages}, as declared"
            )
        vectors = own_of(s, self.widths) | {MESSAGE: used}
        for key in self.widths.keys() & {MESSAGE, MIXED} if machine.total > machine.messages else ():
            vectors[key] = np.pad(vectors[key], (0, self.widths[key] - vectors[key].size))
        row = np.concatenate([[*driver.sent, nan], declared(self.widths, name, vectors)])
        if not fresh and self._cells.written(row.size * t):
            return  # it was taken down before the crash, and with its noise
        if self.reveal and fresh and driver.gate is not None:
            row[2], driver.gate.drawn_l1 = driver.gate.drawn_l1, 0.0
        self._cells.write(row.size * t, row)

    def close(self) -> None:
        self._cells.close()


def widths(plan: RunPlan, shape: Shape, name: str) -> Widths:
    algorithm = cast(Rounds, plan.algorithm)
    vectors = dict.fromkeys(algorithm.recorded, shape.size)
    if gossip_of(algorithm):
        vectors[MIXED] = shape.size
    return {} if name == COORDINATOR else vectors | {MESSAGE: shape.size * algorithm.message_vectors}


def observer(plan: RunPlan, name: str, place: Path, reveal: bool, widths: Widths, behind: int) -> Observer:
    algorithm = cast(Rounds, plan.running)
    return Nothing() if name == COORDINATOR else RoundTrace(place, name, algorithm, widths, reveal, behind)


def recorded(plan: RunPlan, shape: Shape, over: Over, reveal: bool) -> Recorded:
    t, nodes, d = plan.terms, plan.nodes, shape.size
    algorithm = cast(Rounds, plan.algorithm)
    n, per, names, message = len(nodes), algorithm.messages, algorithm.recorded, d * algorithm.message_vectors
    gossip, width = gossip_of(algorithm), 3 + d * (len(names) + bool(gossip_of(algorithm))) + message
    traces = [_written(path_of(over.trace, name), width) for name in nodes]
    made = min(len(r) for r in traces) - 1  # steps that all have made; row 0 is the start
    last = plan.running.rounds * per  # the last of the algorithm's own
    T, k = min(made, last) // per, max(made - last, 0)  # complete rounds; rounds of averaging after them
    every = np.array([r[: T * per + 1 + k] for r in traces])
    rows = every[:, : T * per + 1]
    iterates = rows[:, ::per, 3 : 3 + d * len(names)].reshape(n, T + 1, len(names), d).transpose(2, 1, 0, 3)
    sent_vectors = rows[:, 1:, -message:].reshape(n, T, per, message).transpose(2, 1, 0, 3)  # (per, T, n, message)
    sent = algorithm.recorded[0] != "x"
    x = np.concatenate([np.zeros((1, n, d)), sent_vectors[0]]) if sent else iterates[0]  # (T + 1, n, d)
    if gossip:
        x = np.concatenate([x, every[:, T * per + 1 :, width - message - d : width - message].transpose(1, 0, 2)])
    mean = x.mean(axis=1)
    # Row t - 1 is the first that has message t, and the noise of what it says.
    first = [*range(per - 1, T * per, per), *range(T * per, T * per + k)]
    messages, size = np.diff(every[:, first, :2].sum(axis=0), axis=0, prepend=0).T
    drawn = rows[:, :, 2].sum(axis=0)
    if algorithm.asks_after:
        drawn = np.concatenate([[drawn[0] + drawn[1]], drawn[2:], [0.0]])
    noise = [*drawn[:-1].reshape(T, per).sum(axis=1), *[0.0] * k]
    answers = [min(answers_in(algorithm, min(r, T)), t.answers) if t else 0 for r in range(1, T + k + 1)]
    trajectory = dict(zip(names, iterates, strict=True))
    if algorithm.recorded_messages:
        trajectory |= {
            key: x[: T + 1] if sent else sent_vectors[m] for m, key in enumerate(algorithm.recorded_messages)
        }
    if gossip:
        trajectory["finished"] = x[T:]
    return Recorded(
        rounds_done=T,
        x=mean[-1],
        common=mean[1:],
        own_iterates={name: x[1:, i] for i, name in enumerate(nodes)},
        residual=[finite(np.sqrt(np.sum((x[r] - mean[r]) ** 2))) for r in range(1, len(x))],
        noise=[finite(v) for v in noise] if reveal and algorithm.variant != "none" else [None] * (T + k),
        answers=np.repeat(np.array(answers, dtype=np.int64)[:, None], n, axis=1),
        messages=[int(v) for v in messages],
        bytes=[int(v) for v in size],
        total_messages=int(messages.sum()),
        total_bytes=int(size.sum()),
        capped=nodes if t is not None and t.capped else [],
        trajectory=trajectory,
        extras={"finish": {"gossip": k}} if gossip else {},
    )


def _written(path: Path, width: int) -> np.ndarray:
    rows = np.fromfile(path, "<f8") if path.exists() else np.zeros(0)
    rows = rows[: rows.size // width * width].reshape(-1, width)
    missing = np.flatnonzero(rows[:, 0] == 0)
    return rows[: missing[0]] if missing.size else rows
