"""A program of the owner that is told each outcome: no shell, a time limit, a process group of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from hushgrid.node import system
from hushgrid.node.log import Warned
from hushgrid.node.site.sources import KEPT

LIMIT_S = 30.0  #: for the program to end


class ExecSink:
    """Starts the program and does not wait for it: `turn` sees how it has ended. Its failure is a line of the log."""

    def __init__(self, command: list[str], folder: Path, log: Callable[[str], None]) -> None:
        self.command, self.folder, self.log = command, folder, log
        self._child: subprocess.Popen[bytes] | None = None
        self._until = 0.0
        self._next: bytes | None = None  #: what came while it ran; only the latest counts

    def __call__(self, document: bytes) -> None:
        """Starts it with this on its standard input; if it still runs, once it has ended."""
        self.turn()
        if self._child is not None:
            self._next = document
            return
        environment = {k: v for k, v in os.environ.items() if k in KEPT}
        try:
            with tempfile.TemporaryFile() as file:
                file.write(document)
                file.seek(0)
                self._child = subprocess.Popen(
                    self.command, cwd=self.folder, env=environment, stdin=file, stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL, start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            self.log(Warned(f"sink: {self.command[0]}: {error.strerror or error}"))
            return
        self._until = system.machine.monotonic() + LIMIT_S

    @property
    def running(self) -> bool:
        """Whether the program runs, as far as was seen."""
        return self._child is not None

    def turn(self) -> None:
        """Looks whether it has ended, or must be ended."""
        child = self._child
        if child is None:
            return
        code = child.poll()
        if code is None:
            if system.machine.monotonic() < self._until:
                return
            self._kill(child)
            self.log(Warned(f"sink: {self.command[0]} was ended: it ran for more than {LIMIT_S:g} s"))
        else:
            self._kill(child)  # what it has left behind in its group
            if code:
                self.log(Warned(f"sink: {self.command[0]} ended with {code}"))
        self._child = None
        if self._next is not None:
            document, self._next = self._next, None
            self(document)

    def close(self) -> None:
        """Ends it."""
        self._next = None
        if self._child is not None:
            self._kill(self._child)
            self._child = None

    @staticmethod
    def _kill(child: subprocess.Popen[bytes]) -> None:
        with suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            child.wait(0.5)
