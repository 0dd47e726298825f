"""Air-quality stations as real daemons: a row an hour is appended to each one's file, and a run each interval learns
from the newest.

An hour is accelerated to a quarter of a second, an interval to four seconds.
"""

import bz2
import json
import sqlite3
import threading
import time
from contextlib import ExitStack
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

from hushgrid.kernels.privacy.accounting import calibrate
from hushgrid.node.problems.feed import unpack
from hushgrid.node.site.value_store import last_values
from hushgrid.scenarios.prepare_air import COLUMNS
from tests.support.daemons.attacked_device import Target
from tests.support.daemons.deployed_fleet import HUSHGRID, Daemon, intervals, until
from tests.support.paths import SCENARIOS

pytestmark = pytest.mark.mosquitto
AIR = SCENARIOS / "data" / "air"
STATIONS = {"n0": "aotizhongxin", "n1": "changping", "n2": "dingling", "n3": "wanshouxigong"}
OLD, YOUNG = 400, 66  #: rows that a station keeps
ROWS = {"n0": OLD, "n1": OLD, "n2": OLD, "n3": YOUNG}
SILENT = "n2"  #: its meter stops after a few hours
HOUR_S = 0.25
DAY = {"replace-one-record": {"clip": 0.5, "records": 6}}
EPSILON, DELTA, ANSWERS, RUNS = 4.0, 1e-5, 10, 2


class Station:
    """A station's meter: what it held when it began, and the hours that follow, one line each."""

    def __init__(self, name, directory):
        text = bz2.decompress((AIR / f"{STATIONS[name]}.csv.bz2").read_bytes()).decode().splitlines()[1:]
        self.name, self.held, self.coming = name, text[: ROWS[name]], text[OLD:]
        self.first, self.folder = directory / "first.csv", directory / "rows"
        self.folder.mkdir(parents=True)
        self.first.write_text("\n".join([",".join([*COLUMNS, "label"]), *self.held, ""]))
        self.file = self.folder / "hours.csv"
        self.file.write_text("\n".join([*self.held, ""]))

    def hour(self, number):
        """The next line; now and then only its first half is there for a moment."""
        line = self.coming[number]
        with self.file.open("a") as file:
            file.write(line[:20])
            file.flush()
            time.sleep(0.02)
            file.write(line[20:] + "\n")

    @property
    def lines(self):
        return self.file.read_text().splitlines()


def scenario():
    raw = yaml.safe_load((SCENARIOS / "air.yaml").read_text())
    raw["problem"]["data"] = {"devices": {"features": len(COLUMNS), "rows": list(ROWS.values())}}
    del raw["problem"]["test"]
    raw["network"] = {"kind": "edges", "edges": [[0, 1], [1, 2], [0, 3]]}
    raw["algorithm"] |= {"rounds": ANSWERS, "finish": {"gossip": 5}, "step_size": 60.0}
    raw["privacy"] |= {"adjacency": DAY, "epsilon": EPSILON, "delta": DELTA}
    return raw


@pytest.fixture
def fleet(tmp_path, mosquitto):
    with ExitStack() as stack:
        meters = {name: Station(name, tmp_path / name) for name in STATIONS}
        targets = {}
        for name, meter in meters.items():
            config = {
                "data": str(meter.first),
                "source": {"folder": str(meter.folder), "max_age": "6h"},
                "labels": {"classes": 2},
                "problem": {"kind": "logistic", "scale": ROWS[name] / sum(ROWS.values()), "row_bound": 1.0},
                "budget": {"epsilon": 2.05 * EPSILON, "delta": DELTA, "adjacency": DAY},
                "allow": {"algorithms": ["dgd"], "per_run": {"epsilon": EPSILON}},
            }
            targets[name] = Target(tmp_path / name, mosquitto.url, stack, name, config, "air")
        centre = tmp_path / "centre"
        centre.mkdir()
        (centre / "scenario.yaml").write_text(yaml.safe_dump(scenario()))
        config = {"fleet": "air", "broker": mosquitto.url, "scenario": "scenario.yaml", "state": "state"}
        (centre / "coordinator.yaml").write_text(
            yaml.safe_dump(config | {"wait_s": 2, "silent_s": 3, "run": {"every": "4s"}})
        )
        ended = threading.Event()

        def tick():
            number = 0
            while not ended.wait(HOUR_S):
                for name, meter in meters.items():
                    if name != SILENT or number < 3:
                        meter.hour(number)
                number += 1

        clock = threading.Thread(target=tick)

        def leave():
            ended.set()
            clock.join()

        def coordinate():
            daemon = Daemon(centre / "log", [*HUSHGRID, "coordinator", str(centre / "coordinator.yaml")], {})
            stack.callback(daemon.kill)
            return daemon

        stack.callback(leave)
        yield SimpleNamespace(
            meters=meters,
            targets=targets,
            clock=clock,
            leave=leave,
            coordinate=coordinate,
            state=lambda _: centre / "state",
        )


