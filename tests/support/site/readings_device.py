"""A zone of case5 whose forecast is made by a rule from a file of readings; days pass on a clock of the test's own."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path

import numpy as np

from hushgrid.broker.simulation.problems.power_flow import ZoneSetup
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.privacy.budget import BudgetCheck
from hushgrid.node.privacy.noise_source import SystemNoise
from hushgrid.node.problems.power_flow.feed import ReadingsFeed
from hushgrid.node.schema.durations import date
from tests.support.site.source_device import BASE, BUSES, SourceDevice

DAY_S, T, NB = 86400.0, 24, len(BUSES)
FIRST = 20000  #: 2024-10-04, the first day of readings
DAY = {"day": {"energy_mwh": 0.02, "power_factor": 0.97}}
TYPICAL = np.full((T, 2, NB), 5.0)  #: MW, MVAr


@functools.cache
def setup_of(horizon: tuple[tuple[str, float], ...] = (), **privacy: str | float) -> ZoneSetup:
    """case5 in two zones over 24 hours."""
    zones = [list(BUSES), [4, 5]]
    day = {"periods": T, "hours": 1} | dict(horizon)
    problem = {"kind": "zones", "case": "case5", "zones": zones, "objective": "cost", "ac": "none", "horizon": day}
    raw = {
        "hushgrid": 1,
        "name": "forecast",
        "problem": problem,
        "algorithm": {"name": "consensus-admm", "rounds": 3},
        "privacy": {"mode": "input", "adjacency": DAY, "epsilon": 1.0} | privacy,
    }
    return ZoneSetup(scenario_from(raw))


def days_of(first: int, number: int, seed: int = 1) -> dict[int, np.ndarray]:
    """Readings of so many days, each (T, 2, nb), MW and MVAr."""
    rng = np.random.default_rng(seed)
    return {day: rng.uniform(1.0, 9.0, (T, 2, NB)) for day in range(first, first + number)}


def readings(days: dict[int, np.ndarray], begins: int = 0) -> str:
    """Their table."""
    rows = ["time,bus,p_mw,q_mvar"]
    for day, each in days.items():
        for t, k in itertools.product(range(T), range(NB)):
            at, hour = divmod(t + begins, 24)
            p, q = each[t, :, k].tolist()
            rows.append(f"{date(day + at)}T{hour:02}:00:00Z,{BUSES[k]},{p!r},{q!r}")
    return "\n".join(rows) + "\n"


def mean(days: dict[int, np.ndarray]) -> np.ndarray:
    """Of these days, p.u., as a device holds it."""
    return np.mean(list(days.values()), axis=0).ravel() / BASE


class ReadingsDevice(SourceDevice):
    """`today` passes as the test says; running time passes with it."""

    def __init__(self, directory: Path, monkeypatch, source=None, **more) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        rows = [f"{t + 1},{bus},5,5" for t in range(T) for bus in BUSES]
        (directory / "typical.csv").write_text("\n".join(["period,bus,p_mw,q_mvar", *rows]) + "\n")
        data = {"case": "case5", "zone": list(BUSES), "profiles": "typical.csv"}
        source = {"file": "readings.csv", "rule": "week-mean", "within": 2.0} | (source or {})
        budget = {"epsilon": 1.0, "window": "23h", "adjacency": DAY} | more.pop("budget", {})
        super().__init__(directory, source, data=data, budget=budget, **more)
        self.wall = 0.0
        self.runs = 0
        monkeypatch.setattr(ReadingsFeed, "clock", staticmethod(lambda: self.wall))

    def today(self, day: int, hour: float = 1.0) -> None:
        moved = day * DAY_S + hour * 3600 - self.wall
        self.clock.now += max(moved, 0.0) if self.wall else 0.0
        self.wall += moved

    def write(self, days: dict[int, np.ndarray], begins: int = 0) -> None:
        (self.directory / "readings.csv").write_text(readings(days, begins))

    def answer(self, setup: ZoneSetup | None = None, noise=SystemNoise) -> np.ndarray:
        """What the gate answers in a new run, committed; raises Refused or InputError as a device does."""
        plan, device = (setup or setup_of()).plan, self.data_source()
        self.runs += 1
        run = b"run%13d" % self.runs
        device.check(plan)
        check = BudgetCheck(
            "z1", self.ledger, run, plan.algorithm, plan.terms, self.config.budget, self.config.allow, simulated=False
        )
        _, gate = device.machine(plan, run, self.ledger, noise(), check)
        check.admit(0 if gate.knows() else plan.terms.answers)
        self.ledger.join(run, b"plan")
        gate.version = check.version
        answer = gate.data()
        self.ledger.commit(run, spends=gate.spends, answers=gate.repeat, version=gate.version)
        gate.committed()
        return answer
