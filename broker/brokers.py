"""Which broker a run uses: one that is there already, mosquitto, or the embedded one, started and ended with us."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from hushgrid.kernels.errors import InputError, Stopped
from hushgrid.node.dial import parse_url
from hushgrid.node.mqtt import MqttLink

if TYPE_CHECKING:
    from hushgrid.node.config import Tls

CHOICES = "auto, embedded, mosquitto, mqtt://host:port or mqtts://host:port"
START_S = 20.0  #: for a broker of ours to accept; Python starts slowly on a small computer
REACH_S = 4.0  #: for a broker that should be there
PORTS = range(20000, 32000)  #: below Linux's ephemeral ports, so no outgoing connection takes one between runs

# exec'd into the broker: Linux kills it when we die in whatever way, and its process id stays the one we know.
_BOUND = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
os.getppid() == int(sys.argv[1]) or os._exit(0)
os.execv(sys.argv[2], sys.argv[2:])
"""
# MQTT 3.1.1 CONNECT: clean session, keepalive 5 s, client id "probe"
_CONNECT = b"\x10\x11\x00\x04MQTT\x04\x02\x00\x05\x00\x05probe"


def find_mosquitto() -> Path | None:
    """The mosquitto broker on PATH, or where Debian keeps what only root has on its PATH."""
    found = shutil.which(
        "mosquitto", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
    )
    return None if found is None else Path(found)


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

    def start(self, port: int | None = None) -> None:
        """On `port`, or on a free one. Stopped, with what its log complains of, when it does not start."""
        tries = 1 if port is not None else 5
        for last in [False] * (tries - 1) + [True]:
            self.port = port if port is not None else _free_port()
            if self._launch():
                self.url = f"{self._scheme}://127.0.0.1:{self.port}"
                return
            if last or not re.search("address already in use|expected a free port", self._complaint(), re.IGNORECASE):
                raise Stopped(f"{self.name}: did not start: {self._complaint()} ({self.log})")

    def _launch(self) -> bool:
        """True once the new process answers an MQTT connect."""
        with self.log.open("wb") as log:
            self._child = subprocess.Popen(
                self._command(self.port), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + START_S
        try:
            while self._child.poll() is None and time.monotonic() < deadline:
                # Somebody else may have taken the port and answer there: ours must say that it has it.
                said = b" running" in (text := self.log.read_bytes()) or b"listening on" in text
                if said and _answers(self.port, self._scheme == "mqtts"):
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
            child.wait(3.0)
        except BaseException as error:
            child.kill()
            child.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise


class Mosquitto(OwnBroker):
    """mosquitto on loopback, keeping nothing on disk.

    `acl`: access list file. `password`: password file, then nobody is anonymous. `tls`: the broker's own certificate,
    and the authority that clients must have theirs from; its name is then the user's. `config`: further lines of its
    configuration.
    """

    def __init__(
        self,
        directory: Path,
        acl: Path | None = None,
        password: Path | None = None,
        tls: Tls | None = None,
        config: Sequence[str] = (),
    ) -> None:
        program = find_mosquitto()
        if program is None:
            raise InputError(
                "--broker mosquitto: found none on PATH, /usr/sbin, /usr/local/sbin, expected it installed"
            )
        self._program = program
        self._config = directory / "mosquitto.conf"
        self._lines = [
            *([] if os.geteuid() else ["user root"]),  # else it gives up root, and may not read its own files
            "allow_anonymous " + ("true" if password is None else "false"),
            *([] if password is None else [f"password_file {password.resolve()}"]),
            *([] if acl is None else [f"acl_file {acl.resolve()}"]),
            *([] if tls is None else [f"cafile {tls.ca}", f"certfile {tls.cert}", f"keyfile {tls.key}"]),
            *([] if tls is None else ["require_certificate true", "use_identity_as_username true"]),
            "set_tcp_nodelay true",  # else every round trip waits for a delayed acknowledgement
            "persistence false",
            "max_inflight_messages 1000",
            "max_queued_messages 10000",
            "sys_interval 0",
            "log_dest stderr",
            "log_type error",
            "log_type warning",
            "log_type notice",
            "log_type information",
            *config,
        ]
        text = subprocess.run([program, "-h"], capture_output=True, text=True, check=False, timeout=10).stdout
        version = re.search(r"version (\S+)", text)
        super().__init__(f"mosquitto {version[1]}" if version else "mosquitto", directory)
        self._scheme = "mqtt" if tls is None else "mqtts"

    def _command(self, port: int) -> list[str]:
        self._config.write_text("\n".join([f"listener {port} 127.0.0.1", *self._lines]) + "\n")
        return [
            *(sys.executable, "-ISc", _BOUND, str(os.getpid())),
            *(str(self._program), "-c", str(self._config)),
        ]


class Embedded(OwnBroker):
    """The broker in pure Python, as a process of its own."""

    def __init__(self, directory: Path) -> None:
        try:
            version = importlib.metadata.version("amqtt")
        except importlib.metadata.PackageNotFoundError as error:
            raise InputError(
                "--broker embedded: found no amqtt, expected it installed: pip install 'hushgrid[laptop]'"
            ) from error
        super().__init__(f"embedded (amqtt {version})", directory)

    def _command(self, port: int) -> list[str]:
        module = "hushgrid.broker.embedded"
        return [sys.executable, "-m", module, "--port", str(port), "--parent", str(os.getpid())]


def check_choice(choice: str) -> None:
    """InputError unless `choice` is one of CHOICES; whether it is there is not asked."""
    if choice.startswith(("mqtt://", "mqtts://")):
        parse_url(choice)
    elif choice not in ("auto", "embedded", "mosquitto"):
        raise InputError(f"--broker: found {choice!r}, expected {CHOICES}")


def start(
    choice: str,
    directory: Path,
    *,
    acl: Path | None = None,
    password: Path | None = None,
    tls: Tls | None = None,
    config: Sequence[str] = (),
) -> RunningBroker:
    """The broker of `choice` (auto: mosquitto if found, else embedded), accepting connections.

    `directory` takes the log and configuration of one of ours; `acl`, `password`, `tls` and `config` are for
    mosquitto (see Mosquitto).
    InputError: no such choice, or not installed. Stopped: a given broker is not there, or ours does not start.
    """
    if choice.startswith(("mqtt://", "mqtts://")):
        link = MqttLink(choice, f"hushgrid-probe-{os.getpid()}", persistent=False)
        link.connect(REACH_S)
        link.close()
        return RunningBroker(choice, choice)
    check_choice(choice)
    if choice == "auto":
        choice = "embedded" if find_mosquitto() is None else "mosquitto"
    directory.mkdir(parents=True, exist_ok=True)
    broker = Mosquitto(directory, acl, password, tls, config) if choice == "mosquitto" else Embedded(directory)
    broker.start()
    return broker


def _free_port() -> int:
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
