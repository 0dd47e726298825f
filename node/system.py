"""What a process asks of the machine that it runs on: the time, chance, a wait, its disk.

Everything in `node/` and `broker/coordinator/` but the transport asks here, and nowhere else. So a simulation can put
another machine in this one's place, whose time, chance and disk are its own (`lab/simulate/`).
"""

from __future__ import annotations

import fcntl
import os
import select
import sqlite3
import sys
import time
from pathlib import Path
from random import SystemRandom
from typing import Protocol

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_DICE = SystemRandom()


class Poller(Protocol):
    """What a loop waits with, as select.epoll."""

    def register(self, fd: int, eventmask: int) -> None: ...
    def modify(self, fd: int, eventmask: int) -> None: ...
    def poll(self, timeout: float) -> list[tuple[int, int]]: ...
    def close(self) -> None: ...


class System:
    """A machine. Methods about files raise what the functions of `os` of their names raise."""

    name = ""  #: whose it is, if anybody keeps a history of it
    seed: int | None = None  #: of all noise; only a simulated machine has one
    real = True  #: whether it has processes and signals; a simulated one has neither

    # --- time, s ---

    def monotonic(self) -> float:
        """Time that never goes back, and stands still while the machine sleeps."""
        return time.monotonic()

    def boottime(self) -> float:
        """Time since the machine was started, its sleep included. No setting of a clock changes it."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def boot_id(self) -> str:
        """Which boot of the machine this is; "" where the system does not say."""
        try:
            return BOOT_ID.read_text().strip()
        except OSError:
            return ""

    def wall(self) -> float:
        """Time since 1970, by a clock that may be set."""
        return time.time()

    def local(self, moment: float) -> time.struct_time:
        """A time of `wall` where the machine stands."""
        return time.localtime(moment)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    # --- chance ---

    def entropy(self, size: int) -> bytes:
        """Random bytes that nobody can predict."""
        return os.urandom(size)

    def share(self) -> float:
        """A random number in [0, 1)."""
        return _DICE.random()

    def say(self, line: str) -> None:
        """A line for whoever looks after the machine. Raises OSError if nobody takes it."""
        print(line, file=sys.stderr, flush=True)

    # --- waiting ---

    def poller(self) -> Poller:
        return select.epoll()

    # --- disk ---

    def open(self, path: Path | str, flags: int, mode: int = 0o666) -> int:
        return os.open(path, flags, mode)

    def close(self, file: int) -> None:
        os.close(file)

    def pread(self, file: int, size: int, offset: int) -> bytes:
        return os.pread(file, size, offset)

    def pwrite(self, file: int, blob: bytes | memoryview, offset: int) -> int:
        return os.pwrite(file, blob, offset)

    def truncate(self, file: int, size: int) -> None:
        os.ftruncate(file, size)

    def sync(self, file: int) -> None:
        """Contents and all that is known about the file are on the disk when this returns."""
        os.fsync(file)

    def datasync(self, file: int) -> None:
        """Contents are on the disk when this returns."""
        os.fdatasync(file)

    def lock(self, file: int, kind: int) -> None:
        fcntl.flock(file, kind)

    def replace(self, source: Path, target: Path) -> None:
        os.replace(source, target)

    def unlink(self, path: Path) -> None:
        """Removes the name, if there is one."""
        path.unlink(missing_ok=True)

    def connect(
        self, database: Path | str, *, uri: bool = False, timeout: float = 5.0, threads: bool = False
    ) -> sqlite3.Connection:
        """A connection of SQLite, without transactions of its own making. threads: several may use it in turn."""
        return sqlite3.connect(database, uri=uri, isolation_level=None, timeout=timeout, check_same_thread=not threads)


machine = System()  #: the one that this process runs on


def wall() -> float:
    """As `System.wall`."""
    return machine.wall()


def boottime() -> float:
    """As `System.boottime`."""
    return machine.boottime()


def boot_id() -> str:
    """As `System.boot_id`."""
    return machine.boot_id()


def share() -> float:
    """As `System.share`."""
    return machine.share()


def monotonic() -> float:
    """As `System.monotonic`."""
    return machine.monotonic()


def gmtime() -> time.struct_time:
    """UTC, now."""
    return time.gmtime(machine.wall())
