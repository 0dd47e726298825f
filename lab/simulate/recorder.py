"""What a fleet's history says: facts that an independent checker can judge, without the stack.

Each event is a line of JSON with its date `t`, its kind `e` and whose it is, `who`. `send` is a message as it leaves,
`spent` an answer that a ledger has committed, `drawn` noise that has met data, `ended` a run that is done on a device,
`values` what a device has of its source,
`outcome` what it has left on the disk there, `begins` and `ends` an interval.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from hushgrid.broker.coordinator import daemon as coordinator_daemon
from hushgrid.broker.coordinator.base import Coordinator
from hushgrid.broker.coordinator.intervals import Intervals
from hushgrid.kernels.machine import Malformed
from hushgrid.kernels.privacy.noise import Lattice
from hushgrid.kernels.types import Document
from hushgrid.node import status, system, wire
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.ledger_rows import Spend
from hushgrid.node.privacy.run_table import KEEP
from hushgrid.node.problems.plan import RunPlan
from hushgrid.node.runtime import daemon
from hushgrid.node.runtime.driver import Driver
from hushgrid.node.runtime.outcomes import Outcomes
from hushgrid.node.site.value_store import StoredValues, ValueStore
from hushgrid.node.wire import COORDINATOR, Birth, Finish, Mark, Topics

OUTCOMES = (".setpoints.csv", ".npz")  #: ends of names of what a run leaves on a device
LARGEST = 1 << 24  #: bytes of a message
Note = Callable[..., None]


def digest(blob: bytes) -> str:
    return hashlib.sha256(blob).hexdigest()[:16]


def _content(path: Path) -> bytes:
    """What a run has left, but for a walk's token: a device keeps that where it still has a copy."""
    if path.suffix != ".npz":
        return path.read_bytes()
    with np.load(path, allow_pickle=False) as file:
        return b"".join(name.encode() + file[name].tobytes() for name in file.files if not name.startswith("token_"))


def _mark(mark: Mark | None) -> tuple[str, int] | None:
    return None if mark is None else (mark.ledger.hex()[:8], mark.no)


class Recorder:
    """Of one simulation. `ledgers`: the open ones, by machine."""

    def __init__(self, fleet: str, place: Path, note: Note, refuses: Callable[[str], None]) -> None:
        """`refuses` is called with a device whose ledger is behind what others remember, each time it says so."""
        self.place = str(place).encode()
        self.topics, self.note, self.refuses = Topics(fleet), note, refuses
        self.ledgers: dict[str, Ledger] = {}
        self.stored: dict[str, dict[str, int]] = {}  #: numbers of marks that the coordinator has stored, by device
        self.rowed: dict[str, int] = {}  #: the last spend of each ledger that the history has
        self.runs: dict[str, bytes] = {}  #: whose outcome is written now, by machine
        self.files: dict[tuple[str, str], int] = {}  #: of sources: numbered in the order in which they came

    def sent(self, who: str, topic: str, payload: bytes, retain: bool, unsynced: bool | None = None) -> None:
        """A message that leaves, with what the ledger of its sender has now.

        unsynced: whether its disk lacks some of that; None: a broker speaks for it, by a last will.
        """
        blob = payload.replace(self.place, b"")  # a line about a file says where this life has its folder
        facts: Document = {"topic": topic, "size": len(blob), "retain": retain, "digest": digest(blob)}
        if unsynced is not None and (ledger := self.ledgers.get(who)) is not None:
            facts |= {"no": ledger.spends.no, "unsynced": unsynced}
        body = self._body(topic, payload)
        self.note("send", who, **facts, **body)
        refuses = body["body"] == "status" and status.decode(payload).refused == "mark"  # or has refused last
        if refuses and (ledger := self.ledgers.get(who)) is not None and ledger.refusal is not None:
            self.refuses(who)

    def rows(self, ledger: Ledger) -> list[tuple[int, str, float, float, float]]:
        """Spends that the history does not have yet: [number, kind, value, mu^2, running time]."""
        sql = "SELECT no, kind, value, mu2, ran FROM spend WHERE no > ? ORDER BY no"
        short = ledger.id.hex()[:8]
        rows = list(ledger.tables.db.execute(sql, (self.rowed.get(short, 0),)))
        self.rowed[short] = max([self.rowed.get(short, 0), *(row[0] for row in rows)])
        return rows

    def known(self, name: str) -> dict[str, int]:
        """What the coordinator has stored of a device's ledgers: {ledger: number}."""
        return self.stored.get(name, {})

    def stores(self, ledger: Ledger) -> None:
        """The coordinator's ledger has just stored what it remembers."""
        peers = ledger.marks.peers.peers
        self.stored = {name: {m.ledger.hex()[:8]: m.no for m in peer.counted} for name, peer in peers.items()}

    def kept(self, who: str, stored: StoredValues) -> None:
        """The values of a data version are stored on a device."""
        readings, key = stored.readings, (who, stored.stamp)
        if readings is None:
            return
        number = self.files.setdefault(key, len(self.files))
        timed = np.isfinite(readings.read)
        facts: Document = {"id": stored.ledger.hex()[:8], "version": stored.version, "file": number}
        facts["read"] = float(np.max(readings.read[timed], initial=0.0))
        facts["longest"] = float(np.max((readings.until - readings.read)[timed], initial=0.0))
        self.note("values", who, **facts)

    def outcome_written(self, who: str, path: Path) -> None:
        """A file has got its name: that of what a run has left, perhaps."""
        if path.name.endswith(OUTCOMES) and (run := self.runs.get(who)) is not None:
            self.note("outcome", who, run=run.hex()[:8], file=path.name, digest=digest(_content(path)))

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
        } | ({"stands": envelope.body.stands} if isinstance(envelope.body, wire.Join) else {})


