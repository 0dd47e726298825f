"""A device over weeks of running time that a test lets pass, and the coordinator that asks it; what travels is kept as
a transcript.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
from pathlib import Path

import numpy as np

from hushgrid.kernels.patterns.star import W, Z
from hushgrid.node import wire
from hushgrid.node.privacy.noise_journal import NoiseJournal
from hushgrid.node.runtime.member import Member
from hushgrid.node.site import data_source
from hushgrid.node.site.forked import Worker
from hushgrid.node.wire import COORDINATOR, Envelope, Finish, Join, Plan
from tests.support.daemons.lying_coordinator import honest_plan
from tests.support.devices.ledgers import killed
from tests.support.site.source_device import BUSES, SourceDevice

ZONES = {
    "hushgrid": 1,
    "name": "demo",
    "problem": {"kind": "zones", "case": "case5", "zones": [list(BUSES), [4, 5]]},
    "algorithm": {"name": "ladmm", "rounds": 1},
    "privacy": {"mechanism": "laplace", "adjacency": {"bounded-change": 0.01}, "epsilon": 1.0, "mode": "objective"},
}


def counts(features, rows, edges, epsilon=1.0):
    """A histogram of a device's first feature."""
    return {
        "hushgrid": 1,
        "name": "counts",
        "problem": {
            "kind": "histogram",
            "column": 0,
            "edges": edges,
            "data": {"devices": {"features": features, "rows": rows}, "nodes": 1},
        },
        "algorithm": {"name": "sum"},
        "privacy": {
            "mechanism": "laplace",
            "adjacency": {"replace-one-record": {"clip": 1.0}},
            "epsilon": epsilon,
        },
    }


class Life(SourceDevice):
    """A device with a source, its member, and a coordinator that may lie."""

    def __init__(self, directory: Path, source, scenario, **more):
        super().__init__(directory, source, **more)
        self.plan = json.dumps(honest_plan(scenario)).encode()
        self.transcript = directory / "transcript.jsonl"
        self.transcript.touch()
        self.member, self.refusals, self.answers = None, [], []

    def start(self):
        super().start()
        state = Path(self.config.state)
        self.journal = NoiseJournal(state / f"{self.config.node}.drawn", self.ledger)
        budget, allow = self.config.budget, self.config.allow
        self.member = Member(
            self.config.fleet,
            *(self.data_source.device, self.ledger, budget, allow),
            log=self.said.append,
            renew=self.data_source,
            journal=self.journal,
        )
        self.member.connected()
        return self

    def end(self):
        if self.ledger is not None:
            self.journal.close()
        super().end()

    def crashes(self):
        """kill -9, and a new start: running time goes on from what was stored."""
        ledger, copy = self.ledger.path, self.directory / "as-it-was"
        copy.mkdir()
        for file in ledger.parent.glob(f"{ledger.name}*"):
            shutil.copy(file, copy)
        killed(self.ledger)
        for file in copy.iterdir():
            shutil.copy(file, ledger.parent)
        shutil.rmtree(copy)
        self.ledger = None
        return self.start()

    # --- the coordinator ---

    def tell(self, topic, payload):
        """A message to the device; its answers as bodies."""
        self._keep(topic, payload)
        out = self.member.on_message(topic, payload)
        bodies = []
        for publication in out:
            self._keep(publication.topic, publication.payload)
            if "/edge/" in publication.topic:
                bodies.append(wire.decode_envelope(publication.payload, 1 << 22).body)
        return bodies

    def announce(self, every=None, plan=None):
        """A plan to the device. Whether it joins."""
        blob, nonce, name = plan or self.plan, os.urandom(16), self.member.name
        members = {name: self.member.session, "other": 1}
        self.run_id = wire.run_id(blob, nonce, members)
        body = Plan(blob, nonce, members, {}, every=every)
        self.announced = wire.encode(Envelope(self.run_id, 0, 0, None, body))
        return self.resume()

    def resume(self):
        """The last plan once more: a run that was stopped goes on. Whether the device takes part."""
        said = self.tell(self.member.topics.all(COORDINATOR), self.announced)
        joined = any(isinstance(body, Join) for body in said)
        self.refusals += [body for body in said if not isinstance(body, Join)]
        return joined

    def ask(self, seq=1, size=None):
        """One round of the run; the device's answer, as its gate has given it."""
        size = size if size is not None else self.data_source.device.dimension
        topic = self.member.topics.edge(COORDINATOR, self.member.name)
        said = self.tell(topic, wire.encode(Envelope(self.run_id, 0, seq, None, W(np.zeros(size)))))
        self.answers += [body for body in said if isinstance(body, Z)]
        return said

    def finish(self, state="stopped"):
        topic = self.member.topics.edge(COORDINATOR, self.member.name)
        self.tell(topic, wire.encode(Envelope(self.run_id, 0, 0, None, Finish(state, ""))))

    def asked(self, every=900.0, size=None):
        """A run of one round. Whether the device took part."""
        if not self.announce(every):
            return False
        self.ask(size=size)
        self.finish()
        return True

    def _keep(self, topic, payload):
        with self.transcript.open("a") as file:
            file.write(json.dumps({"topic": topic, "bytes": base64.b64encode(payload).decode()}) + "\n")


def at_once(monkeypatch):
    """Reading takes no longer than it takes, in this process: that it always takes the same time is tried elsewhere."""
    monkeypatch.setattr(data_source, "hold", lambda until: None)
    monkeypatch.setattr(Worker, "done", lambda self, work, seconds, most: work())
