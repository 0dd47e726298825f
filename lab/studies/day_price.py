"""`hushgrid study day-price`: what a private day costs its operator, by epsilon and by what is hidden.

case14, case30, and three days of two networks of SimBench where it is installed; `study([Path("DIR/scenario.yaml")])`
takes what `hushgrid case day` has written instead. Storage is planned for the noisy loads of one answer; the day is
then operated with the true ones: storage does what the plan says, generators are dispatched anew within their ramps.
Never cost alone: beside it stand imbalance, unserved load and how much of what storage is worth is left.

The answer is a device's own, with seeded noise. Both programs are solved by one solver that sees all zones.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from math import sqrt
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hushgrid import scenarios
from hushgrid.broker.simulation.problems.power_flow import ZoneSetup
from hushgrid.grid_cases.zone.build import zone_models
from hushgrid.grid_cases.zone.cost import Least
from hushgrid.grid_cases.zone.horizon import NO_STORAGE
from hushgrid.kernels.types import DocumentView, Vector
from hushgrid.lab.benchmarks.common.shaped_day import by_shape
from hushgrid.lab.day_files import Wanted, write
from hushgrid.lab.studies.common.study import Page, Panel, Table, chart, on_two
from hushgrid.lab.studies.problems.day import CentralDay
from hushgrid.node.config.scenario import load_scenario
from hushgrid.node.privacy.noise_source import SeededNoise
from hushgrid.node.problems.power_flow.gate import lattice_of
from hushgrid.node.problems.power_flow.question import LoadQuestion

EPSILONS = (5.0, 1.0, 0.2)
#: MWh of what is hidden: a house's day without a car; a workshop's day, or 1 MW in any one hour: whatever its shape.
UNITS = {"house-day": 0.02, "workshop-day, MW-hour": 1.0}
POWER_FACTOR = 0.97
DRAWS = 8
#: SimBench's networks by our name, the days of their year (from 0), and what they are planned with.
SIMBENCH = {"MV rural": "simbench:1-MV-rural--0-sw", "MV semiurb": "simbench:1-MV-semiurb--0-sw"}
DAYS = (27, 117, 197)
WANTED = Wanted(storage=(3, 0.5, 1.5), voltage=(0.94, 1.06), cost=(50, 2))
OF_DAYS = (
    *("network", "peak, MW", "optimum, $", "storage is worth, $", "of the cost without it, %"),
    *("buses", "zones", "answer"),
)
COLUMNS = (
    *("network", "unit", "epsilon", "cost over the optimum, $", "of the optimum, %", "+- (standard error)"),
    *("imbalance, MW", "of the peak, %", "unserved, MWh", "value of storage kept, %"),
)
IMBALANCE, KEPT = 7, 9
SHOWN = {KEPT: "value of storage kept, %", IMBALANCE: "imbalance, % of the peak"}  #: in the picture, by column


class Draw(NamedTuple):
    """One private plan, operated."""

    cost: float  #: $ of the day, lost load at its value
    imbalance: float  #: MW between the noisy loads and the true ones, mean of the periods
    unserved: float  #: MWh


class Network:
    """A day of one case: a scenario and its tables."""

    def __init__(self, scenario: Path, keys: DocumentView) -> None:
        self.scenario, self.keys = scenario, keys
        self.setup = setup = self.asked({})
        self.case, self.horizon = setup.case, setup.wired.horizon
        (self.model,) = zone_models(self.case, [self.case.buses.numbers.tolist()]).values()
        self.true = {zone: setup.loads(zone) for zone in setup.models}
        self.d, voll = self.whole(self.true), setup.plan.problem.voll
        self.with_storage, self.without = (
            CentralDay(self.case, self.model, voll, horizon)
            for horizon in (self.horizon, replace(self.horizon, storage=NO_STORAGE))
        )

    def asked(self, keys: DocumentView) -> ZoneSetup:
        """The scenario with other keys."""
        return ZoneSetup(load_scenario(self.scenario, {**self.keys, **keys}), str(self.scenario))

    def whole(self, d: Mapping[str, Vector]) -> Vector:
        """(T, 2, nb) p.u. of all buses, p then q: the loads of the zones put together."""
        every = np.zeros((self.horizon.periods, 2, len(self.model.buses)))
        for zone, own in d.items():
            places = np.searchsorted(self.model.buses, self.setup.models[zone].buses)
            every[:, :, places] = own.reshape(self.horizon.periods, 2, -1)
        return every

    def total(self, d: Vector) -> Vector:
        """(T,) MW."""
        load: Vector = d[:, 0].sum(axis=1) * self.case.base_mva
        return load

    def least(self, d: Vector, storage: bool = True) -> Least:
        """The least-cost day at these loads (T, 2, nb), with storage or without any."""
        return (self.with_storage if storage else self.without).least(d.ravel())

    def noisy(self, asked: ZoneSetup, seed: int) -> Vector:
        """The loads (T, 2, nb) that the zones answer under the terms of `asked`."""
        answers = {}
        for zone, d in self.true.items():
            loss, terms = asked.public_loss(zone), asked.terms
            assert terms is not None
            lattice, question = lattice_of(zone, loss, terms), LoadQuestion(loss, terms)
            assert lattice is not None
            noise = SeededNoise(seed, zone).take(lattice, question.width, 1)
            answers[zone] = question.answered(lattice.release(question.exact(d), noise))
        return self.whole(answers)

    def operated(self, plan: Least, planned: Vector) -> Draw:
        """The true day with the storage of a plan for the loads `planned`."""
        horizon, d = self.horizon, self.d.copy()
        d[:, 0] += horizon.paths(self.case, horizon.storage, plan.storage)
        again = self.least(d, storage=False)
        wear = horizon.hours * float((plan.storage[:2] * horizon.storage.cost).sum())
        unserved = np.split(again.unserved.reshape(self.d.shape), 2, axis=1)[0].sum()
        imbalance = float(np.abs(self.total(planned) - self.total(self.d)).mean())
        return Draw(again.value + wear, imbalance, horizon.hours * self.case.base_mva * float(unserved))


def case14(folder: Path) -> Path:
    """The day of scenarios/day14.yaml."""
    return Path(scenarios.__file__).parent / "day14.yaml"


def case30(folder: Path) -> Path:
    """case30 in three zones: loads by SHAPE, one storage a zone at its largest load."""
    return by_shape(folder, "case30")


#: Only buses that have a load in the case carry noise: which those are is public. `case day` says so by itself.
LOADED = {"problem.loads": {"nonzero": "case"}}
MADE = {"case14": case14, "case30": case30}


def simbench(place: str, folder: Path) -> Path:
    """A day of a network of SimBench: `MV rural, day 27`."""
    network, _, day = place.partition(", day ")
    write(SIMBENCH[network], WANTED._replace(day=int(day)), folder)
    return folder / "scenario.yaml"


def _made(place: str, folder: Path) -> Path:
    if place in MADE:
        return MADE[place](folder)
    return simbench(place, folder) if place.partition(",")[0] in SIMBENCH else Path(place)


def measured(place: str) -> tuple[tuple[str | float, ...], list[tuple[str | float, ...]]]:
    """Of one network, by its name here or its scenario: what its day is, and the rows of what a private one costs."""
    with tempfile.TemporaryDirectory(prefix="hushgrid-day-") as scratch:
        network = Network(_made(place, Path(scratch)), LOADED if place in MADE else {})
        name = network.setup.scenario.name if Path(place).is_file() else place
        best, without = network.least(network.d).value, network.least(network.d, storage=False).value
        peak, worth = float(np.abs(network.total(network.d)).max()), without - best
        rows: list[tuple[str | float, ...]] = []
        for unit, energy in UNITS.items():
            for epsilon in EPSILONS:
                draws = _draws(network, energy, epsilon)
                rows.append((name, unit, epsilon, *_summary(draws, best, worth, peak)))
        terms = network.setup.terms
        release = terms.release if terms is not None else ""
        sizes = len(network.model.buses), len(network.setup.models), release
        return (name, peak, f"{best:,.2f}", f"{worth:,.2f}", 100 * worth / abs(without), *sizes), rows


def _draws(network: Network, energy: float, epsilon: float) -> list[Draw]:
    unit = {"day": {"energy_mwh": energy, "power_factor": POWER_FACTOR}}
    asked = network.asked({"privacy.adjacency": unit, "privacy.epsilon": epsilon})
    answers = [network.noisy(asked, seed) for seed in range(DRAWS)]
    return [network.operated(network.least(d), d) for d in answers]


def _summary(draws: Sequence[Draw], best: float, worth: float, peak: float) -> tuple[float, ...]:
    """Means. A day that sells more than it buys has a cost below 0: shares are of its size."""
    over = np.array([draw.cost - best for draw in draws])
    share = 100 * over / abs(best)
    imbalance, unserved = (float(np.mean([getattr(draw, key) for draw in draws])) for key in ("imbalance", "unserved"))
    return (
        *(float(over.mean()), float(share.mean()), float(share.std(ddof=1)) / sqrt(len(draws)), imbalance),
        *(100 * imbalance / peak, round(unserved, 6), float(100 * (1 - over.mean() / worth))),
    )


def places() -> list[str]:
    """The networks of the study: those of SimBench where it is installed, else a line on stderr says so."""
    if find_spec("simbench") is None:
        print("SimBench's networks are left out: simbench is not installed (hushgrid[simbench])", file=sys.stderr)
        return list(MADE)
    return [*MADE, *(f"{network}, day {day}" for network in SIMBENCH for day in DAYS)]


def study(files: Sequence[Path] = ()) -> list[Page]:
    """The days, what private ones cost, and both as a picture."""
    found = on_two(measured, [str(path) for path in files] or places(), str)
    days = Table(f"The days ({DRAWS} draws of each, seeds 0 to {DRAWS - 1})", OF_DAYS, [day for day, _ in found])
    rows = [row for _, mine in found for row in mine]
    panels = [[_panel(column, unit, rows) for unit in UNITS] for column in SHOWN]
    picture = chart("The price of a private day", panels)
    return [Page("day-price", [days, Table("Private days", COLUMNS, rows)], {"day-price.svg": picture})]


def _panel(column: int, unit: str, rows: Sequence[Sequence[str | float]]) -> Panel:
    """By epsilon, a curve a network: the mean of its days."""
    curves = {}
    for name in dict.fromkeys(_network(row) for row in rows):
        means = [
            np.mean([float(row[column]) for row in rows if (_network(row), *row[1:3]) == (name, unit, epsilon)])
            for epsilon in sorted(EPSILONS)
        ]
        curves[name] = np.array(sorted(EPSILONS)), np.array(means)
    linear = 100.0 if column == KEPT else 0.0
    return Panel(unit, "epsilon", SHOWN[column], curves, xlog=True, marks=True, linear=linear)


def _network(row: Sequence[str | float]) -> str:
    return str(row[0]).partition(",")[0]
