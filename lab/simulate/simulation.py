"""A fleet of daemons in one process and one thread, under one seed."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from hushgrid.broker.coordinator import daemon as coordinator_daemon
from hushgrid.kernels.errors import HushgridError
from hushgrid.lab.simulate.fleet import Fleet
from hushgrid.lab.simulate.machine import Machine, Signals
from hushgrid.lab.simulate.network import Broker, SimulatedLink
from hushgrid.lab.simulate.world import World
from hushgrid.node.config.coordinator import load_coordinator
from hushgrid.node.config.device import load_device
from hushgrid.node.runtime import daemon as device_daemon
from hushgrid.node.transport.link import MAKERS
from hushgrid.node.wire import COORDINATOR


class Simulation:
    """A world with a fleet in it. `place`: an empty folder, best one in memory."""

    def __init__(self, fleet: Fleet, seed: int, place: Path) -> None:
        self.fleet, self.world = fleet, World(seed)
        self.broker = Broker(self.world, self._heard)
        self.machines: dict[str, Machine] = {}
        self.defects: list[str] = []
        for name, files in fleet.files.items():
            root = place / name
            machine = Machine(self.world, name, root, partial(self._main, name, root))
            for file, content in files.items():
                (root / file).write_bytes(content)
            self.machines[name] = machine

    def run(self, until: float) -> None:
        """Until that time, s."""
        with simulated(self.broker):
            if not self.world.steps:
                for machine in self.machines.values():
                    self.world.at(float(self.world.chance(f"start {machine.name}").uniform(0, 2)), machine.boot)
            self.world.run(until)

    def end(self) -> None:
        """Every process is ended where it is."""
        with simulated(self.broker):
            for machine in self.machines.values():
                machine.powered = False
                machine.kill()

    def _main(self, name: str, root: Path, signals: Signals) -> int:
        """What the command line does."""
        try:
            if name == COORDINATOR:
                path = root / "coordinator.yaml"
                return coordinator_daemon.main(load_coordinator(path), str(path), signals)
            path = root / "device.yaml"
            return device_daemon.main(load_device(path), str(path), signals)
        except HushgridError as error:
            self.world.note("error", name, line=str(error).replace(str(root.parent), ""))
            return error.exit_code
        except Exception:
            self.defects.append(f"{name}: {traceback.format_exc()}")
            self.world.note("defect", name, trace=traceback.format_exc())
            return 1

    def _heard(self, source: str, topic: str, payload: bytes, retain: bool) -> None:
        self.world.note("send", source, topic=topic, size=len(payload), retain=retain)


@contextmanager
def simulated(broker: Broker) -> Iterator[None]:
    """While it is entered, every link is one to this broker."""
    before = dict(MAKERS)
    make: Callable[..., SimulatedLink] = lambda url, party: SimulatedLink(broker, party)  # noqa: E731
    MAKERS.update(mqtt=make, mqtts=make)
    try:
        yield
    finally:
        MAKERS.clear()
        MAKERS.update(before)
