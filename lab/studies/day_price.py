"""`hushgrid study day-price`: what a private day costs its operator, by epsilon and by what is hidden.

case14 and case30; `study([Path("DIR/scenario.yaml")])` takes what `hushgrid case day` has written instead. Storage is
planned for the noisy loads of one answer; the day is then operated with the true ones: storage does what the plan says,
generators are dispatched anew within their ramps. Never cost alone: beside it stand imbalance, unserved load and how
much of what storage is worth is left.
"""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Sequence
from math import sqrt
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hushgrid import scenarios
from hushgrid.broker.report.result import Result
from hushgrid.broker.simulation import run
from hushgrid.kernels.types import Document, Vector
from hushgrid.lab.benchmarks.common.shaped_day import by_shape, write_table
from hushgrid.lab.studies.common.study import Page, Panel, Table, chart, on_two
from hushgrid.node.schema.yaml_file import read_yaml

EPSILONS = (5.0, 1.0, 0.2)
#: MWh of one customer's day: a house without a car, a workshop, or 1 MW in any one hour.
UNITS = {"house-day": 0.02, "workshop-day": 1.0}
DRAWS = 4
COLUMNS = (
    *("unit", "epsilon", "cost over the optimum, %", "+- (standard error)", "imbalance, MW", "of the peak, %"),
    *("unserved, MWh", "value of storage kept, %"),
)


class Network:
    """A day of one case: a scenario and its tables."""

    def __init__(self, scenario: Path) -> None:
        self.scenario = scenario
        raw = read_yaml(scenario)
        horizon = raw["problem"]["horizon"]
        self.name, self.hours = str(raw["name"]), float(horizon.get("hours", 1))
        with (scenario.parent / horizon["profiles"]).open(newline="") as file:
            self.header, *self.loads = list(csv.reader(file))
        with (scenario.parent / horizon["storage"]).open(newline="") as file:
            self.wear = {row["name"]: float(row["cost"]) for row in csv.DictReader(file)}  #: $/MWh each way

    @property
    def load(self) -> Vector:
        """(T,) MW in all."""
        total: dict[int, float] = {}
        for t, _, p, _ in self.loads:
            total[int(t)] = total.get(int(t), 0.0) + float(p)
        return np.array([total[t] for t in sorted(total)])


class Draw(NamedTuple):
    """One private plan, operated."""

    cost: float  #: $ of the day
    imbalance: float  #: MW, mean of the periods
    unserved: float  #: MWh


def case14(folder: Path) -> Path:
    """The day of scenarios/day14.yaml."""
    return Path(scenarios.__file__).parent / "day14.yaml"


def case30(folder: Path) -> Path:
    return by_shape(folder, "case30")


MADE = {"case14": case14, "case30": case30}


def _rows(result: Result, table: str) -> list[dict[str, object]]:
    columns, rows = result.tables[table]
    return [dict(zip(columns, row, strict=True)) for row in rows]


OPEN: Document = {"algorithm.variant": "none", "privacy": None, "problem.ac": "none"}


def private(network: Network, energy: float, epsilon: float, seed: int) -> Result:
    """The plan of one noisy answer."""
    hidden = {"day": {"energy_mwh": energy, "power_factor": 0.97}}
    keys = {"problem.ac": "none", "privacy.adjacency": hidden, "privacy.epsilon": epsilon}
    return run(network.scenario, seed=seed, set=keys)


def operated(network: Network, plan: Result, folder: Path) -> Draw:
    """The day with the plan's storage and the true loads."""
    taken, wear = dict[tuple[str, str], float](), 0.0
    for row in _rows(plan, "storage"):
        charge, discharge = float(str(row["charge_mw"])), float(str(row["discharge_mw"]))
        key = str(row["period"]), str(row["bus"])
        taken[key] = taken.get(key, 0.0) + charge - discharge
        wear += network.hours * network.wear[str(row["storage"])] * (charge + discharge)
    write_table(folder / "operated.csv", network.header,
           [(t, bus, float(p) + taken.get((t, bus), 0.0), q) for t, bus, p, q in network.loads])  # fmt: skip
    keys = {"problem.horizon.profiles": str(folder / "operated.csv"), "problem.horizon.storage": None}
    again = run(network.scenario, set=OPEN | keys)
    assert again.objective is not None
    imbalance = float(np.abs(_list(plan, "load_mw") - network.load).mean())
    return Draw(again.objective + wear, imbalance, network.hours * float(_list(again, "unserved_mw").sum()))


def _list(result: Result, key: str) -> Vector:
    values: Vector = np.array(getattr(result, key), np.float64)
    return values


def measured(place: str) -> Table:
    """The rows of one network, by its name here or its scenario."""
    with tempfile.TemporaryDirectory(prefix="hushgrid-day-") as scratch:
        folder = Path(scratch)
        network = Network(MADE[place](folder) if place in MADE else Path(place))
        best = run(network.scenario, set=OPEN)
        without = run(network.scenario, set=OPEN | {"problem.horizon.storage": None})
        assert best.objective is not None
        assert without.objective is not None
        worth, peak = without.objective - best.objective, float(network.load.max())
        rows: list[tuple[str | float, ...]] = []
        for unit, energy in UNITS.items():
            for epsilon in EPSILONS:
                draws = [operated(network, private(network, energy, epsilon, seed), folder) for seed in range(DRAWS)]
                rows.append((unit, epsilon, *_summary(draws, best.objective, worth, peak)))
        share = 100 * worth / without.objective
        title = f"{network.name}: optimum {best.objective:,.2f} $ a day; storage is worth {worth:,.0f} $, {share:.2g} %"
        return Table(title, COLUMNS, rows)


def _summary(draws: Sequence[Draw], best: float, worth: float, peak: float) -> tuple[float, ...]:
    over = np.array([100 * (draw.cost - best) / best for draw in draws])
    kept = np.array([100 * (1 - (draw.cost - best) / worth) for draw in draws])
    imbalance = float(np.mean([draw.imbalance for draw in draws]))
    return (
        *(float(over.mean()), float(over.std(ddof=1)) / sqrt(len(draws)), imbalance, 100 * imbalance / peak),
        *(float(np.mean([draw.unserved for draw in draws])), float(kept.mean())),
    )


def study(files: Sequence[Path] = ()) -> list[Page]:
    """One table a network, and the cost by epsilon."""
    places = [str(path) for path in files] or list(MADE)
    tables = on_two(measured, places, str)
    panels = [
        Panel(
            table.title.split(":")[0],
            "epsilon",
            "cost over the optimum, %",
            _curves(table.rows),
            xlog=True,
            marks=True,
            linear=0.01,
        )
        for table in tables
    ]
    return [Page("day-price", tables, {"day-price.svg": chart("The price of a private day", [panels])})]


def _curves(rows: Sequence[Sequence[str | float]]) -> dict[str, tuple[Vector, Vector]]:
    curves = {}
    for unit in UNITS:
        mine = sorted((float(row[1]), float(row[2])) for row in rows if row[0] == unit)
        curves[unit] = np.array([x for x, _ in mine]), np.array([y for _, y in mine])
    return curves
