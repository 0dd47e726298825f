"""Three sites of two devices that run by a schedule, real processes on four mosquittos: killed, and started again."""

import csv
import time
from collections import Counter

import pytest

from tests.support.daemons.deployed_fleet import PATIENCE
from tests.support.daemons.site_fleet import DEVICES, SCENARIO, SiteFleet
from tests.support.devices.ledgers import copy_of

pytestmark = pytest.mark.mosquitto

SITES = {"s1": ("n0", "n1"), "s2": ("n2", "n3"), "s3": ("n4", "n5")}
#: Two sites are enough for a round; an interval is a small part of the budget.
CHEAP = SCENARIO.replace("sites: {number: 2}", "sites: {number: 3, contributors: 2}").replace(
    "epsilon: 1.0", "epsilon: 0.05"
)
SCHEDULE = "run: {every: 4s}\nquorum: 2\nwait_s: 2\n"


def answered(fleet, count, absent):
    """The intervals so far, once so many were answered without these sites."""

    def happened(rows):
        return [(row["outcome"], row["absent"]) for row in rows].count(("answer", absent)) >= count

    path, deadline = fleet.above.directory / "lib" / "coordinator" / "intervals.csv", time.monotonic() + PATIENCE
    while not happened(rows := list(csv.DictReader(path.read_text().splitlines())) if path.exists() else []):
        assert time.monotonic() < deadline, rows
        time.sleep(0.05)
    return rows


def test_intervals_go_on_while_a_site_a_device_and_the_coordinator_are_killed_and_start_again(
    tmp_path, mosquitto_program, stack
):
    fleet = SiteFleet(tmp_path, mosquitto_program, stack, CHEAP, nodes=SITES)
    fleet.schedule(SCHEDULE)
    sites = {name: fleet.site(name) for name in SITES}
    devices = {name: fleet.device(name) for name in DEVICES}
    top = fleet.above.coordinator()
    answered(fleet, 2, "")
    sites["s2"].kill()
    answered(fleet, 1, "s2")
    sites["s2"] = fleet.site("s2")
    devices["n0"].kill()
    answered(fleet, 4, "")
    devices["n0"] = fleet.device("n0")
    top.kill()
    top = fleet.above.coordinator()
    rows = answered(fleet, 6, "")
    assert top.end() == 0
    assert [daemon.end() for daemon in (*sites.values(), *devices.values())] == [0] * 9
    assert [int(row["interval"]) for row in rows] == list(range(1, len(rows) + 1))  # each has a line
    assert all(row["cause"] and row["reason"] for row in rows if row["outcome"] == "missed")
    for node in DEVICES:
        with copy_of(fleet.ledger(node)) as ledger:
            runs = [run for (run,) in ledger.tables.ask("SELECT run FROM spend")]
        # A second answer is the one to the smaller set, of three sites without one.
        assert max(Counter(runs).values()) <= 2
        assert len({*runs}) <= len(rows) + 1
    tables = list(fleet.above.directory.rglob("masked-*-sum.csv"))
    assert len(tables) == [row["outcome"] for row in rows].count("answer")
