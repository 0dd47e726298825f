"""A connected socket as paho uses it, with one system call for all that has arrived, and one for all that leaves.

paho reads a packet in three small pieces, does not say whether there is another packet, and writes each packet by
itself. It collects a packet whole, however large. Here a packet that announces more than the limit ends the connection
unread.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from typing import Any

CHUNK = 1 << 16  #: bytes read at once: more than a TLS record, so that poll sees what is left as readable
HEADER = 5  #: bytes of a packet's first part: its type, and its length in at most four digits to the base 128
LATER = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)  #: the socket is not ready now


class Stream:
    """A buffer on both sides: `fill` reads what paho then gets by `recv`; `flush` sends what paho gave to `send`."""

    def __init__(self, sock: Any, limit: int = 1 << 28) -> None:
        """`limit`: the most bytes of a packet after its header."""
        self.sock, self.limit = sock, limit
        self.ended = False  #: whether the other side has closed, or the connection broke
        self.excess = 0  #: bytes of the packet that was above the limit; 0 if none was
        self._header, self._body = bytearray(), 0  #: of the packet under way: header bytes so far, bytes to come
        self._in, self._at = b"", 0
        self._out = bytearray()

    @property
    def more(self) -> bool:
        """Whether `recv` has something to return, even if it is the end."""
        return self._at < len(self._in) or self.ended

    @property
    def unsent(self) -> int:
        """Bytes that wait for `flush`."""
        return len(self._out)

    def fill(self) -> None:
        """Reads what has arrived. Sets `ended` if that is the end, or a packet above the limit."""
        try:
            data = self.sock.recv(CHUNK)
        except LATER:
            return
        except OSError:
            data = b""
        self.ended = not data
        self._measure(data)
        if self.excess:
            self.ended, data = True, b""
        self._in, self._at = self._in[self._at :] + data, 0

    def flush(self) -> None:
        """Sends as much as the system takes now."""
        try:
            while self._out:
                del self._out[: self.sock.send(self._out)]
        except LATER:
            pass
        except OSError:
            self.ended = True
            self._out.clear()

    def finish(self, timeout: float) -> None:
        """Sends the rest and reads until the other side has closed, each within `timeout` seconds.

        If a socket is closed while it has unread data, it is reset, and the broker may never read our goodbye.
        """
        with contextlib.suppress(OSError):
            self.sock.settimeout(timeout)
            self.sock.sendall(self._out)
            self.sock.shutdown(socket.SHUT_WR)
            deadline = time.monotonic() + timeout
            while self.sock.recv(CHUNK) and time.monotonic() < deadline:
                pass

    def _measure(self, data: bytes) -> None:
        """Follows the lengths that the packets announce."""
        at = 0
        while at < len(data) and not self.excess:
            if self._body:
                step = min(self._body, len(data) - at)
                self._body -= step
                at += step
                continue
            self._header.append(data[at])
            at += 1
            if len(self._header) > 1 and self._header[-1] < 0x80:
                digits = (digit & 0x7F for digit in self._header[1:])
                self._body = sum(digit << 7 * k for k, digit in enumerate(digits))
                self._header.clear()
                self.excess = self._body if self._body > self.limit else 0
            elif len(self._header) == HEADER:
                self.excess = self.limit + 1  # not a valid length

    # -- what paho calls

    def recv(self, size: int) -> bytes:
        if not self.more:
            raise BlockingIOError
        piece = self._in[self._at : self._at + size]
        self._at += len(piece)
        return piece

    def send(self, data: bytes) -> int:
        self._out += data
        return len(data)

    def setblocking(self, flag: bool) -> None:
        """It never blocks."""

    def close(self) -> None:
        self.sock.close()
