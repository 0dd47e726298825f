"""The directory of a sweep: every row is on the disk before it counts, and a sweep that was killed goes on from there.

`sweep.json` says what is swept. `runs.csv` grows by a line a run, in the order in which they end; when all have ended
it is in the grid's order.
"""

from __future__ import annotations

import csv
import fcntl
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from hushgrid.broker.simulation.results import check_out
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.types import Document, DocumentView
from hushgrid.node.durable import sync_folder, write_file

Key = tuple[str, str]  #: point and seed, as in a row


class Record:
    """The rows of a sweep so far; in a directory, or in memory if there is none."""

    def __init__(self, out: Path | None, facts: DocumentView, columns: Sequence[str], resume: bool) -> None:
        """facts: what is swept; `seeds` may be others than before. Raises InputError, one line."""
        self.out, self.columns = out, list(columns)
        self.rows: dict[Key, dict[str, str]] = {}
        self._file: BinaryIO | None = None
        self._lock = -1
        if out is None:
            return
        if not resume:
            check_out(out)
        elif not (out / "sweep.json").is_file():
            raise InputError(f"--resume: found no sweep in {out}, expected a directory with sweep.json")
        try:
            out.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(out, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._open(out, dict(facts) | {"columns": self.columns}, resume)
        except BlockingIOError:
            self.close()
            raise InputError(f"{out}: found a sweep at work in it, expected none") from None
        except OSError as error:
            self.close()
            raise InputError(f"{error.filename or out}: {error.strerror}, expected a writable place") from None
        except InputError:
            self.close()
            raise

    def _open(self, out: Path, facts: Document, resume: bool) -> None:
        if resume:
            self._same(out, facts)
            self._read(out / "runs.csv")
        write_file(out / "sweep.json", msgspec.json.format(msgspec.json.encode(facts), indent=2) + b"\n")
        self._file = (out / "runs.csv").open("ab")
        if not self._file.tell():
            self._write(self.columns)
            sync_folder(out)

    def _same(self, out: Path, facts: Document) -> None:
        """Raises InputError unless what was swept before is swept now."""
        try:
            before = msgspec.json.decode((out / "sweep.json").read_bytes(), type=Document)
        except msgspec.DecodeError as error:
            raise InputError(f"{out / 'sweep.json'}: {error}, expected a file as `hushgrid sweep` writes it") from None
        now = msgspec.json.decode(msgspec.json.encode(facts))
        for key in now:
            if key != "seeds" and before.get(key) != now[key]:
                raise InputError(f"--resume: found another {key} than in {out / 'sweep.json'}, expected the same sweep")

    def _read(self, path: Path) -> None:
        """The rows that are whole; what a kill has left of the last one is cut off."""
        data = path.read_bytes() if path.exists() else b""
        complete = data.rfind(b"\n") + 1
        if complete < len(data):
            with path.open("r+b") as file:
                file.truncate(complete)
                os.fsync(file.fileno())
        reader = csv.DictReader(io.StringIO(data[:complete].decode()))
        if complete and reader.fieldnames != self.columns:
            raise InputError(f"{path}:1: found other columns, expected those of its sweep.json")
        for row in reader:
            if None in row or None in row.values():
                raise InputError(
                    f"{path}:{reader.line_num}: found a row of another length, expected {len(self.columns)}"
                )
            self.rows[row["point"], row["seed"]] = row

    def add(self, row: dict[str, str]) -> None:
        """A run has ended; its row is on the disk when this returns."""
        if self._file is not None:
            self._write([row.get(name, "") for name in self.columns])
        self.rows[row["point"], row["seed"]] = row

    def _write(self, values: Sequence[str]) -> None:
        assert self._file is not None
        self._file.write(line(values))
        self._file.flush()
        os.fsync(self._file.fileno())

    def finish(self, rows: Sequence[Mapping[str, str]]) -> None:
        """runs.csv anew, in the order of `rows`."""
        if self.out is not None:
            every = [line(self.columns), *(line([row.get(name, "") for name in self.columns]) for row in rows)]
            write_file(self.out / "runs.csv", b"".join(every))

    def close(self) -> None:
        """Others may go on with the sweep."""
        if self._file is not None:
            self._file.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def line(values: Sequence[str]) -> bytes:
    """A line of a CSV file."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue().encode()
