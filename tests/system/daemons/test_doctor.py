"""An installation looked over step by step: what is found, what it ends with, and that a running device notices
nothing.
"""

import os
import shutil
import signal
import subprocess
import time
from contextlib import ExitStack

import pytest

from hushgrid.broker.servers.process import free_port
from tests.support.daemons.deployed_fleet import HUSHGRID, PATIENCE, ROOT, ZONES, certificates, certified, tried

pytestmark = pytest.mark.mosquitto


@pytest.fixture
def fleet(tmp_path, mosquitto_program, stack):
    return tried(tmp_path / "deploy", mosquitto_program, stack)


def doctor(fleet, file="nodes/z1.yaml", user="z1"):
    """(exit code, the findings by what they are of, every line)."""
    environment = {**os.environ, "HUSHGRID_MQTT_USER": user}
    command = [*HUSHGRID, "doctor", str(fleet.directory / file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=environment)
    assert done.stderr == ""
    found = {}
    for line in done.stdout.splitlines():
        grade, what = line.split(":")[0].split()
        assert grade in ("ok", "warn", "bad")
        found.setdefault(what, line)
    return done.returncode, found, done.stdout


def test_a_device_that_is_whole_has_nothing_bad_running_or_not(fleet):
    assert fleet.node("z1").end() == 0
    code, found, said = doctor(fleet)
    assert code == 0, said
    for what in ("file", "version", "clock", "disk", "state", "ledger", "name", "connection", "identity", "topics"):
        assert found[what].startswith("ok "), said
    daemon = fleet.node("z1")
    code, found, said = doctor(fleet)
    assert code == 0, said
    assert "its connection is left alone" in found["identity"]
    assert "z1 is seen on the broker, session 2" in found["topics"]
    assert "is in use" in found["ledger"]
    assert "the broker is away" not in daemon.said
    assert daemon.end() == 0


def test_a_coordinator_that_is_whole_has_nothing_bad_and_its_members_notice_nothing(fleet):
    daemons = [fleet.node(z) for z in ZONES]
    code, found, said = doctor(fleet, "coordinator.yaml", "coordinator")
    assert code == 0, said
    assert found["topics"].startswith("ok ")
    time.sleep(0.5)
    assert [d for d in daemons if "dropped" in d.said] == []
    assert all(d.end() == 0 for d in daemons)


@pytest.mark.parametrize("allowed", ["edge/z1/coordinator", "status/z1"])
def test_a_topic_that_the_access_list_lacks_is_named(allowed, tmp_path, mosquitto_program, stack):
    line = f"topic write {ROOT}/{allowed}\n"
    fleet = tried(tmp_path / "deploy", mosquitto_program, stack, lambda made: made.edit("acl", line, ""))
    code, found, said = doctor(fleet)
    assert code == 2, said
    assert found["topic"].startswith(f"bad   topic: {ROOT}/{allowed}: Not authorized")


def broken(what, fleet):
    """Breaks one thing of a device that ran before; returns (exit code, what is found bad, words of it)."""
    state = fleet.state("z1")
    if what == "the file":
        fleet.edit("nodes/z1.yaml", "epsilon: 20.0", "epsilon: all")
        return 2, "file", "budget.epsilon"
    if what == "the loads":
        (fleet.directory / "nodes" / "loads-z1.csv").unlink()
        return 2, "file", "loads-z1.csv"
    if what == "the mark":
        (fleet.directory / "lib" / "hushgrid-marks" / "z1" / "z1.mark").unlink()
        return 4, "ledger", "without its mark"
    if what == "the ledger":
        (state / "z1.ledger").write_bytes(b"nothing")
        return 2, "ledger", "found no SQLite file"
    if what == "the broker":
        fleet.edit("nodes/z1.yaml", fleet.url, f"mqtt://127.0.0.1:{free_port()}")
        return 4, "connection", "Connection refused"
    assert what == "the name"
    fleet.edit("nodes/z1.yaml", fleet.url, "mqtt://nowhere.invalid:1883\nbroker_in_clear: true")
    return 4, "name", "nowhere.invalid"


@pytest.mark.parametrize("what", ["the file", "the loads", "the mark", "the ledger", "the broker", "the name"])
def test_what_is_broken_is_found_with_what_to_do(what, fleet):
    assert fleet.node("z1").end() == 0
    expected, key, words = broken(what, fleet)
    code, found, said = doctor(fleet)
    assert code == expected, said
    assert found[key].startswith(f"bad   {key}: "), said
    assert words in found[key]
    assert sum(line.startswith("bad") for line in said.splitlines()) == 1


def test_a_folder_that_cannot_be_written_is_found(fleet):
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    assert fleet.node("z1").end() == 0
    fleet.state("z1").chmod(0o500)
    code, found, said = doctor(fleet)
    fleet.state("z1").chmod(0o700)
    assert code == 4, said
    assert found["state"].startswith("bad")


def test_certificates_are_counted_in_days_and_a_stranger_to_the_authority_is_found(tmp_path, mosquitto_program):
    with ExitStack() as stack:
        fleet = certified(tmp_path / "deploy", mosquitto_program, stack, "z1", "watch")
        certificates(tmp_path / "others", "z1")
        code, found, said = doctor(fleet, user="")
        assert code == 0, said
        assert "z1.crt ends in 824 days" in found["certificate"]
        assert "the broker's certificate ends in 824 days" in found["connection"]
        check = subprocess.run(
            [*HUSHGRID, "check", str(fleet.directory / "nodes" / "z1.yaml")], capture_output=True, text=True
        )
        assert "its certificate ends in 824 days" in check.stdout
        daemon = fleet.start("node", "z1.yaml")
        daemon.wait_for("ready on")
        code, found, said = doctor(fleet, user="")
        assert code == 0, said
        assert "z1 is seen on the broker" in found["topics"]
        assert "the broker is away" not in daemon.said
        daemon.child.send_signal(signal.SIGTERM)
        assert daemon.code() == 0
        shutil.copy(tmp_path / "others" / "ca.crt", fleet.directory / "certs" / "ca.crt")
        code, found, said = doctor(fleet, user="")
        assert code == 2, said
        assert found["connection"].startswith("bad   connection: ")
        assert "its certificate is not accepted" in found["connection"]


def test_a_device_is_compared_with_the_plan_of_its_last_run_and_with_the_one_in_force(fleet):
    daemons = {z: fleet.node(z) for z in ZONES}
    coordinator = fleet.coordinator()
    for daemon in daemons.values():
        daemon.wait_for(" done: ")
    coordinator.wait_for("the next run")
    code, _, said = doctor(fleet)
    assert code == 0, said
    assert "ok    plan: of its last run, demo: it is for this device" in said
    assert "ok    plan: in force: it is for this device" in said
    assert daemons["z1"].end() == 0
    fleet.edit("nodes/z1.yaml", "4, 5]", "4, 5, 6]")
    loads = fleet.directory / "nodes" / "loads-z1.csv"
    loads.write_text(loads.read_text() + "6,11.2,7.5\n")
    code, _, said = doctor(fleet)
    assert code == 2, said
    assert "warn  plan: of its last run, demo: z1: found zone [1, 2, 3, 4, 5] in the plan, expected its own" in said
    assert "bad   plan: in force: entries: found " in said
    assert coordinator.end() == 0
