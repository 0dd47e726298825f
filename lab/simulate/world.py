"""Virtual time, and processes that share one thread: who runs next is decided by a heap of dates and a seed.

A process is the `main` of a daemon, unchanged, in a greenlet. It runs until it waits: for its links, or for time. Then
whatever is due next happens, and the clock is set to its date. No time passes while a process computes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from heapq import heappop, heappush
from math import inf

import numpy as np
from greenlet import getcurrent, greenlet

from hushgrid.kernels.types import Document
from hushgrid.node import system

Act = Callable[[], None]
MOST = 100_000  #: that can happen at one time


class Killed(BaseException):
    """The process is gone: nothing of it runs any more."""


class World:
    """What happens when. Times are in s since the beginning."""

    def __init__(self, seed: int) -> None:
        self.seed, self.now = seed, 0.0
        self.hub = getcurrent()
        self._due: list[tuple[float, int, Act]] = []
        self._number = 0
        self.steps = 0  #: what has happened so far
        self._still = 0  #: of it, since time went on
        self.history: list[Document] = []
        self.watch: Callable[[], None] = lambda: None  #: called after each step

    def chance(self, purpose: str) -> np.random.Generator:
        """The random numbers of one purpose, the same for the same seed on every machine."""
        digest = hashlib.sha256(f"{self.seed}:{purpose}".encode()).digest()
        return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))

    def schedule(self, time: float, act: Act) -> None:
        """Something happens then, or at once if that is past."""
        self._number += 1
        heappush(self._due, (max(time, self.now), self._number, act))

    def note(self, event: str, who: str = "", **more: object) -> None:
        """Something for the history."""
        self.history.append({"t": round(self.now, 6), "e": event, "who": who} | more)

    def run(self, until: float, most: float = inf) -> None:
        """Whatever is due before then happens. Raises RuntimeError if that is more, or time stands still."""
        last = self.steps + most
        while self._due and self._due[0][0] <= until:
            if self.steps >= last:
                raise RuntimeError(f"more than {most:,} steps before {self.now:g} s: messages without end")
            before, (self.now, _, act) = self.now, heappop(self._due)
            self.steps += 1
            self._still = self._still + 1 if self.now == before else 0
            if self._still > MOST:
                raise RuntimeError(f"time stands still at {self.now:g} s")
            act()
            self.watch()
        self.now = until


class Process:
    """One process on a machine. `main` returns its exit code."""

    def __init__(self, world: World, machine: system.System, name: str, ended: Callable[[int | None], None]) -> None:
        """`ended` is told the exit code, None: it was killed."""
        self.world, self.machine, self.name, self.ended = world, machine, name, ended
        self._greenlet: greenlet | None = None
        self._turn = 0  #: counts its waits: a date set for an earlier one is void
        self.dead = False
        self.frozen = False  #: its machine sleeps

    @property
    def alive(self) -> bool:
        return self._greenlet is not None

    def start(self, main: Callable[[], int]) -> None:
        """It begins to run now."""
        self.dead = False
        self._greenlet = greenlet(self._whole(main), self.world.hub)
        self._switch(lambda one: one.switch())

    def _whole(self, main: Callable[[], int]) -> Callable[[], None]:
        def body() -> None:
            code: int | None = None
            try:
                code = main()
            except Killed:
                pass
            finally:
                self._greenlet = None
                self._turn += 1
            self.ended(code)

        return body

    def wait(self, seconds: float | None) -> None:
        """Called by the process itself: it goes on after so many seconds [never], or when it is woken."""
        turn = self._turn
        if seconds is not None:
            self.world.schedule(self.world.now + seconds, lambda: self.wake(turn))
        self.world.hub.switch()

    def wake(self, turn: int | None = None) -> None:
        """It goes on, if it still waits as it did in that turn."""
        if self._greenlet is not None and turn in (None, self._turn) and not self.frozen:
            self._turn += 1
            self._switch(lambda one: one.switch())

    def rouse(self) -> None:
        """Something has come for it: it goes on as soon as it is its turn."""
        turn = self._turn
        self.world.schedule(self.world.now, lambda: self.wake(turn))

    def kill(self) -> None:
        """Called from outside: it ends where it is."""
        self.dead = True
        if self._greenlet is not None:
            self._switch(lambda one: one.throw(Killed()))

    def _switch(self, go: Callable[[greenlet], None]) -> None:
        one, before = self._greenlet, system.machine
        assert one is not None
        system.machine = self.machine
        try:
            go(one)
        finally:
            system.machine = before
