"""A simulated machine: its clocks drift and jump, its chance comes from the seed, its disk fails, its power is cut."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from hushgrid.lab.simulate.disk import Disk
from hushgrid.lab.simulate.world import Killed, Process, World
from hushgrid.node.runtime import signals
from hushgrid.node.system import Poller, System

EPOCH = 1_800_000_000.0  #: the wall clock at the beginning, s since 1970
RESTART_S = 5.0  #: as in the units of deploy/
SHORTEST_S = 1e-6  #: of a wait: less than that may not move a clock
STAYS = (0, 2, 3)  #: exit codes after which systemd does not start a service again


class Signals(signals.Signals):
    """Those of a simulated process: no system sends any."""

    def __init__(self) -> None:
        self.asked, self.reload, self.begin = "", False, False


class Connection(Protocol):
    """An end of a connection, as its machine knows it."""

    ready: bool  #: something is to be read

    def died(self, *, noticed: bool) -> None: ...


class _Poller:
    """As select.epoll, of one process."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.known = machine, set[int]()

    def register(self, fd: int, eventmask: int) -> None:
        self.known.add(fd)

    def modify(self, fd: int, eventmask: int) -> None:
        """What comes is all that is waited for."""

    def poll(self, timeout: float) -> list[tuple[int, int]]:
        machine = self.machine
        machine.crossing("wait")
        if not machine.signalled and not self.readable():
            machine.process.wait(max(timeout, SHORTEST_S) / machine.drift if timeout > 0 else 0.0)
            machine.crossing("")
        machine.signalled = False
        return [(fd, 1) for fd in self.readable()]

    def readable(self) -> list[int]:
        return [fd for fd, link in self.machine.links.items() if link.ready and fd in self.known]

    def close(self) -> None:
        """Nothing is held."""


