"""The fleet's table while it runs: what stands on the status topics, who may read it, and that watching disturbs
nobody.
"""

import json
import shutil
import subprocess
import time
from contextlib import ExitStack

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hushgrid.broker.servers.process import free_port
from hushgrid.node.transport.mqtt import MqttLink
from tests.support.daemons.deployed_fleet import (
    HUSHGRID,
    PATIENCE,
    ROOT,
    ZONES,
    certificates,
    certified,
    finishes_a_run,
    tried,
)
from tests.support.daemons.status_rows import nodes, status, until

pytestmark = pytest.mark.mosquitto


@pytest.fixture
def fleet(tmp_path, mosquitto_program, stack):
    return tried(tmp_path / "deploy", mosquitto_program, stack)


def stands(fleet, name):
    """What the node itself says, as it stands on the broker."""
    topic = f"{ROOT}/status/{name}"
    link = MqttLink(fleet.url, "watch", username="watch", subscriptions=[topic], persistent=False)
    link.connect(PATIENCE)
    deadline = time.monotonic() + PATIENCE
    while not (found := link.poll(0.2)):
        assert time.monotonic() < deadline
    link.close()
    return json.loads(found[-1].payload)


def test_the_table_says_who_is_there_what_ran_what_is_left_and_who_is_gone_since_when(fleet):
    daemons = {z: fleet.node(z) for z in ZONES}
    before = until(fleet, lambda found: len(found) == 3 and all(row["at"] for row in found.values()))
    assert {z: (row["there"], row["state"], row["session"], row["run"]) for z, row in before.items()} == dict.fromkeys(
        ZONES, (True, "idle", 1, None)
    )
    assert {row["epsilon_left"] for row in before.values()} == {20.0}

    coordinator = fleet.coordinator()
    coordinator.wait_for("the next run:")
    after = until(fleet, lambda found: found.get("coordinator", {}).get("last") == "done")
    assert {row["last"] for row in after.values()} == {"done"}
    assert len({row["run"] for row in after.values()}) == 1
    after = until(fleet, lambda found: all(found[z]["round"] for z in ZONES))
    assert len({(row["round"], row["rounds"]) for row in after.values()}) == 1
    own = stands(fleet, "z1")
    assert (own["run"], own["round"], own["state"]) == (after["z1"]["run"], after["coordinator"]["round"], "idle")
    assert after["coordinator"]["round"] > 1
    assert [line for line in status(fleet, "z1").stdout.splitlines() if f" {after['z1']['round']} of 200 " in line]
    assert all(15.0 <= after[z]["epsilon_left"] < 15.01 for z in ZONES)
    assert all(row["there"] for row in after.values())

    daemons["z2"].kill()
    assert daemons["z3"].end() == 0
    gone = until(fleet, lambda found: not found["z2"]["there"] and found["z2"]["gone_since"])
    assert not gone["z3"]["there"]
    assert gone["z3"]["gone_since"]
    assert gone["z1"]["there"]
    assert status(fleet).stdout.count("gone since 20") == 2
    assert [d.child.poll() for d in (daemons["z1"], coordinator)] == [None, None]
    assert "the broker is away" not in daemons["z1"].said + coordinator.said  # nobody has taken their place
    assert coordinator.end() == 0
    assert not until(fleet, lambda found: not found["coordinator"]["there"])["coordinator"]["there"]


def test_a_refusal_is_told_by_its_code_alone(fleet):
    fleet.edit("nodes/z1.yaml", "epsilon: 20.0", "epsilon: 4.0")
    for z in ZONES:
        fleet.node(z)
    assert fleet.coordinator("--once").code() == 3
    found = until(fleet, lambda found: found["z1"]["refused"])
    assert {z: found[z]["refused"] for z in ZONES} == {"z1": "budget", "z2": None, "z3": None}


def test_whoever_is_waited_for_is_named_with_the_time(fleet):
    fleet.node("z1")
    fleet.coordinator().wait_for("waits for z1, z2, z3")
    found = until(fleet, lambda found: found.get("coordinator", {}).get("waits_for") == ["z2", "z3"])
    assert found["coordinator"]["state"] == "gathering"
    assert found["z2"]["late_s"] is not None
    assert found["z1"]["late_s"] is None
    assert "coordinator waits for z2, z3" in status(fleet).stdout


