"""The log in front of a ledger's tables: one write and one sync a step, whatever the tables would cost.

A step appends one record; the tables get many of them in one transaction, a checkpoint. The file has a fixed number of
blocks (96 blocks of 4096 bytes, or more where steps are large), is filled with zeros and synced once, and is never cut or
grown while it holds something: so a sync writes nothing but data. A record is written past the system's cache where the
file system can do that: in whole sectors then, not in whole pages of memory. It starts on a block of its own:

    u32 length | u32 CRC-32 of all that follows | u64 seq | 16 bytes: the ledger's id | a record in MessagePack

`seq` rises for ever. The tables say which seq they have applied. At a start the records applied + 1, applied + 2, ...
are read from block 0 on, up to the first that is not whole; they are what the tables still lack.

Why the ledger never shows less than what has left: message k leaves after the sync of record k. Records are written one
at a time and in order, so 1..k are on the disk. A block is written again only after the tables have what stood there,
durably. So k is in the tables, or whole in the log, with all between them. Only the record under way can be torn: its
checksum fails, and nothing of it had left. After a sync that failed nothing is written any more: what the disk then
holds nobody knows, and a second sync may say that all is well.
"""

from __future__ import annotations

import errno
import mmap
import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from hushgrid.node.durable import sync_folder
from hushgrid.node.peer_marks import Peer
from hushgrid.node.privacy.ledger_file import LedgerFailed
from hushgrid.node.privacy.ledger_rows import Spend
from hushgrid.node.privacy.run_table import RunTable
from hushgrid.node.privacy.spend_table import costs_of

BLOCK = 4096  #: bytes; no sector of a disk is larger
BLOCKS = 96  #: of a log whose records are small
MOST_BLOCKS = 1024  #: of any log
SECTORS = (512, BLOCK)  #: bytes of which a write past the system's cache may have to be a multiple
RECORDS = 4  #: that a log holds at least: a step that is larger goes straight to the tables
_HEAD = struct.Struct("<II")
_WHOSE = struct.Struct("<Q16s")


class Record(Struct, array_like=True, frozen=True):
    """What one step did."""

    run: bytes
    state: bytes | None
    status: str | None
    no: int  #: number of its first spend
    spends: list[Spend]
    at: str  #: UTC
    ran: float  #: running time, s
    version: int  #: of the data
    history: tuple[int, float | None, int, int] | None  #: (round, residual, messages, bytes)
    peers: tuple[tuple[str, Peer], ...] = ()  #: whose marks have risen since the record before


class Behind(Exception):
    """The first record of the log is not the next that the tables lack: they are older than it."""


