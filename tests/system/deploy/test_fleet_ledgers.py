"""Ledgers and marks of the example fleet: copied, changed, gone, held by another process."""

import re
import shutil
import subprocess
import time

import pytest

from tests.support.daemons.deployed_fleet import HUSHGRID, PATIENCE, ZONES, Daemon, Fleet, finishes_a_run

# --- the real daemons ---


@pytest.mark.mosquitto
@pytest.mark.parametrize("mark", ["its mark file", "the coordinator"])
def test_an_old_copy_of_a_ledger_is_noticed_and_answers_nothing_until_its_owner_accepts(mark, fleet):
    config = fleet.directory / "nodes" / "z1.yaml"
    if mark == "the coordinator":  # there is no mark outside
        lines = config.read_text().splitlines(keepends=True)
        config.write_text("".join(line for line in lines if not line.startswith("mark:")))
    first = fleet.node("z1")
    assert first.end() == 0
    shutil.copytree(fleet.state("z1"), fleet.directory / "backup")
    nodes = [fleet.node(z) for z in ZONES]
    finishes_a_run(fleet, nodes)
    assert nodes[0].end() == 0

    shutil.rmtree(fleet.state("z1"))
    shutil.copytree(fleet.directory / "backup", fleet.state("z1"))
    nodes[0] = fleet.node("z1")
    coordinator = fleet.coordinator("--once")
    assert coordinator.code() == 3
    assert "z1: its ledger is behind its mark: spend 0, the mark says 1" in coordinator.said
    assert nodes[0].end() == 0
    assert fleet.spends("z1") == []

    accepted = subprocess.run([*HUSHGRID, "ledger", "accept", str(config)], capture_output=True, text=True)
    assert accepted.returncode == 0, accepted.stderr
    nodes[0] = fleet.node("z1")
    finishes_a_run(fleet, nodes)
    assert nodes[0].end() == 0
    (gap, lost), (kind, epsilon) = fleet.spends("z1")
    assert (gap, kind) == ("gap", "laplace")
    assert lost == epsilon  # the mark carried its price


def test_a_mark_that_is_gone_ends_a_device_with_exit_4_until_it_is_back_or_its_owner_accepts(fleet):
    """Its disk may come back: whoever restarts the device tries again."""
    assert fleet.node("z1").end() == 0
    mark = fleet.directory / "lib" / "hushgrid-marks" / "z1" / "z1.mark"
    kept = mark.read_bytes()
    mark.unlink()
    command = [*HUSHGRID, "node", str(fleet.directory / "nodes" / "z1.yaml")]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 4
    assert "z1: its ledger is without its mark" in ended.stderr
    mark.write_bytes(kept)
    assert fleet.node("z1").end() == 0
    mark.write_bytes(b"")
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 4
    (advised,) = re.findall("its owner runs 'hushgrid (.*)'", ended.stderr)  # what it advises helps
    assert subprocess.run([*HUSHGRID, *advised.split()], capture_output=True, text=True).returncode == 0
    assert fleet.node("z1").end() == 0


def in_a_long_run(fleet: Fleet) -> tuple[list[Daemon], Daemon]:
    """The fleet in the middle of a run of an answer a round, z1 just killed."""
    fleet.gradients(20000)
    nodes = [fleet.node(z) for z in ZONES]
    coordinator = fleet.coordinator("--once")
    coordinator.wait_for("rounds begin")
    commits(fleet)
    nodes[0].kill()
    return nodes, coordinator


def commits(fleet: Fleet) -> None:
    """Until z1 has committed a round."""
    log = fleet.state("z1") / "z1.ledger-log"
    deadline, before = time.monotonic() + PATIENCE, log.stat().st_mtime_ns
    while log.stat().st_mtime_ns == before:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.mosquitto
def test_a_device_whose_zone_was_changed_in_the_middle_of_a_run_refuses_it_and_stays(fleet):
    nodes, coordinator = in_a_long_run(fleet)
    fleet.edit("nodes/z1.yaml", "zone: [1, 2, 3, 4, 5]", "zone: [2, 3, 4, 5]")
    fleet.edit("nodes/loads-z1.csv", "1,0,0\n", "")
    nodes[0] = fleet.node("z1")
    assert coordinator.code() == 2
    assert "z1: found zone [1, 2, 3, 4, 5] in the plan, expected its own [2, 3, 4, 5]" in coordinator.said
    assert [d.end() for d in nodes] == [0, 0, 0]


@pytest.mark.mosquitto
def test_an_old_copy_of_a_ledger_does_not_go_on_with_the_run_it_was_in(fleet):
    nodes, coordinator = in_a_long_run(fleet)
    shutil.copytree(fleet.state("z1"), fleet.directory / "backup", ignore=shutil.ignore_patterns("*.drawn"))
    nodes[0] = fleet.node("z1")
    nodes[0].wait_for("resumed run")
    commits(fleet)
    commits(fleet)  # the first may be of what was drawn before it was killed: test_step_death
    spent = len(fleet.spends_of(fleet.directory / "backup" / "z1.ledger"))
    assert nodes[0].end() == 0
    assert len(fleet.spends("z1")) > spent > 0

    shutil.rmtree(fleet.state("z1"))
    shutil.copytree(fleet.directory / "backup", fleet.state("z1"))
    nodes[0] = fleet.node("z1")
    assert coordinator.code() == 3
    assert "z1: its ledger is behind its mark" in coordinator.said
    assert nodes[0].end() == 0
    assert len(fleet.spends("z1")) == spent


@pytest.mark.mosquitto
def test_a_second_process_on_a_ledger_ends_with_2_and_the_first_goes_on(fleet):
    first = fleet.node("z1")
    second = fleet.start("node", "z1.yaml", "z1")
    assert second.code() == 2
    assert second.said.strip().endswith("z1.ledger: held by another process, expected one process per ledger")
    assert first.end() == 0
