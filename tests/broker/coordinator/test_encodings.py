"""One message costs a coordinator as few encodings as one member's, however many members there are."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from hushgrid.broker.coordinator.create import coordinator
from hushgrid.broker.simulation.inputs import lay_rows
from hushgrid.broker.simulation.memory import MemoryBroker
from hushgrid.broker.simulation.setup import prepare
from hushgrid.node import wire
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.runtime.member import Member, Simulated
from hushgrid.node.wire import COORDINATOR

MOST = 6  #: encodings that a message may cost: of what it says, of the state that is stored, of the answers to it
STAR = {"name": "fedavg", "step_size": 1.0, "rounds": 3}
RING = {"name": "dgd", "step_size": 0.1, "rounds": 3}


class Encodings:
    """Counts the values that are encoded."""

    def __init__(self, encoder):
        self.encoder, self.count = encoder, 0

    def encode(self, value):
        self.count += 1
        return self.encoder.encode(value)


class Fleet(MemoryBroker):
    """Takes down what each message has cost the coordinator. Each member says its birth again in the rounds."""

    def __init__(self, *args, encodings):
        super().__init__(*args)
        self.encodings, self.costs, self.again = encodings, Counter(), set()

    def _deliver(self, delivery):
        if delivery.dst != COORDINATOR:
            return super()._deliver(delivery)
        centre, before = self.endpoints[COORDINATOR], self.encodings.count
        kind, member, _ = centre.topics.parse(delivery.topic)
        body = "birth" if kind == "state" else type(wire.decode_envelope(delivery.payload, 1 << 20).body).__name__
        what = centre.phase, body
        self.publish(centre.on_message(delivery.topic, delivery.payload))
        self.costs[what] = max(self.costs[what], self.encodings.count - before)
        if centre.phase == "running" and member not in self.again:
            self.again.add(member)
            self.publish(self.endpoints[member].connected()[:1])


def fleet(nodes, algorithm, encodings):
    raw = {
        "hushgrid": 1,
        "name": "many",
        "problem": {"kind": "logistic", "row_bound": 1.0, "l2": 0.1},
        "algorithm": algorithm,
        "privacy": {"epsilon": 50.0, "adjacency": {"replace-one-record": {"clip": 1.0}}},
    }
    if algorithm is RING:
        raw["network"] = {"kind": "ring", "nodes": nodes}
    arrays = lay_rows(raw, [(np.eye(2), np.array([1.0, -1.0]))] * nodes)
    setup = prepare(scenario_from(raw), arrays=arrays)
    ledgers = {n: Ledger(Path("none"), n, durable=False, buffered=True) for n in (*setup.plan.nodes, COORDINATOR)}
    members = [Member("fleet", setup.device(n), ledgers[n], None, simulated=Simulated()) for n in setup.plan.nodes]
    centre = coordinator("fleet", setup.plan, "", ledgers[COORDINATOR])
    return Fleet([centre, *members], None, encodings=encodings)


@pytest.fixture
def encodings(monkeypatch):
    counted = Encodings(wire._encoder)
    monkeypatch.setattr(wire, "_encoder", counted)
    return counted


@pytest.mark.runs
@pytest.mark.parametrize("algorithm", [STAR, RING], ids=["star", "ring"])
def test_a_message_costs_a_coordinator_as_few_encodings_among_many_members_as_among_few(algorithm, encodings):
    costs = {}
    for nodes in (4, 16):
        hub = fleet(nodes, algorithm, encodings)
        hub.run(lambda hub=hub: hub.endpoints[COORDINATOR].finished)
        costs[nodes] = hub.costs
        assert hub.endpoints[COORDINATOR].error is None
    assert costs[4] == costs[16]
    rounds = "Z" if algorithm is STAR else "Reached"
    assert set(costs[4]) >= {
        ("gathering", "birth"),
        ("joining", "Join"),
        ("running", rounds),
        ("running", "birth"),
        ("finishing", "Finished"),
    }
    assert max(costs[4].values()) <= MOST