class Machine(System):
    """One machine with one service on it, which systemd starts again. `main` is called with the signals it hears."""

    real = False

    def __init__(self, world: World, name: str, root: Path, main: Callable[[Signals], int]) -> None:
        self.world, self.name, self.seed, self.main = world, name, world.seed, main
        self.disk = Disk(root, self.crossing)
        self.process = Process(world, self, name, self._ended)
        self.signals, self.signalled = Signals(), False  #: and whether one has come that its loop has not noticed
        self.links: dict[int, Connection] = {}  #: open connections, by descriptor
        self.powered, self.restarts = False, 0
        self.calls = 0  #: system calls of the process of now
        self.dies_in, self.dies_of = 0, ""  #: how many calls [of this name] until it is killed; 0: it is not
        self.cut_for: float | None = None  #: and its power is cut for so long, s
        self.slow = 0.0  #: s that a sync takes
        self.renamed: Callable[[Path], None] = lambda path: None  #: called with the new name of a file
        self.exits: int | None = None  #: the code with which it stays down
        self._chance = world.chance(f"machine {name}")
        self._boot, self._boots = 0.0, 0
        self._ahead, self.drift, self._asleep = 0.0, 1.0, 0.0  #: of the wall clock, s; of all clocks; asleep so far, s
        self._slept = 0.0  #: since when it sleeps, s of the world
        self._restore: Callable[[], None] | None = None

    # --- what a process asks ---

    def monotonic(self) -> float:
        return (self.world.now - self._boot) * self.drift - self._asleep + 100.0

    def boottime(self) -> float:
        return (self.world.now - self._boot) * self.drift + 100.0

    def boot_id(self) -> str:
        return f"{self.name} boot {self._boots}"

    def wall(self) -> float:
        return EPOCH + self.world.now * self.drift + self._ahead

    def local(self, moment: float) -> time.struct_time:
        return time.gmtime(moment)

    def sleep(self, seconds: float) -> None:
        self.crossing("sleep")
        self.process.wait(max(seconds, SHORTEST_S) / self.drift)
        self.crossing("")

    def entropy(self, size: int) -> bytes:
        return self._chance.bytes(size)

    def share(self) -> float:
        return float(self._chance.random())

    def say(self, line: str) -> None:
        self.world.note("log", self.name, line=line.replace(str(self.disk.root.parent), ""))

    def poller(self) -> Poller:
        return _Poller(self)

    def open(self, path: Path | str, flags: int, mode: int = 0o666) -> int:
        return self.disk.open(path, flags, mode)

    def close(self, file: int) -> None:
        self.disk.close(file)

    def pwrite(self, file: int, blob: bytes | memoryview, offset: int) -> int:
        return self.disk.pwrite(file, blob, offset)

    def truncate(self, file: int, size: int) -> None:
        self.disk.truncate(file, size)

    def sync(self, file: int) -> None:
        if self.slow:
            self.sleep(self.slow)
        self.disk.sync(file)

    def datasync(self, file: int) -> None:
        self.sync(file)

    def replace(self, source: Path, target: Path) -> None:
        self.disk.replace(source, target)
        self.renamed(target)

    def unlink(self, path: Path) -> None:
        self.disk.unlink(path)

    def connect(
        self, database: Path | str, *, uri: bool = False, timeout: float = 5.0, threads: bool = False
    ) -> sqlite3.Connection:
        return self.disk.connect(database, uri, timeout)

    def crossing(self, call: str) -> None:
        """Before each system call: the process may die here."""
        if self.process.dead:
            raise Killed
        if not call:
            return
        self.calls += 1
        if self.dies_in and self.dies_of in ("", call):
            self.dies_in -= 1
            if not self.dies_in:
                self._die(cut=self.cut_for is not None)
                self._back(self.cut_for)
                raise Killed

    # --- what happens to it ---

    def start(self) -> None:
        """The service starts, if the machine is on and it does not run."""
        if self.powered and not self.process.alive and self.exits is None:
            self.restarts += 1
            self.signals, self.calls, self.dies_in = Signals(), 0, 0
            self.world.note("start", self.name)
            self.process.start(lambda: self.main(self.signals))

    def once(self, main: Callable[[Signals], int]) -> None:
        """Another program of its owner, while the service does not run."""
        self.calls = self.dies_in = 0
        self.process.start(lambda: main(Signals()))

    def boot(self) -> None:
        """Power is there: the machine starts, and the service on it."""
        if not self.powered:
            self.powered, self.exits = True, None
            self._boots += 1
            self._boot, self._asleep = self.world.now, 0.0
            self.start()

    def kill(self) -> None:
        """kill -9, while it waits."""
        if self.process.alive:
            self._die(cut=False)
            self.process.kill()

    def cut(self, seconds: float | None) -> None:
        """The power is cut for so long [until it is booted], while it waits or does not run at all."""
        if self.process.alive:
            self._die(cut=True)
            self.process.kill()
        elif self.powered:
            self.powered = False
            self.disk.cut(self._chance)
            self.world.note("cut", self.name)
        self._back(seconds)

    def _back(self, seconds: float | None) -> None:
        if seconds is not None:
            self.world.schedule(self.world.now + seconds, self.boot)

    def sleeps(self, seconds: float) -> None:
        """The machine sleeps: nothing of it runs, and its monotonic clock stands still."""
        if self.powered and not self.process.frozen:
            self.process.frozen, self._slept = True, self.world.now
            self.world.schedule(self.world.now + seconds, self.wakes)

    def wakes(self) -> None:
        """It goes on."""
        if self.process.frozen:
            self.process.frozen = False
            self._asleep += (self.world.now - self._slept) * self.drift
            self.process.rouse()

    def again(self) -> None:
        """Its service is started by hand."""
        self.exits = None
        self.start()

    def signal(self, what: str) -> None:
        """A signal: stop, reload or begin."""
        if what == "stop":
            self.signals.asked = "SIGTERM"
        else:
            setattr(self.signals, what, True)
        self.signalled = True
        self.process.rouse()

    def jump(self, seconds: float) -> None:
        """Somebody sets its wall clock."""
        self._ahead += seconds

    def _die(self, *, cut: bool) -> None:
        self.process.dead, self.powered = True, self.powered and not cut
        if cut:
            self.disk.cut(self._chance)
        self.world.note("cut" if cut else "kill", self.name, call=self.calls)
        self._restore = self.disk.die()

    def _ended(self, code: int | None) -> None:
        for link in list(self.links.values()):
            link.died(noticed=self.powered)
        self.links.clear()
        if self._restore is not None:
            self._restore()
            self._restore = None
        else:
            self.disk.let_go()
        if code is not None:
            self.world.note("exit", self.name, code=code)
        if code in STAYS:
            self.exits = code
        elif self.powered:
            self.world.schedule(self.world.now + RESTART_S, self.start)
