"""What a service tells systemd."""

from __future__ import annotations

import os
import socket
from contextlib import suppress


def notify(message: str) -> None:
    """One line to systemd (Type=notify), from the loop that does the work; nothing where there is no systemd."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.sendto(message.encode(), "\0" + address[1:] if address[0] == "@" else address)
