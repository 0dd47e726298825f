"""The owner's intake at real devices: a file that takes another's place is new data, and nothing else is (mode
input).
"""

import csv
import os
import signal
import subprocess
import time
from collections import Counter

import pytest

from hushgrid.grid_cases import load
from tests.support import examples
from tests.support.daemons.deployed_fleet import HUSHGRID, PATIENCE
from tests.support.daemons.small_daemons import Centre, on_zones, outcome, pair, spends_by_run, write_loads
from tests.support.devices.ledgers import copy_of

SCENARIO = on_zones("input", 12, epsilon=1000.0)  # next to no noise: set-points tell whose loads they are of


class Zones:
    """Both zones and their coordinator; z2's data never change."""

    def __init__(self, directory, url, stack):
        self.targets = pair(directory, url, stack)
        self.centre = Centre(directory / "centre", url, stack)
        self.z1 = self.targets["z1"]
        self.loads = self.z1.directory / "loads.csv"
        for target in self.targets.values():
            target.start()

    def run(self):
        """Set-points of z1 after one more run."""
        self.centre.finish(SCENARIO)
        return outcome(self.z1)["z"].tolist()

    def spends(self):
        """Of z1, which ends."""
        assert self.z1.daemon.end() == 0
        return sum(spends_by_run(self.z1.ledger).values())

    def spends_of_all(self):
        found = {"z1": self.spends()}
        assert self.targets["z2"].daemon.end() == 0
        return found | {"z2": sum(spends_by_run(self.targets["z2"].ledger).values())}

    def hup(self):
        """SIGHUP, and long enough for it to be dealt with."""
        self.z1.daemon.child.send_signal(signal.SIGHUP)
        time.sleep(1.0)

    @property
    def said(self):
        return self.z1.daemon.said


@pytest.fixture
def zones(tmp_path, url, stack):
    return Zones(tmp_path, url, stack)


def test_nothing_touched_repeats_for_nothing_over_runs_restarts_and_hang_ups(zones):
    first = zones.run()
    assert zones.run() == first
    zones.hup()
    assert zones.run() == first
    zones.z1.restart()
    assert zones.run() == first
    assert "data version" not in zones.said
    assert zones.spends_of_all() == {"z1": 1, "z2": 1}


@pytest.mark.parametrize("seen", ["before a run", "at a hang-up", "at a start"])
def test_a_file_that_was_replaced_costs_a_spend_and_the_set_points_follow_its_loads(seen, zones):
    first = zones.run()
    write_loads(zones.loads, "z1", 0.5)
    if seen == "at a hang-up":
        zones.hup()
        assert "loads.csv was replaced: data version 2" in zones.said
    if seen == "at a start":
        zones.z1.restart()
    second = zones.run()
    assert second != first
    assert far(first, second)
    if seen != "at a start":
        zones.z1.daemon.wait_for("was replaced: data version 2")
    assert zones.run() == second
    assert zones.spends_of_all() == {"z1": 2, "z2": 1}


def test_a_run_under_way_keeps_its_loads_and_their_version_when_the_file_is_replaced(zones):
    """Not so much noise that the loads could not be told by the set-points, and time enough to replace them."""
    slow = on_zones("objective", 600, epsilon=1e5)
    zones.centre.finish(slow)
    first = outcome(zones.z1)["z"].tolist()
    coordinator = zones.centre.command(slow)
    coordinator.wait_for("round 60 of 600")
    write_loads(zones.loads, "z1", 0.5)
    zones.z1.daemon.child.send_signal(signal.SIGHUP)
    zones.z1.daemon.wait_for("was replaced: data version 2")
    assert "round 540 of 600" not in coordinator.said
    assert coordinator.code() == 0, coordinator.said
    assert not far(first, outcome(zones.z1)["z"].tolist())
    zones.centre.finish(slow)
    assert far(first, outcome(zones.z1)["z"].tolist())
    assert zones.z1.daemon.end() == 0
    with copy_of(zones.z1.ledger) as ledger:
        versions = Counter((spend.run, spend.version) for spend in ledger.spends.rows())
    assert sorted(versions.values()) == [600] * 3
    assert [version for _, version in versions] == [1, 1, 2]


def far(one, other):
    """Further apart than answers of the same loads: the noise of epsilon 1000 is some kW."""
    return max(abs(a - b) for a, b in zip(one, other, strict=True)) > 1.0


def test_the_same_loads_in_a_new_file_are_new_data_and_the_old_answer_does_not_come_back(zones):
    """Else equality of two sets of loads would be told, for nothing."""
    first = zones.run()
    write_loads(zones.loads, "z1")
    second = zones.run()
    assert second != first
    write_loads(zones.loads, "z1", 0.5)
    third = zones.run()
    write_loads(zones.loads, "z1")
    assert zones.run() not in (first, second, third)
    assert zones.spends_of_all() == {"z1": 4, "z2": 1}


def test_the_owners_word_alone_makes_data_new(zones):
    first = zones.run()
    zones.hup()
    held = zones.z1.ledger_command("new-data")
    assert held.returncode == 2
    assert held.stderr.count("\n") == 1
    assert zones.z1.daemon.end() == 0
    done = zones.z1.ledger_command("new-data")
    assert done.returncode == 0, done.stderr
    assert "version 2" in done.stdout
    zones.z1.start()
    assert zones.run() != first
    assert zones.spends() == 2


@pytest.mark.parametrize("how", examples.few(["half", "empty", "binary", "gone", "a folder"], ["half", "gone"]))
def test_a_file_that_is_half_written_leaves_the_data_as_they_were_and_is_said_in_a_line(how, zones):
    first = zones.run()
    text = zones.loads.read_text()
    if how == "half":
        zones.loads.write_text(text[: len(text) // 2])
    elif how == "empty":
        zones.loads.write_text("")
    elif how == "binary":
        zones.loads.write_bytes(b"\xff\xfe\x00" * 50)
    else:
        zones.loads.unlink()
        if how == "a folder":
            zones.loads.mkdir()
    zones.hup()
    lines = [line for line in zones.said.splitlines() if "the data stay as they were" in line]
    assert len(lines) == 1
    assert str(zones.loads) in lines[0]
    assert zones.run() == first
    assert "was replaced" not in zones.said
    if how == "a folder":
        zones.loads.rmdir()
    write_loads(zones.loads, "z1", 0.5)  # the writer gets to its end
    second = zones.run()
    assert far(first, second)
    assert zones.spends_of_all() == {"z1": 2, "z2": 1}
    (value,) = {row["p_mw"] for row in read(zones.loads) if row["bus"] == "2"}
    assert value not in zones.said
    assert float(value) == pytest.approx(0.5 * load("case5").buses.p_d[1] * 100)


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_device_whose_file_is_no_data_at_its_start_says_so_in_a_line_and_ends_with_2(zones):
    assert zones.z1.daemon.end() == 0
    zones.loads.write_text("bus,p_mw\n")
    done = subprocess.run(
        [*HUSHGRID, "node", str(zones.z1.file)], capture_output=True, text=True, timeout=PATIENCE, env=os.environ
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
