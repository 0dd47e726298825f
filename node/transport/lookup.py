"""A broker's name looked up in a child process: a name server that does not answer keeps nobody waiting here.

The resolver of the C library waits for as long as /etc/resolv.conf makes it, half a minute and more, and cannot be
interrupted. A device has no threads, so it forks for the question. Numeric addresses need none.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress

from hushgrid.node.transport.connect import Address, AddressInfo, resolve

LOOKUP_S = 10.0  #: for a name server to answer
LONGEST = 1 << 16  #: bytes of an answer
WAITS_S = (0.005, 1.0)  #: from one look at the child to the next: first and longest, s; they double


class Lookup:
    """One question, in a child of its own. Raises OSError if there can be no child."""

    def __init__(self, address: Address) -> None:
        self.began = time.monotonic()
        self.wait = WAITS_S[0]  #: until it is worth to ask `answer` again, s
        self._fd, out = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._said = b""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads: a device has none
            self._pid = os.fork()
        if self._pid == 0:
            _ask(address, out)
        os.close(out)

    def answer(self) -> Sequence[AddressInfo] | None:
        """The addresses, as `resolve` returns them; None as long as there is no answer.
        Raises OSError if there is none.
        """
        while select.select([self._fd], [], [], 0)[0] and len(self._said) < LONGEST:
            piece = os.read(self._fd, LONGEST)
            self._said += piece
            if not piece:
                self.close()
                return _answered(self._said)
        if time.monotonic() - self.began > LOOKUP_S:
            self.close()
            raise OSError(None, "no name server answers")
        self.wait = min(2 * self.wait, WAITS_S[1])
        return None

    def close(self) -> None:
        """Ends the child, whether it has answered or not."""
        with suppress(OSError):
            os.kill(self._pid, signal.SIGKILL)
        with suppress(OSError):
            os.waitpid(self._pid, 0)
        os.close(self._fd)


def numeric(address: Address) -> Sequence[AddressInfo]:
    """The addresses of a host that is a number already; else empty."""
    try:
        return socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        )
    except OSError:
        return []


def _answered(answer: bytes) -> Sequence[AddressInfo]:
    try:
        addresses = json.loads(answer)
    except ValueError:
        raise OSError(None, "its name cannot be looked up") from None
    if isinstance(addresses, str):
        raise OSError(None, addresses)
    return [(family, kind, protocol, name, tuple(where)) for family, kind, protocol, name, where in addresses]


def _ask(address: Address, out: int) -> None:
    """The child's whole life. It holds no socket and no file of its parent, and no signal handler."""
    try:
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            with suppress(OSError):
                signal.signal(number, signal.SIG_DFL)
        os.dup2(out, 3)
        os.closerange(4, 1 << 14)
        try:
            answer = json.dumps(resolve(address))
        except OSError as error:
            answer = json.dumps(error.strerror or str(error))
        os.write(3, answer.encode()[:LONGEST])
    finally:
        os._exit(0)
