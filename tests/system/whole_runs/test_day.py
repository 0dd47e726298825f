"""A fleet runs by itself for a day: 96 intervals, each an answer, a held answer or a reason, within the window's
budget.

The day is accelerated, in this process: the clocks are its own, everything else is what devices run.
"""

from __future__ import annotations

import csv
import json
import shutil
from contextlib import suppress
from math import sqrt
from pathlib import Path

import pytest

from hushgrid.broker.coordinator.schedule import Clocks
from hushgrid.broker.simulation.problems.power_flow import ZoneSetup
from hushgrid.kernels.privacy.accounting import calibrate, claimed_epsilon
from hushgrid.kernels.privacy.limits import limit
from hushgrid.lab.benchmarks.common.measure import ZONES
from hushgrid.lab.benchmarks.continuous import Fleet
from hushgrid.node.config.device import load_device
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.durable import write_file
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.noise_journal import NoiseJournal
from hushgrid.node.runtime.member import Member
from hushgrid.node.site.data_source import data_source_of
from hushgrid.node.wire import COORDINATOR
from hushgrid.scenarios.households import day as loads_of_a_day
from tests.support.runs.continuous_fleet import Again

# --- A day of a fleet that runs by itself, accelerated: 96 intervals of the 14-bus case, new loads in each ---

EPSILON, DELTA, WINDOW_S = 5.0, 1e-5, 86400.0
EVERY_S, INTERVALS = 900.0, 96
BASE = 100.0  #: MVA


def setup_of_a_day(fresh):
    """The plan whose one answer costs a `fresh`-th of the window's budget, by GDP."""
    mu = calibrate("gdp", EPSILON, DELTA, 1) / sqrt(fresh)
    privacy = {
        "mechanism": "gaussian",
        "accountant": "gdp",
        "epsilon": claimed_epsilon("gdp", mu, 1, DELTA) * (1 - 1e-9),
        "delta": DELTA,
        "mode": "input",
        "adjacency": {"bounded-change": 0.01},
    }
    problem = {"kind": "zones", "case": "case14", "zones": ZONES["case14"], "ac": "none", "loads": {"nonzero": "case"}}
    raw = {"hushgrid": 1, "name": "day", "problem": problem, "privacy": privacy}
    return ZoneSetup(scenario_from(raw | {"algorithm": {"name": "consensus-admm", "rounds": 200}}))


class Day(Fleet):
    """`interval()` makes the next interval with the loads of its time, and appends its row to `rows`."""

    def __init__(self, directory, fresh=24, **keys):
        self.fresh, self.jump, self.rows, self.drawn = fresh, 0.0, [], {}
        setup = setup_of_a_day(fresh)
        self.day, self.folder = loads_of_a_day(setup.case), Path(directory)
        for z in setup.plan.nodes:
            self._file(z, setup)
            self._meters(z, setup, 0)
        super().__init__(self.folder / COORDINATOR, setup, quorum=2, hold="3h", **keys)
        # Read from now on; a start that is remembered nowhere has asked for nothing but the time.
        self.clocks = Clocks(lambda: self.now, lambda: 1.8e9 + self.now + self.jump, lambda: "boot")
        self.intervals = self._wakes()

    # --- the devices ---

    def _file(self, z, setup):
        """The file of a device, as its owner writes it."""
        place = self.folder / z
        place.mkdir(parents=True, exist_ok=True)
        adjacency = {"bounded-change": 0.01}
        window = {"epsilon": EPSILON, "delta": DELTA, "window": "24h", "lifetime": 2000.0, "adjacency": adjacency}
        node = {
            "node": z,
            "fleet": "continuous",
            "broker": "mqtt://localhost",
            "state": str(place / "state"),
            "mark": str(place / "mark"),
            "data": {"case": "case14", "zone": list(setup.plan.problem.zones[z])},
            "source": {"file": str(place / "loads.csv"), "max_age": "1h", "within": 0.2},
            "fresh": self.fresh,
            "budget": window,
            "retention": "12h",
            "allow": {"algorithms": ["consensus-admm"], "per_run": {"epsilon": 2.0}},
        }
        (place / "device.yaml").write_text(json.dumps({"node": node}))

    def _meters(self, z, setup, interval):
        """Another program of the site replaces the file of the loads."""
        buses = setup.plan.problem.zones[z]
        p, q = self.day[interval] * BASE
        where = {int(b): k for k, b in enumerate(setup.case.buses.numbers)}
        rows = "".join(f"{b},{float(p[where[b]])!r},{float(q[where[b]])!r}\n" for b in buses)
        write_file(self.folder / z / "loads.csv", ("bus,p_mw,q_mvar\n" + rows).encode(), sync=False)

    def _ledger(self, name):
        if name == COORDINATOR:
            return super()._ledger(name)
        config = load_device(self.folder / name / "device.yaml")
        path = Path(config.state) / f"{name}.ledger"
        self.ledgers[name] = Ledger(path, name, Path(config.mark), durable=False, clock=lambda: self.now)
        return self.ledgers[name]

    def _member(self, z):
        file = self.folder / z / "device.yaml"
        config, log = load_device(file), self.logs.setdefault(z, []).append
        ledger = self._ledger(z)
        data_source = data_source_of(config, str(file), ledger, log)
        drawn = NoiseJournal(Path(config.state) / f"{z}.drawn", ledger)
        outcome = config.kind.outcome(data_source.device, Path(config.state))
        self.drawn[z] = drawn
        return Member(
            *(config.fleet, data_source.device, ledger, config.budget, config.allow),
            **{"log": log, "outcome": outcome, "renew": data_source, "journal": drawn},
        )

    # --- what happens to them ---

    def goes(self, z):
        """Its power is off: no time passes on it."""
        super().goes(z)
        self.drawn[z].close()
        self.ledgers.pop(z).close()

    def restarts(self, who):
        """A death and a new start at once."""
        if who == COORDINATOR:
            super().restarts(who)
        else:
            self.goes(who)
            self.comes(who)

    def copied(self, z):
        """Its owner takes a backup of a device that is off. Returns where."""
        copy = self.folder / f"{z}.backup"
        shutil.copytree(self.folder / z / "state", copy)
        return copy

    def replaced(self, z, copy):
        """A new device in its place, with an old copy of the ledger; its owner accepts what the mark says is lost."""
        self.goes(z)
        shutil.rmtree(self.folder / z / "state")
        shutil.copytree(copy, self.folder / z / "state")
        with suppress(FileNotFoundError):
            (self.folder / z / "state" / f"{z}.intake").unlink()
        ledger = self._ledger(z)
        assert ledger.marks.behind_in_words
        ledger.accept()
        assert not ledger.marks.behind_in_words
        self.ledgers.pop(z).close()
        self.comes(z)

    # --- the day ---

    def interval(self, during=lambda fleet: None):
        for z in self.zones:
            self._meters(z, self.setup, len(self.rows) % INTERVALS)
        due, began = max(self.now, self.intervals.schedule.due), self.hub.now

        def passes(fleet):
            self.now = due + self.hub.now - began
            during(fleet)

        self.rows.append(super().interval(passes))
        return self.rows[-1]

    def spends(self, z):
        """(running time, mu^2) of every spend and gap of a device, from its ledger."""
        return self.ledgers[z].tables.ask("SELECT ran, mu2 FROM spend ORDER BY no")

    def dearest_window(self, z):
        """The largest sum of mu^2 in a closed interval of WINDOW_S of a device's running time."""
        rows = self.spends(z)
        return max((sum(m for t, m in rows if end - WINDOW_S <= t <= end) for end, _ in rows), default=0.0)


