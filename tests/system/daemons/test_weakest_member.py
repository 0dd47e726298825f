"""Real daemons with a quorum: each in turn refuses, dies, has an empty budget, or has another zone; the others go
on.
"""

import json
import os
import signal
import subprocess
from contextlib import ExitStack

import pytest

from tests.support.daemons.deployed_fleet import HUSHGRID, PATIENCE, ZONES, Fleet, until

pytestmark = pytest.mark.mosquitto


def made(directory, url, stack, wait="2", every="3s"):
    fleet = Fleet(directory, url, stack)
    fleet.edit("coordinator.yaml", "wait_s: 60 ", f"wait_s: {wait} ")
    fleet.edit("coordinator.yaml", "silent_s: 10 ", "silent_s: 2 ")
    path = fleet.directory / "coordinator.yaml"
    path.write_text(path.read_text() + f"run: {{every: {every}}}\nquorum: 2\nhold: 1h\n")
    return fleet


def hup(daemon):
    daemon.child.send_signal(signal.SIGHUP)


def answered(fleet, after=0):
    """The first interval of all after this one."""
    rows = until(
        fleet,
        lambda rows: any(r["outcome"] == "answer" and not r["absent"] and int(r["interval"]) > after for r in rows),
    )
    return int(rows[-1]["interval"])


def status(fleet):
    command = [*HUSHGRID, "status", "--json", "--broker", fleet.url, "--fleet", "demo"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
    return {row["node"]: row for row in json.loads(done.stdout)["nodes"]}


@pytest.mark.parametrize(
    ("old", "new"),
    [("algorithms: [consensus-admm]", "algorithms: [ladmm]"), ("epsilon: 20.0", "epsilon: 0.001")],
    ids=["consent", "budget"],
)
def test_who_refuses_is_held_by_name_and_asked_again_when_its_owner_agrees(old, new, tmp_path, mosquitto):
    with ExitStack() as stack:
        fleet = made(tmp_path / "fleet", mosquitto.url, stack)
        nodes = {z: fleet.node(z) for z in ZONES}
        coordinator = fleet.coordinator()
        last = answered(fleet)
        loads = fleet.directory / "nodes" / "loads-z2.csv"
        fleet.edit("nodes/z2.yaml", old, new)
        loads.write_text(loads.read_text())  # new data: an answer that is repeated would cost nothing
        hup(nodes["z2"])
        rows = until(fleet, lambda rows: sum(r["refused"] == "z2" for r in rows) >= 4)
        refused = [r for r in rows if r["refused"] == "z2"]
        assert {(r["outcome"], r["held"], r["absent"]) for r in refused} == {("held", "z2", "z2")}
        assert nodes["z2"].said.count(" refused: ") == 3  # then it is not asked
        assert "without z2 (held since " in coordinator.said
        assert status(fleet)["coordinator"]["refuses"] == ["z2"]
        fleet.edit("nodes/z2.yaml", new, old)
        hup(nodes["z2"])
        last = answered(fleet, int(rows[-1]["interval"]))
        rows = until(fleet, lambda rows: rows)
        assert [int(r["interval"]) for r in rows] == list(range(1, len(rows) + 1))
        assert last > 0
        assert all(r["outcome"] != "missed" for r in rows)
        assert all(float(r["ended_s"]) > float(r["began_s"]) for r in rows)
        assert coordinator.end() == 0


def test_who_has_died_is_held_at_once_by_the_brokers_word(tmp_path, mosquitto):
    """The wait for members is longer than the test's patience: nobody waits."""
    with ExitStack() as stack:
        fleet = made(tmp_path / "fleet", mosquitto.url, stack, wait=f"{2 * PATIENCE}", every=f"{3 * PATIENCE:.0f}s")
        nodes = {z: fleet.node(z) for z in ZONES}
        coordinator = fleet.coordinator()
        answered(fleet)
        nodes["z2"].kill()
        coordinator.child.send_signal(signal.SIGUSR1)
        rows = until(fleet, lambda rows: len(rows) >= 2)
        assert (rows[1]["outcome"], rows[1]["held"], rows[1]["refused"]) == ("held", "z2", "")
        assert coordinator.end() == 0


def test_a_device_with_another_zone_than_the_plan_is_left_out_by_name(tmp_path, mosquitto):
    with ExitStack() as stack:
        fleet = made(tmp_path / "fleet", mosquitto.url, stack)
        nodes = {z: fleet.node(z) for z in ZONES}
        coordinator = fleet.coordinator()
        answered(fleet)
        assert nodes["z1"].end() == 0
        fleet.edit("nodes/z1.yaml", "4, 5]", "4, 5, 6]")
        loads = fleet.directory / "nodes" / "loads-z1.csv"
        loads.write_text(loads.read_text() + "6,11.2,7.5\n")
        fleet.node("z1")
        rows = until(fleet, lambda rows: rows[-1]["refused"] == "z1")
        assert (rows[-1]["outcome"], rows[-1]["held"]) == ("held", "z1")
        coordinator.wait_for("z1: dimension: found ")
        assert coordinator.end() == 0


def test_a_wait_that_no_quorum_can_end_is_refused_by_check_and_daemon_in_one_line(tmp_path, mosquitto):
    with ExitStack() as stack:
        fleet = made(tmp_path / "fleet", mosquitto.url, stack, wait="3")
        file = fleet.directory / "coordinator.yaml"
        for command in ("check", "coordinator", "doctor"):
            done = subprocess.run([*HUSHGRID, command, str(file)], capture_output=True, text=True, env=os.environ)
            assert done.returncode == 2
            output = (done.stdout if command == "doctor" else done.stderr).strip()
            assert f"{file}: wait_s: found 3, expected less than run.every, 3s: " in output
            assert len(output.splitlines()) == 1
