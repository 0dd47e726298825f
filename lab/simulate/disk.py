"""A disk that fails as disks do: what was not synced is lost by a power cut, in pieces; it is full, slow, or broken.

The files are real ones, in a folder of their own, so that SQLite runs on them as everywhere. What was written and not
yet synced is noted, so that a power cut can take it back: of contents each sector for itself, of names (a file made,
renamed or removed) the last ones. SQLite's own files are its own business: it commits with synchronous=FULL, and what
it has committed counts as synced.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

FOLDERS = ("state", "mark")  #: what its process writes; the rest is its owner's
#: numbers of open files, in turn: one that a killed process forgot to close, and closes late, is nobody else's by then
NUMBERS = itertools.cycle(range(256, 1000))
SECTOR = 512  #: bytes that are written whole, or not at all
Fault = Literal["", "full", "read-only", "failing"]
#: errno of a file, then code and text of SQLite
ERRORS: dict[str, tuple[int, int, str]] = {
    "full": (errno.ENOSPC, sqlite3.SQLITE_FULL, "database or disk is full"),
    "read-only": (errno.EROFS, sqlite3.SQLITE_READONLY, "attempt to write a readonly database"),
    "failing": (errno.EIO, sqlite3.SQLITE_IOERR, "disk I/O error"),
}


class Write(NamedTuple):
    """Bytes that were written and not synced."""

    offset: int
    before: bytes  #: what stood there
    after: bytes
    size: int  #: of the file before
    life: int  #: of its process, counted


class Named(NamedTuple):
    """A change of names that was not synced."""

    folder: Path
    undo: Callable[[], None]


class Disk:
    """The folder of one machine. `crossing` is called before each system call, with its name."""

    def __init__(self, root: Path, crossing: Callable[[str], None]) -> None:
        self.root, self.crossing = root, crossing
        self.fault: Fault = ""
        self.files: set[int] = set()  #: open ones
        self.connections: list[sqlite3.Connection] = []
        self.unsynced: dict[int, list[Write]] = {}  #: by inode
        self.renamed: list[Named] = []
        self._aside = root.with_name(root.name + ".aside")  #: what a power cut may bring back
        self._kept = 0
        self.lives = 0  #: processes that have ended
        root.mkdir(parents=True)
        self._aside.mkdir()

    # --- system calls ---

    def open(self, path: Path | str, flags: int, mode: int) -> int:
        path = Path(path)
        writes = bool(flags & (os.O_WRONLY | os.O_RDWR))
        made = bool(flags & os.O_CREAT) and not path.exists()
        if writes:
            self._step("open", writes=made or bool(flags & os.O_TRUNC))
        if flags & os.O_TRUNC and path.exists():
            self._wrote(path.stat().st_ino, Write(0, path.read_bytes(), b"", path.stat().st_size, self.lives))
        if flags & os.O_WRONLY:  # what is overwritten is read first
            flags += os.O_RDWR - os.O_WRONLY
        opened = os.open(path, flags & ~os.O_DIRECT, mode)
        file = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, next(NUMBERS))
        os.close(opened)
        if made:
            self.renamed.append(Named(path.parent, lambda: path.unlink(missing_ok=True)))
        self.files.add(file)
        return file

    def close(self, file: int) -> None:
        if file in self.files:
            self.files.remove(file)
            os.close(file)

    def pwrite(self, file: int, blob: bytes | memoryview, offset: int) -> int:
        self._step("write")
        data, status = bytes(blob), os.fstat(file)
        self._wrote(status.st_ino, Write(offset, os.pread(file, len(data), offset), data, status.st_size, self.lives))
        return os.pwrite(file, data, offset)

    def truncate(self, file: int, size: int) -> None:
        self._step("truncate")
        status = os.fstat(file)
        before = os.pread(file, max(status.st_size - size, 0), size)
        self._wrote(
            status.st_ino, Write(size, before, bytes(max(size - status.st_size, 0)), status.st_size, self.lives)
        )
        os.ftruncate(file, size)

    def sync(self, file: int) -> None:
        self._step("sync")
        path = Path(os.readlink(f"/proc/self/fd/{file}"))
        if path.is_dir():
            self.renamed = [named for named in self.renamed if named.folder != path]
        else:
            self.unsynced.pop(os.fstat(file).st_ino, None)

    def replace(self, source: Path, target: Path) -> None:
        self._step("rename")
        copied = self._keep(target) if target.exists() else None
        os.replace(source, target)

        def undo() -> None:
            if target.exists():
                os.replace(target, source)
            if copied is not None:
                os.link(copied, target)

        self.renamed.append(Named(target.parent, undo))

    def unlink(self, path: Path) -> None:
        if not path.exists():
            return
        self._step("unlink")
        copied = self._keep(path)
        path.unlink()
        self.renamed.append(Named(path.parent, lambda: None if path.exists() else os.link(copied, path)))

    def connect(self, database: Path | str, uri: bool, timeout: float) -> sqlite3.Connection:
        self._step("connect", writes=False)
        disk = self

        class Connection(sqlite3.Connection):
            def execute(self, sql: str, *values: object) -> sqlite3.Cursor:
                if self not in disk.connections:  # its process has ended
                    raise sqlite3.ProgrammingError("closed")
                if sql == "COMMIT":
                    disk._sql("commit")
                    cursor = super().execute(sql, *values)  # type: ignore[arg-type]
                    disk.crossing("committed")
                    return cursor
                disk._sql("begin") if sql.startswith("BEGIN") else disk.crossing("")
                return super().execute(sql, *values)  # type: ignore[arg-type]

        made = sqlite3.connect(database, uri=uri, isolation_level=None, timeout=timeout, factory=Connection)
        self.connections.append(made)
        return made

    # --- what happens to it ---

    def cut(self, chance: np.random.Generator) -> None:
        """The power is cut: what was not synced is lost, or not, as chance has it."""
        for named in reversed(self.renamed[int(chance.integers(len(self.renamed) + 1)) :]):
            named.undo()
        for path in self._present():
            writes = self.unsynced.get(path.stat().st_ino)
            if writes and not of_sqlite(path):
                path.write_bytes(_torn(path.read_bytes(), writes, chance))
        self.unsynced, self.renamed = {}, []

    def owes(self, path: Path) -> bool:
        """Whether a file has content of the process of now that a power cut may take.

        What an earlier process has left is read at the start, and is on the disk elsewhere before anything is sent.
        Zeros say nothing: a file is made of them.
        """
        try:
            writes = self.unsynced.get(os.stat(path).st_ino, ()) if self.unsynced else ()
        except FileNotFoundError:
            return False
        return any(w.before != w.after and w.life == self.lives and w.after.strip(b"\0") for w in writes)

    def emptied(self, keep: Sequence[str] = ()) -> None:
        """Another card is in its place, with the owner's files and these folders alone."""
        self.unsynced, self.renamed = {}, []
        for folder in FOLDERS:
            if folder not in keep:
                shutil.rmtree(self.root / folder, ignore_errors=True)

    def die(self) -> Callable[[], None]:
        """Its process ends here. Returns what is to be called when that is unwound: it takes back what it did since."""
        images = {self.root / name: self.root.with_name(f"{self.root.name}.{name}") for name in FOLDERS}
        for folder, image in images.items():
            if folder.exists():
                shutil.copytree(folder, image, ignore=shutil.ignore_patterns("*-shm"))
        connections, self.connections = self.connections, []
        for connection in connections:
            connection.close()
        known = {path.relative_to(self.root): path.stat().st_ino for path in self._present() if not of_sqlite(path)}

        def restore() -> None:
            self.let_go()
            for folder, image in images.items():
                shutil.rmtree(folder, ignore_errors=True)
                if image.exists():
                    image.rename(folder)
            inodes = {inode: (self.root / path).stat().st_ino for path, inode in known.items()}
            self.unsynced = {inodes[inode]: w for inode, w in self.unsynced.items() if inode in inodes}

        return restore

    def let_go(self) -> None:
        """What the system does with the files of a process that is gone."""
        for connection in self.connections:
            connection.close()
        for file in list(self.files):
            self.close(file)
        self.connections = []
        self.lives += 1

    # --- inside ---

    def _present(self) -> list[Path]:
        return sorted(path for path in self.root.rglob("*") if path.is_file())

    def _keep(self, path: Path) -> Path:
        """The file beside the folder, under a name of its own."""
        self._kept += 1
        copied = self._aside / str(self._kept)
        os.link(path, copied)
        return copied

    def _wrote(self, inode: int, write: Write) -> None:
        self.unsynced.setdefault(inode, []).append(write)

    def _step(self, call: str, *, writes: bool = True) -> None:
        self.crossing(call)
        if writes and self.fault:
            number, *_ = ERRORS[self.fault]
            raise OSError(number, os.strerror(number))

    def _sql(self, call: str) -> None:
        self.crossing(call)
        if self.fault:
            _, code, text = ERRORS[self.fault]
            error = sqlite3.OperationalError(text)
            error.sqlite_errorcode = code
            raise error


def of_sqlite(path: Path) -> bool:
    """Whether SQLite writes a file itself."""
    return path.name.endswith((".ledger", ".ledger.new", "-wal", "-journal", "-shm"))


def _torn(blob: bytes, writes: list[Write], chance: np.random.Generator) -> bytes:
    """A file's content after a power cut: of each write that was not synced some sectors have come."""
    content = bytearray(blob)
    for write in reversed(writes):  # as it was when it was synced last
        content[write.offset : write.offset + len(write.after)] = write.before
        del content[write.size :]
        content.extend(bytes(write.size - len(content)))
    for write in writes:
        end = write.offset + len(write.after)
        if chance.random() < 0.5:  # its size has come
            if write.after:
                content.extend(bytes(max(end - len(content), 0)))
            else:
                del content[write.offset :]
        for start in range(write.offset - write.offset % SECTOR, end, SECTOR):
            first, last = max(start, write.offset), min(start + SECTOR, end, len(content))
            if first < last and chance.random() < 0.5:
                content[first:last] = write.after[first - write.offset : last - write.offset]
    return bytes(content)
