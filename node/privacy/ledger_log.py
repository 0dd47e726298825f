"""The log in front of a ledger's tables: one write and one sync a step, whatever the tables would cost.

A step appends one record; the tables get many of them in one transaction, a checkpoint. The file has a fixed number of
blocks (96 blocks of 4096 bytes, or more where steps are large), is filled with zeros and synced once, and is never cut
or grown while it holds something: so a sync writes nothing but data. A record is written past the system's cache where
the file system can do that: in whole sectors then, not in whole pages of memory. It starts on a block of its own:

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
import sqlite3
import struct
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from hushgrid.node import system
from hushgrid.node.durable import sync_folder, write
from hushgrid.node.peer_marks import Peer
from hushgrid.node.privacy.ledger_file import Column, LedgerFailed, LedgerFile, VolatileFile
from hushgrid.node.privacy.ledger_rows import Spend

BLOCK = 4096  #: bytes; no sector of a disk is larger
BLOCKS = 96  #: of a log whose records are small
MOST_BLOCKS = 1024  #: of any log
SECTORS = (512, BLOCK)  #: bytes of which a write past the system's cache may have to be a multiple
BUFFERED = 256  #: records that wait at most where there is no log
WIDE = 1 << 18  #: bytes of a state that is looked at before its record is made
RECORDS = 4  #: that a log holds at least: a step that is larger goes straight to the tables
_HEAD = struct.Struct("<II")
_WHOSE = struct.Struct("<Q16s")


@lru_cache(maxsize=8)  # of the rows of one second
def _utc(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(second))


Round = tuple[int, float | None, int, int]  #: (round, residual, messages, bytes)


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
    history: Round | None
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
        file = system.machine.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self.blocks = max(BLOCKS, min(self.wants, MOST_BLOCKS))
            system.machine.truncate(file, self.blocks * BLOCK)
            write(file, bytes(self.blocks * BLOCK), 0)
            if self.sync:
                system.machine.sync(file)
                sync_folder(self.path.parent)
        except BaseException:
            system.machine.close(file)
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
                direct = system.machine.open(self.path, os.O_RDWR | os.O_CLOEXEC | getattr(os, "O_DIRECT", 0))
                try:
                    written = system.machine.pwrite(direct, self._buffer[:sector], 0)
                except BaseException:
                    system.machine.close(direct)
                    raise
                if written == sector:
                    system.machine.close(self._file)
                    self._file, self._sector = direct, sector
                    return
                system.machine.close(direct)

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
        write(self._file, self._buffer[: len(framed)], self._next * BLOCK)
        if self.sync:
            self.unsure = True
            system.machine.datasync(self._file)
            self.unsure = False
        self._next += _blocks(record)

    def restart(self) -> None:
        """The tables have all of it, durably: the next record starts at block 0."""
        self._next = 0

    def close(self) -> None:
        if self.open:
            system.machine.close(self._file)
            self._file = -1

    def remove(self) -> None:
        """The end of the log: the tables have all of it, durably, and say that there is none."""
        self.close()
        with suppress(OSError):
            system.machine.unlink(self.path)


def encoded(record: Record) -> bytes:
    return msgspec.msgpack.encode(record)


def frame(record: bytes, ledger: bytes, seq: int) -> bytes:
    """A record as it stands in the file, without the rest of its last block."""
    body = _WHOSE.pack(seq, ledger) + record
    return _HEAD.pack(len(body), zlib.crc32(body)) + body


def records(blob: bytes, ledger: bytes, applied: int) -> list[Record]:
    """The records of a log, as its bytes, that come after `applied`. Raises Behind."""
    following: list[Record] = []
    start = 0
    while start + _HEAD.size + _WHOSE.size <= len(blob):
        size, check = _HEAD.unpack_from(blob, start)
        body = blob[start + _HEAD.size : start + _HEAD.size + size]
        if not _WHOSE.size < size == len(body) or zlib.crc32(body) != check:
            break
        seq, whose = _WHOSE.unpack_from(body)
        if whose != ledger or seq != applied + len(following) + 1:
            if not following and whose == ledger and seq > applied:
                raise Behind
            break
        following.append(msgspec.msgpack.decode(body[_WHOSE.size :], type=Record))
        start += -(-(_HEAD.size + size) // BLOCK) * BLOCK
    return following


def _blocks(record: bytes) -> int:
    return -(-(_HEAD.size + _WHOSE.size + len(record)) // BLOCK)


#: By accepting that the tables lack what the log had, its owner begins a new branch: no record of the old one is its
#: next.
BRANCH = 1 << 32


class Part(Protocol):
    """A part of a ledger, with tables of its own."""

    def apply(self, waiting: list[Record]) -> None:
        """Inside a transaction: writes its share of these records into its tables."""


class Tables:
    """The file of a ledger, its log, and the records that only the log has. Methods raise LedgerFailed if the disk
    fails.
    """

    def __init__(self, path: Path, durable: bool, buffered: bool = False) -> None:
        """`buffered`: there are no files; records wait, BUFFERED of them, before tables in memory get them."""
        self.path, self.buffered = path, buffered
        self.file = VolatileFile(path, durable) if buffered else LedgerFile(path, durable)
        self.parts: list[Part] = []  #: that write their share of a record
        self.waiting: list[Record] = []  #: in the log, and not in the tables
        self.id = b""  #: the ledger's
        self.log: LedgerLog | None = None  #: once the file is open
        self._applied = 0  #: number of the last record that the tables have
        self._torn_now = False  #: without its -wal or -log: nothing is appended until its owner accepts that
        self._emptied = False  #: the tables have all of the log, and say that there is none

    def open(self, node: str | None) -> None:
        """As `LedgerFile.open`."""
        self.file.open(node)
        self.id = self.meta("ledger")
        self._applied = self.meta("applied") or 0
        self.log = LedgerLog(self.file.log_path, self.id, self.file.durable)

    @property
    def db(self) -> sqlite3.Connection:
        """For statements inside a transaction."""
        return self.file.db

    @property
    def torn(self) -> bool:
        """Whether it was found without its -wal or its -log, and its owner has not accepted that."""
        return self.meta("torn") is not None

    # --- rows ---

    def ask(self, query: str, values: Sequence[Column] = ()) -> list[Any]:
        """The rows that answer a query."""
        self.checkpoint()
        return self.file.ask(query, values)

    def meta(self, key: str) -> Any:
        """A single value of the ledger, by its name; None if there is none."""
        self.checkpoint()
        return self.file.meta(key)

    def set(self, **values: Column) -> None:
        """Inside a transaction."""
        self.file.set(**values)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """What only the log has goes into the same transaction; the log is written anew only once that is durable."""
        waiting, self.waiting = self.waiting, []
        try:
            with self.file.transaction():
                if waiting:
                    for part in self.parts:
                        part.apply(waiting)
                    self.set(applied=self._applied + len(waiting))
                yield
        except BaseException:
            self.waiting = waiting
            raise
        if waiting and self.log:
            self._applied += len(waiting)
            self.log.restart()

    def checkpoint(self) -> None:
        """Brings what is only in the log into the tables."""
        if self.file.opened and self.waiting:
            with self.transaction():
                pass

    @staticmethod
    def now() -> str:
        """UTC, for the rows."""
        return _utc(int(system.wall()))

    # --- the log ---

    def unapplied(self) -> list[Record]:
        """What the log has, and the tables lack. Raises Behind if they are older than the log."""
        self._torn_now = self.torn
        return self.log.read(self._applied) if self.log and self.log.exists() and not self._torn_now else []

    def tear(self) -> None:
        """The tables are older than the log, which stays: nothing goes on before the owner has accepted that."""
        self.waiting = []
        with self.transaction():
            self.set(torn=2)
        self._torn_now = True

    def append(self, record: Record) -> bool:
        """Appends a record. False if it belongs into the tables. Raises LedgerFailed if the disk does not take it."""
        if self.buffered:
            if len(self.waiting) >= BUFFERED:
                self.checkpoint()
            return True
        log = self.log
        if log is None or not self.file.durable or self._torn_now:
            return False
        try:
            if log.unsure:
                raise OSError(errno.EIO, "its disk has failed before")
            self._make_log(log)
            if record.state and len(record.state) > WIDE and not log.takes(record.state):  # not encoded for nothing
                return False
            blob = encoded(record)
            if not log.takes(blob):
                return False
            if not log.fits(blob):
                self.checkpoint()
            log.append(blob, self._applied + len(self.waiting) + 1)
        except OSError as error:
            raise LedgerFailed(
                f"{log.path}: {error.strerror}, expected to write the ledger: nothing was released"
            ) from None
        return True

    def prepare_log(self) -> None:
        """Makes the log now, so that a step between its draw and its record is short; if that fails, the step says
        so.
        """
        if self.log and self.file.durable and not self._torn_now:
            with suppress(OSError):
                self._make_log(self.log)

    def _make_log(self, log: LedgerLog) -> None:
        if not log.open:
            log.create()
            with self.transaction():
                self.set(log=1)

    def new_branch(self) -> None:
        """Inside a transaction: the owner has accepted that what the log had is lost. `branched` follows."""
        if self.torn:
            self.set(applied=self._applied + BRANCH)
            self.db.execute("DELETE FROM meta WHERE key IN ('torn', 'log')")

    def branched(self) -> None:
        """After that transaction."""
        if self._torn_now and self.log:
            self._applied, self._torn_now = self.meta("applied"), False
            self.log.remove()

    # --- the end ---

    def close(self) -> None:
        """Orderly: what is in the log goes into the main file, which is then a whole copy by itself."""
        if self.file.locked:
            with suppress(sqlite3.Error):  # a disk that is full keeps the log, and loses nothing
                self._let_go()
                self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self.give_up()

    def give_up(self) -> None:
        """Closes the file, once. Without `close` before it nothing is lost either, as by kill -9."""
        if not self.file.locked:
            return
        try:
            with suppress(AttributeError, sqlite3.Error):
                self._let_go()
            self.file.shut()
            if self.log:
                self.log.remove() if self._emptied else self.log.close()
        finally:
            self.file.unlock()

    def _let_go(self) -> None:
        """In order: the tables get all of the log, say that there is none, and then it goes."""
        try:
            self.checkpoint()
        except LedgerFailed:  # a disk that is full keeps the log, and loses nothing
            return
        if self.file.held and self.file.opened and not self._torn_now:
            self.db.execute("DELETE FROM meta WHERE key = 'log'")
            self._emptied = True
        self.file.let_go()
