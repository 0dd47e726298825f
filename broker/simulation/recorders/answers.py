"""The last answers of every gate, as they are recorded beside a pattern's own trace: what the verdict tests an answer
by.

`<node>.answers` has the first answer of the run and a ring of the last: number (0: none), the fields of `Answer`, x
(d,) and the gradient (d,). They are released values, so that no run need hide them. Of a masked run devices release
shares of sums alone: there the coordinator records its mean answer.
"""

from __future__ import annotations

from math import sqrt
from pathlib import Path
from typing import Any, cast

import numpy as np

from hushgrid.broker.simulation.recorders.base import Cells, Observer, Widths, read, recorder
from hushgrid.kernels.problems.optimality import NodeAnswers
from hushgrid.node.privacy.gate import Answer
from hushgrid.node.problems.plan import RunPlan
from hushgrid.node.runtime.driver import Driver
from hushgrid.node.wire import COORDINATOR

LAST = 64  #: answers that are held, fewer of wide ones
NUMBERS = 1 << 20  #: of such a ring, about
HEAD = 5  #: numbers of a row before its vectors


def traced(plan: RunPlan, name: str, place: Path, reveal: bool, widths: Widths, behind: int = 0) -> Observer:
    """The observer of a node or of the coordinator: its pattern's, and of copies of an unknown also of the last
    answers. behind: as of `Cells`.
    """
    observer = recorder(plan).observer(plan, name, place, reveal, widths, behind)
    masked = plan.terms is not None and plan.terms.masked is not None
    if plan.kind.sharing != "copies" or masked != (name == COORDINATOR):
        return observer
    return AnswerTrace(observer, place, name, behind)


class AnswerTrace:
    """Writes what a gate has released since the last commit, or the mean answer that a masked coordinator has
    decoded.
    """

    def __init__(self, observer: Observer, place: Path, name: str, behind: int = 0) -> None:
        self.observer, self.name, self.behind = observer, name, behind
        self._cells = Cells(place / f"{name}.answers", behind)
        self._waiting: dict[int, Answer] = {}  #: by slot, where answers may wait until the end

    def __call__(self, driver: Driver, fresh: bool) -> None:
        self.observer(driver, fresh)
        released = self._decoded(cast(object, driver.machine)) if driver.gate is None else driver.gate.released or []
        for answer in released:
            self.take(answer)
        released.clear()
        if not self.behind:
            self._write()

    def take(self, answer: Answer) -> None:
        """Takes an answer down."""
        if answer.no == 1:
            self._waiting[0] = answer
        self._waiting[1 + (answer.no - 1) % held(answer.x.size)] = answer

    def _decoded(self, machine: Any) -> list[Answer]:
        """The mean answer of all that a sum was asked of, if one was decoded now. Its scale counts one node's noise as
        1.
        """
        decoded, machine.decoded = machine.decoded, None
        if decoded is None:
            return []
        w, answer, count = decoded
        return [Answer(machine.state.round, w, answer, 1 / sqrt(count), 0.0)] if count == machine.devices else []

    def _write(self) -> None:
        for slot, answer in self._waiting.items():
            head = np.array([answer.no, answer.scale, answer.slack, answer.drift, answer.curvature])
            start = slot * (HEAD + 2 * answer.x.size)
            for vector in (head, answer.x, answer.gradient):  # no copy of a wide one is made
                self._cells.write(start, vector)
                start += vector.size
        self._waiting.clear()

    def close(self) -> None:
        self._write()
        self._cells.close()
        self.observer.close()


def held(d: int) -> int:
    """How many answers of width d are held."""
    return max(1, min(LAST, NUMBERS // (2 * d)))


def last_answers(place: Path, name: str, d: int, L: float) -> NodeAnswers | None:
    """What a node was asked last; None if it has answered nothing. d: the width of an answer."""
    path, width = place / f"{name}.answers", HEAD + 2 * d
    rows = read(path, 0, (1 + held(d)) * width) if path.exists() else np.zeros(0)
    rows = rows[: rows.size // width * width].reshape(-1, width)
    if len(rows) < 2 or not rows[0, 0]:
        return None
    ring = rows[1:]
    if len(ring) > 1:
        ring = ring[ring[:, 0] > 0]
        ring = ring[np.argsort(ring[:, 0])]
    _, scale, slack, drift, curvature = ring[:, :HEAD].T
    x, answer = ring[:, HEAD : HEAD + d], ring[:, HEAD + d :]
    return NodeAnswers(rows[0, HEAD + d :], x, answer, scale, drift, curvature, slack, L)
