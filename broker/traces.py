"""What `hushgrid run` takes down while a run goes on: each node's rows, and what an eavesdropper hears.

A row is written after the commit it belongs to, any number of times: a node that was killed writes it again.
"""

from __future__ import annotations

import base64
import os
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hushgrid.kernels.baton import Baton
from hushgrid.kernels.ladmm import Vector
from hushgrid.kernels.neighbours import Neighbour
from hushgrid.kernels.routes import index
from hushgrid.node.driver import Driver
from hushgrid.node.mqtt import MqttLink
from hushgrid.node.wire import COORDINATOR, ROOT, Topics

if TYPE_CHECKING:
    from hushgrid.grid_cases.zone import ZoneModel

REACH_S = 10.0  #: for the eavesdropper's broker to be there


class Trace:
    """A node's rows, one a round, in a file of float64 in `directory`. Called by the node's driver after each commit."""

    def __init__(self, directory: Path, node: str) -> None:
        self._handle = os.open(_path(directory, node), os.O_RDWR | os.O_CREAT, 0o600)

    def write(self, t: int, row: Vector, width: int, first: int = 0) -> None:
        """Cells `first`.. of row t (from 1), of `width`."""
        os.pwrite(self._handle, np.ascontiguousarray(row, "<f8").tobytes(), 8 * ((t - 1) * width + first))

    def __call__(self, driver: Driver, fresh: bool) -> None:
        raise NotImplementedError

    def close(self) -> None:
        os.close(self._handle)


class MemberTrace(Trace):
    """z^{t+1}, lambda^{t+1}, and the noise of the round as drawn, that cell only where it may be revealed."""

    def __init__(self, directory: Path, model: ZoneModel, reveal: bool) -> None:
        super().__init__(directory, model.name)
        self.width, self.reveal = _width(model), reveal

    def __call__(self, driver: Driver, fresh: bool) -> None:
        s, gate = driver.machine.state, driver.gate
        self.write(s.t, np.concatenate([s.mean, s.lam]), self.width)
        if self.reveal and fresh and gate is not None:
            drawn, gate.drawn_l1 = gate.drawn_l1, 0.0
            self.write(s.t, np.array([drawn]), self.width, self.width - 1)


