"""The example fleet of deploy/ as real processes, for the tests: copied, with only the addresses and paths changed."""

import csv
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding

from hushgrid.broker.enrolment.authority import Authority, request, write_key
from hushgrid.broker.servers.process import free_port
from hushgrid.node.transport.mqtt import MqttLink
from tests.support.daemons.forked import LATE, Child, Forker
from tests.support.devices.ledgers import copy_of
from tests.support.paths import DEPLOY

HUSHGRID = (sys.executable, "-m", "hushgrid")
ZONES = ("z1", "z2", "z3")
PATIENCE = 120.0  # seconds until a test gives up; none depends on how long a thing takes
ROOT = "hushgrid/1/demo"


class Daemon:
    """A process of a real command, with what it says as it comes: a fork where its environment tells it nothing
    early.
    """

    def __init__(self, log: Path, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.log = log
        self.child: subprocess.Popen[bytes] | Child
        log.write_bytes(b"")
        if Forker.current and tuple(command[: len(HUSHGRID)]) == HUSHGRID and environment.keys() <= LATE:
            self.child = Forker.current.fork(command[len(HUSHGRID) :], log, environment)
            return
        with log.open("ab") as file:
            self.child = subprocess.Popen(
                command, stdout=file, stderr=file, stdin=subprocess.DEVNULL, env={**os.environ, **environment}
            )

    @property
    def said(self) -> str:
        return self.log.read_text()

    def wait_for(self, text: str, count: int = 1) -> None:
        deadline = time.monotonic() + PATIENCE
        while self.said.count(text) < count:
            assert self.child.poll() is None, f"ended with {self.child.returncode} before {text!r}: {self.said}"
            assert time.monotonic() < deadline, f"no {text!r} in: {self.said}"
            time.sleep(0.02)

    def code(self) -> int:
        return self.child.wait(PATIENCE)

    def end(self) -> int:
        self.child.send_signal(signal.SIGTERM)
        return self.code()

    def kill(self) -> None:
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()


class Fleet:
    """An example of deploy/ copied into `directory`; only the address of the broker and the directories are changed."""

    def __init__(self, directory: Path, url: str, stack: ExitStack, example: Path = DEPLOY) -> None:
        self.directory, self.url, self.stack, self.count = directory, url, stack, 0
        self.program: Sequence[str] = HUSHGRID
        shutil.copytree(example, directory)
        for file in (directory / "coordinator.yaml", *(directory / "nodes").glob("*.yaml")):
            text = re.sub("^broker: .*$", f"broker: {url}", file.read_text(), flags=re.M)
            text = re.sub("^tls: .*\n", "", text, flags=re.M) if url.startswith("mqtt:") else text
            file.write_text(text.replace("/var/lib", str(directory / "lib")))

    def start(self, role: str, config: str, user: str = "", *options: str, **environment: str) -> Daemon:
        self.count += 1
        file = self.directory / ("" if role == "coordinator" else "nodes") / config
        command = [*self.program, role, str(file), *options]
        environment |= {"HUSHGRID_MQTT_USER": user} if user else {}
        daemon = Daemon(self.directory / f"{self.count}-{role}.log", command, environment)
        self.stack.callback(daemon.kill)
        return daemon

    def node(self, z: str, **environment: str) -> Daemon:
        daemon = self.start("node", f"{z}.yaml", z, **environment)
        daemon.wait_for("ready on")
        return daemon

    def coordinator(self, *options: str) -> Daemon:
        return self.start("coordinator", "coordinator.yaml", "coordinator", *options)

    def edit(self, file: str, old: str, new: str) -> None:
        path = self.directory / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def gradients(self, rounds: int) -> None:
        """Another run in place of the example's: linearised ADMM, which asks for a noisy answer in every round."""
        self.edit("scenario.yaml", "name: consensus-admm", "name: ladmm")
        self.edit("scenario.yaml", "rounds: 200 ", f"rounds: {rounds} ")
        self.edit("scenario.yaml", "privacy:", "privacy:\n  mode: objective")
        for z in ZONES:
            self.edit(f"nodes/{z}.yaml", "algorithms: [consensus-admm]", "algorithms: [ladmm]")

    def state(self, z: str) -> Path:
        return self.directory / "lib" / "hushgrid" / z

    def spends(self, z: str) -> list[tuple[str, float]]:
        """(kind, epsilon) of every spend in a ledger."""
        return self.spends_of(self.state(z) / f"{z}.ledger")

    @staticmethod
    def spends_of(ledger: Path) -> list[tuple[str, float]]:
        with copy_of(ledger) as copy:
            return [(spend.kind, spend.value) for spend in copy.spends.rows()]

    def retained(self) -> dict[str, bytes]:
        """What stands on the state topics, as the coordinator's identity sees it."""
        topics = [f"{ROOT}/state/+", f"{ROOT}/edge/+/coordinator"]
        link = MqttLink(self.url, "coordinator", username="coordinator", subscriptions=topics, persistent=False)
        link.connect(PATIENCE)
        link.publish(f"{ROOT}/state/coordinator", b"", retain=True)  # comes back after all that was retained before
        seen: dict[str, bytes] = {}
        deadline = time.monotonic() + PATIENCE
        while (f"{ROOT}/state/coordinator", b"", False) not in (batch := link.poll(0.2)):
            assert time.monotonic() < deadline
            seen |= {m.topic: m.payload for m in batch if m.retained}
        seen |= {m.topic: m.payload for m in batch if m.retained}
        link.close()
        return seen


def broker(fleet: Fleet, program: Path, config: str, listener: str, here: str) -> None:
    """mosquitto on one of deploy's configurations, ended with the fleet."""
    fleet.edit(config, f"listener {listener}", f"listener {here}")
    fleet.edit(config, "/etc/mosquitto/hushgrid.acl", str(fleet.directory / "acl"))
    if os.geteuid() == 0:
        fleet.edit(config, "user mosquitto", "user root")  # else it may not read the test's files
    log = fleet.directory / "mosquitto.log"
    with log.open("wb") as file:
        child = subprocess.Popen([program, "-c", fleet.directory / config], stdout=file, stderr=file)
    fleet.stack.callback(child.wait)
    fleet.stack.callback(child.kill)
    port = int(here.split()[0])
    deadline = time.monotonic() + PATIENCE
    while True:
        assert child.poll() is None, log.read_text()
        assert time.monotonic() < deadline
        with socket.socket() as trial:
            if trial.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)


