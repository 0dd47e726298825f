"""A ledger's file: opened as this node's whole ledger or not at all, written in transactions, closed in order.

A disk that is full, read-only or absent may come back: LedgerFailed (exit 4). A file that is not this node's whole
ledger does not become one by waiting: InputError (exit 2).

What was committed last is in the -wal beside the main file, until SQLite moves it there, and before that in the -log
(`ledger_log.py`). So while a ledger is open its main file says so, and no longer once it has been closed: a main file
that says it is open, and lacks either beside it, is a copy that lacks commits (`torn`), or one of them was removed.

One process holds a ledger, by a lock of its own (flock) on the main file. SQLite's locks are left to SQLite, so that
`hushgrid ledger show` can read beside a running device.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from hushgrid.kernels.errors import HushgridError, InputError, Stopped
from hushgrid.node.durable import sync_file, sync_folder
from hushgrid.node.privacy.ledger_schema import FORMAT, create, migrate


class LedgerFailed(Stopped):
    """The disk does not take the ledger: the device stops, having released nothing; its restart goes on from there."""


#: SQLite's codes of a machine's faults.
_FAULTS = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_NOMEM,
}


BEFORE = "-before"  #: how the copy ends that is kept when a ledger gets a newer format
ROOM = 64 << 10  #: bytes that SQLite wants beside a ledger to open it


class LedgerFile:
    """An open file; one process holds it."""

    _lock = -1  #: the file that is locked
    _erased = False  #: a key was erased, and its bytes may still stand in the -wal

    def __init__(self, path: Path, node: str | None, durable: bool) -> None:
        self.path, self.durable = path, durable
        self._opened = False  #: only then is a fault one of a step's
        self._held = False  #: the main file says that it is open
        try:
            if not path.exists():
                if node is None:
                    raise InputError(f"{path}: No such file or directory, expected a ledger")
                create(path, node, durable)
            self._open(node)
            self._load()
            self._opened = True
        except HushgridError:
            self._give_up()
            raise
        except (sqlite3.Error, OSError, TypeError, ValueError, msgspec.MsgspecError) as error:
            self._give_up()
            raise _unusable(path, error) from None

    def _load(self) -> None:
        """Read what is kept in memory."""

    def _open(self, node: str | None) -> None:
        if not self.path.is_file():
            raise InputError(f"{self.path}: found no file, expected a ledger")
        self._lock = _locked(self.path)
        log = self._log.exists()
        # By `mode=rw` a file that has just gone is not made anew, as an empty ledger.
        self.db = sqlite3.connect(
            f"file:{quote(os.fsencode(self.path))}?mode=rw", uri=True, isolation_level=None, timeout=0.5
        )
        if not self.db.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone():
            raise InputError(
                f"{self.path}: found no ledger's tables (cut short, or copied without its -wal), expected a whole ledger"
            )
        owner, form, left_open = self._meta("node"), self._meta("format"), self._meta("open") is not None
        self._held = left_open and log
        if form not in range(1, FORMAT + 1):
            raise InputError(
                f"{self.path}: found format {form}, expected {FORMAT} or older: a ledger is not taken back to an earlier "
                "version of the program"
            )
        if owner != (node or owner):
            raise InputError(f"{self.path}: found the ledger of {owner!r}, expected {node or owner!r}")
        self.node = str(owner)
        mode = self.db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        self.db.execute(f"PRAGMA synchronous = {'FULL' if self.durable else 'OFF'}")
        # Steps go to the append log; what comes here are joins, ends and every so many steps. A log of up to 4 MB spares the
        # card: a page that many of them change is written to the main file once.
        self.db.execute("PRAGMA wal_autocheckpoint = 1000")
        self.db.execute(f"PRAGMA journal_size_limit = {512 << 10}")
        self.db.execute(
            "PRAGMA secure_delete = FAST"
        )  # what is deleted within a page is overwritten there, at no write more
        self.db.execute("PRAGMA cache_size = -256")  # kB: more would be memory that a device keeps for ever
        if self.durable and (mode, *self._ask("PRAGMA synchronous")) != ("wal", (2,)):
            raise LedgerFailed(
                f"{self.path}: found journal mode {mode}, expected a disk that can keep a WAL with full sync"
            )
        torn = (left_open and not log) or (self._meta("log") is not None and not self._ahead_log.exists())
        if form < FORMAT and self.durable and not torn:
            self._keep_before()
        with self._transaction():
            if form < FORMAT:
                migrate(self.db, form)
            if torn:
                self._set(torn=1)
            self._set(open=1)
        self._held = True
        # Synced into the main file before anything else is committed; the log has its name on the disk by then.
        self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _keep_before(self) -> None:
        """A copy in the older format that it has, for a release that reads no other. It is behind the mark soon: whoever puts

        it back accepts what it lacks as spent.
        """
        copy = self.path.with_name(self.path.name + BEFORE)
        new = copy.with_name(copy.name + ".new")
        new.unlink(missing_ok=True)
        os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        self.db.execute("VACUUM INTO ?", (str(new),))
        with closing(sqlite3.connect(new, isolation_level=None)) as kept:
            kept.execute("DELETE FROM meta WHERE key IN ('open', 'log')")
            _without_keys(kept)
        sync_file(new)
        os.replace(new, copy)
        sync_folder(copy.parent)

    @property
    def _log(self) -> Path:
        return self.path.with_name(self.path.name + "-wal")

    @property
    def _ahead_log(self) -> Path:
        """Of the log in front of the tables."""
        return self.path.with_name(self.path.name + "-log")

    @property
    def torn(self) -> bool:
        """Whether it was found without its -wal or its -log, and its owner has not accepted that."""
        return self._meta("torn") is not None

    def __del__(self) -> None:
        # Ending without `close` loses nothing (kill -9 does the same); only the file handle must not outlive us.
        self._give_up()

    def _give_up(self) -> None:
        """Close the file, once. SQLite then moves its log into the main file and removes it, if the disk lets it."""
        if self._lock < 0:
            return
        try:
            with suppress(AttributeError, sqlite3.Error):
                self._let_go()
            with suppress(AttributeError, sqlite3.Error):
                self.db.close()
            if (
                self._held
            ):  # the main file says so for good, and may have got all of its log, which is gone: an empty one
                with suppress(OSError):
                    self._log.touch(0o600)
            self._let_log_go()
        finally:
            self._unlock()

    def _let_log_go(self) -> None:
        """What is done about the log in front of the tables once they are closed, and still held."""

    def _unlock(self) -> None:
        """Last of all: closing any handle of a file ends SQLite's locks on it."""
        if self._lock >= 0:
            _HELD.discard(_inode(self._lock))
            os.close(self._lock)
            self._lock = -1

    def _let_go(self) -> None:
        """The main file no longer says that it is open, once its log is in it."""
        if self._held:
            self.db.execute("DELETE FROM meta WHERE key = 'open'")
            self._held = False

    def close(self) -> None:
        """Orderly: what is in the log goes into the main file, which is then a whole copy by itself."""
        with suppress(sqlite3.Error):  # a disk that is full keeps the log, and loses nothing
            self._let_go()
            self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._give_up()

    def _before_tables(self) -> None:
        """Called before the tables are asked or changed."""

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._before_tables()
        with self._failing():
            try:
                self.db.execute("BEGIN IMMEDIATE")
                yield
                self.db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self.db.execute("ROLLBACK")
                raise
        if self._erased:
            self._scrub()

    def _scrub(self) -> None:
        """Empties the -wal of what was erased in the main file. If a reader holds it, the next transaction tries again."""
        with suppress(sqlite3.Error):  # a disk that is full: the same; and so does the next start
            (busy, *_) = self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self._erased = bool(busy)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """What fails once the ledger is open is the disk."""
        try:
            yield
        except sqlite3.Error as error:
            if not self._opened:
                raise
            raise LedgerFailed(
                f"{self.path}: {_fault(self.path, error)}, expected to write the ledger: nothing was released"
            ) from None

    def _ask(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        """The rows that answer a query."""
        self._before_tables()
        with self._failing():
            return self.db.execute(query, values).fetchall()

    def _meta(self, key: str) -> Any:
        return next((value for (value,) in self._ask("SELECT value FROM meta WHERE key = ?", (key,))), None)

    def _set(self, **values: Any) -> None:
        self.db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())

    @staticmethod
    def now() -> str:
        """UTC, for the rows."""
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())

    def copy_to(self, path: Path) -> None:
        """A consistent copy for a run directory: it holds gate answers and public data only, and no running times:

        how long a step takes may depend on data.
        """
        self._before_tables()
        with self._failing():
            self.db.execute("VACUUM INTO ?", (str(path),))
            with closing(sqlite3.connect(path, isolation_level=None)) as copy:  # it has no log, and needs none
                copy.execute("PRAGMA synchronous = OFF")
                copy.execute("DELETE FROM meta WHERE key IN ('open', 'log')")
                _without_keys(copy)
                copy.execute("UPDATE meta SET value = 0.0 WHERE key = 'ran'")
                for table in ("spend", "past"):
                    copy.execute(f"UPDATE {table} SET ran = 0.0")


