"""Days of two short periods by real daemons: who is killed goes on, and a day costs one answer."""

from __future__ import annotations

import csv
import json
import time
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest
import yaml

from hushgrid.grid_cases import load
from hushgrid.grid_cases.case import loads
from hushgrid.kernels.algorithms.consensus_admm import ServerState
from hushgrid.node import wire
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.ledger_rows import StoredRun
from hushgrid.node.problems.plan import decode_plan
from hushgrid.node.problems.power_flow.centre import centre
from hushgrid.node.problems.power_flow.kind import KIND
from hushgrid.node.runtime.driver import Stored
from hushgrid.node.wire import COORDINATOR, Plan
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


def coordinator(directory: Path, url: str, hours: float = HOURS, ac: str = "none") -> list[str]:
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
            "ac": ac,
            "horizon": {"periods": T, "hours": hours, "storage": "storage.csv"},
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
        "run": {"every": f"{3600 * hours:g}s"},
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


def the_run(place: Path) -> StoredRun:
    """The only one in the ledger of a coordinator that has ended."""
    with closing(Ledger(place / "state" / f"{COORDINATOR}.ledger", COORDINATOR)) as ledger:
        (only,) = ledger.runs.all()
        return only


def solves(process: int) -> bool:
    """Whether a process waits for its AC step, which another one solves."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    commands = (Path(f"/proc/{child}/cmdline").read_bytes() for child in children)
    return any(b"hushgrid.grid_cases.ac.opf" in command for command in commands)


@pytest.mark.mosquitto
def test_a_coordinator_that_is_killed_in_its_ac_step_ends_the_same_run_with_the_same_bits(tmp_path, mosquitto):
    """The zones had handed over their parts: what they are told in the end is what follows from these alone."""
    with ExitStack() as stack:
        zones = {zone: target(tmp_path / zone, mosquitto.url, stack, zone) for zone in PAIR}
        for zone in zones.values():
            zone.start()
        place = tmp_path / "coordinator"
        command = coordinator(place, mosquitto.url, hours=10 * HOURS, ac="polish")
        daemon = Daemon(tmp_path / "1.log", command, {})
        stack.callback(daemon.kill)
        deadline = time.monotonic() + PATIENCE
        while not solves(daemon.child.pid):
            assert time.monotonic() < deadline, daemon.said
            time.sleep(0.005)
        daemon.kill()
        killed = the_run(place)
        assert killed.status == "running"
        daemon = Daemon(tmp_path / "2.log", command, {})
        stack.callback(daemon.kill)
        (row,) = answered(place, 1)
        assert (row["interval"], row["run"]) == ("1", killed.id.hex())
        assert daemon.end() == 0
        for zone in zones.values():
            assert zone.daemon.end() == 0
            assert account(zone.file).epsilon == pytest.approx(1.0, rel=1e-3)
        over = the_run(place)
        plan = decode_plan(wire.decode_state(Plan, over.plan).plan)
        state = wire.decode_state(ServerState, wire.decode_state(Stored, over.state).machine)
        conclude = centre(plan, "case5").conclude
        expected = conclude(state.closing, dict(zip(plan.running.figures, state.measured.tolist(), strict=True)))
        assert {one.status for one in state.released.values()} == {"solved"}
        np.testing.assert_array_equal(state.dispatch, expected.dispatch)
        for zone, released in expected.releases.items():
            np.testing.assert_array_equal(state.released[zone].values, released.values)


@pytest.mark.mosquitto
def test_two_days_of_real_daemons_of_which_two_are_killed_cost_two_answers(tmp_path, mosquitto):
    with ExitStack() as stack:
        zones = {zone: target(tmp_path / zone, mosquitto.url, stack, zone) for zone in PAIR}
        for zone in zones.values():
            zone.start()
        place = tmp_path / "coordinator"
        command = coordinator(place, mosquitto.url)
        daemon = Daemon(tmp_path / "1.log", command, {})
        stack.callback(daemon.kill)
        first = answered(place, 1)
        assert first[0]["period"] == "1"
        told = json.loads((tmp_path / "z1" / "told.json").read_text())
        assert (told["period"], [one["period"] for one in told["day"]], told["state"]) == (1, [2], "fresh")
        assert told["valid_until"] == told["day"][0]["valid_from"]
        daemon.kill()
        zones["z1"].daemon.kill()
        zones["z1"].start()
        daemon = Daemon(tmp_path / "2.log", command, {})
        stack.callback(daemon.kill)
        for name, zone in zones.items():  # the next day's, while this one's last period goes on
            answered(place, 2)
            write_profiles(zone.directory / "profiles.csv", name, 0.95)
        rows = answered(place, 4)
        assert daemon.end() == 0
        for zone in zones.values():
            assert zone.daemon.end() == 0
        numbers = [int(row["interval"]) for row in rows[:4]]
        periods = [int(row["period"]) for row in rows[:4]]
        assert {row["start"] for row in rows[1:4]} == {"warm"}
        if numbers == [1, 2, 3, 4]:  # on a machine that is fast enough none was missed
            assert periods == [1, 2, 1, 2]
        for zone in zones.values():
            assert account(zone.file).epsilon == pytest.approx(2.0, rel=1e-3)


@pytest.mark.mosquitto
def test_a_device_whose_profiles_are_half_written_refuses_and_answers_again_once_they_are_whole(tmp_path, mosquitto):
    with ExitStack() as stack:
        zones = {zone: target(tmp_path / zone, mosquitto.url, stack, zone) for zone in PAIR}
        for zone in zones.values():
            zone.start()
        z1, place = zones["z1"], tmp_path / "coordinator"
        daemon = Daemon(tmp_path / "1.log", coordinator(place, mosquitto.url), {})
        stack.callback(daemon.kill)
        answered(place, 1)
        profiles = z1.directory / "profiles.csv"
        whole = profiles.read_text()
        first, _, _ = whole.partition("\n2,")
        profiles.write_text(first + "\n")  # the first period alone: in one piece it would be a day
        z1.daemon.wait_for("found a plan of 2 periods, expected 1")
        z1.daemon.kill()
        z1.start()  # it reads half a day
        z1.daemon.wait_for("found a plan of 2 periods, expected 1")
        profiles.write_text(whole)
        answered(place, 2)
        assert daemon.end() == 0
        for zone in zones.values():
            assert zone.daemon.end() == 0
        assert account(z1.file).epsilon == pytest.approx(2.0, rel=1e-3)  # other data, and no answer about half a day