def test_mosquitto_sub_reads_a_status_as_json_and_the_identity_watch_may_write_nothing(fleet):
    if (sub := shutil.which("mosquitto_sub")) is None:
        pytest.skip("mosquitto_sub is not installed")
    fleet.node("z1")
    until(fleet, lambda found: found["z1"]["at"])
    port = fleet.url.rpartition(":")[2]
    done = subprocess.run(
        [
            sub,
            "-h",
            "127.0.0.1",
            "-p",
            port,
            "-u",
            "watch",
            "-i",
            "watch",
            "-t",
            f"{ROOT}/status/z1",
            "-C",
            "1",
            "-W",
            "20",
        ],
        capture_output=True,
        text=True,
    )
    said = json.loads(done.stdout)
    assert (said["node"], said["state"], said["session"]) == ("z1", "idle", 1)
    assert "21.7" not in done.stdout  # of its loads
    link = MqttLink(fleet.url, "watch", username="watch", persistent=False)
    link.connect(PATIENCE)
    topics = [f"{ROOT}/status/z1", f"{ROOT}/state/z1", f"{ROOT}/status/watch", f"{ROOT}/all/coordinator"]
    for topic in topics:
        link.publish(topic, b"x")
    deadline = time.monotonic() + PATIENCE
    while {topic for topic, _ in link.refused} != set(topics):
        assert time.monotonic() < deadline, link.refused
        link.poll(0.05)
    link.close()


def test_prometheus_reads_the_figures_and_a_reader_never_finds_half_of_them(fleet, tmp_path):
    daemons = [fleet.node(z) for z in ZONES]
    finishes_a_run(fleet, daemons)
    until(fleet, lambda found: all(found[z]["last"] == "done" for z in ZONES))
    file = tmp_path / "fleet.prom"
    done = status(fleet, "--prometheus", str(file))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not list(tmp_path.glob("*.new"))
    families = {f.name: f for f in text_string_to_metric_families(file.read_text())}
    up = {sample.labels["node"]: sample.value for sample in families["hushgrid_up"].samples}
    assert up == {"z1": 1.0, "z2": 1.0, "z3": 1.0, "coordinator": 0.0}
    assert all(15.0 <= s.value < 15.01 for s in families["hushgrid_epsilon_left"].samples)
    assert all(s.labels["fleet"] == "demo" for f in families.values() for s in f.samples)
    assert {f.type for f in families.values()} == {"gauge"}
    assert all(f.documentation for f in families.values())


def test_what_is_wrong_is_one_line_with_an_exit_code(fleet, tmp_path):
    nobody = status(fleet)
    assert (nobody.returncode, nobody.stderr.count("\n")) == (2, 1)
    assert "found nobody in demo" in nobody.stderr
    fleet.node("z1")
    stranger = status(fleet, "z9")
    assert (stranger.returncode, stranger.stderr) == (2, "hushgrid: NAME: found z9, expected one of z1\n")
    assert list(nodes(fleet, "z1")) == ["z1"]
    half = subprocess.run([*HUSHGRID, "status", "--fleet", "demo"], capture_output=True, text=True)
    assert (half.returncode, half.stderr.count("\n")) == (2, 1)
    away = subprocess.run(
        [*HUSHGRID, "status", "--broker", f"mqtt://127.0.0.1:{free_port()}", "--fleet", "demo"],
        capture_output=True,
        text=True,
    )
    assert (away.returncode, away.stderr.count("\n")) == (4, 1)
    full = status(fleet, "--prometheus", str(tmp_path / "nowhere" / "file"))
    assert (full.returncode, full.stderr.count("\n")) == (4, 1)


def test_over_tls_it_is_the_identity_watch_even_with_a_running_coordinators_file(tmp_path, mosquitto_program):
    with ExitStack() as stack:
        fleet = certified(tmp_path / "deploy", mosquitto_program, stack, "coordinator", *ZONES)
        coordinator = fleet.directory / "coordinator.yaml"
        centre = fleet.start("coordinator", "coordinator.yaml")
        centre.wait_for("waits for")
        command = [*HUSHGRID, "status", "--json", "--config", str(coordinator)]
        without = subprocess.run(command, capture_output=True, text=True)
        assert (without.returncode, without.stderr.count("\n")) == (2, 1)
        assert "expected the certificate of the identity watch" in without.stderr
        certificates(fleet.directory / "certs", "watch")
        deadline = time.monotonic() + PATIENCE
        while (done := subprocess.run(command, capture_output=True, text=True)).returncode != 0:
            assert time.monotonic() < deadline, done.stderr
        (row,) = [row for row in json.loads(done.stdout)["nodes"] if row["node"] == "coordinator"]
        assert (row["there"], row["certificate_days"]) == (True, 824)
        assert "the broker is away" not in centre.said
        assert centre.end() == 0
