"""Reading a source: a file, a folder or what a program prints, whole and within a fixed time, in a process of its own.

A row of a file is a reading, and is read once. Which rows have been read is known by the file itself (its inode,
and when that was made) and their places in it: so a file that is kept, touched,
renamed or appended to gives no row twice.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import stat
import struct
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec import Struct

from hushgrid.kernels.errors import InputError
from hushgrid.node import system
from hushgrid.node.problems.feed import Feed, Part, Times, Values, pack, unpack
from hushgrid.node.schema.site import Source
from hushgrid.node.site.forked import Worker

READS = 0.8  #: of the time that reading takes, after which a reader is ended: that takes some time too
MOST_FILES = 4096  #: of a folder that are read, the newest
WRITTEN = (".tmp", ".new", ".part", ".partial", ".swp", "~")  #: how names end of files that are being written
KEPT = {"HOME", "LANG", "LC_ALL", "PATH", "TZ", "TMPDIR"}  #: of the environment, that a command gets


class Known(Struct, array_like=True, frozen=True):
    """A file that was read."""

    seen: bytes  #: a digest of how it looked from outside: inode, size, time
    lines: int = 0  #: of rows: the last place that was read
    read: float | None = None  #: running time when it was read first, s; None: now
    born: int = 0  #: when it was made, ns; 0: its file system does not say


Files = dict[bytes, Known]  #: by a digest: of rows of the file itself, else of how it looks


class Looks(NamedTuple):
    """A file from outside."""

    stamp: str  #: inode, size, time
    born: int  #: when it was made, ns; 0: its file system does not say
    key: bytes

    @property
    def seen(self) -> bytes:
        return _digest(self.stamp)

    @property
    def age(self) -> float:
        """s since it was written, by the machine's clock."""
        return max(0.0, system.machine.wall() - int(self.stamp.split()[2]) / 1e9)


class Reading(NamedTuple):
    """What a source has given."""

    values: Values | None  #: of a zone nan where there is no number; of rows those that are new, the oldest first
    age: float  #: s since it was written, by the machine's clock; 0 if that is in the future
    left_out: str = ""  #: what of it was no value, and does not count; "" if all of it does
    stamp: str = ""  #: how a file looked from outside
    files: Files | None = None  #: those that it is from
    there: frozenset[bytes] = frozenset()  #: keys of the files that are there
    read: Times | None = None  #: of topics: running time when each of the values came, s


