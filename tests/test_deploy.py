"""deploy/ as a person would use it: the units, the broker under its access list, and the real daemons on it.

Nothing here is simulated: `hushgrid node` and `hushgrid coordinator` are processes of their own, with deploy's example
configurations, in which only the broker's address and the directories are changed.
"""

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
from types import SimpleNamespace

import pytest
from daemons import DEPLOY, HUSHGRID, PATIENCE, ROOT, ZONES, Daemon, Fleet, broker, finishes_a_run

from hushgrid.broker import brokers
from hushgrid.grid_cases import load
from hushgrid.grid_cases.case import loads
from hushgrid.node.config import load_coordinator, load_device, load_scenario
from hushgrid.node.mqtt import MqttLink
from hushgrid.node.wire import Birth, decode_presence

UNITS = ("hushgrid-node@.service", "hushgrid-coordinator.service")


# --- the units ---


def settings(unit):
    """Every value of every key of a unit, in order."""
    found = {}
    for line in (DEPLOY / unit).read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            key, value = line.split("=", 1)
            found.setdefault(key, []).append(value)
    return found


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_finds_nothing_wrong_with_a_unit(unit, tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    # The program is not installed where the unit expects it; everything else is the unit itself.
    text = (DEPLOY / unit).read_text().replace("/opt/hushgrid/bin/hushgrid", shutil.which("true"))
    copy = tmp_path / unit
    copy.write_text(text)
    done = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_is_not_restarted_when_its_owner_is_needed_and_watched_by_its_own_loop(unit):
    s = settings(unit)
    assert s["Type"] == ["notify"]
    assert s["Restart"] == ["on-failure"]
    assert s["RestartPreventExitStatus"] == ["2 3"]
    assert s["StartLimitIntervalSec"] == ["0"]
    assert int(s["WatchdogSec"][0]) > 0
    assert "DynamicUser" not in s
    assert s["User"] == ["hushgrid"]
    assert s["CacheDirectory"] == ["hushgrid"]
    assert all(d.startswith("hushgrid") for d in s["StateDirectory"][0].split())


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_gives_its_process_nothing_it_does_not_need(unit):
    s = settings(unit)
    for key in (
        "MemoryDenyWriteExecute",
        "NoNewPrivileges",
        "ProtectHome",
        "PrivateTmp",
        "PrivateDevices",
        "LockPersonality",
    ):
        assert s[key] == ["yes"], key
    assert s["ProtectSystem"] == ["strict"]
    assert s["CapabilityBoundingSet"] == [""]
    assert s["RestrictAddressFamilies"] == ["AF_INET AF_INET6 AF_UNIX"]
    assert s["SystemCallFilter"][0] == "@system-service"
    assert s["SystemCallArchitectures"] == ["native"]
    assert s["UMask"] == ["0077"]


def test_the_state_and_the_mark_of_the_examples_are_where_the_units_may_write():
    node, coordinator = (settings(u)["StateDirectory"][0].split() for u in UNITS)
    for z in ZONES:
        config = load_device(DEPLOY / "nodes" / f"{z}.yaml")
        state, marks = (f"/var/lib/{d.replace('%i', z)}" for d in node)
        assert config.state == state
        assert config.mark == f"{marks}/{z}.mark"
    assert load_coordinator(DEPLOY / "coordinator.yaml").state == f"/var/lib/{coordinator[0]}"


@pytest.mark.parametrize("script", ["install.sh", "certificates.sh"])
def test_an_install_script_is_shell_and_says_how_it_is_used(script):
    subprocess.run(["sh", "-n", str(DEPLOY / script)], check=True)
    done = subprocess.run(["sh", str(DEPLOY / script)], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: ")


# --- the example ---


def test_the_examples_are_one_fleet_on_the_loads_of_the_case():
    scenario = load_scenario(DEPLOY / "scenario.yaml")
    coordinator = load_coordinator(DEPLOY / "coordinator.yaml")
    assert scenario.seed is None
    assert scenario.algorithm.variant == "guarded"
    assert coordinator.members == list(ZONES)
    case = load(scenario.problem.case)
    for z, buses in zip(ZONES, scenario.problem.zones, strict=True):
        config = load_device(DEPLOY / "nodes" / f"{z}.yaml")
        assert (config.node, config.fleet, config.broker) == (z, coordinator.fleet, coordinator.broker)
        assert config.data.zone == buses
        with open(config.data.loads, newline="") as file:
            rows = {int(r["bus"]): (float(r["p_mw"]), float(r["q_mvar"])) for r in csv.DictReader(file)}
        d = loads(case, tuple(buses)) * case.base_mva
        assert [rows[b][0] for b in buses] == pytest.approx(d[: len(buses)], abs=1e-9)
        assert [rows[b][1] for b in buses] == pytest.approx(d[len(buses) :], abs=1e-9)


# --- the real daemons ---


@pytest.fixture
def fleet(tmp_path, mosquitto_program):
    """A fleet on the broker of mosquitto-try.conf, in which only port, user and paths are changed."""
    with ExitStack() as stack:
        port = brokers._free_port()
        made = Fleet(tmp_path / "deploy", f"mqtt://127.0.0.1:{port}", stack)
        broker(made, mosquitto_program, "mosquitto-try.conf", "1883 127.0.0.1", f"{port} 127.0.0.1")
        yield made


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
    every = [f"{ROOT}/state/{n}" for n in (*ZONES, "coordinator")]
    every += [f"{ROOT}/all/{n}" for n in (*ZONES, "coordinator")]
    every += [f"{ROOT}/edge/{a}/{b}" for a in (*ZONES, "coordinator") for b in (*ZONES, "coordinator")]
    every += [t.replace("/demo/", "/other/") for t in every] + ["hushgrid/1", "anything"]
    own = {z: {f"{ROOT}/state/{z}", f"{ROOT}/edge/{z}/coordinator"} for z in ZONES}
    own["coordinator"] = {f"{ROOT}/{t}/coordinator" for t in ("state", "all")} | {
        t for t in every if t.startswith(f"{ROOT}/edge/coordinator/")
    }
    heard = {
        z: {f"{ROOT}/{t}" for t in ("state/coordinator", "all/coordinator", f"edge/coordinator/{z}")} for z in ZONES
    }
    heard["coordinator"] = {f"{ROOT}/edge/{n}/coordinator" for n in (*ZONES, "coordinator")} | {
        f"{ROOT}/state/{n}" for n in (*ZONES, "coordinator")
    }
    names = (*ZONES, "coordinator", "stranger")
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
@pytest.mark.parametrize("mark", ["its mark file", "the coordinator"])
def test_an_old_copy_of_a_ledger_is_noticed_and_answers_nothing_until_its_owner_accepts(mark, fleet):
    first = fleet.node("z1")
    assert first.end() == 0
    shutil.copytree(fleet.state("z1"), fleet.directory / "backup")
    nodes = [fleet.node(z) for z in ZONES]
    finishes_a_run(fleet, nodes)
    assert nodes[0].end() == 0

    shutil.rmtree(fleet.state("z1"))
    shutil.copytree(fleet.directory / "backup", fleet.state("z1"))
    marks = fleet.directory / "lib" / "hushgrid-marks" / "z1" / "z1.mark"
    if mark == "the coordinator":
        marks.unlink()  # restored with the card, or lost
    nodes[0] = fleet.node("z1")
    coordinator = fleet.coordinator("--once")
    assert coordinator.code() == 3
    assert "z1: its ledger is behind its mark: spend 0, the mark says 1" in coordinator.said
    assert nodes[0].end() == 0
    assert fleet.spends("z1") == []

    config = str(fleet.directory / "nodes" / "z1.yaml")
    accepted = subprocess.run([*HUSHGRID, "ledger", "accept", config], capture_output=True, text=True)
    assert accepted.returncode == 0, accepted.stderr
    nodes[0] = fleet.node("z1")
    finishes_a_run(fleet, nodes)
    assert nodes[0].end() == 0
    (gap, lost), (kind, epsilon) = fleet.spends("z1")
    assert (gap, kind) == ("gap", "laplace")
    assert lost == epsilon  # the mark carried its price


def in_a_long_run(fleet: Fleet) -> tuple[list[Daemon], Daemon]:
    """The fleet in the middle of a run of an answer a round, z1 just killed."""
    fleet.edit("scenario.yaml", "rounds: 100", "rounds: 20000")
    fleet.edit("scenario.yaml", "mode: input ", "mode: objective ")
    nodes = [fleet.node(z) for z in ZONES]
    coordinator = fleet.coordinator("--once")
    coordinator.wait_for("rounds begin")
    log = fleet.state("z1") / "z1.ledger-wal"
    deadline, before = time.monotonic() + PATIENCE, log.stat().st_mtime_ns
    while log.stat().st_mtime_ns == before:  # until a round has been committed
        assert time.monotonic() < deadline
        time.sleep(0.02)
    nodes[0].kill()
    return nodes, coordinator


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
    shutil.copytree(fleet.state("z1"), fleet.directory / "backup")
    nodes[0] = fleet.node("z1")
    nodes[0].wait_for("resumed run")
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
def test_systemd_is_told_ready_after_the_birth_then_alive_then_stopping(fleet, tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        path = str(tmp_path / "notify")
        notified.bind(path)
        notified.settimeout(PATIENCE)
        daemon = fleet.node("z1", NOTIFY_SOCKET=path, WATCHDOG_USEC="600000")
        assert notified.recv(100) == b"READY=1"
        assert f"{ROOT}/state/z1" in fleet.retained()
        assert {notified.recv(100) for _ in range(3)} == {b"WATCHDOG=1"}
        assert daemon.end() == 0
        said = b""
        while said != b"STOPPING=1":
            said = notified.recv(100)
            assert said in (b"WATCHDOG=1", b"STOPPING=1")


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
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    with ExitStack() as stack:
        port = brokers._free_port()
        fleet = Fleet(tmp_path / "deploy", f"mqtts://127.0.0.1:{port}", stack)
        certs = fleet.directory / "certs"
        subprocess.run(
            ["sh", str(DEPLOY / "certificates.sh"), str(certs), "127.0.0.1", "coordinator", *ZONES, "mallory"],
            check=True,
        )
        fleet.edit("mosquitto.conf", "/etc/mosquitto/certs", str(certs))
        fleet.edit("mosquitto.conf", "log_dest syslog", "log_dest stderr")
        broker(fleet, mosquitto_program, "mosquitto.conf", "8883", f"{port} 127.0.0.1")
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
    port = str(brokers._free_port())
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
    assert "spent epsilon 4.99" in said


# --- what a real device refuses ---


@pytest.mark.parametrize("key", ["seed: 7", "variant: published", "truth: true"])
def test_a_device_configuration_with_a_key_of_simulation_ends_with_2(key, tmp_path):
    fleet = Fleet(tmp_path / "deploy", "mqtt://127.0.0.1:1", ExitStack())
    config = fleet.directory / "nodes" / "z1.yaml"
    config.write_text(config.read_text() + key + "\n")
    done = subprocess.run([*HUSHGRID, "node", str(config)], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"z1.yaml: {key.split(':')[0]}: " in done.stderr
    assert not (fleet.directory / "lib").exists()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("name: ladmm", "name: ladmm\n  variant: published"),
        ("name: demo", "name: demo\nseed: 7"),
    ],
    ids=["published", "seed"],
)
def test_a_coordinator_of_real_devices_refuses_a_scenario_of_simulation(old, new, tmp_path):
    fleet = Fleet(tmp_path / "deploy", "mqtt://127.0.0.1:1", ExitStack())
    fleet.edit("scenario.yaml", old, new)
    if "published" in new:
        fleet.edit("scenario.yaml", "mode: input ", "mode: objective ")
    config = str(fleet.directory / "coordinator.yaml")
    done = subprocess.run(
        [*HUSHGRID, "coordinator", config, "--once"], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def _hostile_plan(fleet: Fleet, birth: Birth, variant: str) -> SimpleNamespace:
    """A run of this variant, as a coordinator would announce it that does not keep the rules."""
    from hushgrid.node import wire
    from hushgrid.node.assemble import make_plan
    from hushgrid.node.plan import encode_plan
    from hushgrid.node.zones import public

    scenario = load_scenario(
        fleet.directory / "scenario.yaml",
        {"algorithm.variant": variant, "privacy.mode": "objective"}
        if variant == "published"
        else {"algorithm.variant": variant},
        ["privacy=null"] if variant == "none" else [],
    )
    blob, nonce = encode_plan(make_plan(scenario, public(scenario.problem)[2])[1]), bytes(16)
    members = dict.fromkeys(ZONES, birth.session)
    run = wire.run_id(blob, nonce, members)
    return SimpleNamespace(
        run=run, payload=wire.encode(wire.Envelope(run, 0, 0, None, wire.Plan(blob, nonce, members, {})))
    )


@pytest.mark.mosquitto
@pytest.mark.parametrize("variant", ["published", "none"])
def test_a_device_refuses_a_plan_of_simulation_whoever_sends_it(variant, fleet):
    from hushgrid.node import wire

    daemon = fleet.node("z1")
    topics = [f"{ROOT}/state/+", f"{ROOT}/edge/+/coordinator"]
    link = MqttLink(fleet.url, "coordinator", username="coordinator", subscriptions=topics, persistent=False)
    link.connect(PATIENCE)
    try:
        deadline, births, refusals = time.monotonic() + PATIENCE, [], []
        while not refusals:
            assert time.monotonic() < deadline
            for m in link.poll(0.1):
                if m.topic == f"{ROOT}/state/z1":
                    births.append(decode_presence(m.payload))
                    plan = _hostile_plan(fleet, births[-1], variant)
                    link.publish(f"{ROOT}/all/coordinator", plan.payload)
                else:
                    refusals.append(wire.decode_envelope(m.payload, wire.PLAN_LIMIT))
        assert refusals[0].run == plan.run
        assert refusals[0].body == wire.Refuse(
            f"z1: variant {variant} runs in simulation only (hushgrid run)", "refused"
        )
    finally:
        link.close()
    assert daemon.end() == 0
    assert fleet.spends("z1") == []
