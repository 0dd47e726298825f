"""What `hushgrid run` takes down while a run goes on: each node's rows, and what an eavesdropper hears.

A row is written after the commit it belongs to, any number of times: a node that was killed writes it again.
"""

from __future__ import annotations

import base64
import os
from math import nan
from pathlib import Path
from typing import Any

import numpy as np

from hushgrid.grid_cases.zone import ZoneModel
from hushgrid.kernels.ladmm import Vector
from hushgrid.node.driver import Driver
from hushgrid.node.mqtt import MqttLink
from hushgrid.node.wire import COORDINATOR, ROOT, Topics

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
