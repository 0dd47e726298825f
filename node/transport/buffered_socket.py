"""A connected socket that gives whole packets, with one system call for all that arrived, and one for all that leaves.

paho reads a packet in three small pieces, does not say whether there is another packet, and writes each packet by
itself. Here it gets only the packets that are left to it, each whole. A packet that announces more than the limit ends
the connection unread.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections import deque

from hushgrid.node.transport.packets import Invalid, length, written

CHUNK = 1 << 16  #: bytes read at once: more than a TLS record, so that poll sees what is left as readable
LARGE = 1 << 14  #: bytes from which on a piece is sent from where it is, and not copied beside the others
LATER = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)  #: the socket is not ready now


class Stream:
    """A buffer on both sides: `fill` reads what `packet` then takes apart; `flush` sends what was given to `send`."""

    def __init__(self, sock: socket.socket, limit: int = 1 << 28) -> None:
        """`limit`: the most bytes of a packet after its header."""
        self.sock, self.limit = sock, limit
        self.ended = False  #: whether the other side has closed, or the connection broke
        self.excess = 0  #: bytes of the packet that was above the limit; 0 if none was
        self._in: bytes | bytearray = b""
        self._at = 0  # how far `_in` is taken
        self._left = b""  # of a packet that was left to paho
        self._out: deque[bytearray | memoryview] = deque()  # small pieces are gathered in one

    @property
    def more(self) -> bool:
        """Whether there is a whole packet, or the end."""
        return self.ended or self._whole() is not None

    @property
    def unsent(self) -> int:
        """Bytes that wait for `flush`."""
        return sum(map(len, self._out))

    def fill(self) -> None:
        """Reads what has arrived. Sets `ended` if that is the end, or a packet above the limit."""
        try:
            data = self.sock.recv(CHUNK)
        except LATER:
            return
        except OSError:
            data = b""
        self.ended = not data
        if self._at == len(self._in):
            self._in = data
        else:
            if isinstance(self._in, bytes):
                self._in = bytearray(self._in)
            del self._in[: self._at]
            self._in += data
        self._at = 0

    def packet(self) -> tuple[int, bytes | memoryview] | None:
        """The first byte of the next packet, and what follows its length; None if no packet is whole.

        A large one is not copied: it is to be dropped before the next is asked for.
        """
        bounds = self._whole()
        if bounds is None:
            return None
        start, end = bounds
        whole = self._in
        first = whole[self._at]
        body = memoryview(whole)[start:end] if end - start >= LARGE else bytes(whole[start:end])
        self._at = end
        if end == len(whole):
            self._in, self._at = b"", 0
        return first, body

    def leave(self, first: int, body: bytes | memoryview) -> None:
        """Leaves a packet to paho: it gets it by `recv`."""
        self._left = bytes((first,)) + written(len(body)) + bytes(body)

    def flush(self) -> None:
        """Sends as much as the system takes now."""
        out = self._out
        try:
            while out:
                piece = out[0]
                sent = self.sock.send(piece)
                if sent == len(piece):
                    out.popleft()
                elif isinstance(piece, memoryview):
                    out[0] = piece[sent:]
                else:
                    del piece[:sent]
        except LATER:
            pass
        except OSError:
            self.ended = True
            out.clear()

    def finish(self, timeout: float) -> None:
        """Sends the rest and reads until the other side has closed, each within `timeout` seconds.

        If a socket is closed while it has unread data, it is reset, and the broker may never read our goodbye.
        """
        with contextlib.suppress(OSError):
            self.sock.settimeout(timeout)
            for piece in self._out:
                self.sock.sendall(piece)
            self.sock.shutdown(socket.SHUT_WR)
            deadline = time.monotonic() + timeout
            while self.sock.recv(CHUNK) and time.monotonic() < deadline:
                pass

    def _whole(self) -> tuple[int, int] | None:
        """Where the next packet's body begins and ends, if it is whole. One above the limit is the end."""
        if self._at == len(self._in):
            return None
        try:
            head = length(self._in, self._at + 1)
            size = head[0] if head else 0
        except Invalid:
            head, size = None, self.limit + 1
        if size > self.limit:
            self.excess, self.ended, self._in, self._at = size, True, b"", 0
            return None
        if head is None or head[1] + size > len(self._in):
            return None
        return head[1], head[1] + size

    # -- what paho calls

    def recv(self, size: int) -> bytes:
        if not self._left and not self.ended:
            raise BlockingIOError
        piece, self._left = self._left[:size], self._left[size:]
        return piece

    def send(self, data: bytes) -> int:
        out = self._out
        if len(data) >= LARGE:
            out.append(memoryview(data))
        elif out and isinstance(out[-1], bytearray):
            out[-1] += data
        else:
            out.append(bytearray(data))
        return len(data)

    def setblocking(self, flag: bool) -> None:
        """It never blocks."""

    def close(self) -> None:
        self.sock.close()
