"""A fleet in this process, of any pattern, one of whose devices is killed at a chosen step and comes back with an empty card.

Real members, ledgers, gates and coordinators. What the device has told anybody is read from what it publishes.
"""

from __future__ import annotations

from hushgrid.broker.coordinator.create import coordinator as coordinator_of
from hushgrid.broker.simulation.memory import MemoryBroker
from hushgrid.broker.simulation.setup import prepare
from hushgrid.node import wire
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.peer_marks import covers
from hushgrid.node.privacy.marks import highest
from hushgrid.node.wire import COORDINATOR, Publication
from tests.support.devices.zone_fleet import World, setup
from tests.support.runs.masked_runs import masked
from tests.support.scenarios import neighbour_scenarios, record_scenarios

SILENT_S, WAIT_S = 3.0, 20.0  # virtual seconds
#: The card is empty before the message is read; once its step is committed, of which nothing was published; after that; and
#: after that, with the coordinator killed and started again first.
MOMENTS = ("before", "committed", "published", "restarted")


def zones(place):
    return setup(rounds=3)


def star(place, **more):
    keys = {"network": None, "problem.data.nodes": 3, "algorithm": {"name": "ladmm", "rounds": 3, "rho": 0.5}}
    return prepare(scenario_from(record_scenarios.scenario(keys, **more)))


def masked_sums(place):
    return prepare(scenario_from(masked(place, nodes=3, m=10, algorithm={"rounds": 3})))


def token(place):
    return prepare(scenario_from(record_scenarios.scenario({"algorithm.rounds": 14, "algorithm.walk": "hamiltonian"})))


def neighbours(place):
    return prepare(scenario_from(neighbour_scenarios.scenario("dpp2", rounds=4)))


PATTERNS = {"zones": zones, "star": star, "masked": masked_sums, "token": token, "neighbours": neighbours}


class Card(MemoryBroker):
    """Message `step` to the victim is the one at which its card is emptied; 0: none is."""

    victim, step, moment, count = "", 0, "", 0
    empties = staticmethod(lambda: None)

    def __init__(self, *args):
        self.told = {}  #: by the victim to anybody, the highest mark of each of its ledgers
        super().__init__(*args)

    def publish(self, publications):
        for topic, payload, _ in publications:
            kind, src = topic.split("/")[3:5]
            if src == self.victim and kind in ("edge", "all") and (m := wire.decode_envelope(payload, 1 << 20).mark):
                self.told[m.ledger] = highest(self.told.get(m.ledger), m)
        super().publish(publications)

    def _deliver(self, delivery):
        if delivery.dst != self.victim or "/state/" in delivery.topic:
            return super()._deliver(delivery)
        self.count += 1
        if self.count != self.step:
            return super()._deliver(delivery)
        if self.moment == "committed":
            self.endpoints[self.victim].on_message(delivery.topic, delivery.payload)
        elif self.moment != "before":
            super()._deliver(delivery)
        self.empties()


class Fleet(World):
    """`victim` is the device whose card is emptied."""

    broker = Card
    resumes = False

    def __init__(self, directory, setup, victim):
        super().__init__(directory, setup)
        self.victim = self.hub.victim = victim
        self.hub.empties = self.emptied

    def coordinator(self, ledger):
        scenario = self.setup.scenario
        return coordinator_of(
            "world",
            self.setup.plan,
            scenario.kind.source(scenario.problem),
            ledger,
            silent_s=SILENT_S,
            wait_s=WAIT_S,
            resumes=self.resumes,
        )

    def emptied(self):
        """kill -9, and a new card: no ledger, no mark."""
        if self.hub.moment == "restarted":
            while self.hub.queue:  # what is on its way to others arrives
                super(Card, self.hub)._deliver(self.hub._next())
            self.ledgers[COORDINATOR]._give_up()
            self.restarted(COORDINATOR)
        self.forgets(self.victim)

    def forgets(self, name):
        self.ledgers.pop(name)._give_up()
        for file in self.directory.glob(f"{name}.ledger*"):
            file.unlink()
        self.restarted(name)

    def restarted(self, name):
        topic, payload = self.hub.endpoints[name].will
        self.hub.queue = [d for d in self.hub.queue if d.dst != name]
        self.hub.publish([Publication(topic, payload, True)])
        self.hub.endpoints[name] = self.build(name)
        self.hub._connect(name)

    def runs(self, coordinator=True):
        """One run; how it has ended: None or an error. `coordinator`: by a new process of it."""
        if coordinator:
            self.restarted(COORDINATOR)
        self.run()
        return self.centre.error

    def accepts(self):
        """Its owner does, while the device is stopped."""
        self.ledgers[self.victim].accept()
        self.restarted(self.victim)

    def forgotten(self):
        """Marks that the device has told somebody, and that its ledger of now does not count."""
        mark = self.ledgers[self.victim].mark
        return [told for told in self.hub.told.values() if told.ledger != mark.ledger and not covers(mark, [told])]


def steps(place, pattern, victim):
    """How many messages the victim is sent in a run that nobody disturbs."""
    fleet = Fleet(place, PATTERNS[pattern](place), victim)
    assert fleet.runs(coordinator=False) is None
    fleet.close()
    return fleet.hub.count
