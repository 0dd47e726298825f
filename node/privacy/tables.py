"""A ledger's tables with the append log in front of them: what the parts of a ledger read and write.

A step appends its record, and what is kept in memory follows. The tables follow at a checkpoint: before anything else is
asked of them, if the log is full, and at the end. A ledger that need not survive a power cut has no log.
"""

from __future__ import annotations

import errno
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from hushgrid.node.privacy.ledger_file import LedgerFailed, LedgerFile
from hushgrid.node.privacy.ledger_log import LedgerLog, Record, encoded

#: By accepting that the tables lack what the log had, its owner begins a new branch: no record of the old one is its next.
BRANCH = 1 << 32


class Part(Protocol):
    """A part of a ledger, with tables of its own."""

    def apply(self, waiting: list[Record]) -> None:
        """Inside a transaction: writes its share of these records into its tables."""


class Tables:
    """The file of a ledger, its log, and the records that only the log has. Methods raise LedgerFailed if the disk fails."""

    def __init__(self, path: Path, durable: bool) -> None:
        self.path, self.file = path, LedgerFile(path, durable)
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

    def ask(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        """The rows that answer a query."""
        self.checkpoint()
        return self.file.ask(query, values)

    def meta(self, key: str) -> Any:
        """A single value of the ledger, by its name; None if there is none."""
        self.checkpoint()
        return self.file.meta(key)

    def set(self, **values: Any) -> None:
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
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())

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
        """Appends a record. False if it belongs into the tables."""
        log = self.log
        if log is None or not self.file.durable or self._torn_now:
            return False
        blob = encoded(record)
        try:
            if log.unsure:
                raise OSError(errno.EIO, "its disk has failed before")
            self._make_log(log)
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
        """Makes the log now, so that a step between its draw and its record is short; if that fails, the step says so."""
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
