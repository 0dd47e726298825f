"""A descriptor that a loop waits on beside its sockets: it becomes readable when a signal has come."""

from __future__ import annotations

import os
import signal
import threading
from types import TracebackType
from typing import Self

from hushgrid.node import system


class Wakeup:
    """While it is entered, each signal that has a handler makes `fd` readable, so that no sleep outlasts a signal.

    Python runs a handler at once, but then goes on waiting. Only the main thread hears signals; in another one `fd`
    never becomes readable.
    """

    def __init__(self) -> None:
        self.fd, self._written = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._before: int | None = None

    def __enter__(self) -> Self:
        if system.machine.real and threading.current_thread() is threading.main_thread():
            self._before = signal.set_wakeup_fd(self._written, warn_on_full_buffer=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.set_wakeup_fd(self._before)
        os.close(self.fd)
        os.close(self._written)

    def clear(self) -> None:
        """The signals are noticed."""
        os.read(self.fd, 4096)
