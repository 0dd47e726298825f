"""Brokers of each kind on loopback, started on the files that `hushgrid fleet` has written for them."""

import os
import shutil
import socket
import subprocess
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest

from hushgrid.broker.enrolment.directory import FleetDirectory, FleetFile
from hushgrid.broker.enrolment.lists.place import BROKER
from hushgrid.broker.servers.mosquitto import find_mosquitto
from hushgrid.broker.servers.process import free_port
from tests.support.paths import DEPLOY

PATIENCE = 180.0
RABBITMQ = Path("/usr/lib/rabbitmq/bin")
READY = {"rabbitmq": "Server startup complete", "nats": "Server is ready"}  #: in its log
#: Each kind that runs here. RabbitMQ takes ten seconds to start: `make test-long`.
KINDS = ("mosquitto", "dynsec", "nats", pytest.param("rabbitmq", marks=pytest.mark.long))
EXAMPLES = {"demo": DEPLOY, "ring": DEPLOY / "ring"}  #: of deploy/, by fleet


def need(kind: str) -> None:
    """Skips the test where this broker is not installed."""
    if kind == "mosquitto" or kind == "dynsec":
        there = find_mosquitto() is not None
        if kind == "dynsec":
            there = there and any(Path("/usr").glob("lib*/*/mosquitto_dynamic_security.so"))
    else:
        there = shutil.which("nats-server") is not None if kind == "nats" else RABBITMQ.is_dir()
    if not there:
        pytest.skip(f"{kind} is not installed")


def made(path: Path, kind: str, fleet: str) -> FleetDirectory:
    """A fleet's directory on a port of loopback that is free now."""
    need(kind)
    file = FleetFile(fleet=fleet, broker=f"mqtts://127.0.0.1:{free_port()}", kind=kind)
    directory = FleetDirectory.make(path, file, EXAMPLES[fleet] / "scenario.yaml")
    directory.write_broker()
    return directory


def answers(port: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0


def wait_for(port: int, child: subprocess.Popen[bytes], log: Path, ready: str = "") -> None:
    """Until the broker accepts connections, and its log says that it is ready."""
    deadline = time.monotonic() + PATIENCE
    while not (ready in log.read_text(errors="replace") and answers(port)):
        assert child.poll() is None, log.read_text()[-3000:]
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.05)


class Broker:
    """A broker of one kind on the files of a fleet's directory, the fleet's or that of a bridge. `restart` reads them
    again.
    """

    def __init__(self, directory: FleetDirectory, name: str = BROKER) -> None:
        self.folder, self.kind = directory.folder(name), directory.kind
        self.port = int(directory.brokers()[name].urls.rpartition(":")[2])
        self.log = self.folder / "log"
        self.child: subprocess.Popen[bytes] | None = None
        self.environment: dict[str, str] = {}
        self.start()

    def start(self) -> None:
        with self.log.open("wb") as out:
            self.child = subprocess.Popen(
                self.command(), stdout=out, stderr=out, stdin=subprocess.DEVNULL, env={**os.environ, **self.environment}
            )
        wait_for(self.port, self.child, self.log, READY.get(self.kind, ""))

    def command(self) -> list[str]:
        if self.kind == "nats":
            return ["nats-server", "-c", str(self.folder / "nats.conf")]
        if self.kind == "rabbitmq":
            return self._rabbitmq()
        text = (self.folder / "mosquitto.conf").read_text()
        (self.folder / "mosquitto.conf").write_text(text.replace("log_dest syslog", "log_dest stderr"))
        return [str(find_mosquitto()), "-c", str(self.folder / "mosquitto.conf")]

    def _rabbitmq(self) -> list[str]:
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        if not self.environment:
            self.environment = {
                "HOME": str(home),
                "RABBITMQ_NODENAME": f"hushgrid{self.port}@localhost",
                "RABBITMQ_DIST_PORT": str(free_port()),
                "ERL_EPMD_PORT": str(free_port()),
                "RABBITMQ_MNESIA_BASE": str(home / "mnesia"),
                "RABBITMQ_LOG_BASE": str(home / "log"),
                "RABBITMQ_LOGS": "-",
                "RABBITMQ_PID_FILE": str(home / "pid"),
                "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
                "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "enabled_plugins"),
                "RABBITMQ_CONF_ENV_FILE": str(home / "none"),
            }
        return [str(RABBITMQ / "rabbitmq-server")]

    def control(self, *arguments: str) -> str:
        """What rabbitmqctl says."""
        done = subprocess.run(
            [str(RABBITMQ / "rabbitmqctl"), "-q", *arguments],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _processes(self) -> list[psutil.Process]:
        """The server, and what it has started."""
        assert self.child is not None
        server = psutil.Process(self.child.pid)
        return [server, *server.children(recursive=True)]

    def kill(self) -> None:
        """kill -9; what it has on the disk stays there."""
        assert self.child is not None
        for process in self._processes():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.child.wait()

    def freeze(self) -> None:
        """It is stopped until it goes on: `melt`."""
        for process in self._processes():
            with suppress(psutil.NoSuchProcess):
                process.suspend()

    def melt(self) -> None:
        for process in self._processes():
            with suppress(psutil.NoSuchProcess):
                process.resume()

    def close(self) -> None:
        if self.child is not None:
            self.child.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.child.wait(20)
            self.child.kill()
            self.child.wait()
        if self.environment:
            subprocess.run(["epmd", "-kill"], env={**os.environ, **self.environment}, capture_output=True)

    def restart(self) -> None:
        """Reads the lists again, with nothing retained."""
        if self.kind == "rabbitmq":
            self.control("import_definitions", str(self.folder / "definitions.json"))
            return
        assert self.child is not None
        self.child.kill()
        self.child.wait()
        shutil.rmtree(self.folder / "jetstream", ignore_errors=True)
        self.start()


def started(path: Path, kind: str, fleet: str, stack: ExitStack) -> tuple[FleetDirectory, Broker]:
    directory = made(path, kind, fleet)
    broker = Broker(directory)
    stack.callback(broker.close)
    return directory, broker
