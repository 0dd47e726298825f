"""The bare messages and writes that benchmarks stand beside, measured in turn with what is judged by them."""

from __future__ import annotations

import multiprocessing
import os
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import paho.mqtt.client as paho

from hushgrid.kernels.errors import Stopped
from hushgrid.lab.benchmarks.common.measure import timed
from hushgrid.node.privacy.ledger_log import BLOCK as BYTES
from hushgrid.node.privacy.ledger_log import BLOCKS

PATIENCE_S = 30.0  #: for a process of ours to be there
WARM = 10  #: first steps, not counted
BLOCK = 20  #: steps between two measurements of the bare parts, and of each of them
BARE_COMMIT = "one bare pwrite and fdatasync of a block"


class Watch:
    """When each step was committed, the processor time of this process, and bare parts measured between the steps.

    The clock is the machine's own, one for all processes. Processor time of the bare parts is not counted.
    """

    def __init__(self, warm: int = WARM) -> None:
        self.warm = warm
        self.ends: dict[int, tuple[float, float]] = {}  #: by step: seconds at its commit, and when it went on after it
        self.parts: dict[int, Sequence[list[float]]] = {}  #: by step: ms of the bare parts that were measured after it
        self._first = (0, 0.0)  # (step, processor time)
        self._last = (0, 0.0)
        self._away = 0.0  # processor time of the bare parts

    def seen(self, t: int, measure: Callable[[], Sequence[list[float]]] | None = None) -> None:
        """Step t is committed. `measure`: of the bare parts, called every BLOCK steps."""
        if t in self.ends:
            return
        now, used = time.perf_counter(), time.process_time()
        if t >= self.warm:
            self._first = self._first if self._first[0] else (t, used)
            self._last = t, used - self._away
        if measure and t >= self.warm and t >= max(self.parts, default=-BLOCK) + BLOCK:
            self.parts[t] = measure()
            self._away += time.process_time() - used
        self.ends[t] = now, time.perf_counter()

    @property
    def processor(self) -> float:
        """Processor time of this process a step, ms."""
        steps = sum(1 for t in self.ends if t > self._first[0])
        return 1e3 * (self._last[1] - self._first[1]) / max(steps, 1)

    def times(self, ends: dict[int, tuple[float, float]]) -> dict[int, float]:
        """Milliseconds from each step's commit to the next one's, by the later step; `ends` of all processes."""
        return {t: 1e3 * (ends[t][0] - ends[t - 1][1]) for t in sorted(ends) if t > self.warm and t - 1 in ends}

    def pooled(self, part: int) -> list[float]:
        """Milliseconds of a bare part, all of them."""
        return [ms for parts in self.parts.values() for ms in parts[part]]

    def ratios(self, times: dict[int, float], statistic: Callable[[list[float]], float]) -> list[float]:
        """For each block of steps: their median over `of` the medians of the bare parts measured just before it."""
        ratios = []
        for t, parts in self.parts.items():
            if steps := [times[k] for k in range(t + 1, t + BLOCK + 1) if k in times]:
                ratios.append(float(np.median(steps)) / statistic([float(np.median(part)) for part in parts]))
        return ratios


class BareCommits:
    """A write of one block into a file of zeros, and its sync, as the ledger's log makes one a step."""

    def __init__(self, place: Path) -> None:
        self._file = os.open(place / "bare", os.O_RDWR | os.O_CREAT, 0o600)
        os.pwrite(self._file, bytes(BLOCKS * BYTES), 0)
        os.fsync(self._file)

    def times(self, count: int) -> list[float]:
        """Milliseconds of each of `count`."""
        taken = []
        for k in range(count):
            block = os.urandom(BYTES)
            began = time.perf_counter()
            os.pwrite(self._file, block, k % BLOCKS * BYTES)
            os.fdatasync(self._file)
            taken.append(1e3 * (time.perf_counter() - began))
        return taken

    def __enter__(self) -> BareCommits:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)


