"""An example fleet on a mosquitto a site, each bridged to that of the fleet by a line that can be cut."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from hushgrid.broker.enrolment.authority import DAY
from hushgrid.broker.enrolment.directory import FleetDirectory, FleetFile
from hushgrid.broker.enrolment.lists.bridges import BridgeSection
from hushgrid.broker.servers.process import free_port
from tests.support.daemons.deployed_fleet import Daemon, Fleet
from tests.support.transport.cut_lines import Lines
from tests.support.transport.fleet_brokers import EXAMPLES, Broker, need


def url() -> str:
    return f"mqtts://127.0.0.1:{free_port()}"


class Bridged:
    """The brokers of a fleet and of its sites, running."""

    def __init__(self, path: Path, fleet: str, sites: Mapping[str, Sequence[str]], stack: ExitStack) -> None:
        need("mosquitto")
        bridges = {name: BridgeSection(broker=url(), members=[*members]) for name, members in sites.items()}
        file = FleetFile(fleet=fleet, broker=url(), bridges=bridges)
        self.directory = FleetDirectory.make(path, file, EXAMPLES[fleet] / "scenario.yaml")
        self.directory.write_broker()
        self.above = Broker(self.directory)
        stack.callback(self.above.close)
        self.lines = Lines(self.above.port, bridges)
        stack.callback(self.lines.close)
        self.sites: dict[str, Broker] = {}
        for name in bridges:
            conf = self.directory.folder(name) / "mosquitto.conf"
            direct = f"address 127.0.0.1:{self.above.port}"
            assert direct in conf.read_text()
            conf.write_text(conf.read_text().replace(direct, f"address 127.0.0.1:{self.lines.port(name)}"))
            self.sites[name] = Broker(self.directory, name)
            stack.callback(self.sites[name].close)


def moved(fleet: Fleet, directory: FleetDirectory, names: Sequence[str], *more: str) -> None:
    """The files of a fleet's machines say the brokers of `directory`, and have its certificates, and those of `more`
    are there too.
    """
    certs = fleet.directory / "certs"
    certs.mkdir(exist_ok=True)
    for file in certs.iterdir():
        file.unlink()
    authority = directory.authority()
    for name in ("coordinator", "watch", *names, *more):
        authority.passing(name, certs, DAY)
    files = {name: f"nodes/{name}.yaml" for name in names} | {"coordinator": "coordinator.yaml"}
    for name, file in files.items():
        path = fleet.directory / file
        lines = [
            f"broker: {directory.broker_of(name)}" if line.startswith("broker:") else line
            for line in path.read_text().splitlines()
        ]
        path.write_text("\n".join(lines) + "\n")


def begun(fleet: Fleet, names: Sequence[str]) -> list[Daemon]:
    """The devices, connected."""
    nodes = [fleet.start("node", f"{name}.yaml") for name in names]
    for daemon in nodes:
        daemon.wait_for("ready on")
    return nodes
