"""How a command is asked to end: Ctrl-C, SIGTERM, or a terminal that closes; whenever it comes, once, and in order."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Self

from hushgrid.kernels.errors import Stopped

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """Asked to end. Not KeyboardInterrupt: after one in an `exec` (named tuples use it), Python ends with another
    code.
    """


class Interrupts:
    """While it is entered, the first of these signals ends what is computed: Interrupted, wherever that is.

    Never a second time, so that what is cleaned up then is cleaned up whole. Where something must not be left half
    begun, it is `held`: the signal is noted, and `held`'s user looks. Outside of the main thread it does nothing.
    """

    def __init__(self, last: bool = False) -> None:
        """`last`: nothing is done after it but to leave the process. Where it was asked, that is not disturbed
        again.
        """
        self.last = last
        self.name = ""  #: the signal's name
        self._raised = self._held = False
        self._before: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in NUMBERS:
                self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_IGN if self.last and self.name else handler)
        if kind is Interrupted:
            raise KeyboardInterrupt from None

    def __call__(self) -> bool:
        """Whether it has been asked."""
        return bool(self.name)

    def check(self) -> None:
        """Interrupted where it has been asked: a signal may have been swallowed by what it fell into."""
        if self.name:
            self._raised = True
            raise Interrupted

    @contextmanager
    def held(self) -> Iterator[None]:
        """Here a signal is noted only."""
        self._held = True
        try:
            yield
        finally:
            self._held = False

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.name = self.name or signal.Signals(number).name
        if not self._held and not self._raised:
            self._raised = True
            raise Interrupted


class EndedInALine(Interrupts):
    """The same for a command: if it was asked to end, leaving it raises Stopped, one line with `more` behind it,
    whatever the signal fell into. What was begun has been cleaned up by then."""

    def __init__(self, last: bool, more: Callable[[], str] = lambda: "") -> None:
        super().__init__(last)
        self._more = more

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        super().__exit__(None, *error)
        if kind is not None and self():
            raise Stopped(f"interrupted by {self.name}{self._more()}") from None