class BareRounds:
    """A message to each of some processes that only `echo`, and their answers: QoS 1, TCP_NODELAY, select loops.

    With one of them, half a round is a message's way.
    """

    def __init__(self, url: str, prefix: str, nodes: int) -> None:
        self.prefix, self.nodes, self.answers = prefix, nodes, 0
        self.client = bare_client(url, f"{prefix}-centre", f"{prefix}/up/#", self._count)
        there, deadline = 0, time.monotonic() + PATIENCE_S
        while there < nodes:  # an echo that is not there yet hears nothing: it is asked again
            self.answers = 0
            self.client.publish(f"{prefix}/down/{there}", b"?", qos=1)
            until = time.monotonic() + 0.2
            while not self.answers and time.monotonic() < until:
                self.client.loop(0.05)
            there += bool(self.answers)
            if time.monotonic() > deadline:
                raise Stopped(f"bench: {nodes - there} bare processes not there after {PATIENCE_S:g} s")
        until = time.monotonic() + 0.2
        while time.monotonic() < until:  # answers that came late
            self.client.loop(0.05)

    def _count(self, client: paho.Client, data: object, message: paho.MQTTMessage) -> None:
        self.answers += 1

    def times(self, size: int, count: int) -> list[float]:
        """Milliseconds of each of `count` rounds, after one that is not counted; `size`: bytes of a message."""
        payload, taken = os.urandom(size), []
        for _ in range(count + 1):
            self.answers = 0
            began = time.perf_counter()
            for k in range(self.nodes):
                self.client.publish(f"{self.prefix}/down/{k}", payload, qos=1)
            while self.answers < self.nodes:
                self.client.loop(1.0)
            taken.append(1e3 * (time.perf_counter() - began))
        return taken[1:]

    def __enter__(self) -> BareRounds:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.disconnect()


def echo(url: str, hears: str, says: str) -> None:
    """A process that answers each message with its own bytes, until whoever started it is gone."""
    client = bare_client(url, says.replace("/", "-"), hears, lambda c, data, m: c.publish(says, m.payload, qos=1))
    while os.getppid() != 1:
        client.loop(1.0)


def echoes(url: str, prefix: str, nodes: int) -> None:
    """The same in one process for all of them, as if each had one."""
    ways = {f"{prefix}/down/{k}": f"{prefix}/up/{k}" for k in range(nodes)}
    client = bare_client(
        url, f"{prefix}-echoes", f"{prefix}/down/+", lambda c, data, m: c.publish(ways[m.topic], m.payload, qos=1)
    )
    while os.getppid() != 1:
        client.loop(1.0)


#: Takes a client, what it carries, and a message.
OnMessage = Callable[[paho.Client, object, paho.MQTTMessage], object]


def bare_client(url: str, name: str, topic: str | list[tuple[str, int]], on_message: OnMessage) -> paho.Client:
    """A subscribed paho client on a broker of ours."""
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id=name, protocol=paho.MQTTv311)
    subscribed: list[bool] = []
    client.on_socket_open = lambda c, data, sock: sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.on_connect = lambda c, *_: c.subscribe(topic, qos=1)
    client.on_subscribe = lambda *_: subscribed.append(True)
    client.on_message = on_message
    client.connect("127.0.0.1", int(url.rpartition(":")[2]), keepalive=60)
    deadline = time.monotonic() + PATIENCE_S
    while not subscribed:
        client.loop(0.1)
        if time.monotonic() > deadline:
            raise Stopped(f"bench round: {name} not subscribed after {PATIENCE_S:g} s")
    return client


@contextmanager
def processes(
    each: Sequence[tuple[Callable[..., None], tuple[object, ...]]], farewell_s: float = 0.0
) -> Iterator[None]:
    """Fresh processes, ended at the end if they have not by themselves within `farewell_s`."""
    context = multiprocessing.get_context("spawn")
    running = [context.Process(target=target, args=args, daemon=True) for target, args in each]
    for process in running:
        process.start()
    try:
        yield
        for process in running:
            process.join(farewell_s)
    finally:
        for process in running:
            process.terminate()
            process.join()


def commits(place: Path, count: int) -> list[float]:
    """Milliseconds of one transaction that updates a row of a state's size, as durable as the ledger's."""
    db = sqlite3.connect(place / "bare.db", isolation_level=None)
    db.execute("PRAGMA locking_mode = EXCLUSIVE")
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA wal_autocheckpoint = 100")
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, state BLOB)")
    state = os.urandom(2000)

    def commit() -> None:
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT OR REPLACE INTO t VALUES (1, ?)", (state,))
        db.execute("COMMIT")

    taken = [1e3 * s for s in timed(commit, count)]
    db.close()
    return taken
