"""Answers drawn and not yet in the ledger: what a process that dies within a step leaves to its next start.

The coordinator chooses what is asked, and may try to kill a device as a function of the answer. So the question and the
noise are noted in a file before noise meets data. The next start pays for what it finds there, at once. The same
question then gets the same noise, hence the same answer, which is a repeat: a device that is killed by an accident
spends no more than one that is not. The note is not synced. The death of a process loses no write; a power cut may lose
one, but it is no function of an answer. The file lies in $RUNTIME_DIRECTORY (systemd's, in memory), else beside the
ledger. It holds noise: with the answers it reveals the data, as the device's own data file does.
"""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from hushgrid.node import system
from hushgrid.node.privacy.ledger import Ledger, LedgerFailed
from hushgrid.node.privacy.ledger_rows import Spend

Noise = tuple[np.ndarray, ...]  #: the arrays of one answer's noise


class Entry(Struct, array_like=True, frozen=True):
    """One answer that was drawn. The note is valid as long as answer `no` is the ledger's last."""

    ledger: bytes  #: the ledger's id
    no: int  #: number of the ledger's last answer when the note was written
    run: bytes
    paid: bool  #: whether a later start has paid for it already
    spend: Spend
    question: bytes  #: SHA-256 of what is asked
    noise: list[tuple[str, bytes]]  #: (dtype, bytes) of each array
    version: int | None = None  #: of the data that it is about [the ledger's of now]


class NoiseJournal:
    """The notes of one device. One process holds them, as it does the ledger.

    Methods raise LedgerFailed if the file cannot be written.
    """

    def __init__(self, path: Path, ledger: Ledger) -> None:
        """Opens the file and pays for what a process that died had drawn, before the device sends anything."""
        self.path, self.ledger = path, ledger
        self._no = ledger.spends.answered  #: the ledger's last answer at the notes in the file
        self._end = 0  #: byte at which the next note is written
        self._kept: dict[bytes, Noise] = {}  #: question: noise, of answers that were paid for and never used
        with self._writing():
            self._file = system.machine.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            notes = self._read()
            unpaid = [note for note in notes if not note.paid]
            if unpaid:  # all of one step
                spends = [note.spend for note in unpaid]
                ledger.commit(unpaid[0].run, spends=spends, version=unpaid[0].version)
                self._restart()
                for note in notes:
                    self._write(replace(note, no=ledger.spends.answered, paid=True))
        for note in notes:
            self._kept[note.question] = tuple(np.frombuffer(blob, dtype=dtype) for dtype, blob in note.noise)

    def kept(self, question: bytes) -> Noise | None:
        """The noise of an answer to this question that was drawn, paid for, and never used; None if there is none."""
        return self._kept.pop(question, None)

    def draw(
        self, run: bytes, spend: Spend, question: bytes, draw: Callable[[], Noise], version: int | None = None
    ) -> Noise:
        """Fresh noise, noted before it is returned. `version`: of the data that it is about [that of now].

        Raises LedgerFailed, and the noise is unused, if that fails.
        """
        if self._no != self.ledger.spends.answered:  # what stands there is committed
            self._restart()
        noise = draw()
        arrays = [(a.dtype.str, a.tobytes()) for a in noise]
        with self._writing():
            self._write(Entry(self.ledger.id, self._no, run, False, spend, question, arrays, version))
        return noise

    def close(self) -> None:
        """An orderly end: what was drawn is committed, so the file is removed."""
        with suppress(OSError):
            system.machine.close(self._file)
            system.machine.unlink(self.path)

    def _restart(self) -> None:
        self._no, self._end = self.ledger.spends.answered, 0

    def _read(self) -> list[Entry]:
        """The notes that are valid now. A note that breaks off was never used: its process died while writing it."""
        blob = system.machine.pread(self._file, os.fstat(self._file).st_size, 0)
        notes: list[Entry] = []
        while True:
            size, check = (int.from_bytes(blob[self._end + k : self._end + k + 4], "little") for k in (0, 4))
            body = blob[self._end + 8 : self._end + 8 + size]
            if not size or len(body) < size or zlib.crc32(body) != check:
                return notes
            note = msgspec.msgpack.decode(body, type=Entry)
            if (note.ledger, note.no) != (self.ledger.id, self.ledger.spends.answered):
                return notes
            notes.append(note)
            self._end += 8 + size

    def _write(self, note: Entry) -> None:
        """Appends a note. If the write is cut short, the others stay whole. Raises OSError if the disk is full."""
        body = msgspec.msgpack.encode(note)
        blob = len(body).to_bytes(4, "little") + zlib.crc32(body).to_bytes(4, "little") + body
        if system.machine.pwrite(self._file, blob, self._end) < len(blob):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._end += len(blob)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise LedgerFailed(f"{self.path}: {error.strerror}, expected to note what is drawn") from None
