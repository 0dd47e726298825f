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
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from hushgrid.kernels.errors import HushgridError, InputError, Stopped
from hushgrid.node import system
from hushgrid.node.durable import sync_file, sync_folder
from hushgrid.node.privacy.ledger_schema import FORMAT, FORMATS, create, fill, migrate


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


Column = str | bytes | int | float | None  #: a value as SQLite has it
BEFORE = "-before"  #: how the copy ends that is kept when a ledger gets a newer format
ROOM = 64 << 10  #: bytes that SQLite wants beside a ledger to open it


class LedgerFile:
    """One SQLite file; one process holds it. Until `open` nothing of it is touched."""

    def __init__(self, path: Path, durable: bool) -> None:
        self.path, self.durable = path, durable
        self.node = ""  #: whose ledger it is
        self.opened = False  #: only then is a fault one of a step's
        self.held = False  #: the main file says that it is open
        self.erased = False  #: a key was erased, and its bytes may still stand in the -wal
        self.db: sqlite3.Connection
        self._lock = -1  #: the file that is locked

    def open(self, node: str | None) -> None:
        """Opens the ledger of this node (None: any); if there is no file and it has a node, a new one is made.

        Raises InputError if it is not this node's whole ledger, and what SQLite and the system raise: see `unusable`.
        """
        if not self.path.exists():
            if node is None:
                raise InputError(f"{self.path}: No such file or directory, expected a ledger")
            create(self.path, node, self.durable)
        if not self.path.is_file():
            raise InputError(f"{self.path}: found no file, expected a ledger")
        self._lock = _locked(self.path)
        has_wal = self.wal_path.exists()
        # By `mode=rw` a file that has just gone is not made anew, as an empty ledger. A simulation's members compute in
        # threads, and take turns with none: a ledger is in one thread at a time.
        uri = f"file:{quote(os.fsencode(self.path))}?mode=rw"
        self.db = system.machine.connect(uri, uri=True, timeout=0.5, threads=True)
        if not self.db.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone():
            raise InputError(
                f"{self.path}: found no ledger's tables (cut short, or copied without its -wal), expected a whole "
                "ledger"
            )
        owner, form, left_open = self.meta("node"), self.meta("format"), self.meta("open") is not None
        self.held = left_open and has_wal
        if form not in FORMATS:
            raise InputError(
                f"{self.path}: found format {form}, expected {' or '.join(map(str, FORMATS))}: a ledger is not taken "
                "back to an earlier version of the program"
            )
        if owner != (node or owner):
            raise InputError(f"{self.path}: found the ledger of {owner!r}, expected {node or owner!r}")
        self.node = str(owner)
        self._set_pragmas()
        torn = (left_open and not has_wal) or (self.meta("log") is not None and not self.log_path.exists())
        if form < FORMAT and self.durable and not torn:
            self._keep_before()
        with self.transaction():
            if form < FORMAT:
                migrate(self.db)
            if torn:
                self.set(torn=1)
            self.set(open=1)
        self.held = True
        # Synced into the main file before anything else is committed; the log has its name on the disk by then.
        self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _set_pragmas(self) -> None:
        mode = self.db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        self.db.execute(f"PRAGMA synchronous = {'FULL' if self.durable else 'OFF'}")
        # Steps go to the append log; what comes here are joins, ends and every so many steps. A log of up to 4 MB
        # spares the card: a page that many of them change is written to the main file once.
        self.db.execute("PRAGMA wal_autocheckpoint = 1000")
        self.db.execute(f"PRAGMA journal_size_limit = {512 << 10}")
        # What is deleted within a page is overwritten there, at no write more.
        self.db.execute("PRAGMA secure_delete = FAST")
        self.db.execute("PRAGMA cache_size = -256")  # kB: more would be memory that a device keeps for ever
        if self.durable and (mode, *self.ask("PRAGMA synchronous")) != ("wal", (2,)):
            raise LedgerFailed(
                f"{self.path}: found journal mode {mode}, expected a disk that can keep a WAL with full sync"
            )

    def _keep_before(self) -> None:
        """Keeps a copy in the older format, for a release that reads no other.

        It is behind the mark soon: whoever puts it back accepts what it lacks as spent.
        """
        copy = self.path.with_name(self.path.name + BEFORE)
        new = copy.with_name(copy.name + ".new")
        system.machine.unlink(new)
        system.machine.close(system.machine.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        self.db.execute("VACUUM INTO ?", (str(new),))
        with closing(system.machine.connect(new)) as older:
            older.execute("DELETE FROM meta WHERE key IN ('open', 'log')")
            _without_keys(older)
        sync_file(new)
        system.machine.replace(new, copy)
        sync_folder(copy.parent)

    @property
    def wal_path(self) -> Path:
        """SQLite's write-ahead log."""
        return self.path.with_name(self.path.name + "-wal")

    @property
    def log_path(self) -> Path:
        """The log in front of the tables."""
        return self.path.with_name(self.path.name + "-log")

    @property
    def locked(self) -> bool:
        """Whether this object holds the file."""
        return self._lock >= 0

    # --- the end ---

    def let_go(self) -> None:
        """The main file no longer says that it is open, once its log is in it."""
        if self.held:
            self.db.execute("DELETE FROM meta WHERE key = 'open'")
            self.held = False

    def shut(self) -> None:
        """Closes the connection. SQLite then moves its log into the main file and removes it, if the disk lets it."""
        with suppress(AttributeError, sqlite3.Error):
            self.db.close()
        # The main file says so for good, and may have got all of its log, which is gone: an empty one.
        if self.held:
            with suppress(OSError):
                self.wal_path.touch(0o600)

    def unlock(self) -> None:
        """Last of all: closing any handle of a file ends SQLite's locks on it."""
        if self._lock >= 0:
            with suppress(OSError):  # a simulated process that was killed: its files are closed
                _HELD.discard(_inode(self._lock))
            system.machine.close(self._lock)
            self._lock = -1

    # --- rows ---

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of it is stored, or nothing. Raises LedgerFailed if the disk does not take it."""
        with self.failing():
            try:
                self.db.execute("BEGIN IMMEDIATE")
                yield
                self.db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self.db.execute("ROLLBACK")
                raise
        if self.erased:
            self._scrub()

    def _scrub(self) -> None:
        """Empties the -wal of what was erased in the main file. If a reader holds it, the next transaction tries
        again.
        """
        with suppress(sqlite3.Error):  # a disk that is full: the same; and so does the next start
            (busy, *_) = self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self.erased = bool(busy)

    @contextmanager
    def failing(self) -> Iterator[None]:
        """What fails once the ledger is open is the disk."""
        try:
            yield
        except sqlite3.Error as error:
            if not self.opened:
                raise
            raise LedgerFailed(
                f"{self.path}: {_fault(self.path, error)}, expected to write the ledger: nothing was released"
            ) from None

    def ask(self, query: str, values: Sequence[Column] = ()) -> list[Any]:
        """The rows that answer a query."""
        with self.failing():
            return self.db.execute(query, values).fetchall()

    def meta(self, key: str) -> Any:
        """A single value of the ledger, by its name; None if there is none."""
        return next((value for (value,) in self.ask("SELECT value FROM meta WHERE key = ?", (key,))), None)

    def set(self, **values: Column) -> None:
        """Inside a transaction."""
        self.db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())

    def copy_to(self, path: Path) -> None:
        """A consistent copy for a run directory: gate answers and public data alone.

        Running times are left out, because how long a step takes may depend on data.
        """
        with self.failing():
            self.db.execute("VACUUM INTO ?", (str(path),))
            with closing(system.machine.connect(path)) as copy:  # it has no log, and needs none
                copy.execute("PRAGMA synchronous = OFF")
                copy.execute("DELETE FROM meta WHERE key IN ('open', 'log')")
                _without_keys(copy)
                copy.execute("UPDATE meta SET value = 0.0 WHERE key IN ('ran', 'declared')")
                for table in ("spend", "past"):
                    copy.execute(f"UPDATE {table} SET ran = 0.0")


class VolatileFile(LedgerFile):
    """The tables of a new ledger in memory. They go with this object: to close it does nothing."""

    def open(self, node: str | None) -> None:
        if node is None:
            raise InputError(f"{self.path}: found no node's name, expected one of a ledger in memory")
        # It stands on no machine's disk. A run may build its nodes in one thread and run them in another.
        self.node = node
        self.db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        fill(self.db, node)


#: Main files that this process holds: to open one again would end SQLite's locks on it.
_HELD: set[tuple[int, int]] = set()
PATIENCE_S = 2.0  #: for another process to let go of a ledger, or to have copied it


def _inode(file: int | Path) -> tuple[int, int]:
    status = os.stat(file)
    return status.st_dev, status.st_ino


def _locked(path: Path) -> int:
    """A handle of the main file, locked for this process. InputError if another one holds it, or this one does."""
    held = InputError(f"{path}: held by another process, expected one process per ledger")
    if _inode(path) in _HELD:
        raise held
    handle = system.machine.open(path, os.O_RDONLY | os.O_CLOEXEC)
    deadline = system.machine.monotonic() + PATIENCE_S
    while True:
        try:
            system.machine.lock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if system.machine.monotonic() < deadline:
                system.machine.sleep(0.01)
                continue
            system.machine.close(handle)
            raise held from None
        _HELD.add(_inode(handle))
        return handle


def held(path: Path) -> bool:
    """Whether a process holds this ledger. OSError."""
    if _inode(path) in _HELD:
        return True
    with path.open("rb") as file:
        try:
            system.machine.lock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _without_keys(copy: sqlite3.Connection) -> None:
    """A copy that stays has no key, or it would outlive its erasure; a ledger that is put back has none to go on
    with.
    """
    copy.execute("PRAGMA secure_delete = ON")
    if copy.execute("SELECT 1 FROM sqlite_master WHERE name = 'secret'").fetchone():
        copy.execute("DELETE FROM secret")


def snapshot(path: Path, copy: Path) -> None:
    """A consistent copy of a ledger, with its -log, also beside the process that holds it, which is not disturbed.

    The log is read before the tables: what a checkpoint moves in between is then in both, and counted once. The copy
    has the key of a masked run under way, so whoever makes it removes it at once. Raises OSError, sqlite3.Error.
    """
    beside = copy.with_name(copy.name + "-log")
    with path.open("rb") as file:
        try:
            system.machine.lock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)  # a device that starts now waits for us
        except BlockingIOError:
            with suppress(FileNotFoundError):
                shutil.copyfile(path.with_name(path.name + "-log"), beside)
            uri = f"file:{quote(os.fsencode(path))}?mode=ro"
            with closing(system.machine.connect(uri, uri=True)) as tables, closing(system.machine.connect(copy)) as to:
                tables.backup(to)
            copy.with_name(copy.name + "-wal").touch()  # the copy has all of it
            return
        for end in ("-log", "-wal", ""):
            with suppress(FileNotFoundError):
                shutil.copyfile(path.with_name(path.name + end), copy.with_name(copy.name + end))


def unusable(path: Path, error: Exception) -> HushgridError:
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
                system.machine.unlink(probe)
    return getattr(error, "strerror", None) or str(error)