class LedgerLog:
    """The log of the ledger with this id, in a file kept open. `sync`: a power cut takes nothing that was appended.

    Methods raise OSError if the disk fails.
    """

    def __init__(self, path: Path, ledger: bytes, sync: bool) -> None:
        self.path, self.ledger, self.sync = path, ledger, sync
        self.blocks = BLOCKS
        self._file = -1
        self._sector, self._buffer = BLOCK, memoryview(b"")  #: of a write; the memory that it is written from
        self._next = 0  #: block at which the next record starts
        self.unsure = False  #: a sync has failed: what the disk holds, nobody knows
        self.wants = BLOCKS  #: blocks that would hold RECORDS of the largest step so far

    @property
    def open(self) -> bool:
        return self._file >= 0

    def exists(self) -> bool:
        return self.path.exists()

    def read(self, applied: int) -> list[Record]:
        """The records after `applied`, in order. Raises Behind."""
        return records(self.path.read_bytes(), self.ledger, applied)

    def create(self) -> None:
        """Makes the file, full of zeros, or empties the one that is there; it and its name are on the disk then."""
        self.close()
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self.blocks = max(BLOCKS, min(self.wants, MOST_BLOCKS))
            os.ftruncate(file, self.blocks * BLOCK)
            _write(file, bytes(self.blocks * BLOCK), 0)
            if self.sync:
                os.fsync(file)
                sync_folder(self.path.parent)
        except BaseException:
            os.close(file)
            raise
        self._file, self._next = file, 0
        self._buffer = memoryview(mmap.mmap(-1, self.blocks // RECORDS * BLOCK))
        self._past_the_cache()

    def _past_the_cache(self) -> None:
        """Has the file written past the system's cache, in sectors as small as it takes, where it can."""
        self._sector = BLOCK
        if not self.sync:
            return
        for sector in SECTORS:
            with suppress(OSError):
                direct = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | getattr(os, "O_DIRECT", 0))
                try:
                    written = os.pwrite(direct, self._buffer[:sector], 0)
                except BaseException:
                    os.close(direct)
                    raise
                if written == sector:
                    os.close(self._file)
                    self._file, self._sector = direct, sector
                    return
                os.close(direct)

    def fits(self, record: bytes) -> bool:
        """Whether a record can be appended now, without a checkpoint before it."""
        return self._next + _blocks(record) <= self.blocks

    def takes(self, record: bytes) -> bool:
        """Whether a record can be appended at all."""
        self.wants = max(self.wants, RECORDS * _blocks(record))
        return RECORDS * _blocks(record) <= self.blocks

    def append(self, record: bytes, seq: int) -> None:
        """Writes a record; it is on the disk when this returns."""
        framed = frame(record, self.ledger, seq)
        framed += bytes(-len(framed) % self._sector)
        self._buffer[: len(framed)] = framed
        _write(self._file, self._buffer[: len(framed)], self._next * BLOCK)
        if self.sync:
            self.unsure = True
            os.fdatasync(self._file)
            self.unsure = False
        self._next += _blocks(record)

    def restart(self) -> None:
        """The tables have all of it, durably: the next record starts at block 0."""
        self._next = 0

    def close(self) -> None:
        if self.open:
            os.close(self._file)
            self._file = -1

    def remove(self) -> None:
        """The end of the log: the tables have all of it, durably, and say that there is none."""
        self.close()
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


def encoded(record: Record) -> bytes:
    return msgspec.msgpack.encode(record)


def frame(record: bytes, ledger: bytes, seq: int) -> bytes:
    """A record as it stands in the file, without the rest of its last block."""
    body = _WHOSE.pack(seq, ledger) + record
    return _HEAD.pack(len(body), zlib.crc32(body)) + body


def records(blob: bytes, ledger: bytes, applied: int) -> list[Record]:
    """The records of a log, given as its bytes, that come after `applied`. Raises Behind."""
    found: list[Record] = []
    at = 0
    while at + _HEAD.size + _WHOSE.size <= len(blob):
        size, check = _HEAD.unpack_from(blob, at)
        body = blob[at + _HEAD.size : at + _HEAD.size + size]
        if not _WHOSE.size < size == len(body) or zlib.crc32(body) != check:
            break
        seq, whose = _WHOSE.unpack_from(body)
        if whose != ledger or seq != applied + len(found) + 1:
            if not found and whose == ledger and seq > applied:
                raise Behind
            break
        found.append(msgspec.msgpack.decode(body[_WHOSE.size :], type=Record))
        at += -(-(_HEAD.size + size) // BLOCK) * BLOCK
    return found


def _blocks(record: bytes) -> int:
    return -(-(_HEAD.size + _WHOSE.size + len(record)) // BLOCK)


def _write(file: int, blob: bytes | memoryview, at: int) -> None:
    while blob:
        done = os.pwrite(file, blob, at)
        blob, at = blob[done:], at + done


#: By accepting that the tables lack what the log had, its owner begins a new branch: no record of the old one is its next.
BRANCH = 1 << 32


class LoggedTables(RunTable):
    """A ledger's tables with the log in front of them.

    A step appends its record, and what is kept in memory follows. The tables follow at a checkpoint: before anything
    else is asked of them, if the log is full, and at the end. A ledger that need not survive a power cut has no log.
    """

    _waiting: list[Record] = []  # noqa: RUF012  (before anything is read)
    _gone = False  #: the tables have all of the log, and say that there is none

    def _load(self) -> None:
        super()._load()
        self._applied: int = self._meta("applied") or 0
        self._waiting = []  #: in the log, and not in the tables
        self._front = LedgerLog(self._ahead_log, self.id, self.durable)
        if not self.torn and self._front.exists():
            self._recover()
        self._torn_now = self.torn

    def _recover(self) -> None:
        """Brings what the log holds into the tables; if they are older than the log, it stays, and `torn` says so."""
        try:
            found = self._front.read(self._applied)
            for record in found:
                if record.spends and record.no != self.no + 1:
                    raise Behind
                self._take(record)
        except Behind:
            self._waiting, self._changed = [], set()
            with self._transaction():
                self._set(torn=2)
            super()._load()
            return
        self._checkpoint()

    def _take(self, record: Record) -> None:
        """A record is durable: what is kept in memory follows."""
        costs = costs_of(record.spends)
        price = self._price_after(costs)
        changed = self._count(
            costs, record.run, record.version
        )  # which may ask the tables, and so brings into them what waits
        self._waiting.append(record)
        self._changed |= changed
        self._ran = max(self._ran, record.ran)
        self._counted_now({}, price, costs)

    def _log_step(self, record: Record) -> bool:
        """Appends a record and follows it. False if it belongs into the tables. Raises LedgerFailed."""
        if not self.durable or self._torn_now:
            return False
        blob, front = encoded(record), self._front
        try:
            if front.unsure:
                raise OSError(errno.EIO, "its disk has failed before")
            self._make_log()
            if not front.takes(blob):
                return False
            if not front.fits(blob):
                self._checkpoint()
            front.append(blob, self._applied + len(self._waiting) + 1)
        except OSError as error:
            raise LedgerFailed(
                f"{front.path}: {error.strerror}, expected to write the ledger: nothing was released"
            ) from None
        self._take(record)
        return True

    def _make_log(self) -> None:
        """The log is there, and the tables say so. Raises OSError, LedgerFailed."""
        if not self._front.open:
            self._front.create()
            with self._transaction():
                self._set(log=1)

    def join(self, run: bytes, plan: bytes, status: str = "joined") -> None:
        """Store a plan, as `RunTable.join`; the log is made now, so that a step between its draw and its record is short."""
        super().join(run, plan, status)
        if self.durable and not self._torn_now and status == "joined":
            with suppress(OSError):  # the step will say so
                self._make_log()

    def checkpoint(self) -> None:
        """Brings what is only in the log into the tables. Raises LedgerFailed if the disk does not take it."""
        self._before_tables()

    def _before_tables(self) -> None:
        if self._opened and self._waiting:
            self._checkpoint()

    def _checkpoint(self) -> None:
        with self._transaction():
            pass

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """What only the log has goes into the same transaction; the log is written anew only once that is durable."""
        waiting, self._waiting = self._waiting, []
        try:
            with super()._transaction():
                if waiting:
                    for record in waiting:
                        self._insert(record.run, record.no, record.spends, (record.at, record.ran, record.version))
                    self._last_states(waiting)
                    self._write_peers(change for record in waiting for change in record.peers)
                    self._write_sums({key: self._sums[key] for key in self._changed if key in self._sums}, self._price)
                    self._set(applied=self._applied + len(waiting), ran=self._ran)
                yield
        except BaseException:
            self._waiting = waiting
            raise
        if waiting:
            self._applied += len(waiting)
            self._changed = set()
            self._front.restart()

    def _last_states(self, waiting: list[Record]) -> None:
        """Inside a transaction: of each run the last state and status, its number of spends, and its rounds."""
        for run in dict.fromkeys(record.run for record in waiting):
            of_run = [record for record in waiting if record.run == run]
            state, status = (
                next((getattr(r, name) for r in reversed(of_run) if getattr(r, name) is not None), None)
                for name in ("state", "status")
            )
            spends = sum(len(record.spends) for record in of_run)
            self.db.execute(
                "UPDATE run SET state = coalesce(?, state), status = coalesce(?, status), spends = spends + ? WHERE id = ?",
                (state, status, spends, run),
            )
            rounds = {r.history[0]: (run, *r.history) for r in of_run if r.history}
            self.db.executemany("INSERT OR REPLACE INTO history VALUES (?,?,?,?,?)", list(rounds.values()))

    def _write_peers(self, changed: Iterable[tuple[str, Peer]]) -> None:
        """Inside a transaction."""
        rows = [(node, msgspec.msgpack.encode(marks)) for node, marks in changed]
        self.db.executemany("INSERT OR REPLACE INTO peer VALUES (?, ?)", rows)

    def _new_branch(self) -> None:
        """Inside a transaction: the owner has accepted that what the log had is lost."""
        if self.torn:
            self._set(applied=self._applied + BRANCH)
            self.db.execute("DELETE FROM meta WHERE key IN ('torn', 'log')")

    def _branched(self) -> None:
        """After that transaction."""
        if self._torn_now:
            self._applied, self._torn_now = self._meta("applied"), False
            self._front.remove()

    def _let_go(self) -> None:
        """In order: the tables get all of the log, say that there is none, and then it goes."""
        try:
            self._before_tables()
        except LedgerFailed:  # a disk that is full keeps the log, and loses nothing
            return
        if self._held and self._opened and not self._torn_now:
            self.db.execute("DELETE FROM meta WHERE key = 'log'")
            self._gone = True
        super()._let_go()

    def _let_log_go(self) -> None:
        if hasattr(self, "_front"):
            self._front.remove() if self._gone else self._front.close()
