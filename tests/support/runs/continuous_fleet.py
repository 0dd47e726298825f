"""A fleet that runs by itself in this process: intervals one after the other, real members, ledgers, gates and solver."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np

from hushgrid.broker.coordinator.intervals import Intervals
from hushgrid.broker.coordinator.schedule import Clocks
from hushgrid.broker.simulation.memory import MemoryBroker
from hushgrid.broker.simulation.problems.power_flow import ZoneSetup
from hushgrid.node import wire
from hushgrid.node.config.coordinator import Continuous, CoordinatorConfig
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems.power_flow.device import Zone
from hushgrid.node.runtime.member import Member, Simulated
from hushgrid.node.wire import COORDINATOR, Publication

ZONES14 = [[1, 2, 3, 4, 5], [7, 8, 9, 10, 14], [6, 11, 12, 13]]


@functools.cache
def scenario(name, rounds, epsilon=5.0, case="case14", ac="none", private=True):
    problem = {"kind": "zones", "case": case, "zones": ZONES14 if case == "case14" else 2}
    if name == "consensus-admm":
        problem |= {"ac": ac, "loads": {"nonzero": "case"}}
    raw = {
        "hushgrid": 1,
        "name": "continuous",
        "problem": problem,
        "algorithm": {"name": name, "rounds": rounds} | ({} if private else {"variant": "none"}),
    }
    if private:
        raw["privacy"] = {"epsilon": epsilon, "mode": "input", "adjacency": {"bounded-change": 0.01}}
    return ZoneSetup(scenario_from(raw))


class Hub(MemoryBroker):
    """Endpoints come and go; what is retained stays."""

    delivered = 0

    def add(self, endpoint):
        self.endpoints[endpoint.name] = endpoint
        self.topics.pop(endpoint.name, None)
        for names in self.subscribers.values():
            if endpoint.name in names:
                names.remove(endpoint.name)
        endpoint.on_tick(self.now)
        self._connect(endpoint.name)

    def drop(self, name):
        topic, payload = self.endpoints.pop(name).will
        for names in self.subscribers.values():
            if name in names:
                names.remove(name)
        self.queue = [d for d in self.queue if d.dst != name]
        self.publish([Publication(topic, payload, True)])

    def _deliver(self, delivery):
        self.delivered += 1
        super()._deliver(delivery)

    def until(self, over):
        while not over():
            if self.queue:
                self._deliver(self._next())
            else:
                self.tick()


class Fleet:
    """`interval()` makes one interval and returns its line."""

    def __init__(self, directory, setup, *, every="15min", clocks=None, **keys):
        self.directory, self.setup, self.zones = Path(directory), setup, setup.plan.nodes
        self.ledgers, self.logs = {}, {}
        self.loads = {z: setup.loads(z) for z in self.zones}
        self.now = 0.0
        self.clocks = clocks or Clocks(lambda: self.now, lambda: 1.8e9 + self.now, lambda: "boot")
        self.config = CoordinatorConfig(
            fleet="continuous",
            broker="mqtt://localhost",
            scenario="",
            state=str(self.directory / COORDINATOR),
            run=Continuous(every=every),
            **{"wait_s": 30.0, "silent_s": 10.0} | keys,
        )
        self.hub = Hub([], lambda name: None)
        self.there = set()
        for z in self.zones:
            self.comes(z)
        self.wakes()

    def member(self, z):
        ledger = self._ledger(z)
        s = self.setup
        device = Zone(z, s.case, s.models[z], self.loads[z], s.problem.solver)
        return Member(
            "continuous", device, ledger, None, simulated=Simulated(7), log=self.logs.setdefault(z, []).append
        )

    def comes(self, z):
        self.there.add(z)
        self.hub.add(self.member(z))

    def goes(self, z):
        self.there.discard(z)
        self.hub.drop(z)

    def draws(self, loads, version=True):
        """New loads of the zones, by name, p.u."""
        for z, d in loads.items():
            self.loads[z] = np.asarray(d)
            self.ledgers[z].new_data()
            if z in self.there:
                self.hub.endpoints[z].device = Zone(
                    z, self.setup.case, self.setup.models[z], self.loads[z], self.setup.problem.solver
                )

    def _ledger(self, name):
        if name in self.ledgers:
            self.ledgers[name].close()
        self.ledgers[name] = Ledger(self.directory / f"{name}.ledger", name, durable=False)
        return self.ledgers[name]

    def wakes(self):
        """The coordinator's process starts, again."""
        ledger = self._ledger(COORDINATOR)
        log = self.logs.setdefault(COORDINATOR, []).append
        self.intervals = Intervals(self.config, self.setup.plan, self.setup.problem.case, ledger, log, self.clocks)

    @property
    def agent_state(self):
        from hushgrid.kernels.algorithms.ladmm import AgentState

        return AgentState

    def interval(self, again=None, during=lambda fleet: None):
        """`again`: (n, who) starts `who` again before the n-th message. `during` is called before every message and tick."""
        self.now = max(self.now, self.intervals.schedule.due)
        return self.goes_on(self.intervals.begin(), again, during)

    def goes_on(self, coordinator, again=None, during=lambda fleet: None):
        self.centre, before = coordinator, self.hub.delivered
        self.hub.add(coordinator)
        while True:

            def over():
                nonlocal again
                during(self)
                if again and self.hub.delivered - before >= again[0]:
                    who, again = again[1], None
                    self.restarts(who)
                return self.centre.finished

            self.hub.until(over)
            following = self.intervals.without_the_absent(self.centre)
            if following is None:
                break
            self.centre = following
            self.hub.add(following)
        self.delivered = self.hub.delivered - before
        row = self.intervals._row(self.centre, True)
        self.line = self.intervals.end(self.centre)
        self.hub.until(lambda: not self.hub.queue)
        return row

    def restarts(self, who):
        self.hub.drop(who)
        if who == COORDINATOR:
            self.wakes()
            resumed = self.intervals.resumed()
            self.centre = resumed or self.intervals.begin()
            self.hub.add(self.centre)
        else:
            self.hub.add(self.member(who))

    def states(self):
        """The last state of every machine, as bytes."""
        from hushgrid.node.runtime.driver import Stored

        return {n: wire.decode_state(Stored, ledger.last_run().state).machine for n, ledger in self.ledgers.items()}
