"""What a device or a coordinator says on stderr, a line an event; the journal gets each line's priority."""

from __future__ import annotations

import os
from contextlib import suppress

from hushgrid.kernels.errors import printable
from hushgrid.node import system

ERROR, WARNING, INFO = 3, 4, 6  #: priorities of syslog


class Warned(str):
    """A line that somebody should read: for the journal it is a warning. Everything else is information."""

    __slots__ = ()


class Log:
    """Writes lines on stderr, each after a name. A reader that is gone, or a disk that is full, ends no process."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, text: str) -> None:
        priority = WARNING if isinstance(text, Warned) else INFO
        with suppress(OSError):
            system.machine.say(f"{prefix(priority)}{self.name}: {printable(text)}")


def prefix(priority: int) -> str:
    """What stands before a line for the journal; nothing where stderr is something else (sd-daemon(3))."""
    stream = os.environ.get("JOURNAL_STREAM", "")
    if not stream:
        return ""
    try:
        found = os.fstat(2)
    except OSError:
        return ""
    return f"<{priority}>" if stream == f"{found.st_dev}:{found.st_ino}" else ""
