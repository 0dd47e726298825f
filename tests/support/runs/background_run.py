"""A fleet to disturb: small seeded scenarios, a run in the background, its processes, and what stays of it."""

from __future__ import annotations

import base64
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from hushgrid.broker.report.result import Result
from hushgrid.broker.simulation import run
from hushgrid.lab.audit import interference
from hushgrid.lab.audit.interference import LOADS, NOW, ROWS, constant, differing, left_in, tables, with_data
from hushgrid.node import wire
from hushgrid.node.transport.mqtt import MqttLink

#: Every way a seeded run may be private, and not at all.
VARIANTS: dict[str, dict[str, Any]] = {
    f"{mechanism}-{mode}-E{E}": {
        "privacy.mechanism": mechanism, "privacy.mode": mode, "algorithm.local_updates": E,
        "privacy.delta": 1e-5 if mechanism == "gaussian" else None,
    }
    for mechanism in ("laplace", "gaussian") for mode in ("objective", "input") for E in (1, 2)
} | {"none": {"algorithm.variant": "none", "privacy": None}}  # fmt: skip


def scenario(over: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """The demo's case as a mapping. `over`: dotted key paths to values, None takes the key away."""
    raw: dict[str, Any] = {
        "hushgrid": 1,
        "name": "fleet",
        "problem": {"kind": "zones", "case": "case14", "zones": 3},
        "algorithm": {"name": "ladmm", "rounds": 5},
        "privacy": {
            "mechanism": "laplace",
            "adjacency": {"bounded-change": 0.01},
            "epsilon": 50.0,
            "mode": "objective",
        },
    }
    for path, value in (dict(over or {}) | more).items():
        here = raw
        *parents, last = path.split(".")
        for parent in parents:
            here = here.setdefault(parent, {})
        if value is None:
            here.pop(last, None)
        else:
            here[last] = value
    return raw


def arrays(result: Result) -> dict[str, bytes]:
    """Every array that a run promises, as its bytes."""
    found = {f"solution {k}": v for k, v in result.solution.items()}
    found |= {f"trajectory {k}": v for k, v in (result.trajectory or {}).items()}
    return {k: str(v.dtype).encode() + np.ascontiguousarray(v).tobytes() for k, v in found.items()}


def assert_same_bits(one: Result, other: Result) -> None:
    a, b = arrays(one), arrays(other)
    assert a.keys() == b.keys()
    assert [k for k in a if a[k] != b[k]] == []


class Background:
    """`run(...)` in a thread of its own, and the processes it has started."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.result: Result | None = None
        self.error: BaseException | None = None
        self._call = args, options
        self._before = {p.pid for p in psutil.Process().children(recursive=True)}
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.result = run(*self._call[0], **self._call[1])
        except BaseException as error:
            self.error = error

    @property
    def going(self) -> bool:
        return self._thread.is_alive()

    def wait(self, seconds: float) -> Result:
        """The result; raises what the run raised. `seconds`: a run that hangs fails the test instead of hanging it."""
        self._thread.join(seconds)
        assert not self.going, f"the run is still going after {seconds:g} s"
        if self.error is not None:
            raise self.error
        assert self.result is not None
        return self.result

    def processes(self) -> list[psutil.Process]:
        """All that this run has started and that is alive: brokers too."""
        found = []
        for p in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # it has just ended
                if p.pid not in self._before and p.status() != psutil.STATUS_ZOMBIE:
                    found.append(p)
        return found

    def children(self) -> dict[str, psutil.Process]:
        """The node and coordinator processes, by name."""
        found = {}
        for p in self.processes():
            try:
                line = p.cmdline()
            except psutil.Error:
                continue  # it has just ended
            if "hushgrid.broker.simulation.processes" in line:
                found[Path(line[-1]).stem] = p
        return found

    def child(self, name: str, seconds: float = 120.0) -> psutil.Process:
        """One of them, as soon as it is there."""
        found = self.when(lambda: self.children().get(name), seconds)
        assert isinstance(found, psutil.Process)
        return found

    def when(self, what: Any, seconds: float = 120.0) -> Any:
        """The first true value of `what()`."""
        until = time.monotonic() + seconds
        while not (value := what()):
            assert self.going, f"the run has ended: {self.error or self.result}"
            assert time.monotonic() < until, f"nothing after {seconds:g} s"
            time.sleep(0.002)
        return value


def retained(url: str, seconds: float = 0.5) -> dict[str, bytes]:
    """What a new client that subscribes to everything finds on a broker."""
    link = MqttLink(url, "witness", subscriptions=["#"], persistent=False)
    link.connect(60.0)
    until, found = time.monotonic() + seconds, {}
    while time.monotonic() < until:
        found |= {m.topic: m.payload for m in link.poll(0.05) if m.retained}
    link.close()
    return found


def sessions(url: str) -> int:
    """Clients a mosquitto keeps, connected or not, ours not counted. It needs `sys_interval 1`."""
    link = MqttLink(url, "witness", subscriptions=["$SYS/broker/clients/total"], persistent=False)
    link.connect(60.0)
    began, total = time.monotonic(), -1
    while time.monotonic() < began + 2.5:  # two intervals: the figure is then of our own time
        for m in link.poll(0.1):
            total = int(m.payload)
    link.close()
    return total - 1


def spends(ledger: Path) -> list[tuple[int, int]]:
    """(number, answer) of every spend of a closed ledger."""
    with sqlite3.connect(f"file:{ledger}?mode=ro", uri=True) as db:
        rows = db.execute("SELECT no, answer FROM spend ORDER BY no").fetchall()
    db.close()
    return rows


def envelopes(transcript: list[dict[str, Any]]) -> Iterator[tuple[str, str, wire.Envelope, bytes]]:
    """(sender, receiver, envelope, payload) of every message on an edge."""
    for line in transcript:
        if "/edge/" in line["topic"]:
            payload = base64.b64decode(line["bytes"])
            yield line["src"], line["dst"], wire.decode_envelope(payload, 1 << 22), payload


# --- Everything of a run that anybody but a device's owner can see, with clock, identifiers and the gates' values h ---

__all__ = ["LOADS", "NOW", "ROWS", "constant", "differing", "held_still", "left_in", "seen", "tables", "with_data"]


@contextmanager
def held_still(monkeypatch, release=None):
    """No clock, no chance, and answers that are constants. `release(lattice, v, n)`: other answers."""
    with interference.held_still(release) as held:
        yield held


def seen(monkeypatch, directory, raw, *data, out=False, release=None):
    """{what: value} of a run in this process."""
    return interference.seen(directory, raw, *data, out=out, release=release)
