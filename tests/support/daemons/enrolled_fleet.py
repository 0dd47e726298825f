"""The example fleet, made by `hushgrid fleet`: its directory, its broker on what that writes, its boxes."""

import re
import shutil
import socket
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from hushgrid.broker.enrolment.directory import FleetDirectory
from hushgrid.broker.servers.process import free_port
from hushgrid.cli.main import main
from hushgrid.kernels.errors import Stopped
from hushgrid.node.schema.sections import Tls
from hushgrid.node.transport.mqtt import MqttLink
from tests.support.daemons.deployed_fleet import PATIENCE, ZONES, Daemon, Fleet
from tests.support.paths import DEPLOY


class Enrolled(Fleet):
    """Three zones, their coordinator and broker, with certificates of the fleet's own authority."""

    def __init__(
        self,
        directory: Path,
        program: Path,
        stack: ExitStack,
        scenario: Path = DEPLOY / "scenario.yaml",
        *init: str,
        everybody: int = 0,
    ):
        """`init`: further options of it; `everybody`: a port of the broker where anybody may say and hear all."""
        port = free_port()
        super().__init__(directory / "boxes", f"mqtts://127.0.0.1:{port}", stack)
        self.certs, self.path = self.directory / "certs", directory / "F"
        begun = ("init", self.path, "--fleet", "demo", "--broker", self.url, "--scenario", scenario)
        self.operator(*begun, "--here", self.certs, *init)
        file = self.path / "coordinator.yaml"
        file.write_text(re.sub("^state: .*$", f"state: {self.state('coordinator')}", file.read_text(), flags=re.M))
        self.broker = self._broker(program, port, everybody)
        self.reload = f"kill -HUP {self.broker.pid}"

    @property
    def authority(self) -> FleetDirectory:
        return FleetDirectory(self.path)

    def operator(self, *arguments: object) -> None:
        """`hushgrid fleet ...` where the fleet's directory is."""
        assert main(["fleet", *map(str, arguments)]) == 0

    def enrol(self, *names: str) -> None:
        """Each box asks, and gets a certificate."""
        for name in names:
            self.operator("request", name, "--out", self.certs)
            self.operator("enrol", self.path, name, "--request", self.certs / f"{name}.csr")
            self.authority.hand_over(name, self.certs)

    def tls(self, name: str, certs: Path | None = None) -> Tls:
        here = certs or self.certs
        return Tls(ca=str(here / "ca.crt"), cert=str(here / f"{name}.crt"), key=str(here / f"{name}.key"))

    def connection(self, name: str, *topics: str, certs: Path | None = None) -> MqttLink:
        """A box's own connection, by its certificate."""
        link = MqttLink(self.url, name, tls=self.tls(name, certs), subscriptions=topics, persistent=False)
        self.stack.callback(link.close)
        link.connect(PATIENCE)
        return link

    def refuses(self, name: str, certs: Path | None = None) -> None:
        """The broker takes no connection by this certificate."""
        link = MqttLink(self.url, name, tls=self.tls(name, certs), persistent=False)
        with pytest.raises(Stopped, match="may not accept our certificate"):
            link.connect(3.0)

    def coordinator(self, *options: str) -> Daemon:
        return self.start("coordinator", str(self.path / "coordinator.yaml"), "", *options)

    def node(self, z: str, **environment: str) -> Daemon:
        daemon = self.start("node", f"{z}.yaml", **environment)
        daemon.wait_for("ready on")
        return daemon

    def _broker(self, program: Path, port: int, everybody: int) -> subprocess.Popen[bytes]:
        conf = self.path / "broker" / "mosquitto.conf"
        here = self.directory / "mosquitto.conf"
        shutil.copyfile(conf, here)
        text = here.read_text().replace("log_dest syslog", "log_dest stderr")
        if everybody:
            text += f"listener {everybody} 127.0.0.1\nallow_anonymous true\n"
            acl = self.path / "broker" / "hushgrid.acl"
            acl.write_text("topic readwrite hushgrid/#\n" + acl.read_text())
        here.write_text(text)
        with (self.directory / "mosquitto.log").open("wb") as file:
            child = subprocess.Popen([program, "-c", here], stdout=file, stderr=file)
        self.stack.callback(child.wait)
        self.stack.callback(child.kill)
        deadline = time.monotonic() + PATIENCE
        while True:
            assert child.poll() is None, (self.directory / "mosquitto.log").read_text()
            assert time.monotonic() < deadline
            with socket.socket() as trial:
                if trial.connect_ex(("127.0.0.1", port)) == 0:
                    return child
            time.sleep(0.02)


def enrolled(directory: Path, program: Path, stack: ExitStack) -> Enrolled:
    """A fleet whose three zones have their certificates."""
    made = Enrolled(directory, program, stack)
    made.enrol(*ZONES)
    return made
