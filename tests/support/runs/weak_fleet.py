"""A fleet that runs by itself, whose owners refuse, in this process."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from hushgrid.broker.simulation.problems.power_flow import ZoneSetup
from hushgrid.lab.benchmarks.continuous import NAME
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.runtime.member import Member, Simulated
from hushgrid.node.schema.sections import Adjacency, Allow, Budget
from hushgrid.node.wire import COORDINATOR, Birth, decode_presence
from tests.support.runs.continuous_fleet import Fleet

UNWILLING = Allow(algorithms=[])  #: consents to nothing


@functools.cache
def zones(count: int, rounds: int = 2, epsilon: float = 1.0) -> ZoneSetup:
    """case14 in so many zones, with a noisy answer in each round."""
    raw: dict[str, Any] = {
        "hushgrid": 1,
        "name": NAME,
        "problem": {"kind": "zones", "case": "case14", "zones": count},
        "algorithm": {"name": "ladmm", "rounds": rounds},
        "privacy": {"epsilon": epsilon, "adjacency": {"bounded-change": 0.01}},
    }
    return ZoneSetup(scenario_from(raw))


def budget(epsilon: float, **keys: Any) -> Budget:
    return Budget(epsilon=epsilon, adjacency=Adjacency(bounded_change=0.01), **keys)


class WeakFleet(Fleet):
    """Each zone's owner has a budget and a consent of its own."""

    def __init__(self, directory: Path, setup: ZoneSetup, **keys: Any) -> None:
        self.budgets: dict[str, Budget] = {}
        self.allows: dict[str, Allow] = {}
        super().__init__(directory, setup, **keys)

    def owner(self, zone: str, budget: Budget | None = None, allow: Allow | None = None) -> None:
        """What its owner allows from now on, as SIGHUP says it to the daemon."""
        self.budgets[zone], self.allows[zone] = budget or self._plenty, allow or Allow()
        member = self.hub.endpoints.get(zone)
        if isinstance(member, Member):
            member.budget, member.allow = self.budgets[zone], self.allows[zone]
            member.consents += 1
            self.hub.publish(member.connected())

    @property
    def log(self) -> list[str]:
        """The coordinator's log."""
        return self.logs[COORDINATOR]

    def birth(self, zone: str) -> Birth:
        """What stands on the broker."""
        birth = decode_presence(self.hub.retained[f"hushgrid/1/{NAME}/state/{zone}"])
        assert isinstance(birth, Birth)
        return birth

    def member(self, zone: str) -> Member:
        member = self.hub.endpoints[zone]
        assert isinstance(member, Member)
        return member

    _plenty = budget(1e9)

    def _ledger(self, name: str) -> Ledger:
        """Its running time is that of the hub and of what passes between intervals."""
        if name in self.ledgers:
            self.ledgers[name].close()
        path = self.directory / f"{name}.ledger"
        self.ledgers[name] = Ledger(path, name, durable=False, clock=lambda: 1.0 + self.now + self.hub.now)
        return self.ledgers[name]

    def _member(self, zone: str) -> Member:
        ledger, log = self._ledger(zone), self.logs.setdefault(zone, []).append
        limits = self.budgets.get(zone, self._plenty), self.allows.get(zone)
        return Member(NAME, self._zone(zone), ledger, *limits, Simulated(self.seed), log=log)
