"""The example fleet of deploy/ on mosquitto under its access list."""

import csv
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from hushgrid.broker.servers.process import free_port
from hushgrid.node.transport.mqtt import MqttLink
from hushgrid.node.wire import Birth, decode_presence
from tests.support.daemons.deployed_fleet import HUSHGRID, PATIENCE, ROOT, ZONES, certified, finishes_a_run
from tests.support.paths import DEPLOY

# --- the real daemons ---


@pytest.mark.mosquitto
def test_the_example_fleet_runs_the_real_case_and_each_zone_has_its_set_points_and_its_spend(fleet):
    nodes = [fleet.node(z) for z in ZONES]
    finishes_a_run(fleet, nodes)
    for z, daemon in zip(ZONES, nodes, strict=True):
        with open(fleet.state(z) / f"{z}.setpoints.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        assert {r["unit"] for r in rows} == {"MW", "MVAr", "p.u."}
        assert all(0.9 < float(r["value"]) < 1.1 for r in rows if r["quantity"] == "v")
        assert daemon.end() == 0, daemon.said
        ((kind, epsilon),) = fleet.spends(z)  # mode input: one answer, for the whole epsilon
        assert kind == "laplace"
        assert 5.0 * (1 - 1 / 1024) <= epsilon <= 5.0  # its scale is a whole number, at least 1024, of grid steps
        assert (fleet.state(z) / f"{z}.ledger").stat().st_mode & 0o077 == 0
    shown = subprocess.run(
        [*HUSHGRID, "ledger", "show", str(fleet.state("z1") / "z1.ledger")], capture_output=True, text=True
    )
    assert shown.returncode == 0, shown.stderr


@pytest.mark.mosquitto
def test_the_same_loads_cost_nothing_again_and_other_loads_are_refused_once_the_budget_is_spent(fleet):
    for z in ZONES:
        fleet.edit(f"nodes/{z}.yaml", "epsilon: 20.0", "epsilon: 5.0")
    nodes = [fleet.node(z) for z in ZONES]
    finishes_a_run(fleet, nodes)
    finishes_a_run(fleet, nodes)
    assert nodes[0].end() == 0
    assert len(fleet.spends("z1")) == 1

    fleet.edit("nodes/loads-z1.csv", "2,21.7,12.7", "2,23.1,12.7")
    nodes[0] = fleet.node("z1")
    coordinator = fleet.coordinator("--once")
    assert coordinator.code() == 3
    reason = r"z1: spent epsilon 4\.99\d*, asked 5 more, budget 5 \(bounded-change 0\.01.*\)"
    assert re.search(reason, coordinator.said.strip().splitlines()[-1]), coordinator.said
    nodes[0].wait_for("refused: z1: spent epsilon")
    assert [d.child.poll() for d in nodes] == [None, None, None]  # a refusal ends no daemon
    assert nodes[0].end() == 0
    assert len(fleet.spends("z1")) == 1
    assert "23.1" not in nodes[0].said + coordinator.said


@pytest.mark.mosquitto
def test_a_node_told_to_end_leaves_with_0_and_nothing_of_it_stays_at_the_broker(fleet):
    daemon, other = fleet.node("z1"), fleet.node("z2")
    before = fleet.retained()
    assert {t for t, p in before.items() if isinstance(decode_presence(p), Birth)} == {
        f"{ROOT}/state/{z}" for z in ("z1", "z2")
    }
    assert daemon.end() == 0
    assert set(fleet.retained()) == {f"{ROOT}/state/z2"}
    assert other.end() == 0
    assert fleet.retained() == {}


@pytest.mark.mosquitto
def test_who_writes_to_anothers_topics_is_refused_by_the_broker_and_says_so(fleet):
    fleet.edit("nodes/z2.yaml", "node: z2", "node: z9")
    daemon = fleet.start("node", "z2.yaml", "z2")
    daemon.wait_for(f"z9: the broker refuses {ROOT}/state/z9: Not authorized")
    assert daemon.end() == 0
    assert fleet.retained() == {}


@pytest.mark.mosquitto
def test_an_identity_may_write_its_own_topics_only_and_hears_only_what_is_for_it(fleet):
    every = [f"{ROOT}/{t}/{n}" for t in ("state", "status") for n in (*ZONES, "coordinator")]
    every += [f"{ROOT}/all/{n}" for n in (*ZONES, "coordinator")]
    every += [f"{ROOT}/edge/{a}/{b}" for a in (*ZONES, "coordinator") for b in (*ZONES, "coordinator")]
    every += [t.replace("/demo/", "/other/") for t in every] + ["hushgrid/1", "anything"]
    own = {z: {f"{ROOT}/state/{z}", f"{ROOT}/status/{z}", f"{ROOT}/edge/{z}/coordinator"} for z in ZONES}
    own["coordinator"] = {f"{ROOT}/{t}/coordinator" for t in ("state", "status", "all")} | {
        t for t in every if t.startswith(f"{ROOT}/edge/coordinator/")
    }
    heard = {
        z: {f"{ROOT}/{t}" for t in ("state/coordinator", "all/coordinator", f"edge/coordinator/{z}")} for z in ZONES
    }
    heard["coordinator"] = {f"{ROOT}/edge/{n}/coordinator" for n in (*ZONES, "coordinator")} | {
        f"{ROOT}/state/{n}" for n in (*ZONES, "coordinator")
    }
    heard["watch"] = {f"{ROOT}/{t}/{n}" for t in ("state", "status") for n in (*ZONES, "coordinator")}
    names = (*ZONES, "coordinator", "watch", "stranger")
    links = {n: MqttLink(fleet.url, n, username=n, subscriptions=["#"], persistent=False) for n in names}
    received = {n: set() for n in names}
    try:
        for link in links.values():
            link.connect(PATIENCE)
        for link in links.values():
            for topic in every:
                assert link.publish(topic, b"x")
        # What each may write comes back to somebody who may read it; the last of each is a barrier for all before it.
        deadline = time.monotonic() + PATIENCE
        while any(len(links[n].refused) < len(every) - len(own.get(n, ())) for n in names) or any(
            received[n] != heard.get(n, set()) for n in names
        ):
            assert time.monotonic() < deadline, (received, {n: link.refused for n, link in links.items()})
            for name, link in links.items():
                received[name] |= {m.topic for m in link.poll(0.01)}
        for name, link in links.items():
            assert {t for t, _ in link.refused} == set(every) - own.get(name, set()), name
    finally:
        for link in links.values():
            link.close()


@pytest.mark.mosquitto
def test_a_device_says_when_its_broker_is_away_and_when_it_is_back(fleet):
    daemon = fleet.node("z1")
    thief = MqttLink(fleet.url, "z1", username="z1", persistent=False)
    thief.connect(PATIENCE)  # the same identity once more: the broker drops the older connection
    daemon.wait_for("z1: the broker is away: ")
    thief.close()
    daemon.wait_for("z1: the broker is back")
    assert daemon.end() == 0


@pytest.mark.mosquitto
def test_systemd_is_told_ready_then_what_is_waited_for_then_alive_then_stopping(fleet, tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        path = str(tmp_path / "notify")
        notified.bind(path)
        notified.settimeout(PATIENCE)
        daemon = fleet.node("z1", NOTIFY_SOCKET=path, WATCHDOG_USEC="600000")
        assert notified.recv(300) == b"READY=1"
        said = []
        while said[-3:] != [b"WATCHDOG=1"] * 3:
            said.append(notified.recv(300))
        assert b"STATUS=waits for a run" in said
        assert f"{ROOT}/state/z1" in fleet.retained()
        assert daemon.end() == 0
        while said[-1] != b"STOPPING=1":
            said.append(notified.recv(300))
        assert {line for line in said if not line.startswith(b"STATUS=waits for ")} == {b"WATCHDOG=1", b"STOPPING=1"}


@pytest.mark.mosquitto
def test_a_node_works_where_no_memory_may_become_executable(fleet):
    """MemoryDenyWriteExecute, by the kernel's own switch (prctl PR_SET_MDWE, Linux 6.3)."""
    code = (
        "import ctypes, os, sys\n"
        "if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0): sys.exit(77)\n"
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    probe = "import ctypes, sys; sys.exit(ctypes.CDLL(None).prctl(66, 0, 0, 0, 0))"
    if subprocess.run([sys.executable, "-c", code, "-c", probe]).returncode != 1:
        pytest.skip("this kernel has no PR_SET_MDWE that is kept over exec")
    fleet.program = [sys.executable, "-c", code, *HUSHGRID[1:]]
    nodes = [fleet.node(z) for z in ZONES]
    finishes_a_run(fleet, nodes)
    assert [d.end() for d in nodes] == [0, 0, 0]


@pytest.mark.mosquitto
def test_the_fleet_runs_over_tls_where_the_certificate_is_the_identity(tmp_path, mosquitto_program):
    with ExitStack() as stack:
        fleet = certified(tmp_path / "deploy", mosquitto_program, stack, "coordinator", *ZONES, "mallory")
        nodes = [fleet.start("node", f"{z}.yaml") for z in ZONES]
        for daemon in nodes:
            daemon.wait_for("ready on")
        coordinator = fleet.start("coordinator", "coordinator.yaml", "", "--once")
        assert coordinator.code() == 0, coordinator.said
        # A device with a certificate of its own cannot be another, whatever its configuration says.
        assert nodes[1].end() == 0
        fleet.edit("nodes/z2.yaml", "certs/z2", "certs/mallory")
        mallory = fleet.start("node", "z2.yaml")
        mallory.wait_for(f"the broker refuses {ROOT}/state/z2: Not authorized")
        assert [d.end() for d in (nodes[0], nodes[2], mallory)] == [0, 0, 0]


@pytest.mark.mosquitto
def test_the_first_commands_of_the_guide_run_as_they_stand(tmp_path, mosquitto_program):
    """docs/two-machines.md, the part for one machine; only the port, and the user where root runs it, are changed."""
    guide = (DEPLOY.parent / "docs" / "two-machines.md").read_text()
    (commands,) = re.findall(r"```sh try\n(.*?)```", guide, re.S)
    port = str(free_port())
    commands = commands.replace("1883", port).replace("/usr/sbin/mosquitto", str(mosquitto_program))
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    configuration = tmp_path / "deploy" / "mosquitto-try.conf"
    text = configuration.read_text().replace("listener 1883", f"listener {port}")
    configuration.write_text(text.replace("user mosquitto", "user root") if os.geteuid() == 0 else text)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    child = subprocess.Popen(
        ["sh", "-e"], cwd=tmp_path, env={**os.environ, "PATH": path}, text=True, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        said, _ = child.communicate(commands, timeout=2 * PATIENCE)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # the group is ours alone: its leader is the shell started here
    assert child.returncode == 0, said
    assert "quantity,element,value,unit" in said
    assert re.search(r"^z2 +since 20", said, re.M)
    assert "ok    topics: z1 is seen on the broker, session 1" in said
    assert "spent epsilon 4.99" in said