def tried(
    directory: Path,
    program: Path,
    stack: ExitStack,
    edit: Callable[[Fleet], None] = lambda fleet: None,
    make: Callable[[Path, str, ExitStack], Fleet] = Fleet,
) -> Fleet:
    """A fleet, once `edit` has changed it, on a broker of mosquitto-try.conf: only port, user and paths are others."""
    port = free_port()
    fleet = make(directory, f"mqtt://127.0.0.1:{port}", stack)
    if not (fleet.directory / "mosquitto-try.conf").exists():
        shutil.copy2(DEPLOY / "mosquitto-try.conf", fleet.directory)
    edit(fleet)
    broker(fleet, program, "mosquitto-try.conf", "1883 127.0.0.1", f"{port} 127.0.0.1")
    return fleet


def certified(directory: Path, program: Path, stack: ExitStack, *names: str) -> Fleet:
    """A fleet on a broker of mosquitto.conf, with certificates of these names."""
    port = free_port()
    fleet = Fleet(directory, f"mqtts://127.0.0.1:{port}", stack)
    certificates(fleet.directory / "certs", *names)
    fleet.edit("mosquitto.conf", "/etc/mosquitto/certs", str(fleet.directory / "certs"))
    fleet.edit("mosquitto.conf", "log_dest syslog", "log_dest stderr")
    broker(fleet, program, "mosquitto.conf", "8883", f"{port} 127.0.0.1")
    return fleet


def certificates(directory: Path, *names: str) -> None:
    """Keys and certificates for these names, and a broker on loopback, by an authority of the directory's own. Names
    that are there are kept.
    """
    directory.mkdir(parents=True, exist_ok=True)
    key, ca = directory / "ca.key", directory / "ca.crt"
    if not ca.exists():
        made = Authority.make("demo")
        write_key(made.key, key)
        ca.write_bytes(made.certificate.public_bytes(Encoding.PEM))
    authority = Authority.read(key, ca)
    for name in ("broker", *names):
        if (directory / f"{name}.crt").exists():
            continue
        public = request(name, directory).key
        signed = authority.sign_server(name, public, "127.0.0.1") if name == "broker" else authority.sign(name, public)
        (directory / f"{name}.crt").write_bytes(signed.public_bytes(Encoding.PEM))


def finishes_a_run(fleet: Fleet, nodes: list[Daemon]) -> None:
    coordinator = fleet.coordinator("--once")
    assert coordinator.code() == 0, coordinator.said
    for daemon in nodes:
        daemon.wait_for(" done: ")


UNITS = ("hushgrid-node@.service", "hushgrid-coordinator.service")


# --- What a coordinator that runs by a schedule has written about its intervals ---


def intervals(fleet):
    path = fleet.state("coordinator") / "intervals.csv"
    return list(csv.DictReader(path.read_text().splitlines())) if path.exists() else []


def until(fleet, happened):
    """The intervals so far, once `happened` of them."""
    deadline = time.monotonic() + PATIENCE
    while not (rows := intervals(fleet)) or not happened(rows):
        assert time.monotonic() < deadline, rows
        time.sleep(0.05)
    return rows
