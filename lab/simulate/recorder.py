"""What a simulated fleet's history says: facts that an independent checker can judge, without the stack.

Each event is a line of JSON with its date `t`, its kind `e` and whose it is, `who`. `send` is a message as it leaves,
`spent` an answer that a ledger has committed, `drawn` noise that has met data, `outcome` what a run has left on a disk.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from hushgrid.kernels.machine import Malformed
from hushgrid.kernels.privacy.noise import Lattice
from hushgrid.kernels.types import Document
from hushgrid.lab.simulate.machine import Machine
from hushgrid.node import status, system, wire
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.runtime import daemon
from hushgrid.node.wire import COORDINATOR, Birth, Mark, Topics

OUTCOMES = (".setpoints.csv", ".npz")  #: ends of names of what a run leaves on a device
LARGEST = 1 << 24  #: bytes of a message
Note = Callable[..., None]


def digest(blob: bytes) -> str:
    return hashlib.sha256(blob).hexdigest()[:16]


def _mark(mark: Mark | None) -> list[Any] | None:
    return None if mark is None else [mark.ledger.hex()[:8], mark.no]


class Recorder:
    """Of one simulation. `ledgers`: the open ones, by machine."""

    def __init__(self, fleet: str, note: Note, refuses: Callable[[str], None]) -> None:
        """`refuses` is called with a device whose ledger is behind what others remember, each time it says so."""
        self.topics, self.note, self.refuses = Topics(fleet), note, refuses
        self.ledgers: dict[str, Ledger] = {}
        self.rowed: dict[bytes, int] = {}  #: the last spend of each ledger that the history has

    def sent(self, machine: Machine | None, who: str, topic: str, payload: bytes, retain: bool) -> None:
        """A message that leaves, with what the ledger of its sender has now. machine: None of a last will."""
        facts: Document = {"topic": topic, "size": len(payload), "retain": retain, "digest": digest(payload)}
        if machine is not None and (ledger := self.ledgers.get(who)) is not None:
            facts["no"] = ledger.spends.no
            facts["unsynced"] = machine.disk.owes("-log")
        body = self._body(topic, payload)
        self.note("send", who, **facts, **body)
        refused = machine is not None and body["body"] == "status" and status.decode(payload).refused == "mark"
        if refused and self.ledgers[who].refusal is not None:  # a status also names a refusal of before
            self.refuses(who)

    def rows(self, ledger: Ledger) -> list[list[Any]]:
        """Spends that the history does not have yet: [number, kind, value, mu^2, running time]."""
        sql = "SELECT no, kind, value, mu2, ran FROM spend WHERE no > ? ORDER BY no"
        rows = [list(row) for row in ledger.tables.db.execute(sql, (self.rowed.get(ledger.id, 0),))]
        self.rowed[ledger.id] = max([self.rowed.get(ledger.id, 0), *(row[0] for row in rows)])
        return rows

    def known(self, name: str) -> dict[str, int]:
        """What the coordinator remembers of a device's ledgers now; nothing if it does not run."""
        ledger = self.ledgers.get(COORDINATOR)
        if ledger is None or (peer := ledger.marks.peers.peers.get(name)) is None:
            return {}
        return {mark.ledger.hex()[:8]: mark.no for mark in peer.counted}

    def left(self, who: str, path: Path) -> None:
        """A file has got its name: that of what a run has left, perhaps."""
        ledger = self.ledgers.get(who)
        if path.name.endswith(OUTCOMES) and ledger is not None and (run := ledger.runs.last()) is not None:
            self.note("outcome", who, run=run.id.hex()[:8], file=path.name, digest=digest(path.read_bytes()))

    def _body(self, topic: str, payload: bytes) -> Document:
        try:
            kind, _, dst = self.topics.parse(topic)
            if kind == "state":
                presence = wire.decode_presence(payload)
                return {
                    "body": type(presence).__name__,
                    "mark": _mark(presence.mark) if isinstance(presence, Birth) else None,
                }
            if kind in wire.WATCHED:
                return {"body": kind}
            envelope = wire.decode_envelope(payload, LARGEST)
        except Malformed:
            return {"body": ""}
        return {
            "body": type(envelope.body).__name__,
            "dst": dst,
            "run": envelope.run.hex()[:8],
            "epoch": envelope.epoch,
            "seq": envelope.seq,
            "mark": _mark(envelope.mark),
            "iterate": digest(wire.encode(envelope.body)) if isinstance(envelope.body, wire.Iterate) else None,
        }


@contextmanager
def recorded(recorder: Recorder) -> Iterator[None]:
    """While it is entered, what ledgers commit, what gates draw and what runs leave is noted."""

    class Watched(Ledger):
        def __init__(self, path: Path, node: str | None, *more: Any, **keys: Any) -> None:
            super().__init__(path, node, *more, **keys)
            recorder.ledgers[self.node] = self
            facts: Document = {"id": self.id.hex()[:8], "no": self.spends.no, "behind": self.refusal is not None}
            recorder.note("ledger", self.node, **facts, rows=recorder.rows(self))

        def commit(self, run: bytes, *, spends: Any = (), **keys: Any) -> None:
            spends = list(spends)
            first, version = self.spends.no + 1, keys.get("version")
            super().commit(run, spends=spends, **keys)
            recorder.rowed[self.id] = max(recorder.rowed.get(self.id, 0), self.spends.no)
            for no, spend in enumerate(spends, first):
                facts: Document = {"kind": spend.kind, "value": spend.value, "honest": spend.honest}
                facts |= {"ran": self.spends.running, "version": version or self.data_version, "run": run.hex()[:8]}
                recorder.note("spent", self.node, id=self.id.hex()[:8], no=no, **facts)

    release = Lattice.release

    def released(lattice: Lattice, v: np.ndarray, n: np.ndarray) -> np.ndarray:
        machine = system.machine
        if isinstance(machine, Machine):
            recorder.note("drawn", machine.name, digest=digest(v.tobytes() + n.tobytes()))
        return release(lattice, v, n)

    with patch.object(daemon, "Ledger", Watched), patch.object(Lattice, "release", released):
        yield
