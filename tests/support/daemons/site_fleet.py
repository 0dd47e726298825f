"""Two sites of three devices each, as real processes: a broker and a coordinator a site, and one of each above."""

import shutil
from pathlib import Path

import numpy as np

from hushgrid.broker.servers.process import free_port
from hushgrid.broker.watch.nodes import FleetNode, look
from hushgrid.node.config.watch import WATCH, WatchConfig
from hushgrid.node.schema.sections import Tls
from tests.support.daemons.deployed_fleet import Daemon, Fleet, broker, certificates
from tests.support.daemons.deployed_ring import rows
from tests.support.daemons.masked_fleet import SUM, fingerprint
from tests.support.paths import DEPLOY

SITES = {"s1": ("n0", "n1", "n2"), "s2": ("n3", "n4", "n5")}
DEVICES = [node for nodes in SITES.values() for node in nodes]
WATCHED = {"ca": "ca.crt", "cert": f"{WATCH}.crt", "key": f"{WATCH}.key"}
SCENARIO = SUM.replace("nodes: 4", "nodes: 6").replace(
    "masked: {corrupt: 1, contributors: 3}", "masked: {corrupt: 0, sites: {number: 2}}"
)
DEVICE = """
node: {node}
fleet: {fleet}
broker: {url}
tls: {{ca: {certs}/ca.crt, cert: {certs}/{node}.crt, key: {certs}/{node}.key}}
state: lib/{node}
data: {node}.npz
labels: {{classes: 2}}
budget: {{epsilon: 20.0, delta: 1.0e-5, adjacency: {{replace-one-record: {{clip: 1.0}}}}}}
allow:
  algorithms: [sum]
  problems: [{{kind: mean}}]
  masked: {{corrupt: 0, honest: {honest}, alone: 9.0, site: {{honest: 2, epsilon: 6.0}}, peers: [{peers}]}}
"""
COORDINATOR = """
fleet: {fleet}
broker: {url}
tls: {{ca: {certs}/ca.crt, cert: {certs}/coordinator.crt, key: {certs}/coordinator.key}}
state: lib/coordinator
silent_s: {silent}
"""


class SiteFleet:
    """All of it in `directory`, on mosquitto with TLS."""

    def __init__(
        self,
        directory: Path,
        program: Path,
        stack,
        scenario: str = SCENARIO,
        honest: int = 4,
        nodes=SITES,
        trust: bool = False,
    ) -> None:
        """nodes: the devices of each site. trust: no broker is trusted, and on `everybody` anybody may say all."""
        self.certs, self.nodes, self.trust = directory / "certs", nodes, trust
        self.everybody: dict[str, str] = {}  #: by folder: the URL where a broker takes all from everybody
        certificates(self.certs, "coordinator", "standby", WATCH, *nodes, *DEVICES)
        self.above = self._fleet(directory / "above", program, stack)
        self.sites = {site: self._fleet(directory / site, program, stack) for site in nodes}
        (self.above.directory / "scenario.yaml").write_text(scenario)
        text = COORDINATOR.format(fleet="taps", url=self.above.url, certs=self.certs, silent=60) + self._trust()
        (self.above.directory / "coordinator.yaml").write_text(text + "scenario: scenario.yaml\n")
        for site, names in nodes.items():
            self._site(site, names, honest)

    def _fleet(self, directory: Path, program: Path, stack) -> Fleet:
        port = free_port()
        fleet = Fleet(directory, f"mqtts://127.0.0.1:{port}", stack, DEPLOY / "ring")
        shutil.copy2(DEPLOY / "mosquitto.conf", directory)
        (directory / "acl").write_text("pattern readwrite hushgrid/#\n")
        fleet.edit("mosquitto.conf", "/etc/mosquitto/certs", str(self.certs))
        fleet.edit("mosquitto.conf", "log_dest syslog", "log_dest stderr")
        if self.trust:
            self.everybody[directory.name] = f"mqtt://127.0.0.1:{free_port()}"
            conf, acl = fleet.directory / "mosquitto.conf", fleet.directory / "acl"
            open_port = self.everybody[directory.name].rpartition(":")[2]
            conf.write_text(f"{conf.read_text()}\nlistener {open_port} 127.0.0.1\nallow_anonymous true\n")
            acl.write_text("topic readwrite hushgrid/#\n" + acl.read_text())
        broker(fleet, program, "mosquitto.conf", "8883", f"{port} 127.0.0.1")
        return fleet

    def _trust(self, indent: str = "") -> str:
        return f"{indent}trust: {{ca: {self.certs}/ca.crt}}\n" if self.trust else ""

    def schedule(self, keys: str) -> None:
        """The fleet above runs by itself, and nobody is waited for long. keys: more of its coordinator's file."""
        path = self.above.directory / "coordinator.yaml"
        path.write_text(path.read_text().replace("silent_s: 60", "silent_s: 8") + keys)
        for fleet in self.sites.values():
            path = fleet.directory / "coordinator.yaml"
            path.write_text(path.read_text().replace("silent_s: 5", "silent_s: 2\nwait_s: 1"))

    def _peers(self, names) -> str:
        return ", ".join(fingerprint(self.certs / f"{name}.crt") for name in names)

    def _site(self, site: str, nodes: tuple[str, ...], honest: int) -> None:
        fleet, certs = self.sites[site], self.certs
        above = (
            f"above:\n  site: {site}\n  fleet: taps\n  broker: {self.above.url}\n"
            f"  tls: {{ca: {certs}/ca.crt, cert: {certs}/{site}.crt, key: {certs}/{site}.key}}\n"
            f"  peers: [{self._peers(self.nodes)}]\n{self._trust('  ')}"
        )
        text = COORDINATOR.format(fleet=f"taps-{site}", url=fleet.url, certs=certs, silent=5) + self._trust()
        (fleet.directory / "coordinator.yaml").write_text(text + above)
        for node in nodes:
            file = DEVICE.format(
                node=node, fleet=f"taps-{site}", url=fleet.url, certs=certs, peers=self._peers(nodes), honest=honest
            )
            (fleet.directory / "nodes" / f"{node}.yaml").write_text(file + self._trust())
            A, b = self.rows(node)
            np.savez(fleet.directory / "nodes" / f"{node}.npz", A=A, b=b)

    def seen(self, site: str = "") -> dict[str, FleetNode]:
        """What `hushgrid watch` sees of the fleet above, or of a site's."""
        fleet, name = (self.sites[site], f"taps-{site}") if site else (self.above, "taps")
        tls = Tls(**{key: f"{self.certs}/{end}" for key, end in WATCHED.items()})
        return look(WatchConfig(fleet=name, broker=fleet.url, tls=tls))

    @staticmethod
    def rows(node: str):
        return rows(seed=DEVICES.index(node))

    def site(self, name: str) -> Daemon:
        daemon = self.sites[name].coordinator()
        daemon.wait_for("ready on")
        return daemon

    def device(self, name: str) -> Daemon:
        return next(self.sites[site] for site, nodes in self.nodes.items() if name in nodes).node(name)

    def ledger(self, name: str) -> Path:
        site = next(site for site, nodes in self.nodes.items() if name in nodes)
        return self.sites[site].directory / "nodes" / "lib" / name / f"{name}.ledger"

    def site_ledger(self, site: str) -> Path:
        return self.sites[site].directory / "lib" / "coordinator" / f"{site}.ledger"
