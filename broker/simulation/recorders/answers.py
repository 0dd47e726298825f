"""The last answers of every gate, as they are recorded beside a pattern's own trace: what the verdict tests an answer
by.

`<node>.answers` has the first answer of the run and a ring of the last: number (0: none), the fields of `Answer`, x
(d,) and the gradient (d,). They are released values, so that no run need hide them. Of a masked run devices release
shares of sums alone: there the coordinator records its mean answer.
"""

from __future__ import annotations

import os
from math import sqrt
from pathlib import Path
from typing import Any, cast

import numpy as np

from hushgrid.broker.simulation.recorders.base import Observer, Widths, recorder
from hushgrid.kernels.problems.optimality import NodeAnswers
from hushgrid.node.privacy.gate import Answer
from hushgrid.node.problems.plan import RunPlan
from hushgrid.node.runtime.driver import Driver
from hushgrid.node.wire import COORDINATOR

LAST = 64  #: answers that are held, fewer of wide ones
NUMBERS = 1 << 20  #: of such a ring, about
HEAD = 5  #: numbers of a row before its vectors


def traced(plan: RunPlan, name: str, place: Path, reveal: bool, widths: Widths) -> Observer:
    """The observer of a node or of the coordinator: its pattern's, and of copies of an unknown also of the last
    answers.
    """
    observer = recorder(plan).observer(plan, name, place, reveal, widths)
    masked = plan.terms is not None and plan.terms.masked is not None
    if plan.kind.sharing != "copies" or masked != (name == COORDINATOR):
        return observer
    return AnswerTrace(observer, place, name)


class AnswerTrace:
    """Writes what a gate has released since the last commit, or the mean answer that a masked coordinator has
    decoded.
    """

    def __init__(self, observer: Observer, place: Path, name: str) -> None:
        self.observer, self.name = observer, name
        self._handle = os.open(place / f"{name}.answers", os.O_RDWR | os.O_CREAT, 0o600)

    def __call__(self, driver: Driver, fresh: bool) -> None:
        self.observer(driver, fresh)
        released = self._decoded(cast(object, driver.machine)) if driver.gate is None else driver.gate.released or []
        for answer in released:
            self._write(answer)
        released.clear()

    def _decoded(self, machine: Any) -> list[Answer]:
        """The mean answer of all that a sum was asked of, if one was decoded now. Its scale counts one node's noise as
        1.
        """
        decoded, machine.decoded = machine.decoded, None
        if decoded is None:
            return []
        w, answer, count = decoded
        return [Answer(machine.state.round, w, answer, 1 / sqrt(count), 0.0)] if count == machine.devices else []

    def _write(self, answer: Answer) -> None:
        head = [answer.no, answer.scale, answer.slack, answer.drift, answer.curvature]
        row = np.concatenate([head, answer.x, answer.gradient]).astype("<f8").tobytes()
        slot = 1 + (answer.no - 1) % held(answer.x.size)
        for place in (0, slot) if answer.no == 1 else (slot,):
            os.pwrite(self._handle, row, place * len(row))

    def close(self) -> None:
        os.close(self._handle)
        self.observer.close()


def held(d: int) -> int:
    """How many answers of width d are held."""
    return max(1, min(LAST, NUMBERS // (2 * d)))


def last_answers(place: Path, name: str, d: int, L: float) -> NodeAnswers | None:
    """What a node was asked last; None if it has answered nothing. d: the width of an answer."""
    path, width = place / f"{name}.answers", HEAD + 2 * d
    rows = np.fromfile(path, "<f8") if path.exists() else np.zeros(0)
    rows = rows[: rows.size // width * width].reshape(-1, width)
    if len(rows) < 2 or not rows[0, 0]:
        return None
    ring = rows[1:][rows[1:, 0] > 0]
    ring = ring[np.argsort(ring[:, 0])]
    _, scale, slack, drift, curvature = ring[:, :HEAD].T
    x, answer = ring[:, HEAD : HEAD + d], ring[:, HEAD + d :]
    return NodeAnswers(rows[0, HEAD + d :], x, answer, scale, drift, curvature, slack, L)