class CoordinatorTrace(Trace):
    """w^{t+1}."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, COORDINATOR)

    def __call__(self, driver: Driver, fresh: bool) -> None:
        s = driver.machine.state
        self.write(s.t, s.w, s.w.size)


class WalkTrace:
    """A baton's steps, a row each, in one file of float64 per epoch that all its nodes write: who was active (1 + its

    number), the token's bytes, the noise (that cell only where it may be revealed), the token after the step, the node's own
    two vectors. A step is made once in its epoch, so that no row is another's. Beside them `<node>.start` has each node's own
    two before its first step.
    """

    def __init__(self, directory: Path, node: str, reveal: bool) -> None:
        self._directory, self.node, self.reveal = directory, node, reveal
        self._last = (-1, -1)  #: (epoch, activation) of the row written last

    def __call__(self, driver: Driver, fresh: bool) -> None:
        machine = driver.machine
        assert isinstance(machine, Baton)
        s = machine.state
        if not s.before_t:
            own = s.before[:2] if s.t else [getattr(s, key) for key in machine.own[:2]]
            np.concatenate(own).tofile(self._directory / f"{self.node}.start")
        token = s.out.vectors if s.out else s.final
        step = s.epoch, s.t - 1
        if not s.t or not token or step == self._last:
            return
        size = len(driver.tick()[0][1]) if s.out else 0
        row = np.concatenate(
            [[1.0 + index(self.node), size, nan], *token, *(getattr(s, key) for key in machine.own[:2])]
        )
        if self.reveal and fresh and driver.gate is not None:
            row[2], driver.gate.drawn_l1 = driver.gate.drawn_l1, 0.0
        data, at = np.ascontiguousarray(row, "<f8").tobytes(), 8 * row.size * step[1]
        handle = os.open(_path(self._directory, f"walk-{s.epoch}"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if fresh or not os.pread(handle, 8, at).strip(b"\0"):
                os.pwrite(handle, data, at)
            else:  # the noise of a step that was taken down before is not known any more
                os.pwrite(handle, data[:16], at)
                os.pwrite(handle, data[24:], at + 24)
        finally:
            os.close(handle)
        self._last = step

    def close(self) -> None:
        """Nothing is held open."""


class RoundTrace:
    """A node's steps of synchronous rounds, a row each in a file of float64, and before them one of its start: its messages

    and bytes so far, the noise of the step (that cell only where it may be revealed, nan where a crash has lost it), its own
    vectors after the step and the message that it was made with.
    """

    def __init__(self, directory: Path, node: str, own: tuple[str, ...], reveal: bool) -> None:
        self.own, self.reveal = own, reveal
        self._handle = os.open(_path(directory, node), os.O_RDWR | os.O_CREAT, 0o600)

    def __call__(self, driver: Driver, fresh: bool) -> None:
        machine = driver.machine
        assert isinstance(machine, Neighbour)
        s, t = machine.state, machine.steps
        if not machine.started:
            return
        used = s.last if s.done else s.before if t else np.zeros(machine.size)
        row = np.concatenate([[*driver.sent, nan], *(getattr(s, key) for key in self.own), used])
        at = 8 * row.size * t
        if not fresh and os.pread(self._handle, 8, at).strip(b"\0"):
            return  # it was taken down before the crash, and with its noise
        if self.reveal and fresh and driver.gate is not None:
            row[2], driver.gate.drawn_l1 = driver.gate.drawn_l1, 0.0
        os.pwrite(self._handle, np.ascontiguousarray(row, "<f8").tobytes(), at)

    def close(self) -> None:
        os.close(self._handle)


def round_rows(directory: Path, node: str, width: int) -> np.ndarray:
    """(1 + steps, 3 + width) of a node, from its start on, up to a row that was never written."""
    return _written(_path(directory, node), 3 + width)


def _written(path: Path, width: int) -> np.ndarray:
    rows = np.fromfile(path, "<f8") if path.exists() else np.zeros(0)
    rows = rows[: rows.size // width * width].reshape(-1, width)
    missing = np.flatnonzero(rows[:, 0] == 0)
    return rows[: missing[0]] if missing.size else rows


def walk_rows(directory: Path, width: int) -> tuple[np.ndarray, np.ndarray]:
    """(activations, 3 + width) of the steps that stand, from the first on, up to one that was never written; and, of the

    superseded ones, (activation, node). A later epoch goes on from its first activation, whatever came there before.
    """
    rows, undone = np.zeros((0, 3 + width)), []
    files = sorted(directory.glob("walk-*.trace"), key=lambda path: int(path.stem[5:]))
    for path in files:
        new = np.fromfile(path, "<f8")
        new = new[: new.size // (3 + width) * (3 + width)].reshape(-1, 3 + width)
        if not (made := np.flatnonzero(new[:, 0])).size:
            continue
        first = int(made[0])
        undone += [(k, int(row[0]) - 1) for k, row in enumerate(rows[first:], first) if row[0]]
        rows = np.concatenate([rows[:first], new[first:]])
    missing = np.flatnonzero(rows[:, 0] == 0)
    return rows[: missing[0]] if missing.size else rows, np.array(undone, dtype=np.int64).reshape(-1, 2)


def walk_start(directory: Path, node: str, size: int) -> np.ndarray:
    """A node's own vectors before its first step; zeros where it has written nothing."""
    path = directory / f"{node}.start"
    found = np.fromfile(path) if path.exists() else np.zeros(0)
    return found if found.size == size else np.zeros(size)


def member_rows(directory: Path, model: ZoneModel, rounds: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """z (rounds, n), lambda (rounds, m) and noise (rounds,) of a member; NaN where nothing was written."""
    rows = _rows(directory, model.name, _width(model), rounds)
    return rows[:, : model.n], rows[:, model.n : -1], rows[:, -1]


def coordinator_rows(directory: Path, size: int, rounds: int) -> np.ndarray:
    """w (rounds, size); NaN where nothing was written."""
    return _rows(directory, COORDINATOR, size, rounds)


def _width(model: ZoneModel) -> int:
    return model.n + model.shared.size + 1


def _path(directory: Path, node: str) -> Path:
    return directory / f"{node}.trace"


def _rows(directory: Path, node: str, width: int, rounds: int) -> np.ndarray:
    rows = np.full(rounds * width, nan)
    path = _path(directory, node)
    found = np.fromfile(path, "<f8")[: rounds * width] if path.exists() else rows[:0]
    rows[: found.size] = found
    return rows.reshape(rounds, width)


class Eavesdropper:
    """Everything that travels, as a transcript's lines."""

    def __init__(self, fleet: str) -> None:
        self.topics = Topics(fleet)
        self.lines: list[dict[str, Any]] = []

    def __call__(self, topic: str, payload: bytes) -> None:
        _, src, dst = self.topics.parse(topic)
        n, text = len(self.lines) + 1, base64.b64encode(payload).decode()
        self.lines.append({"n": n, "src": src, "dst": dst, "topic": topic, "bytes": text})


class Spy:
    """An eavesdropper's own connection to a broker."""

    def __init__(self, url: str, heard: Eavesdropper) -> None:
        self.heard = heard
        everything = f"{ROOT}/{heard.topics.fleet}/#"
        self.link = MqttLink(url, f"eavesdropper-{os.getpid()}", subscriptions=[everything], persistent=False)
        self.link.connect(REACH_S)

    def listen(self) -> None:
        for message in self.link.poll(0.0):
            self.heard(message.topic, message.payload)

    def close(self) -> None:
        self.listen()
        self.link.close()