class Reader:
    """Reads a source of a device, each time for the same number of seconds at most."""

    def __init__(self, source: Source, feed: Feed, folder: Path) -> None:
        """`folder`: where a command runs."""
        self.source, self.feed, self.folder, self.worker = source, feed, folder, Worker()
        self.known: Files = {}  #: the files that were read
        self.forgotten = 0  #: of those that are remembered no more, when the latest was made, ns

    def __call__(self) -> Reading:
        """What the source gives now. Raises InputError if that is no value, or comes too late."""
        blob = self.worker.done(self._work, READS * self.source.deadline, 2 * self.feed.most)
        form = tuple[bytes | None, float, str, str, Files | None, frozenset[bytes]]
        packed, *more = msgspec.msgpack.decode(blob, type=form)
        return Reading(None if packed is None else unpack(packed), *more)

    # --- in the child ---

    def _work(self) -> bytes:
        values, *more, _ = self.read()
        return msgspec.msgpack.encode((None if values is None else pack(values), *more))

    def read(self) -> Reading:
        """The same, here and for as long as it takes. Raises InputError if that is no value."""
        source = self.source
        if source.command:
            part = self.feed.read(self._printed(source.command), f"what {source.command[0]} has printed")
            return Reading(part.values, 0.0, part.wrong)
        if source.file:
            return self._single(Path(source.file))
        names, path = list(self._names(Path(source.folder or ""))), Path(source.folder or "")
        if not names:
            raise InputError(f"{path}: found no file of values, expected one")
        return self._rows(path, names) if self.feed.rows else self._single(path / names[0], path, names)

    def _single(self, file: Path, folder: Path | None = None, names: list[str] | None = None) -> Reading:
        """One file. Of a folder `there` are all of its files."""
        looks, content = self._content(file)
        there = {looks.key} | {other.key for name in names or () if folder and (other := self._looks(folder / name))}
        try:
            part = self._part(looks, content, str(file))
        except InputError as error:  # it was replaced all the same
            return Reading(None, looks.age, str(error), looks.stamp)
        return Reading(
            part.values,
            looks.age,
            part.wrong,
            looks.stamp,
            {looks.key: self._after(looks, part.last)},
            frozenset(there),
        )

    def _rows(self, folder: Path, names: list[str]) -> Reading:
        """The rows of a folder's files that are new, as many as a device has, without what is no row."""
        parts, files, there, wrong, age = [self.feed.nothing], Files(), set(), "", 0.0
        for name in names:
            looks = self._looks(folder / name)
            if looks is None:
                continue  # it has just gone
            there.add(looks.key)
            age = age if len(there) > 1 else looks.age
            known = self._known(looks)
            if (known and known.seen == looks.seen) or 0 < looks.born <= (0 if known else self.forgotten):
                continue
            if sum(len(part["b"]) for part in parts) >= self.feed.rows:  # older than all that count; read if it grows
                files[looks.key] = self._after(looks, 0)
                continue
            try:
                looks, content = self._content(folder / name)
                part = self._part(looks, content, str(folder / name))
            except InputError as error:
                wrong = wrong or str(error)
                continue
            wrong = wrong or part.wrong
            parts.insert(1, part.values)
            files[looks.key] = self._after(looks, part.last)
        values = {key: np.concatenate([part[key] for part in parts])[-self.feed.rows :] for key in self.feed.nothing}
        return Reading(values, age, wrong, files=files, there=frozenset(there))

    def _part(self, looks: Looks, content: bytes, place: str) -> Part:
        """What a file has that is new: of rows those behind the last that was read. Raises InputError."""
        if len(content) > self.feed.most:
            raise InputError(f"{place}: found more than {self.feed.most} bytes, expected fewer")
        part, known = self.feed.read(content, place), self._known(looks)
        if known is None or not self.feed.rows:
            return part
        new = part.places > known.lines
        return part._replace(values={name: v[new] for name, v in part.values.items()}, places=part.places[new])

    def _known(self, looks: Looks) -> Known | None:
        known = self.known.get(looks.key)
        if known or looks.born:
            return known
        return next((other for other in self.known.values() if other.seen == looks.seen), None)  # it was renamed

    def _after(self, looks: Looks, last: int) -> Known:
        """What is known of a file once its places up to the `last` were read."""
        known = self._known(looks)
        return Known(looks.seen, max(last, known.lines if known else 0), known.read if known else None, looks.born)

    def _content(self, path: Path) -> tuple[Looks, bytes]:
        """Of one file that nobody writes meanwhile."""
        try:
            with open(path, "rb", opener=_opened) as file:
                while True:
                    before = self._outside(os.fstat(file.fileno()), file.fileno(), path.name)
                    file.seek(0)
                    content = file.read(self.feed.most + 1)
                    if self._outside(os.fstat(file.fileno()), file.fileno(), path.name) == before:
                        return before, content
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or error}, expected a readable file") from None

    def _looks(self, path: Path) -> Looks | None:
        """None if there is no such file."""
        try:
            return self._outside(os.stat(path), path, path.name)
        except OSError:
            return None

    def _outside(self, entry: os.stat_result, file: int | Path, name: str) -> Looks:
        stamp, born = f"{entry.st_ino} {entry.st_size} {entry.st_mtime_ns}", born_at(file)
        if not self.feed.rows:
            return Looks(stamp, born, _digest(stamp))
        # Without the time at which it was made, an inode's number says which file it is only together with its name.
        return Looks(stamp, born, _digest(f"{entry.st_ino} {born or name}"))

    def _names(self, path: Path) -> Iterator[str]:
        """Of the files in a folder, the newest first; of equal age, by name."""
        names = []
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    if entry.name.startswith(".") or entry.name.endswith(WRITTEN):
                        continue
                    try:
                        if entry.is_file():
                            names.append((entry.stat().st_mtime_ns, entry.name))
                    except OSError:
                        continue  # it has just gone
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or error}, expected a folder") from None
        return (name for _, name in sorted(names, reverse=True)[:MOST_FILES])

    def _printed(self, command: list[str]) -> bytes:
        """What a command prints. It has no shell, no input, no password of ours and no socket of systemd."""
        name = command[0]
        environment = {k: v for k, v in os.environ.items() if k in KEPT}
        try:
            child = subprocess.Popen(
                command, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )  # fmt: skip
        except OSError as error:
            raise InputError(f"{name}: {error.strerror or error}, expected a program") from None
        assert child.stdout is not None
        content = child.stdout.read(self.feed.most + 1)
        if len(content) > self.feed.most:
            raise InputError(f"{name}: found more than {self.feed.most} bytes printed, expected fewer")
        if code := child.wait():
            raise InputError(f"{name}: ended with {code}, expected 0")
        return content


def _opened(path: str, flags: int) -> int:
    """A pipe or a device in a file's place does not hold us up."""
    file = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise InputError(f"{path}: found no regular file, expected one")
    return file


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=12).digest()


AT_FDCWD, AT_EMPTY_PATH, STATX_BTIME = -100, 0x1000, 0x800


@cache
def _statx() -> Callable[..., int] | None:
    """The C library's; None if it has none."""
    return getattr(ctypes.CDLL(None), "statx", None)


def born_at(file: int | Path) -> int:
    """When an open file, or one at a path, was made, ns: no touch, write or rename changes it. 0 if nothing says it."""
    statx, answer = _statx(), ctypes.create_string_buffer(256)
    if statx is None:
        return 0
    place = (file, b"", AT_EMPTY_PATH) if isinstance(file, int) else (AT_FDCWD, os.fsencode(file), 0)
    if statx(*place, STATX_BTIME, answer):
        return 0
    (mask,), (seconds, nanoseconds) = struct.unpack_from("=I", answer), struct.unpack_from("=qI", answer, 80)
    return int(seconds * 10**9 + nanoseconds) if mask & STATX_BTIME else 0
