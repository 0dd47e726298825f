"""Days of two short periods by real daemons: who is killed goes on, and a day costs one answer."""

from __future__ import annotations

import csv
import json
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import yaml

from hushgrid.grid_cases import load
from hushgrid.grid_cases.case import loads
from hushgrid.node.problems.power_flow.kind import KIND
from tests.support.daemons.attacked_device import Target, account
from tests.support.daemons.deployed_fleet import HUSHGRID, PATIENCE, Daemon
from tests.support.daemons.small_daemons import PAIR

pytestmark = pytest.mark.long
T, HOURS = 2, 0.004  #: 14.4 s a period
DAY = {"day": {"energy_mwh": 0.02 * HOURS, "power_factor": 0.97}}
STORAGE = "name,bus,p_mw,e_mwh,eta,cost,e_start,e_end\ns2,2,60,0.4,0.95,0.5,0.2,0.2\n"


def write_profiles(path: Path, zone: str, factor: float) -> None:
    """Takes the place of the old table in one step."""
    case, buses = load("case5"), PAIR[zone]
    p, q = np.split(factor * np.asarray(loads(case, buses)) * case.base_mva, 2)
    rows = [
        (t, b, shape * x, shape * y) for t, shape in ((1, 0.7), (2, 0.9)) for b, x, y in zip(buses, p, q, strict=True)
    ]
    new = path.with_suffix(".new")
    new.write_text("\n".join(["period,bus,p_mw,q_mvar", *(",".join(map(str, row)) for row in rows)]) + "\n")
    new.replace(path)


def target(directory: Path, url: str, stack: ExitStack, zone: str) -> Target:
    directory.mkdir(parents=True)
    write_profiles(directory / "profiles.csv", zone, 1.0)
    config = {
        "data": {"case": "case5", "zone": list(PAIR[zone]), "profiles": str(directory / "profiles.csv")},
        "budget": {"epsilon": 5.0, "adjacency": DAY},
        "allow": {"algorithms": sorted(KIND.algorithms)},
        "sink": {"file": {"path": str(directory / "told.json")}},
    }
    return Target(directory, url, stack, zone, config, "hourly")


def coordinator(directory: Path, url: str) -> list[str]:
    """The command of one that plans by the period."""
    directory.mkdir()
    (directory / "storage.csv").write_text(STORAGE)
    scenario = {
        "hushgrid": 1,
        "name": "hourly",
        "problem": {
            "kind": "zones",
            "case": "case5",
            "zones": [list(buses) for buses in PAIR.values()],
            "objective": "cost",
            "ac": "none",
            "horizon": {"periods": T, "hours": HOURS, "storage": "storage.csv"},
        },
        "algorithm": {"name": "consensus-admm", "rounds": 200},
        "privacy": {"mode": "input", "adjacency": DAY, "epsilon": 1},
        "run": {"stop": {"tolerance": 1.0e-4, "patience": 3}},
    }
    (directory / "scenario.yaml").write_text(yaml.safe_dump(scenario))
    config = {
        "fleet": "hourly",
        "broker": url,
        "scenario": "scenario.yaml",
        "state": "state",
        "run": {"every": "14.4s"},
    }
    (directory / "coordinator.yaml").write_text(yaml.safe_dump(config))
    return [*HUSHGRID, "coordinator", str(directory / "coordinator.yaml")]


def answered(directory: Path, count: int) -> list[dict[str, str]]:
    """The intervals with an answer, once there are so many."""
    deadline, rows = time.monotonic() + 3 * PATIENCE, list[dict[str, str]]()
    while len(rows) < count:
        assert time.monotonic() < deadline, rows
        time.sleep(0.05)
        if (table := directory / "state" / "intervals.csv").exists():
            with table.open(newline="") as file:
                rows = [row for row in csv.DictReader(file) if row["outcome"] == "answer"]
    return rows


@pytest.mark.mosquitto
def test_two_days_of_real_daemons_of_which_two_are_killed_cost_two_answers(tmp_path, mosquitto):
    with ExitStack() as stack:
        zones = {zone: target(tmp_path / zone, mosquitto.url, stack, zone) for zone in PAIR}
        for zone in zones.values():
            zone.start()
        place = tmp_path / "coordinator"
        command = coordinator(place, mosquitto.url)
        centre = Daemon(tmp_path / "1.log", command, {})
        stack.callback(centre.kill)
        first = answered(place, 1)
        assert first[0]["period"] == "1"
        told = json.loads((tmp_path / "z1" / "told.json").read_text())
        assert (told["period"], [one["period"] for one in told["day"]], told["state"]) == (1, [2], "fresh")
        assert told["valid_until"] == told["day"][0]["valid_from"]
        centre.kill()
        zones["z1"].daemon.kill()
        zones["z1"].start()
        centre = Daemon(tmp_path / "2.log", command, {})
        stack.callback(centre.kill)
        for name, zone in zones.items():  # the next day's, while this one's last period goes on
            answered(place, 2)
            write_profiles(zone.directory / "profiles.csv", name, 0.95)
        rows = answered(place, 4)
        assert centre.end() == 0
        for zone in zones.values():
            assert zone.daemon.end() == 0
        numbers = [int(row["interval"]) for row in rows[:4]]
        periods = [int(row["period"]) for row in rows[:4]]
        assert {row["start"] for row in rows[1:4]} == {"warm"}
        if numbers == [1, 2, 3, 4]:  # on a machine that is fast enough none was missed
            assert periods == [1, 2, 1, 2]
        for zone in zones.values():
            assert account(zone.file).epsilon == pytest.approx(2.0, rel=1e-3)
