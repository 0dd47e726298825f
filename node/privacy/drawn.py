"""Answers drawn and not yet in the ledger: what a process that dies within a step leaves to its next start.

The coordinator chooses what is asked, and may try to kill a device as a function of the answer. So, before noise meets
data, what is asked and the noise are noted in a file. The next start pays for what it finds there, at once; the same
question then gets the same noise, hence the same answer, which is a repeat: a device killed by an accident spends no more
than an undisturbed one. The note is not synced: the death of a process loses no write, and a power cut, which may, is no
function of an answer. It lies in $RUNTIME_DIRECTORY (systemd's, in memory), else beside the ledger, and holds noise: with
the answers it tells the data, as the device's own data file does.
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

from hushgrid.node.privacy.ledger import Ledger, LedgerFailed
from hushgrid.node.privacy.ledger_rows import Spend

Noise = tuple[np.ndarray, ...]


class Note(Struct, array_like=True, frozen=True):
    """One answer: its price, a digest of what is asked, and its noise as (type, bytes) of each array.

    Good for as long as answer `no` is the ledger's last.
    """

    ledger: bytes
    no: int
    run: bytes
    paid: bool
    spend: Spend
    question: bytes
    noise: list[tuple[str, bytes]]


class Drawn:
    """The notes of one device. One process holds them, as it does the ledger. LedgerFailed if they cannot be written."""

    def __init__(self, path: Path, ledger: Ledger) -> None:
        """Pays for what a process that died has drawn, before anything else is said or asked."""
        self.path, self.ledger = path, ledger
        self._no = ledger.answered  #: the ledger's last answer at the notes in the file
        self._end = 0  #: and where the next one goes
        self._kept: dict[bytes, Noise] = {}  #: question: noise, of answers that were paid for and never used
        with self._writing():
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            found = self._read()
            unpaid = [note for note in found if not note.paid]
            if unpaid:  # all of one step
                ledger.commit(unpaid[0].run, spends=[note.spend for note in unpaid])
                self._restart()
                for note in found:
                    self._write(replace(note, no=ledger.answered, paid=True))
        for note in found:
            self._kept[note.question] = tuple(np.frombuffer(blob, dtype=of) for of, blob in note.noise)

    def kept(self, question: bytes) -> Noise | None:
        """The noise of an answer to this very question that was drawn, paid for, and never used."""
        return self._kept.pop(question, None)

    def draw(self, run: bytes, spend: Spend, question: bytes, draw: Callable[[], Noise]) -> Noise:
        """Fresh noise, noted before it is used. LedgerFailed if it cannot be: then it never is."""
        if self._no != self.ledger.answered:  # what stands there is committed
            self._restart()
        noise = draw()
        arrays = [(a.dtype.str, a.tobytes()) for a in noise]
        with self._writing():
            self._write(Note(self.ledger.id, self._no, run, False, spend, question, arrays))
        return noise

    def close(self) -> None:
        """An orderly end: what was drawn is committed, and nothing is left behind."""
        with suppress(OSError):
            os.close(self._file)
            self.path.unlink(missing_ok=True)

    def _restart(self) -> None:
        self._no, self._end = self.ledger.answered, 0

    def _read(self) -> list[Note]:
        """The notes of where the ledger stands. Where one breaks off, its process died writing it: it was never used."""
        blob = os.pread(self._file, os.fstat(self._file).st_size, 0)
        found: list[Note] = []
        while True:
            size, check = (int.from_bytes(blob[self._end + k : self._end + k + 4], "little") for k in (0, 4))
            body = blob[self._end + 8 : self._end + 8 + size]
            if not size or len(body) < size or zlib.crc32(body) != check:
                return found
            note = msgspec.msgpack.decode(body, type=Note)
            if (note.ledger, note.no) != (self.ledger.id, self.ledger.answered):
                return found
            found.append(note)
            self._end += 8 + size

    def _write(self, note: Note) -> None:
        """Behind the others, which stay whole if this write is cut short. OSError."""
        body = msgspec.msgpack.encode(note)
        blob = len(body).to_bytes(4, "little") + zlib.crc32(body).to_bytes(4, "little") + body
        if os.pwrite(self._file, blob, self._end) < len(blob):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._end += len(blob)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise LedgerFailed(f"{self.path}: {error.strerror}, expected to note what is drawn") from None
