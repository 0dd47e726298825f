"""A fleet whose days are planned hour by hour, in this process and in virtual time."""

from __future__ import annotations

import csv
import functools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hushgrid.broker.simulation.memory import Served
from hushgrid.broker.simulation.problems.power_flow import ZoneSetup
from hushgrid.kernels.types import Document, Vector
from hushgrid.lab.benchmarks.continuous import NAME
from hushgrid.node.config.coordinator import Continuous
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.privacy.spend_table import ALL
from hushgrid.node.problems.kind import RunFacts
from hushgrid.node.problems.power_flow.section import HorizonPlan
from hushgrid.node.runtime.member import Member, Simulated
from tests.support.paths import ROOT
from tests.support.runs.continuous_fleet import Fleet

HOUR, DAY14 = 3600.0, ROOT / "scenarios" / "data" / "day14"
SHAPE = (0.7, 1.0, 0.95, 0.8)
UNITS = (("s1", 2, 60, 120, 60, 60), ("s4", 4, 40, 80, 10, 40))  #: name, bus, P, E, e_start, e_end


def _write(path: Path, header: str, rows: list[Any]) -> str:
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return str(path)


def storage(directory: Path) -> str:
    rows = [(name, bus, p, e, 0.95, 0.5, start, end) for name, bus, p, e, start, end in UNITS]
    return _write(directory / "storage.csv", "name,bus,p_mw,e_mwh,eta,cost,e_start,e_end", rows)


def small(directory: Path, ac: str = "none", **horizon: Any) -> ZoneSetup:
    """case5 in two zones with storage and ramps, four hours a day."""
    directory.mkdir(exist_ok=True)
    day: Document = {"periods": 4, "hours": 1, "storage": storage(directory), "ramps": 0.3}
    return setup_of("case5", [[1, 2, 5], [3, 4]], day | horizon, ac=ac)


@functools.cache
def day14() -> ZoneSetup:
    """The day of scenarios/day14.yaml, without its AC step."""
    files = {key: str(DAY14 / f"{key}.csv") for key in ("profiles", "storage")}
    zones = [[1, 2, 3, 4, 5], [7, 8, 9, 10, 14], [6, 11, 12, 13]]
    return setup_of("case14", zones, {"periods": 24, "hours": 1, "ramps": 0.05} | files)


def setup_of(case: str, zones: list[list[int]], horizon: Document, **problem: Any) -> ZoneSetup:
    raw: Document = {
        "hushgrid": 1,
        "name": NAME,
        "problem": {
            "kind": "zones",
            "case": case,
            "zones": zones,
            "objective": "cost",
            "ac": "none",
            "loads": {"nonzero": "case"},
            "horizon": horizon,
            **problem,
        },
        "algorithm": {"name": "consensus-admm", "rounds": 300},
        "privacy": {
            "mode": "input",
            "adjacency": {"day": {"energy_mwh": 0.02, "power_factor": 0.97}},
            "epsilon": 1,
        },
        "run": {"stop": {"tolerance": 1.0e-4, "patience": 3}},
    }
    return ZoneSetup(scenario_from(raw))


class DayFleet(Fleet):
    """Its loads follow the shape of a day; `day()` gives every zone the profile of another one."""

    def __init__(self, directory: Path, setup: ZoneSetup, **keys: Any) -> None:
        directory.mkdir(exist_ok=True)
        self.left: dict[str, tuple[dict[str, Vector], RunFacts]] = {}  #: what the last run has left on each zone
        run = Continuous(every="1h", warm_start=keys.pop("warm_start", True), jitter=keys.pop("jitter", "0s"))
        super().__init__(directory, setup, run=run, **keys)

    @property
    def horizon(self) -> HorizonPlan:
        return self.intervals.plan.problem.horizon  # type: ignore[no-any-return]

    def rows(self) -> list[dict[str, str]]:
        with (self.directory / "intervals.csv").open(newline="") as file:
            return list(csv.DictReader(file))

    def _member(self, zone: str) -> Served:
        ledger, log = self._ledger(zone), self.logs.setdefault(zone, []).append

        def outcome(vectors: dict[str, Vector], facts: RunFacts) -> None:
            self.left[zone] = vectors, facts

        simulated = Simulated(self.seed)
        fleet = self.fleet_of(zone)
        return Member(fleet, self._zone(zone), ledger, None, simulated=simulated, log=log, outcome=outcome)

    def fleet_of(self, zone: str) -> str:
        """The fleet that a zone is in: its site's, where it has one."""
        return NAME


def epsilon(fleet: Fleet, zone: str) -> float:
    """What a zone has spent."""
    (adjacency,) = fleet.ledgers[zone].spends.sums(ALL)
    return fleet.ledgers[zone].spends.totals(adjacency).epsilon


class Followed(NamedTuple):
    """What a plan has for each of its periods: MW and MWh of each unit, MW of each generator."""

    periods: list[int]
    charge: Vector
    discharge: Vector
    energy: Vector
    generation: Vector


def followed(fleet: Fleet) -> Followed:
    """By the tables of the last run."""
    tables = fleet.centre.answer()[1]

    def column(table: str, key: str) -> Vector:
        columns, rows = tables[table]
        values = np.array([row[columns.index(key)] for row in rows], dtype=np.float64)
        return values.reshape(len(set(periods)), -1)

    columns, rows = tables["storage"]
    periods = [int(row[columns.index("period")]) for row in rows]
    flows = (column("storage", key) for key in ("charge_mw", "discharge_mw", "energy_mwh"))
    return Followed(sorted(set(periods)), *flows, generation=column("generation", "p_mw"))


def shaped(setup: ZoneSetup, day: int = 0) -> dict[str, Vector]:
    """Loads of each zone over a day, p.u.: every day has its own."""
    T = setup.plan.problem.horizon.periods
    shape = np.resize(SHAPE, T) * (1 + 0.03 * np.sin(day + np.arange(T)))
    flat = {z: setup.loads(z).reshape(T, -1) for z in setup.plan.nodes}
    return {z: (d * shape[:, None]).ravel() for z, d in flat.items()}
