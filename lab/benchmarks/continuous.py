"""A fleet that runs by itself, in this process: interval after interval, with real members, ledgers, gates and solver.

`hushgrid bench warm`: how near the zones of case14 are after a few rounds, and how many rounds they need, if an
interval begins where the one before has ended, beside one that begins at the flat start. The loads change in every
interval, as those of households do (`scenarios/households.py`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from hushgrid.broker.coordinator.base import Coordinator
from hushgrid.broker.coordinator.intervals import Intervals
from hushgrid.broker.coordinator.schedule import Clocks
from hushgrid.broker.simulation.memory import Delivery, MemoryBroker
from hushgrid.broker.simulation.problems.power_flow import ZoneSetup
from hushgrid.grid_cases.zone.model import objective
from hushgrid.kernels.types import Document, Vector
from hushgrid.lab.benchmarks.common.measure import ZONES, Row, Table, against, row
from hushgrid.node.config.coordinator import Continuous, CoordinatorConfig
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems.kind import RunFacts
from hushgrid.node.problems.power_flow.device import Zone
from hushgrid.node.runtime.endpoint import Endpoint
from hushgrid.node.runtime.member import Member, Simulated
from hushgrid.node.wire import COORDINATOR, Publication
from hushgrid.scenarios.households import day

NAME = "continuous"


class Hub(MemoryBroker):
    """A broker to which endpoints come, and from which they go; what is retained stays."""

    def __init__(self) -> None:
        super().__init__([], self._nobody)
        self.delivered = 0

    @staticmethod
    def _nobody(name: str) -> Endpoint:
        raise AssertionError(f"{name} crashed in a transport without faults")

    def add(self, endpoint: Endpoint) -> None:
        self._forget(endpoint.name)
        self.endpoints[endpoint.name] = endpoint
        self.topics.pop(endpoint.name, None)
        endpoint.on_tick(self.now)
        self._connect(endpoint.name)

    def drop(self, name: str) -> None:
        """The endpoint's process has ended: its last will is published."""
        topic, payload = self.endpoints.pop(name).will
        self._forget(name)
        self.queue = [d for d in self.queue if d.dst != name]
        self.publish([Publication(topic, payload, True)])

    def until(self, over: Callable[[], bool]) -> None:
        while not over():
            if self.queue:
                self._deliver(self._next())
            else:
                self.tick()

    def _forget(self, name: str) -> None:
        self.heard_by.clear()
        for names in self.subscribers.values():
            if name in names:
                names.remove(name)

    def _deliver(self, delivery: Delivery) -> None:
        self.delivered += 1
        super()._deliver(delivery)


class Fleet:
    """The zones of a case and their coordinator; `interval()` makes one interval and returns its line.

    `keys` are those of the coordinator's file. Ledgers stand in `directory`.
    """

    def __init__(self, directory: Path, setup: ZoneSetup, *, seed: int | None = 7, **keys: Any) -> None:
        self.directory, self.setup, self.zones, self.seed = directory, setup, setup.plan.nodes, seed
        self.ledgers: dict[str, Ledger] = {}
        self.logs: dict[str, list[str]] = {}
        self.loads: dict[str, Vector] = {z: setup.loads(z) for z in self.zones}
        self.iterates: dict[str, Vector] = {}  #: z_p of each zone at the end of its last run
        self.now = 0.0  #: s
        self.clocks = Clocks(lambda: self.now, lambda: 1.8e9 + self.now, lambda: "boot")
        run = keys.pop("run", Continuous(every="15min"))
        patience: Document = {"wait_s": 30.0, "silent_s": 10.0}
        self.config = CoordinatorConfig(
            fleet=NAME, broker="mqtt://localhost", scenario="", state=str(directory), run=run, **(patience | keys)
        )
        self.hub = Hub()
        self.intervals = self._wakes()
        self.centre: Coordinator
        self.line = ""  #: what was said of the last interval
        for z in self.zones:
            self.comes(z)

    def comes(self, zone: str) -> None:
        """The zone's process starts, again."""
        self.hub.add(self._member(zone))

    def goes(self, zone: str) -> None:
        """The zone's process ends."""
        self.hub.drop(zone)

    def draws(self, loads: Mapping[str, Vector]) -> None:
        """New loads of zones, p.u.: a new version of their data."""
        for z, d in loads.items():
            self.loads[z] = d
            self.ledgers[z].new_data()
            if isinstance(member := self.hub.endpoints.get(z), Member):
                member.device = self._zone(z)

    def interval(self, during: Callable[[Fleet], None] = lambda fleet: None) -> Document:
        """The next interval, once it is due. `during` is called before every message and tick; it may restart
        anybody.
        """
        self.now = max(self.now, self.intervals.schedule.due)
        self.centre = self.intervals.begin()
        self.hub.add(self.centre)

        def over() -> bool:
            during(self)
            return self.centre.finished

        self.hub.until(over)
        while following := self.intervals.without_the_absent(self.centre):
            self.centre = following
            self.hub.add(following)
            self.hub.until(over)
        row = self.intervals.row(self.centre)
        self.line = self.intervals.end(self.centre)
        self.hub.until(lambda: not self.hub.queue)
        return row

    def shed(self) -> float:
        """sum_p f_p(z_p) of what the zones hold, at the loads of now, p.u.^2."""
        models = self.setup.models
        return sum(objective(models[z].A, self.iterates[z], self.loads[z]) for z in self.zones)

    def restarts(self, who: str) -> None:
        """The process of `who` ends where it is, and starts again."""
        self.hub.drop(who)
        if who != COORDINATOR:
            self.comes(who)
            return
        self.intervals = self._wakes()
        self.centre = self.intervals.resumed() or self.intervals.begin()
        self.hub.add(self.centre)

    def close(self) -> None:
        for ledger in self.ledgers.values():
            ledger.close()

    def _wakes(self) -> Intervals:
        ledger, log = self._ledger(COORDINATOR), self.logs.setdefault(COORDINATOR, []).append
        return Intervals(self.config, self.setup.plan, self.setup.problem.case, ledger, log, self.clocks)

    def _member(self, zone: str) -> Member:
        ledger, log = self._ledger(zone), self.logs.setdefault(zone, []).append

        def outcome(vectors: dict[str, Vector], facts: RunFacts) -> None:
            self.iterates[zone] = vectors["z"]

        simulated = Simulated(self.seed)
        return Member(NAME, self._zone(zone), ledger, None, simulated=simulated, log=log, outcome=outcome)

    def _zone(self, zone: str) -> Zone:
        s = self.setup
        return Zone(zone, s.case, s.models[zone], self.loads[zone], s.problem.solver)

    def _ledger(self, name: str) -> Ledger:
        if name in self.ledgers:
            self.ledgers[name].close()
        self.ledgers[name] = Ledger(self.directory / f"{name}.ledger", name, durable=False)
        return self.ledgers[name]