@contextmanager
def recorded(recorder: Recorder) -> Iterator[None]:
    """While it is entered, what ledgers commit, what gates draw and what runs leave is noted."""

    class Watched(Ledger):
        def __init__(self, path: Path, node: str | None, mark: Path | None = None, *, keep: int = KEEP) -> None:
            super().__init__(path, node, mark, keep=keep)
            recorder.ledgers[self.node] = self
            facts: Document = {"id": self.id.hex()[:8], "no": self.spends.no, "behind": self.refusal is not None}
            recorder.note("ledger", self.node, **facts, rows=recorder.rows(self))

        def commit(self, run: bytes, *, spends: Iterable[Spend] = (), **keys: Any) -> None:
            spends = list(spends)
            first, version = self.spends.no + 1, keys.get("version")
            super().commit(run, spends=spends, **keys)
            if self.node == COORDINATOR:
                recorder.stores(self)
            short = self.id.hex()[:8]
            recorder.rowed[short] = max(recorder.rowed.get(short, 0), self.spends.no)
            if keys.get("status") in ("owed", "done") and self.node != COORDINATOR:
                recorder.note("ended", self.node, run=run.hex()[:8])
            for no, spend in enumerate(spends, first):
                facts: Document = {"kind": spend.kind, "value": spend.value, "honest": spend.honest}
                facts |= {
                    "answer": spend.answer,
                    "ran": self.spends.running,
                    "version": version or self.data_version,
                    "run": run.hex()[:8],
                }
                recorder.note("spent", self.node, id=short, no=no, **facts)

    release, write = Lattice.release, ValueStore._write

    def written(store: ValueStore, stored: StoredValues) -> None:
        write(store, stored)
        recorder.kept(store.ledger.node, stored)

    def released(lattice: Lattice, v: np.ndarray, n: np.ndarray) -> np.ndarray:
        if who := system.machine.name:
            recorder.note("drawn", who, digest=digest(v.tobytes() + n.tobytes()))
        return release(lattice, v, n)

    keep, begin, end = Outcomes.keep, Intervals.begin, Intervals.end

    def keeps(outcomes: Outcomes, driver: Driver, plan: RunPlan, finish: Finish | None = None) -> None:
        recorder.runs[driver.node] = driver.run
        keep(outcomes, driver, plan, finish)

    def begun(intervals: Intervals) -> Coordinator:
        coordinator = begin(intervals)
        recorder.note("begins", COORDINATOR, interval=intervals.schedule.number)
        return coordinator

    def ended(intervals: Intervals, coordinator: Coordinator, broker: bool = True) -> str:
        line = end(intervals, coordinator, broker)
        if (last := intervals.last) is not None:
            facts: Document = {"outcome": last.outcome, "cause": last.cause, "absent": list(last.absent)} | {
                "refused": list(last.refused)
            }
            recorder.note("ends", COORDINATOR, interval=last.number, **facts)
        return line

    with ExitStack() as patches:
        patches.enter_context(patch.object(daemon, "Ledger", Watched))
        patches.enter_context(patch.object(coordinator_daemon, "Ledger", Watched))
        patches.enter_context(patch.object(Lattice, "release", released))
        patches.enter_context(patch.object(ValueStore, "_write", written))
        patches.enter_context(patch.object(Outcomes, "keep", keeps))
        patches.enter_context(patch.object(Intervals, "begin", begun))
        patches.enter_context(patch.object(Intervals, "end", ended))
        yield
