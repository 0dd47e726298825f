"""What a service tells systemd: that it is ready, what it waits for, that it reads its files again, that it ends."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from hushgrid.kernels.errors import HushgridError, printable
from hushgrid.node.log import ERROR, prefix

STATUS_LIMIT = 200  #: characters of what `systemctl status` shows


def notify(message: str) -> None:
    """One message to systemd (Type=notify), from the loop that does the work; nothing where there is no systemd."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.sendto(message.encode(), "\0" + address[1:] if address[0] == "@" else address)


class Unit:
    """The unit of this process, as systemd shows it: what it waits for is said when it changes."""

    def __init__(self) -> None:
        self._shown = ""

    def shows(self, text: str) -> None:
        """What it does or waits for now (STATUS=)."""
        if text != self._shown:
            self._shown = text
            notify(f"STATUS={printable(text, STATUS_LIMIT)}")

    def ready(self) -> None:
        """Configuration and ledger are good: what is started after this unit may start (READY=1)."""
        notify("READY=1")

    @contextmanager
    def reloading(self) -> Iterator[None]:
        """The files are read again (RELOADING=1), and have been."""
        notify(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")
        try:
            yield
        finally:
            self.ready()

    def stopping(self) -> None:
        """It ends in order (STOPPING=1)."""
        notify("STOPPING=1")


@contextmanager
def service() -> Iterator[None]:
    """What ends the process inside is shown by `systemctl status` too, and is an error in the journal."""
    try:
        yield
    except HushgridError as error:
        notify(f"STATUS={printable(str(error), STATUS_LIMIT)}")
        _mark_error()
        raise
    except Exception:
        _mark_error()
        raise


def _mark_error() -> None:
    """The line that follows, which says why, has an error's priority."""
    with suppress(OSError):
        sys.stderr.write(prefix(ERROR))
