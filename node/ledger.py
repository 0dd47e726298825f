"""The device's memory of what it has revealed: one SQLite file, one transaction for spends, state and sends.

Events are stored, costs are computed from them. A step's spends, the machine's state (from which its messages follow)
and what the gate must repeat are committed together, durably, before anything of them is published: the ledger never
shows less than what has left the device. The high-water mark, (ledger id, last spend number, their price), is kept
outside twice: in a second file, and by every peer.
"""

from __future__ import annotations

import copy
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from typing import Any

import msgspec

from hushgrid.kernels.accounting import Event, Totals
from hushgrid.kernels.errors import InputError, Stopped
from hushgrid.node.records import FORMAT, SCHEMA, Spend, StoredRun, StoredSpend, events_of
from hushgrid.node.wire import Mark


class LedgerFailed(Stopped):
    """The disk does not take the ledger: the device stops, having released nothing; its restart goes on from there."""


#: Any run under way ends.
STOP = "UPDATE run SET status = 'stopped' WHERE status IN ('joined', 'running')"


class Ledger:
    """An open ledger; one process holds it. `node` is checked against the file's, `mark` is the outside file."""

    def __init__(self, path: Path, node: str, mark: Path | None = None) -> None:
        self.path, self.node, self.mark_path = path, node, mark
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
            self.db = sqlite3.connect(path, isolation_level=None, timeout=0.5)
            self.db.execute("PRAGMA locking_mode = EXCLUSIVE")
            mode = self.db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            self.db.execute("PRAGMA synchronous = FULL")
            # A log that grows pays the file system's journal at every commit, one that is reused does not: 0.25 or
            # 0.13 ms on ext4. So it is reused early, and stays below half a megabyte.
            self.db.execute("PRAGMA wal_autocheckpoint = 100")
            if mode != "wal" or self.db.execute("PRAGMA synchronous").fetchone()[0] != 2:
                raise InputError(
                    f"{path}: found journal mode {mode}, expected a disk that can keep a WAL with full sync"
                )
            with self._transaction():
                if not self.db.execute("SELECT 1 FROM sqlite_master").fetchone():
                    self._create(node)
            owner, form = self._meta("node"), self._meta("format")
            if (owner, form) != (node, FORMAT):
                raise InputError(
                    f"{path}: found the ledger of {owner!r} (format {form}), expected {node!r} (format {FORMAT})"
                )
            self.no: int = self.db.execute("SELECT coalesce(max(no), 0) FROM spend").fetchone()[0]
            self._totals: dict[str, Totals] = {}
            self._price: tuple[float, float, bool] = (0.0, 0.0, False)
            for row in self.db.execute("SELECT kind, value, mu2, adjacency FROM spend ORDER BY no"):
                self._count(*row)
            self.id: bytes = self._meta("ledger")
            self.sync_mark()
        except InputError:
            self._give_up()
            raise
        except sqlite3.OperationalError as error:
            self._give_up()
            if "locked" in str(error):
                raise InputError(f"{path}: held by another process, expected one process per ledger") from None
            raise InputError(f"{path}: {error}, expected a writable ledger") from None
        except (sqlite3.DatabaseError, OSError, TypeError, ValueError) as error:  # the last two: values out of place
            self._give_up()
            raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}, expected a ledger") from None

    def __del__(self) -> None:
        # Ending without `close` loses nothing (kill -9 does the same); only the file handle must not outlive us.
        self._give_up()

    def _give_up(self) -> None:
        with suppress(AttributeError, sqlite3.Error):
            self.db.close()

    def _create(self, node: str) -> None:
        for statement in SCHEMA.split(";"):
            self.db.execute(statement)
        values = {"format": FORMAT, "ledger": os.urandom(16), "node": node, "session": 0}
        self.db.executemany("INSERT INTO meta VALUES (?, ?)", values.items())

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            self.db.execute("BEGIN IMMEDIATE")
            yield
            self.db.execute("COMMIT")
        except BaseException as error:
            with suppress(sqlite3.Error):
                self.db.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error) and hasattr(self, "id"):
                raise LedgerFailed(
                    f"{self.path}: {error}, expected to write the ledger: nothing was released"
                ) from None
            raise

    def _meta(self, key: str) -> Any:
        row = self.db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return row[0] if row else None

    def _count(self, kind: str, value: float, mu2: float, adjacency: str) -> None:
        totals = self._totals.setdefault(adjacency, Totals())
        for event in events_of(kind, value, mu2):
            totals.add(event)
        epsilon, total_mu2, nonprivate = self._price
        if kind in ("laplace", "gap"):
            epsilon += value
        self._price = (epsilon, total_mu2 + mu2, nonprivate or value == inf)

    # --- what a device has spent ---

    def totals(self, adjacency: str) -> Totals:
        """Everything spent under one adjacency, and what counts under every one (a copy)."""
        totals = copy.copy(self._totals.get(adjacency, Totals()))
        for event in self.events("", but=b"") if adjacency and "" in self._totals else ():
            totals.add(event)
        return totals

    def events(self, adjacency: str, but: bytes) -> list[Event]:
        """The events under one adjacency, or under every one, of all runs but one."""
        rows = self.db.execute(
            "SELECT kind, value, mu2 FROM spend WHERE adjacency IN (?, '') AND run IS NOT ? ORDER BY no",
            (adjacency, but),
        )
        return [e for row in rows for e in events_of(*row)]

    @property
    def adjacencies(self) -> list[str]:
        return sorted(a for a in self._totals if a)

    @property
    def mark(self) -> Mark:
        return Mark(self.id, self.no, *self._price)

    def mark_after(self, spends: Iterable[Spend]) -> Mark:
        """The mark as it will be once these spends are committed."""
        no, (epsilon, mu2, nonprivate) = self.no, self._price
        for s in spends:
            no += 1
            epsilon += s.value if s.kind == "laplace" else 0.0
            mu2 += s.value**2 if s.kind == "gaussian" else 0.0
            nonprivate = nonprivate or s.value == inf
        return Mark(self.id, no, epsilon, mu2, nonprivate)

    def behind(self, told: Mark) -> bool:
        """Whether somebody remembers more of this device than the ledger does."""
        if told.ledger == self.id:
            return told.no > self.no
        return told.no > 0 and told.ledger.hex() not in (self._meta("accepted") or "")

    def tell(self, told: Mark) -> bool:
        """A peer's (or the mark file's) memory of this ledger. True, and kept for `accept`, where it is behind."""
        if not self.behind(told):
            return False
        if (known := self._told()) and self.behind(known) and known.no >= told.no:
            return True
        with self._transaction():
            self.db.execute("INSERT OR REPLACE INTO meta VALUES ('told', ?)", (msgspec.msgpack.encode(told),))
        return True

    def told(self) -> Mark | None:
        """The mark this ledger is behind, from its file or a peer; None where it is not behind."""
        behind = [m for m in (self._read_mark(), self._told()) if m and self.behind(m)]
        return max(behind, key=lambda m: m.no, default=None)

    def _told(self) -> Mark | None:
        blob = self._meta("told")
        return msgspec.msgpack.decode(blob, type=Mark) if blob else None

    def accept(self) -> Mark | None:
        """The owner records the gap to `told` as spent, at the price the mark carries. None where there is no gap.

        A mark does not say under which adjacency it was spent, so a gap counts under every one.
        """
        told = self.told()
        if told is None:
            return None
        own = self._price if told.ledger == self.id else (0.0, 0.0, False)
        value, mu2 = (max(t - o, 0.0) if o < inf else 0.0 for t, o in zip((told.epsilon, told.mu2), own, strict=False))
        if told.nonprivate and not own[2]:
            value = inf
        no = told.no if told.ledger == self.id else self.no + told.no
        row = (no, None, None, "gap", value, None, None, None, "", "", mu2, _now())
        with self._transaction():
            self.db.execute("INSERT INTO spend VALUES (?,?,?,?,?,?,?,?,?,?,?,?)", row)
            accepted = (self._meta("accepted") or "") + told.ledger.hex() + " "
            self.db.execute("INSERT OR REPLACE INTO meta VALUES ('accepted', ?)", (accepted,))
            self.db.execute("DELETE FROM meta WHERE key = 'told'")
        self.no = no
        self._count("gap", value, mu2, "")
        self.sync_mark(force=True)
        return told

    # --- the one transaction ---

    def commit(
        self, run: bytes, *, spends: Iterable[Spend] = (), state: bytes | None = None, status: str | None = None,
        last: bytes | None = None, answers: Iterable[tuple[bytes, bytes]] = (),
        history: tuple[int, float | None, int, int] | None = None,
    ) -> None:  # fmt: skip
        """Everything a step did, durable when this returns. Nothing of it may be published before."""
        now = _now()
        rows = [
            (no, run, s.answer, s.kind, s.value, s.sensitivity, s.scale, s.grid, s.adjacency, s.sampler,
             s.value**2 if s.kind == "gaussian" else 0.0, now)
            for no, s in enumerate(spends, start=self.no + 1)
        ]  # fmt: skip
        with self._transaction():
            if rows:
                self.db.executemany("INSERT INTO spend VALUES (?,?,?,?,?,?,?,?,?,?,?,?)", rows)
            self.db.execute(
                "UPDATE run SET state = coalesce(?, state), status = coalesce(?, status), last = coalesce(?, last) "
                "WHERE id = ?",
                (state, status, last, run),
            )
            if answers := list(answers):
                self.db.executemany("INSERT OR IGNORE INTO answer VALUES (?, ?)", answers)
            if history:
                self.db.execute("INSERT OR REPLACE INTO history VALUES (?,?,?,?,?)", (run, *history))
        self.no += len(rows)
        for row in rows:
            self._count(row[3], row[4], row[10], row[8])
        if rows:
            self.sync_mark()

    @property
    def session(self) -> int:
        """Starts of the device so far."""
        return int(self._meta("session"))

    def new_session(self) -> int:
        """One more start of the device, counted for ever; the number is part of every run it joins."""
        session = self.session + 1
        with self._transaction():
            self.db.execute("UPDATE meta SET value = ? WHERE key = 'session'", (session,))
        return session

    # --- runs ---

    def join(self, run: bytes, plan: bytes, status: str = "joined") -> None:
        """Store a plan: from here on the run is known. Any other run under way is stopped where this one is joined."""
        with self._transaction():
            if status == "joined":
                self.db.execute(STOP)
            self.db.execute("INSERT OR IGNORE INTO run VALUES (?,?,?,NULL,NULL,?)", (run, plan, status, _now()))

    def abandon(self) -> None:
        """Whatever run is under way is stopped; what it has spent stays."""
        with self._transaction():
            self.db.execute(STOP)

    def run(self, run: bytes) -> StoredRun | None:
        return next(iter(self.runs("WHERE id = ?", run)), None)

    def open_run(self) -> StoredRun | None:
        """The run under way when the process ended, if any."""
        return next(iter(self.runs("WHERE status IN ('joined', 'running')")), None)

    def last_run(self) -> StoredRun | None:
        """The run joined last."""
        return next(iter(self.runs("ORDER BY rowid DESC LIMIT 1")), None)

    def runs(self, which: str = "ORDER BY rowid", *values: bytes) -> list[StoredRun]:
        """Every run known, in the order of joining; or those that a clause of SQL chooses."""
        rows = self.db.execute(f"SELECT id, plan, status, state, last, started FROM run {which}", values)
        return [StoredRun(*row) for row in rows]

    def answer(self, key: bytes) -> bytes | None:
        """A gate answer that is to be repeated (mode input), by its key."""
        row = self.db.execute("SELECT value FROM answer WHERE key = ?", (key,)).fetchone()
        return row[0] if row else None

    def history(self, run: bytes) -> list[tuple[int, float, int, int]]:
        """(round, consensus residual, messages, bytes) a round."""
        return self.db.execute(
            "SELECT round, residual, messages, bytes FROM history WHERE run = ? ORDER BY round", (run,)
        ).fetchall()

    def spends(self, run: bytes | None = None) -> list[StoredSpend]:
        """What has been spent, in order, in one run or in all."""
        rows = self.db.execute(
            f"SELECT {', '.join(StoredSpend._fields)} FROM spend WHERE ?1 IS NULL OR run = ?1 ORDER BY no", (run,)
        )
        return [StoredSpend(*row) for row in rows]

    # --- peers' marks ---

    def remember_peers(self, marks: dict[str, Mark]) -> None:
        """The highest marks seen of others, durable."""
        with self._transaction():
            rows = [(node, msgspec.msgpack.encode(mark)) for node, mark in marks.items()]
            self.db.executemany("INSERT OR REPLACE INTO peer VALUES (?, ?)", rows)

    def peers(self) -> dict[str, Mark]:
        rows = self.db.execute("SELECT node, mark FROM peer").fetchall()
        return {node: msgspec.msgpack.decode(mark, type=Mark) for node, mark in rows}

    # --- the mark outside ---

    def _read_mark(self) -> Mark | None:
        if self.mark_path is None:
            return None
        try:
            blob = self.mark_path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError(f"{self.mark_path}: {error.strerror}, expected a readable mark") from None
        try:
            return msgspec.msgpack.decode(blob, type=Mark)
        except (msgspec.DecodeError, ValueError):
            raise InputError(
                f"{self.mark_path}: found {len(blob)} unreadable bytes, expected a mark of a ledger"
            ) from None

    def sync_mark(self, force: bool = False) -> None:
        """Write the mark after the commit it stands for, never before: it may lag a power cut, never run ahead."""
        if self.mark_path is None or (not force and self.told() is not None):
            return
        try:
            self.mark_path.parent.mkdir(parents=True, exist_ok=True)
            temporary = self.mark_path.with_name(self.mark_path.name + ".new")
            temporary.write_bytes(msgspec.msgpack.encode(self.mark))
            os.replace(temporary, self.mark_path)
        except OSError as error:
            raise InputError(f"{self.mark_path}: {error.strerror}, expected a writable mark") from None

    def verify(self) -> list[str]:
        """What is wrong with this ledger, a line each; nothing where it is whole."""
        try:
            wrong = [f"integrity: {row[0]}" for row in self.db.execute("PRAGMA integrity_check") if row[0] != "ok"]
        except sqlite3.DatabaseError as error:
            return [f"integrity: {error}"]
        if wrong:
            return wrong
        previous, gaps = 0, dict(self.db.execute("SELECT no, no FROM spend WHERE kind = 'gap'").fetchall())
        for (no,) in self.db.execute("SELECT no FROM spend ORDER BY no"):
            if no != previous + 1 and no not in gaps:
                wrong.append(f"spends {previous + 1} to {no - 1} are missing")
            previous = no
        if told := self.told():
            wrong.append(f"behind its mark: spend {self.no}, the mark says {told.no}")
        return wrong

    def close(self) -> None:
        self.db.close()

    def copy_to(self, path: Path) -> None:
        """A consistent copy for a run directory: it holds gate answers and public data only."""
        self.db.execute("VACUUM INTO ?", (str(path),))


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
