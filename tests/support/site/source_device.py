"""A zone of case5, or a device with rows, from a file with a `source`; its ledger runs on a clock of the test's own."""

import json
from pathlib import Path

import numpy as np

from hushgrid.node.config.device import load_device
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.site.data_source import data_source_of

BUSES = (1, 2, 3)
BASE = 100.0
ADJACENCY = {"bounded-change": 0.01}


def table(p, q, buses=BUSES):
    """Loads as CSV, MW and MVAr."""
    return "bus,p_mw,q_mvar\n" + "".join(f"{b},{x!r},{y!r}\n" for b, x, y in zip(buses, p, q, strict=True))


def document(p, q, buses=BUSES):
    return json.dumps({str(b): {"p_mw": x, "q_mvar": y} for b, x, y in zip(buses, p, q, strict=True)})


def loads(p, q):
    """The same as a device holds them, p.u."""
    return np.array([*p, *q]) / BASE


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class SourceDevice:
    """The device's file, its ledger and its intake; `restart` is what a death and a new start leave of it."""

    def __init__(self, directory: Path, source: dict, **more):
        self.directory, self.said = directory, []
        directory.mkdir(parents=True, exist_ok=True)
        data = {"case": "case5", "zone": list(BUSES)}
        node = {"node": "z1", "fleet": "demo", "broker": "mqtt://127.0.0.1:1883", "state": "state", "data": data}
        budget = {"epsilon": 1e6, "adjacency": ADJACENCY} | more.pop("budget", {})
        self.file = directory / "device.yaml"
        self.file.write_text(json.dumps({"node": node | {"source": source, "budget": budget} | more}))
        self.clock = Clock()
        self.ledger = self.data_source = None

    def edit(self, **sections):
        """The owner's file with other sections; None: without that section."""
        node = json.loads(self.file.read_text())["node"] | sections
        self.file.write_text(json.dumps({"node": {key: value for key, value in node.items() if value is not None}}))

    def reload(self):
        """What SIGHUP makes of the data. Raises InputError if the file is wrong."""
        config = load_device(self.file)
        self.data_source = self.data_source.declared(config)
        self.config = config

    def start(self):
        self.config = load_device(self.file)
        path = Path(self.config.state) / f"{self.config.node}.ledger"
        self.ledger = Ledger(path, self.config.node, durable=False, clock=self.clock)
        self.data_source = data_source_of(self.config, str(self.file), self.ledger, self.said.append)
        return self

    def end(self):
        """A death: what is in memory is gone."""
        if self.data_source is not None and self.data_source.subscriber:
            self.data_source.subscriber.link.close()
        if self.ledger is not None:
            self.ledger.close()
        self.ledger = self.data_source = None

    def restart(self):
        self.end()
        return self.start()

    @property
    def version(self):
        return self.ledger.data_version

    @property
    def holds(self):
        """The loads that the device computes with, p.u."""
        return self.data_source.device.d

    def run(self):
        """What a new run does first. Returns the data version that it has."""
        self.data_source()
        return self.version
