"""Work in a child process, for a fixed time: what hangs, dies or takes too much memory there does no harm here.

How long reading takes may depend on what is read. So the time is fixed, and whoever waits for it waits for all of it.
"""

from __future__ import annotations

import os
import select
import signal
import warnings
from collections.abc import Callable
from contextlib import suppress

from hushgrid.kernels.errors import InputError
from hushgrid.node import system

Work = Callable[[], bytes]  #: may raise InputError, whose line is handed on
GOOD, BAD = b"+", b"-"  #: the first byte of what a child says
LINE = 4096  #: bytes of a reason


class Child:
    """A child process of one piece of work, which ends at a deadline. It is a process group of its own."""

    def __init__(self, work: Work, most: int) -> None:
        """`most`: bytes of its result. Raises OSError if there can be no further process."""
        self.most = most
        self.fd, out = os.pipe()
        os.set_blocking(self.fd, False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads: a device has none
            self.pid = os.fork()
        if self.pid == 0:
            _inside(work, out)
        os.close(out)
        self._said = bytearray()
        self._ended = False

    def wait(self, deadline: float) -> None:
        """Takes what it says until it ends, or until `deadline` of time.monotonic()."""
        while not self._ended and (remaining := deadline - system.machine.monotonic()) > 0:
            ready, _, _ = select.select([self.fd], [], [], remaining)
            if ready:
                piece = os.read(self.fd, 1 << 16)
                self._said += piece
                self._ended = not piece or len(self._said) > self.most

    def result(self) -> bytes:
        """What its work has returned. Raises InputError if it has failed, or not ended in time. The child is ended."""
        self.end()
        if not self._ended:
            raise InputError("found nothing within its time, expected a value")
        if len(self._said) > self.most:
            raise InputError(f"found more than {self.most} bytes, expected fewer")
        head, body = bytes(self._said[:1]), bytes(self._said[1:])
        if head == GOOD:
            return body
        raise InputError(body.decode("utf-8", "replace") if head == BAD else "its reader has died, expected a value")

    def end(self) -> None:
        """Kills what is left of it."""
        with suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)
        with suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)  # it may not be a group yet
        with suppress(OSError):
            os.close(self.fd)
            self.fd = -1

    def gone(self, within: float = 0.0) -> bool:
        """Whether the system has let it go. A process that waits for a dead file server cannot even be killed."""
        until = system.machine.monotonic() + within
        while True:
            try:
                if os.waitpid(self.pid, os.WNOHANG)[0]:
                    return True
            except OSError:
                return True
            if system.machine.monotonic() >= until:
                return False
            system.machine.sleep(0.002)


class Worker:
    """Does one piece of work after the other, each in a child, each for the same time."""

    def __init__(self) -> None:
        self._last: Child | None = None

    def done(self, work: Work, seconds: float, most: int) -> bytes:
        """What `work` returns. It returns early; `hold` waits for the rest. Raises InputError with the reason."""
        if not system.machine.real:
            return work()
        if self._last is not None and not self._last.gone():
            raise InputError("what was read before still hangs, expected it to end")
        try:
            child = self._last = Child(work, most)
        except OSError as error:
            raise InputError(f"{error.strerror}, expected a further process") from None
        child.wait(system.machine.monotonic() + seconds)
        try:
            return child.result()
        finally:
            child.gone(0.05)


def hold(until: float) -> None:
    """Waits until `until` of time.monotonic()."""
    while (remaining := until - system.machine.monotonic()) > 0:
        system.machine.sleep(remaining)


def _inside(work: Work, out: int) -> None:
    """The child's whole life. It has no socket and no file of its parent: a connection must not outlive its owner."""
    answer = BAD + b"a defect of the reader"
    try:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(out, 3)
        os.set_inheritable(3, False)
        os.closerange(4, 1 << 14)
        with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")  # if memory is short, this process ends, not the device
        answer = GOOD + work()
    except InputError as error:
        answer = BAD + str(error).encode()[:LINE]
    except BaseException as error:
        answer = BAD + f"{type(error).__name__}: {error}".encode()[:LINE]
    finally:
        view = memoryview(answer)
        with suppress(OSError):
            while view:
                view = view[os.write(3, view) :]
        os._exit(0)
