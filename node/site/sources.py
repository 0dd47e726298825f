"""Reading a source: a file, a folder or what a program prints, whole and within a fixed time, in a process of its own."""

from __future__ import annotations

import os
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from hushgrid.kernels.errors import InputError
from hushgrid.node.problems.feed import Feed, Values, pack, unpack, whole
from hushgrid.node.schema.site import Source
from hushgrid.node.site.forked import Worker

READS = 0.8  #: of the time that reading takes, after which a reader is ended: that takes some time too
MOST_FILES = 4096  #: of a folder that are read, the newest
WRITTEN = (".tmp", ".new", ".part", ".partial", ".swp", "~")  #: how names end of files that are being written
KEPT = {"HOME", "LANG", "LC_ALL", "PATH", "TZ", "TMPDIR"}  #: of the environment, that a command gets


class Reading(NamedTuple):
    """What a source has given."""

    values: Values
    age: float  #: s since it was written, by the machine's clock; 0 if that is in the future
    left_out: str = ""  #: what of it was no value, and does not count; "" if all of it does
    stamp: str = ""  #: how a file looked from outside


class Reader:
    """Reads a source of a device, each time for the same number of seconds at most."""

    def __init__(self, source: Source, feed: Feed, folder: Path) -> None:
        """`folder`: where a command runs."""
        self.source, self.feed, self.folder, self.worker = source, feed, folder, Worker()

    def __call__(self) -> Reading:
        """What the source gives now. Raises InputError if that is no value, or comes too late."""
        blob = self.worker.done(self._work, READS * self.source.deadline, 2 * self.feed.most)
        packed, age, left_out, stamp = msgspec.msgpack.decode(blob, type=tuple[bytes, float, str, str])
        return Reading(unpack(packed), age, left_out, stamp)

    # --- in the child ---

    def _work(self) -> bytes:
        values, *more = self.read()
        return msgspec.msgpack.encode((pack(values), *more))

    def read(self) -> Reading:
        """The same, here and for as long as it takes."""
        source, feed = self.source, self.feed
        if source.file:
            values, age, seen = self._file(Path(source.file))
            return Reading(_complete(feed.joined([values]), source.file), age, stamp=seen)
        if source.folder:
            return self._folder(Path(source.folder))
        assert source.command is not None
        place = f"what {source.command[0]} has printed"
        return Reading(_complete(feed.joined([feed.read(self._printed(source.command), place)]), place), 0.0)

    def _file(self, path: Path) -> tuple[Values, float, str]:
        """Values, age and stamp of one file that nobody writes meanwhile."""
        try:
            with open(path, "rb", opener=_opened) as file:
                while True:
                    before = _looks(file)
                    file.seek(0)
                    content = file.read(self.feed.most + 1)
                    if _looks(file) == before:
                        break
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or error}, expected a readable file") from None
        if len(content) > self.feed.most:
            raise InputError(f"{path}: found more than {self.feed.most} bytes, expected fewer")
        age = max(0.0, time.time() - before[-1] / 1e9)
        return self.feed.read(content, str(path)), age, " ".join(map(str, before))

    def _folder(self, path: Path) -> Reading:
        """The newest file; or all of them, as far as they count, without those that are no values."""
        parts: list[Values] = []
        wrong, age = "", 0.0
        for name in self._names(path):
            try:
                values, since, _ = self._file(path / name)
            except InputError as error:
                if not self.feed.accumulates:
                    raise
                wrong = wrong or str(error)
                continue
            age = since if not parts else age
            parts.insert(0, values)
            try:
                return Reading(_complete(self.feed.joined(parts), str(path)), age, wrong)
            except InputError:
                continue  # older files have the rows that are missing
        if not parts:
            raise InputError(wrong or f"{path}: found no file of values, expected one")
        return Reading(_complete(self.feed.joined(parts), str(path)), age, wrong)

    def _names(self, path: Path) -> Iterator[str]:
        """Of the files in a folder, the newest first; of equal age, by name."""
        found = []
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    if entry.name.startswith(".") or entry.name.endswith(WRITTEN):
                        continue
                    try:
                        if entry.is_file():
                            found.append((entry.stat().st_mtime_ns, entry.name))
                    except OSError:
                        continue  # it has just gone
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or error}, expected a folder") from None
        return (name for _, name in sorted(found, reverse=True)[:MOST_FILES])

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
    found = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(found).st_mode):
        os.close(found)
        raise InputError(f"{path}: found no regular file, expected one")
    return found


def _looks(file: BinaryIO) -> tuple[int, int, int]:
    found = os.fstat(file.fileno())
    return found.st_ino, found.st_size, found.st_mtime_ns


def _complete(values: Values, place: str) -> Values:
    if not whole(values):
        raise InputError(f"{place}: found a number that is none, expected finite ones")
    return values
