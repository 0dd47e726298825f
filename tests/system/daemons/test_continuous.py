"""The example fleet as one that runs by itself: real daemons, an interval every two seconds."""

import json
import os
import signal
import time
from contextlib import ExitStack

import pytest

from tests.support.daemons.deployed_fleet import ZONES, Fleet, intervals, until

pytestmark = pytest.mark.mosquitto


def made(directory, url, stack, more="", every="2s"):
    fleet = Fleet(directory, url, stack)
    fleet.edit("coordinator.yaml", "wait_s: 60 ", "wait_s: 0.8 ")
    fleet.edit("coordinator.yaml", "silent_s: 10 ", "silent_s: 1 ")
    path = fleet.directory / "coordinator.yaml"
    path.write_text(path.read_text() + f"run: {{every: {every}}}\n{more}")
    return fleet


def numbers(rows):
    return [int(row["interval"]) for row in rows]


def test_intervals_follow_each_other_and_begin_where_the_last_one_has_ended(tmp_path, mosquitto):
    with ExitStack() as stack:
        fleet = made(tmp_path / "fleet", mosquitto.url, stack)
        nodes = [fleet.node(z) for z in ZONES]
        coordinator = fleet.coordinator()
        rows = until(fleet, lambda rows: len(rows) >= 4)
        assert coordinator.end() == 0
        assert numbers(rows) == list(range(1, len(rows) + 1))
        assert [row["outcome"] for row in rows] == ["answer"] * len(rows)
        assert [row["start"] for row in rows] == ["cold", *["warm"] * (len(rows) - 1)]
        cold, *warm = [int(row["rounds"]) for row in rows]
        assert max(warm) < cold / 2
        records = [json.loads(p.read_text()) for p in (fleet.state("coordinator") / "runs").glob("*.json")]
        assert sorted(r["interval"] for r in records) == numbers(rows)
        assert {r["every"] for r in records} == {2.0}
        assert {r["start_because"] for r in records} == {"no run was done before", ""}
        for daemon in nodes:
            assert daemon.end() == 0


def test_a_restarted_coordinator_begins_no_interval_before_it_is_due_and_goes_on_counting(tmp_path, mosquitto):
    with ExitStack() as stack:
        fleet = made(tmp_path / "fleet", mosquitto.url, stack, every="6s")
        for z in ZONES:
            fleet.node(z)
        coordinator = fleet.coordinator()
        until(fleet, lambda rows: len(rows) >= 1)
        began = time.monotonic()
        os.kill(coordinator.child.pid, signal.SIGKILL)
        coordinator.code()
        for _ in range(2):
            again = fleet.coordinator()
            time.sleep(0.7)
            again.kill()
        assert numbers(intervals(fleet)) == [1]
        fleet.coordinator()
        rows = until(fleet, lambda rows: len(rows) >= 2)
        assert numbers(rows) == [1, 2]
        assert time.monotonic() - began > 3
        assert rows[1]["start"] == "warm"


def test_an_absent_zone_is_held_and_is_back_in_the_interval_after_its_return(tmp_path, mosquitto):
    with ExitStack() as stack:
        fleet = made(tmp_path / "fleet", mosquitto.url, stack, "quorum: 2\nhold: 1h\n", "3s")
        nodes = {z: fleet.node(z) for z in ZONES}
        coordinator = fleet.coordinator()
        until(fleet, lambda rows: len(rows) >= 1)
        nodes["z2"].kill()
        rows = until(fleet, lambda rows: any(row["outcome"] == "held" for row in rows))
        held = next(row for row in rows if row["outcome"] == "held")
        assert (held["held"], held["absent"], held["start"]) == ("z2", "z2", "warm")
        fleet.node("z2")
        rows = until(
            fleet, lambda rows: rows[-1]["outcome"] == "answer" and int(rows[-1]["interval"]) > int(held["interval"])
        )
        assert numbers(rows) == list(range(1, len(rows) + 1))
        assert coordinator.end() == 0


def test_without_a_quorum_an_interval_with_somebody_absent_is_missed_and_says_why(tmp_path, mosquitto):
    with ExitStack() as stack:
        fleet = made(tmp_path / "fleet", mosquitto.url, stack)
        for z in ZONES[:2]:
            fleet.node(z)
        fleet.coordinator()
        rows = until(fleet, lambda rows: len(rows) >= 2)
        assert {(row["outcome"], row["cause"]) for row in rows} == {("missed", "absent")}
        assert "z3 not there" in rows[0]["reason"]
        fleet.node("z3")
        assert until(fleet, lambda rows: rows[-1]["outcome"] == "answer")[-1]["start"] == "cold"


def test_a_coordinator_whose_broker_is_away_goes_on_with_its_schedule(tmp_path, mosquitto):
    with ExitStack() as stack:
        fleet = made(tmp_path / "fleet", mosquitto.url, stack)
        for z in ZONES:
            fleet.node(z)
        fleet.coordinator()
        until(fleet, lambda rows: len(rows) >= 1)
        mosquitto.kill()
        rows = until(fleet, lambda rows: [row["cause"] for row in rows].count("broker") >= 2)
        mosquitto.start(mosquitto.port)
        missed = int(rows[-1]["interval"])
        rows = until(fleet, lambda rows: rows[-1]["outcome"] == "answer" and int(rows[-1]["interval"]) > missed)
        assert numbers(rows) == list(range(1, len(rows) + 1))
        assert rows[-1]["start"] == "warm"


def test_no_interval_of_a_fleet_in_good_health_says_that_a_message_was_dropped(tmp_path, mosquitto):
    """The AC step takes the coordinator seconds. It then sent again what it had just sent, and the second answers came
    too late.
    """
    with ExitStack() as stack:
        fleet = made(tmp_path / "fleet", mosquitto.url, stack, every="3s")
        daemons = [fleet.coordinator(), *(fleet.node(z) for z in ZONES)]
        until(fleet, lambda rows: [row["outcome"] for row in rows].count("answer") >= 4)
        for daemon in daemons:
            assert daemon.end() == 0
            assert "dropped a message" not in daemon.said
