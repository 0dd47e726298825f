"""Brokers of three servers on loopback, each of which a test can kill: on the files of `hushgrid fleet`, or open to
all, for `hushgrid run`.
"""

import json
import os
import subprocess
import time
import urllib.request
from contextlib import ExitStack, suppress
from pathlib import Path

from hushgrid.broker.enrolment.authority import request
from hushgrid.broker.enrolment.directory import FleetDirectory, FleetFile
from hushgrid.broker.servers.process import free_port
from hushgrid.kernels.types import Document
from tests.support.transport.fleet_brokers import EXAMPLES, RABBITMQ, need

SERVERS = 3
PATIENCE = 300.0  #: for three servers of RabbitMQ to find each other on a busy machine
PLAIN_NATS = """
server_name: hushgrid-{n}
listen: "127.0.0.1:-1"
max_payload: 5242880
max_control_line: 16384
mqtt {{ listen: "127.0.0.1:{port}", max_ack_pending: 1000, stream_replicas: 3 }}
jetstream {{ store_dir: "{folder}/hushgrid-{n}" }}
cluster {{ name: hushgrid, listen: "127.0.0.1:{next}", routes: [{routes}] }}
"""
PLAIN_RABBITMQ = """
listeners.tcp = none
mqtt.listeners.tcp.1 = 127.0.0.1:{port}
mqtt.durable_queue_type = quorum
mqtt.tcp_listen_options.nodelay = true
cluster_partition_handling = pause_minority
cluster_formation.peer_discovery_backend = classic_config
{nodes}
"""
PLAIN_NODE = """
NODENAME=hushgrid-{n}@127.0.0.1
USE_LONGNAME=true
CONFIG_FILE={folder}/rabbitmq-{n}.conf
ENABLED_PLUGINS_FILE={folder}/enabled_plugins
"""


def ports() -> list[int]:
    """Free ports, after each of which one is left for the servers among themselves."""
    taken: set[int] = set()
    while len(taken) < SERVERS:
        port = free_port()
        if not {port - 1, port, port + 1} & taken:
            taken.add(port)
    return sorted(taken)


def made(path: Path, kind: str, fleet: str, *more: str) -> FleetDirectory:
    """A fleet's directory whose broker has three servers on loopback. `more`: further identities."""
    need(kind)
    file = FleetFile(fleet=fleet, broker=",".join(f"mqtts://127.0.0.1:{port}" for port in ports()), kind=kind)
    directory = FleetDirectory.make(path, file, EXAMPLES[fleet] / "scenario.yaml")
    for name in more:
        directory.enrol(name, request(name, path), directory.authority())
    directory.write_broker()
    return directory


