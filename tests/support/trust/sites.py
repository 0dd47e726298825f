"""Two levels in this process, every end behind a guard, on a broker that lies at one level or at none."""

from __future__ import annotations

from collections import Counter

from hushgrid.broker.coordinator.create import coordinator
from hushgrid.broker.simulation.memory import MemoryBroker
from hushgrid.broker.simulation.setup import prepare
from hushgrid.broker.sites.lower import SiteCoordinator
from hushgrid.broker.sites.site import Site, below_of, fleet_of
from hushgrid.broker.sites.upper import UpperMember
from hushgrid.node import frames
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.frames import Hello
from hushgrid.node.masks.identity import Trust, made_up
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.runtime.member import Member, Simulated
from hushgrid.node.wire import COORDINATOR
from tests.support.trust.fleet import Fixed, Known, peers_of
from tests.support.trust.lies import Forger, altered, framed

FLEET = "world"


class BothGuards:
    """A site whose two ends are each behind a guard; `guarded` puts one there."""

    local = False

    def __init__(self, site, guarded):
        self.site, self.guarded = site, guarded
        self.above, self.below = guarded(site.upper), None
        self.name = site.name

    @property
    def subscriptions(self):
        return self.site.subscriptions

    @property
    def will(self):
        return self.site.will

    @property
    def finished(self):
        return self.site.finished

    def end_of(self, topic):
        """The end that hears a topic."""
        lower = self.site.lower
        return self.below if lower is not None and topic in lower.subscriptions else self.above

    def connected(self):
        below = self.below.connected() if self.below else []
        return [*self.above.connected(), *below, *self._settle()]

    def on_message(self, topic, payload):
        return [*self.end_of(topic).on_message(topic, payload), *self._settle()]

    def on_tick(self, now):
        below = self.below.on_tick(now) if self.below else []
        return [*self.above.on_tick(now), *below, *self._settle()]

    def idle(self):
        pass

    def _settle(self):
        above, below = self.site.exchange()
        fresh = []
        if self.site.lower is not None and (self.below is None or self.below.end is not self.site.lower):
            self.below = self.guarded(self.site.lower)
            fresh = self.below.connected()
        return [*self.above.seal(above), *fresh, *(self.below.seal(below) if self.below else [])]


class LyingBroker(MemoryBroker):
    """Before each message of the fleet `lies_in` it tells every lie about it."""

    def __init__(self, ends, lies_in=""):
        self.lies_in, self.lies, self.forgers = lies_in, Counter(), {}
        super().__init__(ends, lambda name: None)

    def _deliver(self, delivery):
        fleet = delivery.topic.split("/")[2]
        if fleet == self.lies_in and framed(delivery.payload):
            self._lie(fleet, delivery)
        super()._deliver(delivery)

    def _lie(self, fleet, delivery):
        names = (COORDINATOR, *self.endpoints, delivery.dst)
        forger = self.forgers.setdefault(fleet, Forger(fleet, {*names}))
        victim = self.endpoints[delivery.dst]
        guard = victim.end_of(delivery.topic) if isinstance(victim, BothGuards) else victim
        frame, topics = frames.decode(delivery.payload), forger.topics
        if isinstance(frame, Hello):
            lies = [("hello", delivery.topic, p) for p in forger.poses(delivery.topic, frame, guard.guard.key.public)]
        else:
            lies = [
                (name, topic, p)
                for name, topic, message in altered(topics, delivery.topic, frame.message)
                for p in forger.dresses(guard.name, topic, frame, message)
            ]
        for name, topic, payload in lies:
            self.lies[name] += 1
            self.publish(victim.on_message(topic, payload))


class TrustedSites:
    """The run of a scenario with sites, once. `lies_in`: the fleet whose broker lies; "": none."""

    def __init__(self, directory, raw, lies_in=""):
        directory.mkdir()
        self.directory, self.setup = directory, prepare(scenario_from(raw))
        self.plan, self.ledgers = self.setup.plan, {}
        names = (COORDINATOR, *self.plan.sites, *self.plan.nodes)
        self.identities, _ = made_up(names)
        self.trust = Trust({name: one.fingerprint for name, one in self.identities.items()})
        self.centre = coordinator(FLEET, self.plan, "", self.ledger(COORDINATOR), wait_s=1e9, silent_s=1e9)
        self.sites = {name: BothGuards(self.site(name), self.guarded) for name in self.plan.sites}
        self.devices = {name: self.guarded(self.device(name)) for name in self.plan.nodes}
        ends = [*self.devices.values(), self.guarded(self.centre), *self.sites.values()]
        self.hub = LyingBroker(ends, lies_in)

    def run(self):
        self.hub.run(lambda: self.centre.finished and all(site.finished for site in self.sites.values()))

    @property
    def forged(self):
        """How many lies each end has refused."""
        ends = {name: one.end for name, one in self.devices.items()} | {COORDINATOR: self.centre}
        for name, both in self.sites.items():
            ends |= {name: both.above.end, below_of(name): both.below.end}
        return {name: end.forgeries for name, end in ends.items()}

    @property
    def paid(self):
        return {name: self.ledgers[name].spends.answers() for name in self.plan.nodes}

    def ledger(self, file, name=""):
        ledger = self.ledgers[file] = Ledger(self.directory / f"{file}.ledger", name or file, durable=False)
        return ledger

    def guarded(self, end):
        return Known(end, Fixed(self.identities[end.name], self.trust), peers_of(end))

    def device(self, name):
        fleet = fleet_of(FLEET, self.plan.site_of[name])
        return Member(fleet, self.setup.device(name), self.ledger(name), None, simulated=Simulated(7))

    def site(self, name):
        def begin(plan, among):
            ledger = self.ledger(below_of(name), COORDINATOR)
            return SiteCoordinator(name, fleet_of(FLEET, name), plan, "", ledger, among=among)

        return Site(UpperMember(self.setup.site(name), FLEET, self.ledger(name)), begin)
