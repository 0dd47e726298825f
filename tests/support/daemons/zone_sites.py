"""The example fleet of deploy/ in two sites: a broker and a coordinator a site, and one of each above."""

import re
from pathlib import Path

from hushgrid.broker.servers.process import free_port
from tests.support.daemons.deployed_fleet import ZONES, Daemon, Fleet, broker, certificates

SITES = {"s1": ("z1", "z2"), "s2": ("z3",)}
TLS = "tls: {{ca: {certs}/ca.crt, cert: {certs}/{name}.crt, key: {certs}/{name}.key}}"


class ZoneSites:
    """All of it in `directory`, on mosquitto with TLS."""

    def __init__(self, directory: Path, program: Path, stack, silent_s: float = 60.0) -> None:
        """silent_s: of a zone, for its site's coordinator."""
        self.certs = directory / "certs"
        certificates(self.certs, "coordinator", "standby", *SITES, *ZONES)
        self.above = self._fleet(directory / "above", program, stack)
        self.sites = {site: self._fleet(directory / site, program, stack) for site in SITES}
        dealt = "  sites: [[z1, z2], [z3]]\n"
        scenario = (self.above.directory / "scenario.yaml").read_text()
        (self.above.directory / "scenario.yaml").write_text(scenario.replace("problem:\n", f"problem:\n{dealt}", 1))
        self.above.edit("coordinator.yaml", "members: [z1, z2, z3]", "members: [s1, s2]")
        for site, zones in SITES.items():
            self._site(site, zones, silent_s)

    def _fleet(self, directory: Path, program: Path, stack) -> Fleet:
        port = free_port()
        fleet = Fleet(directory, f"mqtts://127.0.0.1:{port}", stack)
        (directory / "acl").write_text("pattern readwrite hushgrid/#\n")
        fleet.edit("mosquitto.conf", "/etc/mosquitto/certs", str(self.certs))
        fleet.edit("mosquitto.conf", "log_dest syslog", "log_dest stderr")
        broker(fleet, program, "mosquitto.conf", "8883", f"{port} 127.0.0.1")
        for file in (directory / "coordinator.yaml", *(directory / "nodes").glob("*.yaml")):
            file.write_text(re.sub(r"(\.\./)?\bcerts/", f"{self.certs}/", file.read_text()))
        return fleet

    def _site(self, site: str, zones: tuple[str, ...], silent_s: float) -> None:
        fleet, name = self.sites[site], f"demo-{site}"
        lines = [
            f"fleet: {name}",
            f"broker: {fleet.url}",
            TLS.format(certs=self.certs, name="coordinator"),
            f"state: {fleet.directory}/lib/coordinator",
            f"silent_s: {silent_s:g}",
            f"above: {{site: {site}, fleet: demo, broker: '{self.above.url}', case: case14,",
            f"        {TLS.format(certs=self.certs, name=site)}}}",
        ]
        (fleet.directory / "coordinator.yaml").write_text("".join(f"{line}\n" for line in lines))
        for zone in zones:
            fleet.edit(f"nodes/{zone}.yaml", "fleet: demo", f"fleet: {name}")

    def site(self, name: str) -> Daemon:
        daemon = self.sites[name].coordinator()
        daemon.wait_for("ready on")
        return daemon

    def zone(self, name: str) -> Daemon:
        return next(self.sites[site] for site, zones in SITES.items() if name in zones).node(name)

    def ledger(self, zone: str) -> Path:
        site = next(site for site, zones in SITES.items() if zone in zones)
        return self.sites[site].state(zone) / f"{zone}.ledger"
