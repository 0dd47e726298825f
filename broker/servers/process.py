"""A broker process of ours: started on a free port, watched until it answers, and ended with us."""

from __future__ import annotations

import contextlib
import random
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from hushgrid.kernels.errors import Stopped

START_S = 20.0  #: for a broker of ours to accept; Python starts slowly on a small computer
PORTS = range(20000, 32000)  #: below Linux's ephemeral ports, so no outgoing connection takes one between runs

# MQTT 3.1.1 CONNECT: clean session, keepalive 5 s, client id "probe"
_CONNECT = b"\x10\x11\x00\x04MQTT\x04\x02\x00\x05\x00\x05probe"


class RunningBroker:
    """A broker that accepts connections at `url`. As a context manager it is closed at the end."""

    def __init__(self, url: str, name: str) -> None:
        self.url = url
        self.name = name

    def close(self) -> None:
        """Ends the broker if it is ours."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class OwnBroker(RunningBroker):
    """A broker process of ours. It ends with `close`, and by the kernel's hand if we die without.

    Starts in a session of its own: Ctrl-C in the terminal reaches us, and we end it after our last messages. Linux
    ties it to the thread that started it, which must outlive it.
    """

    def __init__(self, name: str, directory: Path) -> None:
        super().__init__("", name)
        self.log = directory / "broker.log"
        self.port = 0
        self._scheme = "mqtt"
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Of the running process."""
        return None if self._child is None else self._child.pid

    def _command(self, port: int) -> list[str]:
        raise NotImplementedError

    def start(self, port: int | None = None, stopping: Callable[[], bool] = lambda: False) -> None:
        """On `port`, or on a free one. Stopped, with what its log complains of, when it does not start,
        or `asked` to end.
        """
        tries = 1 if port is not None else 5
        for last in [False] * (tries - 1) + [True]:
            self.port = port if port is not None else free_port()
            if self._launch(stopping):
                self.url = f"{self._scheme}://127.0.0.1:{self.port}"
                return
            if stopping():
                raise Stopped(f"{self.name}: interrupted while it started")
            if last or not re.search("address already in use|expected a free port", self._complaint(), re.IGNORECASE):
                raise Stopped(f"{self.name}: did not start: {self._complaint()} ({self.log})")

    def _launch(self, stopping: Callable[[], bool]) -> bool:
        """True once the new process answers an MQTT connect."""
        with self.log.open("wb") as log:
            self._child = subprocess.Popen(
                self._command(self.port), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + START_S
        try:
            while self._child.poll() is None and time.monotonic() < deadline and not stopping():
                # Somebody else may have taken the port and answer there: ours must say that it has it.
                ready = b" running" in (text := self.log.read_bytes()) or b"listening on" in text
                if ready and _answers(self.port, self._scheme == "mqtts"):
                    return True
                time.sleep(0.01)
        except BaseException:
            self.kill()
            raise
        self.kill()
        return False

    def _complaint(self) -> str:
        """The first error in its log (the second says where the first was), else its first line."""
        lines = self.log.read_text(errors="replace").strip().splitlines()
        wrong = [line for line in lines if "error" in line.lower()] or lines
        return re.sub(r"^\d+: ", "", wrong[0]) if wrong else f"no answer within {START_S:g} s"

    def kill(self) -> None:
        """Ends it at once, as a crash would."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Kills it and starts it again on the same port, with nothing kept."""
        self.kill()
        self.start(self.port)

    def close(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        child.send_signal(number)
        try:
            child.wait(1.5)
        except BaseException as error:
            child.kill()
            child.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise


def free_port() -> int:
    """A port of PORTS nobody listens on now. Somebody may by the time it is used: then another is tried."""
    while True:
        port = random.choice(PORTS)
        with socket.socket() as trial, contextlib.suppress(OSError):
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(("127.0.0.1", port))
            return port


def _answers(port: int, tls: bool) -> bool:
    """Whether an MQTT broker answers there, be it that it refuses; over TLS, whether anybody listens."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0) as sock:
        if tls:
            return True
        sock.sendall(_CONNECT)
        if sock.recv(4)[:1] == b"\x20":
            sock.sendall(b"\xe0\x00")
            return True
    return False
