"""A small real fleet in this process: the memory transport, real members, ledgers and gates. By default case5 in two
zones.
"""

from __future__ import annotations

import functools

from hushgrid.broker.coordinator.create import coordinator
from hushgrid.broker.simulation.memory import MemoryBroker
from hushgrid.broker.simulation.problems.power_flow import ZoneSetup
from hushgrid.node import wire
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.runtime.driver import Stored
from hushgrid.node.runtime.member import Member, Simulated
from hushgrid.node.wire import COORDINATOR

TABLES = ("meta", "spend", "run", "answer", "history", "peer")


@functools.cache
def setup(rounds=4, mode="objective", local_updates=1, name="ladmm"):
    own = {"local_updates": local_updates} if name == "ladmm" else {}
    return ZoneSetup(
        scenario_from(
            {
                "hushgrid": 1,
                "name": "world",
                "problem": {"kind": "zones", "case": "case5", "zones": 2},
                "algorithm": {"name": name, "rounds": rounds} | own,
                "privacy": {"epsilon": 5.0, "mode": mode, "adjacency": {"bounded-change": 0.01}},
            }
        )
    )


class World:
    """The nodes of a setup and their coordinator; seeded, so that two worlds can be compared bit for bit.

    `options` are those of the coordinator, which suspects nobody unless they say so.
    """

    def __init__(self, directory, setup, *, seed=7, budget=None, broker=MemoryBroker, **options):
        self.directory, self.setup, self.seed, self.budget = directory, setup, seed, budget
        self.options = {"silent_s": 1e9, "wait_s": 1e9} | options
        self.ledgers, self.logs = {}, {}
        self.final = None  #: after `close`: what `results` said
        self.hub = broker([self.build(n) for n in (*setup.plan.nodes, COORDINATOR)], self.build)

    def build(self, name):
        if name in self.ledgers:
            self.ledgers[name].close()
        ledger = self.ledgers[name] = Ledger(self.directory / f"{name}.ledger", name)
        end = self.coordinator(ledger) if name == COORDINATOR else self.member(name, ledger)
        end.log = self.logs.setdefault(name, []).append
        return end

    def coordinator(self, ledger):
        scenario = self.setup.scenario
        source = scenario.kind.source(scenario.problem)
        return coordinator("world", self.setup.plan, source, ledger, **self.options)

    def member(self, name, ledger, observe=None):
        simulated = None if self.seed is None else Simulated(self.seed)
        return Member("world", self.setup.device(name), ledger, self.budget, simulated=simulated, observe=observe)

    def __getitem__(self, name):
        return self.hub.endpoints[name]

    @property
    def centre(self):
        return self[COORDINATOR]

    def run(self, before_each=lambda world: None):
        """The run to its end; `before_each` is called before every delivery and every tick."""

        def over():
            before_each(self)
            return self.centre.finished

        self.hub.run(over)
        self.centre.conclude()

    def close(self):
        self.final = self.results()
        for ledger in self.ledgers.values():
            ledger.close()

    def rows(self, name):
        """Everything in a ledger."""
        self.ledgers[name].checkpoint()
        db = self.ledgers[name].tables.db
        return {table: db.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall() for table in TABLES}

    def state(self, name):
        """Everything a node's answers depend on: machine, gate, what it has taken, ledger, phase."""
        end = self[name]
        driver = end.driver
        memory = None
        if driver is not None:
            gate = driver.gate and wire.encode(driver.gate.state)
            memory = (driver.run, wire.encode(driver.machine.state), gate, dict(driver.seen), driver.sent, driver.taken)
        own = (
            (end.phase, dict(end.membership.marks.peers), end.membership.joined, end.run)
            if name == COORDINATOR
            else (end.last, end.finished)
        )
        return memory, own, self.rows(name)

    def results(self):
        """The final numbers of every node, from its ledger, and what it has spent."""
        final = {}
        for name, ledger in self.ledgers.items():
            run = ledger.runs.last()
            if run is None or run.state is None:
                continue
            stored = wire.decode_state(Stored, run.state)
            final[name] = (stored.machine, stored.gate, [row[2:10] for row in ledger.spends.rows()])
        return final