def held(target):
    """The rows that a device has kept for its data version, and that version."""
    kept = last_values(target.state / f"{target.name}.intake")
    values = unpack(kept.values)
    return np.column_stack([values["A"], values["b"]]), kept.version


def table(lines):
    return np.array([[float(word) for word in line.split(",")] for line in lines])


def spends(target):
    with sqlite3.connect(f"file:{target.ledger}?mode=ro", uri=True) as ledger:
        return ledger.execute("SELECT version, adjacency, value FROM spend ORDER BY no").fetchall()


def test_each_run_learns_from_the_newest_hours_and_a_silent_meter_shows_nowhere(fleet):
    daemons = {name: target.start() for name, target in fleet.targets.items()}
    coordinator = fleet.coordinate()
    until(fleet, lambda rows: len(rows) >= 1)
    fleet.clock.start()
    rows = until(fleet, lambda rows: len(rows) >= RUNS)
    assert coordinator.end() == 0
    fleet.leave()
    assert [row["outcome"] for row in rows[:RUNS]] == ["answer"] * RUNS
    models = {}
    for name, target in fleet.targets.items():
        assert daemons[name].end() == 0
        found, version = held(target)
        lines = table(fleet.meters[name].lines)
        assert len(found) == ROWS[name]
        ends = [
            end for end in range(ROWS[name], len(lines) + 1) if np.array_equal(lines[end - len(found) : end], found)
        ]
        assert ends, name  # whole lines alone, the newest there were when the run began, in their order
        assert ends[-1] == ROWS[name] + 3 if name == SILENT else ends[-1] > ROWS[name] + 3
        paid = spends(target)
        assert {adjacency for _, adjacency, _ in paid} == {"replace-one-record 6"}
        answers = [sum(v == of for v, _, _ in paid) for of in sorted({v for v, _, _ in paid})]
        assert (
            answers[:RUNS] == [ANSWERS] * RUNS
        )  # each run about a version of its own; the last may have been cut short
        assert max(v for v, _, _ in paid) <= version
        assert all(mu <= calibrate("gdp", EPSILON, DELTA, ANSWERS) for _, _, mu in paid)
        with np.load(target.state / f"{name}.model.npz") as archive:
            models[name] = archive["x"]
    silent, other = (spends(fleet.targets[name])[: RUNS * ANSWERS] for name in (SILENT, "n0"))
    assert silent == other  # a meter that has stopped costs the same versions and the same answers
    assert all(x.shape == (len(COLUMNS),) and np.isfinite(x).all() and x.any() for x in models.values())


def test_a_stations_budget_ends_the_runs_and_says_so_in_public_numbers(fleet):
    for target in fleet.targets.values():
        target.start()
    fleet.clock.start()
    coordinator = fleet.coordinate()
    rows = until(fleet, lambda rows: any(row["outcome"] != "answer" for row in rows))
    assert coordinator.end() == 0
    last = next(row for row in rows if row["outcome"] != "answer")
    assert [row["outcome"] for row in rows[: int(last["interval"]) - 1]] == ["answer"] * (int(last["interval"]) - 1)
    assert "budget" in last["reason"]
    assert json.dumps(intervals(fleet)).count("hours.csv") == 0
    for target in fleet.targets.values():
        assert target.account().epsilon <= 2.05 * EPSILON