# --- the tests ---

TEN_YEARS_S = 3.2e8
DEAD = {12: (40, "z2"), 20: (33, COORDINATOR), 36: (25, "z2"), 80: (12, COORDINATOR)}  #: interval: (message, who dies)
BACKUP, REPLACED = 24, 48  #: z3 is backed up at six, and replaced at noon by a device with that backup
AWAY = range(56, 64)  #: z1, for two hours
BROKER = 70  #: away for ten minutes
CLOCK = {30: TEN_YEARS_S, 60: -TEN_YEARS_S, 90: 0.0}  #: what is wrong with the wall clock from then on, s


def lived(directory):
    day = Day(directory)
    for k in range(INTERVALS):
        day.jump = CLOCK.get(k, day.jump)
        if k == BACKUP:
            day.goes("z3")
            copy = day.copied("z3")
            day.comes("z3")
        if k == REPLACED:
            day.replaced("z3", copy)
        if k == AWAY.start:
            day.goes("z1")
        if k == AWAY.stop:
            day.comes("z1")
        if k == BROKER:  # nobody's clock counts the time without it but the schedule's
            day.now = max(day.now, day.intervals.schedule.due) + 600.0
        day.interval(Again(*DEAD.get(k, (0, ""))))
    return day


@pytest.fixture(scope="module")
def day(tmp_path_factory):
    return lived(tmp_path_factory.mktemp("day"))


def test_every_interval_leaves_an_answer_a_held_answer_or_a_reason(day):
    with (day.folder / COORDINATOR / "intervals.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["interval"]) for row in rows] == list(range(1, INTERVALS + 1))
    assert {row["outcome"] for row in rows} <= {"answer", "held", "missed"}
    assert [row for row in rows if row["outcome"] == "missed" and not row["reason"]] == []
    assert [k for k, row in enumerate(rows) if row["outcome"] == "held"] == list(AWAY)
    assert [row for row in rows if row["outcome"] == "missed"] == []


def test_no_window_of_running_time_holds_more_than_its_epsilon(day):
    most = limit(EPSILON, DELTA)
    for z in day.zones:
        assert day.dearest_window(z) <= most.mu2 / 2**256


def test_all_that_was_to_go_wrong_did(day):
    assert sum("resumed" in line for line in day.logs["z2"]) == 2
    kinds = [kind for (kind,) in day.ledgers["z3"].tables.ask("SELECT kind FROM spend ORDER BY no")]
    assert kinds.count("gap") == 1
    assert set(kinds) == {"gaussian", "gap"}
    assert day.ledgers["z1"].spends.running == pytest.approx(day.now - 2 * 3600, abs=60)
    assert day.ledgers["z2"].spends.running == pytest.approx(day.now, abs=1)


def test_a_device_answers_afresh_as_often_as_its_window_lets_it(day):
    assert day.fresh - 2 <= len(day.spends("z2")) <= day.fresh
