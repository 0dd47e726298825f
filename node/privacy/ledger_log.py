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

import mmap
import os
import struct
import zlib
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from hushgrid.node.durable import sync_folder
from hushgrid.node.peer_marks import Peer
from hushgrid.node.privacy.ledger_rows import Spend

BLOCK = 4096  #: bytes; no sector of a disk is larger
BLOCKS = 96  #: of a log whose records are small
MOST_BLOCKS = 1024  #: of any log
SECTORS = (512, BLOCK)  #: bytes of which a write past the system's cache may have to be a multiple
RECORDS = 4  #: that a log holds at least: a step that is larger goes straight to the tables
_HEAD = struct.Struct("<II")
_WHOSE = struct.Struct("<Q16s")


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


def _write(file: int, blob: bytes | memoryview, offset: int) -> None:
    while blob:
        done = os.pwrite(file, blob, offset)
        blob, offset = blob[done:], offset + done