#: Main files that this process holds: to open one again would end SQLite's locks on it.
_HELD: set[tuple[int, int]] = set()
PATIENCE_S = 2.0  #: for another process to let go of a ledger, or to have copied it


def _inode(file: int | Path) -> tuple[int, int]:
    found = os.stat(file)
    return found.st_dev, found.st_ino


def _locked(path: Path) -> int:
    """A handle of the main file, locked for this process. InputError if another one holds it, or this one does."""
    held = InputError(f"{path}: held by another process, expected one process per ledger")
    if _inode(path) in _HELD:
        raise held
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() < deadline:
                time.sleep(0.01)
                continue
            os.close(handle)
            raise held from None
        _HELD.add(_inode(handle))
        return handle


def held(path: Path) -> bool:
    """Whether a process holds this ledger. OSError."""
    if _inode(path) in _HELD:
        return True
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _without_keys(copy: sqlite3.Connection) -> None:
    """A copy that stays has no key, or it would outlive its erasure; a ledger that is put back has none to go on with."""
    copy.execute("PRAGMA secure_delete = ON")
    if copy.execute("SELECT 1 FROM sqlite_master WHERE name = 'secret'").fetchone():
        copy.execute("DELETE FROM secret")


def snapshot(path: Path, copy: Path) -> None:
    """A consistent copy of a ledger, with its -log, also beside the process that holds it, which is not disturbed.

    The log is read before the tables: what a checkpoint moves in between is then in both, and counted once. The copy has
    the key of a masked run under way, so whoever makes it removes it at once. Raises OSError, sqlite3.Error.
    """
    beside = copy.with_name(copy.name + "-log")
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # a device that starts meanwhile waits for us
        except BlockingIOError:
            with suppress(FileNotFoundError):
                shutil.copyfile(path.with_name(path.name + "-log"), beside)
            uri = f"file:{quote(os.fsencode(path))}?mode=ro"
            with closing(sqlite3.connect(uri, uri=True)) as tables, closing(sqlite3.connect(copy)) as to:
                tables.backup(to)
            copy.with_name(copy.name + "-wal").touch()  # the copy has all of it
            return
        for end in ("-log", "-wal", ""):
            with suppress(FileNotFoundError):
                shutil.copyfile(path.with_name(path.name + end), copy.with_name(copy.name + end))


def _unusable(path: Path, error: Exception) -> HushgridError:
    """Why a ledger cannot be opened: held by another process, a machine's fault, or a file that is none."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return InputError(f"{path}: held by another process, expected one process per ledger")
    in_the_way = isinstance(error, NotADirectoryError | IsADirectoryError | FileExistsError)
    if code in _FAULTS or (isinstance(error, OSError) and not in_the_way):
        return LedgerFailed(f"{path}: {_fault(path, error)}, expected a writable ledger")
    return InputError(f"{path}: {getattr(error, 'strerror', None) or error}, expected a ledger")


def _fault(path: Path, error: Exception) -> str:
    """What is wrong with a disk, in words: SQLite has 'disk I/O error' for one that is full or read-only, too."""
    if getattr(error, "sqlite_errorcode", 0) & 0xFF in _FAULTS:
        probe = path.with_name(f".{path.name}.probe")
        try:
            probe.write_bytes(bytes(ROOM))
        except OSError as why:
            error = why
        finally:
            with suppress(OSError):
                probe.unlink()
    return getattr(error, "strerror", None) or str(error)
