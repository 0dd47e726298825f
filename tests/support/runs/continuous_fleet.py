"""Intervals in this process, and what the machines are left with."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from hushgrid.broker.simulation.problems.power_flow import ZoneSetup
from hushgrid.broker.simulation.setup import prepare
from hushgrid.lab.benchmarks import continuous
from hushgrid.lab.benchmarks.continuous import NAME
from hushgrid.node import wire
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.runtime.driver import Stored
from hushgrid.node.runtime.member import Member, Simulated
from hushgrid.node.schema.sections import Adjacency, Allow, Budget
from hushgrid.node.wire import COORDINATOR, Birth, decode_presence

scenario = functools.cache(continuous.scenario)


class Fleet(continuous.Fleet):
    """A fleet whose runs are seeded, so that two can be compared bit for bit."""

    def states(self) -> dict[str, bytes]:
        """The last state of every machine."""
        found = {}
        for name, ledger in self.ledgers.items():
            last = ledger.runs.last()
            assert last is not None
            assert last.state is not None
            found[name] = wire.decode_state(Stored, last.state).machine
        return found


class Again:
    """`who` starts again before the message `at` of an interval."""

    def __init__(self, at: int, who: str) -> None:
        self.at, self.who, self.first = at, who, -1

    def __call__(self, fleet: continuous.Fleet) -> None:
        self.first = fleet.hub.delivered if self.first < 0 else self.first
        if self.at and fleet.hub.delivered - self.first >= self.at:
            self.at = 0
            fleet.restarts(self.who)


GONE = "z2"  #: the zone that is held
ROUNDS = {"consensus-admm": 200, "ladmm": 10}


def held_fleet(
    directory: Path,
    name: str = "consensus-admm",
    moved: float = 1.0,
    gone: str = GONE,
    ac: str = "none",
    rounds: int | None = None,
    **keys: Any,
) -> tuple[Fleet, dict[str, Any]]:
    """A fleet after an interval of all and one without `gone`, the others' loads `moved` in between; and the last
    line.
    """
    fleet = Fleet(directory, scenario(name, rounds or ROUNDS[name], None, ac=ac), **{"quorum": 2, "hold": "1h"} | keys)
    assert fleet.interval()["outcome"] == "answer"
    fleet.goes(gone)
    fleet.draws({z: moved * d for z, d in fleet.loads.items() if z != gone})
    return fleet, fleet.interval()


def record(fleet: Fleet, row: dict[str, Any]) -> dict[str, Any]:
    """The record of the run of a line."""
    return json.loads(next((fleet.directory / "runs").glob(f"*{row['run'][:8]}.json")).read_text())


# --- A fleet that runs by itself, whose owners refuse, in this process ---

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


# --- Intervals of nodes with rows in this process, around a coordinator ---


class RowFleet(Fleet):
    """As `Fleet`, from a scenario of records. Rows do not change."""

    def __init__(self, directory: Path, raw: dict[str, Any], **keys: Any) -> None:
        self.rows = prepare(scenario_from(raw, "scenario"))
        shown: Any = SimpleNamespace(
            plan=self.rows.plan, problem=SimpleNamespace(case=""), loads=lambda name: np.zeros(0)
        )
        directory.mkdir(exist_ok=True)
        super().__init__(directory, shown, **keys)

    def _zone(self, zone: str) -> Any:
        return self.rows.device(zone)

    @property
    def begun(self) -> np.ndarray:
        """Where the coordinator's machine begins."""
        return self.centre.machine().state.w

    @property
    def w(self) -> np.ndarray:
        """Where it has come to."""
        return self.centre.driver.machine.state.w