class Cluster:
    """Three servers on the files in `folder`."""

    def __init__(self, folder: Path, kind: str, urls: str) -> None:
        self.folder, self.kind, self.url = folder.resolve(), kind, urls
        self.children: list[subprocess.Popen[bytes] | None] = [None] * SERVERS
        self.monitors = [free_port() for _ in range(SERVERS)]
        self.home = self.folder / "home"
        self.home.mkdir(exist_ok=True)
        cookie = self.home / ".erlang.cookie"
        cookie.write_text("hushgrid")
        cookie.chmod(0o400)
        self.epmd = free_port()
        self.between = [free_port() for _ in range(SERVERS)]
        for number in range(SERVERS):
            self.start(number)
        self.wait()

    def start(self, number: int) -> None:
        """Starts a server, the first is 0, with what it had on its disk."""
        with (self.folder / f"log-{number + 1}").open("ab") as out:
            self.children[number] = subprocess.Popen(
                self._command(number),
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                env=self._environment(number),
                start_new_session=True,
            )

    def kill(self, number: int) -> None:
        """The machine of a server goes out."""
        child = self.children[number]
        assert child is not None
        with suppress(ProcessLookupError):
            os.killpg(child.pid, 9)  # RabbitMQ is a shell's child
        child.wait()

    def wait(self) -> None:
        """Until every server has what the others have."""
        deadline = time.monotonic() + PATIENCE
        while not all(map(self._healthy, range(SERVERS))):
            assert time.monotonic() < deadline, self.logs()
            time.sleep(0.2)

    def logs(self) -> str:
        return "\n".join(file.read_text(errors="replace")[-2000:] for file in sorted(self.folder.glob("log-*")))

    def close(self) -> None:
        for number in range(SERVERS):
            self.kill(number)
        if self.kind == "rabbitmq":
            subprocess.run(["epmd", "-kill"], env=self._environment(0), capture_output=True)

    def control(self, number: int, *arguments: str) -> subprocess.CompletedProcess[str]:
        """What rabbitmqctl says of a server."""
        tool = "rabbitmq-diagnostics" if arguments[0].startswith("check") else "rabbitmqctl"
        return subprocess.run(
            [str(RABBITMQ / tool), "-q", *arguments], env=self._environment(number), capture_output=True, text=True
        )

    def _command(self, number: int) -> list[str]:
        if self.kind == "nats":
            file = self.folder / f"nats-{number + 1}.conf"
            return ["nats-server", "-c", str(file), "-m", str(self.monitors[number])]
        return [str(RABBITMQ / "rabbitmq-server")]

    def _environment(self, number: int) -> dict[str, str]:
        home = self.home
        return {
            **os.environ,
            "HOME": str(home),
            "RABBITMQ_CONF_ENV_FILE": str(self.folder / f"rabbitmq-env-{number + 1}.conf"),
            "RABBITMQ_DIST_PORT": str(self.between[number]),
            "ERL_EPMD_PORT": str(self.epmd),
            "RABBITMQ_MNESIA_BASE": str(home / "mnesia"),
            "RABBITMQ_LOG_BASE": str(home / "log"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_PID_FILE": str(home / f"pid-{number + 1}"),
        }

    def _healthy(self, number: int) -> bool:
        child = self.children[number]
        assert child is not None
        assert child.poll() is None, self.logs()
        if self.kind == "rabbitmq":
            listed = self.control(number, "cluster_status", "--formatter", "json")
            if listed.returncode:
                return False
            running: list[str] = json.loads(listed.stdout)["running_nodes"]
            return len(running) == SERVERS and self.control(number, "check_port_connectivity").returncode == 0
        return self._nats_has_all(number)

    def _nats_has_all(self, number: int) -> bool:
        """Of streams alone: /healthz of 2.9 also waits for consumers of clients that are gone, for ever."""
        try:
            health = self._monitored(number, "healthz?js-server-only=true")
            streams = [
                stream["cluster"]
                for account in self._monitored(number, "jsz?streams=true").get("account_details", [])
                for stream in account.get("stream_detail", [])
            ]
        except OSError:
            return False
        led = [stream for stream in streams if stream.get("leader") == f"hushgrid-{number + 1}"]
        replicas = [one for stream in led for one in stream.get("replicas", [])]  # whose leader alone knows
        return (
            health["status"] == "ok"
            and all(stream.get("leader") for stream in streams)
            and all(one.get("current") for one in replicas)
        )

    def _monitored(self, number: int, what: str) -> Document:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.monitors[number]}/{what}", timeout=2) as answer:
            document: Document = json.load(answer)
            return document


def of_fleet(path: Path, kind: str, fleet: str, stack: ExitStack, *more: str) -> tuple[FleetDirectory, Cluster]:
    """A fleet's directory, and the cluster on its files. `more`: as `made`."""
    directory = made(path, kind, fleet, *more)
    cluster = Cluster(directory.path / "broker", kind, directory.broker)
    stack.callback(cluster.close)
    return directory, cluster


def plain(folder: Path, kind: str, stack: ExitStack) -> Cluster:
    """A cluster that takes everybody on this machine."""
    need(kind)
    folder.mkdir(parents=True)
    taken = ports()
    routes = ", ".join(f'"nats-route://127.0.0.1:{port + 1}"' for port in taken)
    nodes = "".join(
        f"cluster_formation.classic_config.nodes.{n} = hushgrid-{n}@127.0.0.1\n" for n in range(1, SERVERS + 1)
    )
    (folder / "enabled_plugins").write_text("[rabbitmq_mqtt].\n")
    for n, port in enumerate(taken, 1):
        values = {"n": n, "port": port, "next": port + 1, "folder": folder.resolve(), "routes": routes, "nodes": nodes}
        (folder / f"nats-{n}.conf").write_text(PLAIN_NATS.format(**values))
        (folder / f"rabbitmq-{n}.conf").write_text(PLAIN_RABBITMQ.format(**values))
        (folder / f"rabbitmq-env-{n}.conf").write_text(PLAIN_NODE.format(**values))
    cluster = Cluster(folder, kind, ",".join(f"mqtt://127.0.0.1:{port}" for port in taken))
    stack.callback(cluster.close)
    return cluster