def scenario(
    name: str,
    rounds: int,
    privacy: float | Mapping[str, object] | None,
    case: str = "case14",
    ac: str = "none",
    **keys: Any,
) -> ZoneSetup:
    """The zones of a case: in mode input at this epsilon, with this section of privacy, or without noise. ac: as in a
    scenario, of costs. `keys`: more of the algorithm's."""
    of_costs: Document = {"loads": {"nonzero": "case"}, "ac": ac} if name == "consensus-admm" else {}
    raw: Document = {
        "hushgrid": 1,
        "name": NAME,
        "problem": {"kind": "zones", "case": case, "zones": ZONES[case]} | of_costs,
        "algorithm": {"name": name, "rounds": rounds} | keys | ({} if privacy else {"variant": "none"}),
    }
    if isinstance(privacy, float):
        privacy = {"epsilon": privacy, "mode": "input", "adjacency": {"bounded-change": 0.01}}
    if privacy:
        raw["privacy"] = dict(privacy)
    return ZoneSetup(scenario_from(raw))


@contextmanager
def fleet(setup: ZoneSetup, **keys: Any) -> Iterator[Fleet]:
    """A fleet whose ledgers go with it."""
    with tempfile.TemporaryDirectory(prefix="hushgrid-continuous-") as place:
        made = Fleet(Path(place), setup, seed=None, **keys)
        try:
            yield made
        finally:
            made.close()


def households(setup: ZoneSetup) -> list[dict[str, Vector]]:
    """The loads of each zone in each interval of a day, p.u."""
    case = setup.case
    places = {z: case.index(np.array(model.buses, np.int64)) for z, model in setup.models.items()}
    return [{z: loads[:, buses].ravel() for z, buses in places.items()} for loads in day(case)]


def figures(setup: ZoneSetup, changes: list[dict[str, Vector]], *, warm: bool) -> list[Document]:
    """The lines of a day's intervals; the first, which begins cold in any case, left out."""
    with fleet(setup, run=Continuous(every="15min", warm_start=warm)) as made:
        lines = []
        for loads in changes:
            made.draws(loads)
            lines.append(made.interval() | {"shed": made.shed()})
    return lines[1:]


#: Medians seen before, in independent code: the residual after so many rounds of `ladmm`, from where the last interval
#: ended and from the flat start.
SEEN = {(5, True): 1e-3, (20, True): 2e-4, (5, False): 1.7e-2, (20, False): 7.6e-3}


def warm(most: int = 96) -> Table:
    """The first `most` intervals of the day."""
    rows: list[Row] = []
    for rounds, rho in product((5, 20), (100.0, 300.0)):
        setup = scenario("ladmm", rounds, None, rho=rho)
        changes = households(setup)[:most]
        best = [setup.optimum(loads) for loads in changes[1:]]
        summary = f"ladmm, {rounds} rounds, rho {rho:g}"
        lines = {w: figures(setup, changes, warm=w) for w in (True, False)}
        residuals = {w: [line["residual"] for line in lines[w]] for w in lines}
        gaps = {
            w: [line["shed"] - least for line, least in zip(lines[w], best, strict=True) if least is not None]
            for w in lines
        }
        cold = row(f"{summary}, from the flat start", "residual", residuals[False])
        ours = row(f"{summary}, from the last interval's end", "residual", residuals[True], rival=cold)
        rows += [against(ours, SEEN[rounds, True]), cold]
        cold = row(f"{summary}, from the flat start: load shed above the optimum", "p.u.^2", gaps[False])
        rows += [row(f"{summary}, from the last interval's end: the same", "p.u.^2", gaps[True], rival=cold), cold]
    for epsilon in (5.0, 1.0):
        setup = scenario("consensus-admm", 200, epsilon)
        still = [setup.loads(z) for z in setup.plan.nodes]
        kinds = {
            "loads as in the case": [dict(zip(setup.plan.nodes, still, strict=True))] * most,
            "households": households(setup)[:most],
        }
        for what, changes in kinds.items():
            lines = {w: figures(setup, changes, warm=w) for w in (True, False)}
            made = {w: [float(line["rounds"]) for line in lines[w]] for w in lines}
            summary = f"consensus-admm, epsilon {epsilon:g}, {what}"
            cold = row(f"{summary}: to the stop, from the flat start", "rounds", made[False])
            rows += [
                row(f"{summary}: to the stop, from the last interval's end", "rounds", made[True], rival=cold),
                cold,
            ]
    return Table(
        name="warm",
        summary=f"zones of case14, {most} intervals of 15 minutes, new loads or new noise in each",
        rows=rows,
    )
