"""Marks: how far a ledger has come, as others remember it, so that an old copy in its place is noticed.

A mark is (ledger id, last spend's number, epsilon, mu^2, whether anything was answered without privacy). It is kept in
a second file and by every peer. A ledger is behind a mark if any component of the mark is ahead of its own; `accept`
takes the maximum of every component over all sources, so that it never gives budget back. A peer may lie about a mark:
a lie can stop a device until its owner accepts, but no lie may make the ledger unreadable.
"""

from __future__ import annotations

import errno
import os
import struct
import zlib
from contextlib import suppress
from math import inf, nextafter
from pathlib import Path
from typing import NamedTuple

import msgspec

from hushgrid.node import system
from hushgrid.node.durable import write_file
from hushgrid.node.peer_marks import LARGEST as LARGEST
from hushgrid.node.peer_marks import MOST_LOST as MOST_LOST
from hushgrid.node.peer_marks import above as above
from hushgrid.node.peer_marks import bounded as bounded
from hushgrid.node.peer_marks import highest as highest
from hushgrid.node.peer_marks import plausible as plausible
from hushgrid.node.wire import Mark

#: The most other ledgers whose marks are remembered between two `accept`s. Each of them makes the device refuse, so its
#: owner is needed long before there are so many.
MOST_TOLD = 64


class NoMark(Exception):
    """The mark file of a ledger is gone or cannot be read; the text says which."""


class LaterMark(NoMark):
    """A later program wrote it: what it states is not lost, and must not be written over."""


class Price(NamedTuple):
    """What spends cost, as a mark says it. Sums run in the order of the spends: each restart finds the same bits."""

    epsilon: float = 0.0  #: the sum of pure epsilons
    mu2: float = 0.0  #: the sum of mu^2 of Gaussian answers
    nonprivate: bool = False  #: whether an answer was given without privacy

    def plus(self, kind: str, value: float, mu2: float, group: int = 1) -> Price:
        """The price after one more spend: `group` times its epsilon, `group` times its mu (group privacy)."""
        scale = float(group) if group < 2**1000 else inf
        epsilon = self.epsilon + scale * value if kind in ("laplace", "gap") and 0 < value < inf else self.epsilon
        squares = self.mu2 + scale * scale * mu2 if mu2 else self.mu2
        return Price(epsilon, squares, self.nonprivate or value == inf)

    def packed(self) -> bytes:
        """For the ledger, to the last bit."""
        return msgspec.msgpack.encode(tuple(self))

    @staticmethod
    def unpacked(blob: bytes) -> Price:
        return Price(*msgspec.msgpack.decode(blob, type=tuple[float, float, bool]))

    def mark(self, ledger: bytes, no: int) -> Mark:
        """The mark of a ledger with this price whose last spend has number `no`."""
        return bounded(Mark(ledger, no, *self))


def missing(stated: float, counted: float) -> float:
    """The smallest amount >= 0 with which the sum `counted` reaches `stated`, in floating-point addition."""
    value = max(stated - counted, 0.0)
    while counted + value < stated:
        value = nextafter(value, inf)
    return value


def ahead_in_words(mark: Mark, counted: Mark) -> str:
    """The first component in which a mark is ahead of what the ledger has counted, in words."""
    if mark.no > counted.no:
        return f"spend {counted.no}, the mark says {mark.no}"
    if mark.nonprivate:
        return "all it gave was private, the mark says not all"
    if mark.epsilon > counted.epsilon:
        return f"epsilon {counted.epsilon:g}, the mark says {mark.epsilon:g}"
    return f"mu^2 {counted.mu2:g}, the mark says {mark.mu2:g}"


#: A mark file has two slots: u64 number of the last spend | u32 length | u32 CRC-32 of number, version and mark |
#: version | mark in MessagePack. Each mark is written in place into the slot of its number's parity, so that a write
#: that is cut short leaves the mark before it. Earlier programs wrote the bare mark.
SLOT = 512  #: bytes: a sector
VERSION = 1  #: of the format
_HEAD = struct.Struct("<QII")


def _slot(mark: Mark) -> bytes:
    body = bytes([VERSION]) + msgspec.msgpack.encode(mark)
    check = zlib.crc32(mark.no.to_bytes(8, "little") + body)
    return (_HEAD.pack(mark.no, len(body), check) + body).ljust(SLOT, b"\0")


def _of_slot(blob: bytes) -> Mark | None:
    """The mark in a slot; None if it is empty or was cut short. Raises LaterMark without the file's name."""
    no, size, check = _HEAD.unpack_from(blob)
    body = blob[_HEAD.size : _HEAD.size + size]
    if not 0 < size == len(body) or zlib.crc32(no.to_bytes(8, "little") + body) != check:
        return None
    if body[0] != VERSION:
        raise LaterMark(f"was written by a later program (format {body[0]}, expected {VERSION})")
    return msgspec.msgpack.decode(body[1:], type=Mark)


class MarkFile:
    """The mark in a file of its own, preferably on another disk than the ledger.

    It is kept open, and written in place: a power cut may leave an older mark, never a newer one. `sync`: an orderly
    end leaves it on the disk.
    """

    def __init__(self, path: Path, sync: bool) -> None:
        self.path, self.sync = path, sync
        self._file = -1
        self._slots = b""  #: what the file holds, as far as this process has written it

    def read(self) -> Mark | None:
        """The mark; None if there is no such file. Raises NoMark if the file cannot be read."""
        try:
            blob = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise NoMark(f"{self.path} cannot be read ({error.strerror})") from None
        try:
            if len(blob) != 2 * SLOT:  # as earlier programs wrote it
                return bounded(msgspec.msgpack.decode(blob, type=Mark))
            slots = [mark for offset in (0, SLOT) if (mark := _of_slot(blob[offset : offset + SLOT])) is not None]
            if slots:
                return bounded(max(slots, key=msgspec.structs.astuple))
        except LaterMark as why:
            raise LaterMark(f"{self.path} {why}") from None
        except (msgspec.DecodeError, ValueError):
            pass
        raise NoMark(f"{self.path} cannot be read ({len(blob)} bytes that are no mark)")

    def untouched(self) -> bool:
        """Whether the file under its name is the one kept open, and holds what this process has written last."""
        if self._file < 0:
            return False
        try:
            named, held = os.stat(self.path), os.fstat(self._file)
            same = (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino)
            return same and system.machine.pread(self._file, 2 * SLOT + 1, 0) == self._slots
        except OSError:
            return False

    def write(self, mark: Mark) -> None:
        """Writes the mark, in place where the file is one of ours. Raises OSError if the disk does not take it."""
        slot, offset = _slot(mark), mark.no % 2 * SLOT
        if not self.untouched():
            self.close()
            other = bytes(SLOT)
            write_file(self.path, slot + other if offset == 0 else other + slot, sync=self.sync)
            self._file = system.machine.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            self._slots = system.machine.pread(self._file, 2 * SLOT, 0)
            return
        if system.machine.pwrite(self._file, slot, offset) < SLOT:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._slots = self._slots[:offset] + slot + self._slots[offset + SLOT :]

    def close(self) -> None:
        """An orderly end: what was written last is on the disk."""
        if self._file >= 0:
            with suppress(OSError):
                if self.sync:
                    system.machine.datasync(self._file)
            system.machine.close(self._file)
            self._file = -1
