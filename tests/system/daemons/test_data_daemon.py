"""Sensors with rows of their own as real daemons: deploy/ring on mosquitto under its access list, and what it
refuses.
"""

import re
import subprocess
import time
from contextlib import ExitStack
from types import SimpleNamespace

import numpy as np
import pytest

from hushgrid.kernels.graphs import Network
from hushgrid.node import wire
from hushgrid.node.config.coordinator import load_coordinator
from hushgrid.node.config.device import load_device
from hushgrid.node.config.planning import make_plan
from hushgrid.node.config.scenario import load_scenario
from hushgrid.node.problems.plan import encode_plan
from hushgrid.node.transport.mqtt import MqttLink
from tests.support.daemons.deployed_fleet import HUSHGRID, PATIENCE, tried
from tests.support.daemons.deployed_ring import ROOT, SENSORS, keep, models, ring, rows, to_the_end
from tests.support.paths import DEPLOY

NEAR = {f"n{i}": {f"n{(i - 1) % 4}", f"n{(i + 1) % 4}"} for i in range(4)}
VISITS = 50  # of each sensor: 200 activations around a ring of 4


@pytest.fixture
def fleet(tmp_path, mosquitto_program):
    with ExitStack() as stack:
        yield tried(tmp_path / "ring", mosquitto_program, stack, make=ring)


def test_the_example_is_one_fleet_whose_sensors_allow_what_it_asks():
    scenario = load_scenario(DEPLOY / "ring" / "scenario.yaml")
    coordinator = load_coordinator(DEPLOY / "ring" / "coordinator.yaml")
    assert (scenario.seed, scenario.algorithm.variant) == (None, "guarded")
    assert coordinator.members == list(SENSORS)
    assert scenario.network == Network(kind="ring", nodes=4)
    for name in SENSORS:
        config = load_device(DEPLOY / "ring" / "nodes" / f"{name}.yaml")
        assert (config.node, config.fleet, config.broker) == (name, coordinator.fleet, coordinator.broker)
        assert config.allow.algorithms == [scenario.algorithm.name]
        assert config.budget.adjacency == scenario.privacy.adjacency


@pytest.mark.mosquitto
def test_the_example_ring_runs_and_each_sensor_keeps_its_model_and_its_spends(fleet):
    to_the_end(fleet)
    for name, kept in models(fleet).items():
        assert kept["y"].shape == kept["lam"].shape == (8,)
        assert np.isfinite(kept["y"]).all()
        assert np.any(kept["y"] != 0.0)
        spends = fleet.spends(name)
        assert [kind for kind, _ in spends] == ["laplace"] * VISITS
        assert 0.0 < sum(epsilon for _, epsilon in spends) <= 5.0  # on the grid a little less than was asked for
    assert any("token_0" in kept for kept in models(fleet).values())  # where the walk ended


@pytest.mark.mosquitto
def test_a_row_beyond_the_bound_is_shortened_and_nothing_tells(fleet):
    """As it would be before it came to the device: nobody hears of it, least of all in a log."""
    keep(fleet, "n2", rows(seed=2, longest=1000.0))
    nodes = {name: fleet.node(name) for name in SENSORS}
    coordinator = fleet.coordinator("--once")
    assert coordinator.code() == 0, coordinator.said
    for daemon in nodes.values():
        daemon.wait_for(" done: rounds")
    assert nodes["n2"].said.replace("n2", "n1") == nodes["n1"].said
    assert np.isfinite(models(fleet)["n2"]["y"]).all()


@pytest.mark.mosquitto
@pytest.mark.parametrize(
    ("shard", "wrong"),
    [
        (rows(m=199), "n1: found a plan for 200 rows of 8, expected its own 199 rows of 8"),
        (rows(q=7), "n1: dimension: found 7, expected 8 entries"),
    ],
    ids=["rows", "features"],
)
def test_a_device_whose_rows_are_not_those_declared_ends_the_run_in_one_line_that_tells_nothing_of_them(
    shard, wrong, fleet
):
    keep(fleet, "n1", shard)
    nodes = [fleet.node(name) for name in SENSORS]
    coordinator = fleet.coordinator("--once")
    assert coordinator.code() == 2
    assert coordinator.said.splitlines()[-1] == f"hushgrid: {wrong}"
    for name, daemon in zip(SENSORS, nodes, strict=True):
        assert daemon.end() == 0
        assert fleet.spends(name) == []


@pytest.mark.mosquitto
def test_a_sensor_whose_labels_are_not_those_declared_moves_them_and_nothing_tells(fleet):
    keep(fleet, "n1", (rows(seed=1)[0], np.arange(200.0) - 50.0))
    nodes = {name: fleet.node(name) for name in SENSORS}
    coordinator = fleet.coordinator("--once")
    assert coordinator.code() == 0, coordinator.said
    for daemon in nodes.values():
        daemon.wait_for(" done: rounds")
    assert nodes["n1"].said.replace("n1", "n2") == nodes["n2"].said


@pytest.mark.mosquitto
@pytest.mark.parametrize("labels", [np.ones(200), np.arange(200.0)], ids=["one class", "two hundred"])
def test_a_plan_for_other_labels_is_refused_by_the_declaration_whatever_the_labels_are(labels, fleet):
    """No bisection over classes finds the largest label: the answer is the same for all of them."""
    keep(fleet, "n1", (rows()[0], labels))
    fleet.edit("scenario.yaml", "kind: logistic", "kind: softmax\n  classes: 3")
    nodes = [fleet.node(name) for name in SENSORS]
    coordinator = fleet.coordinator("--once")
    assert coordinator.code() == 2
    wrong = r"hushgrid: n\d: found a plan for softmax of 3 classes, expected one for labels of 2 classes"
    assert re.fullmatch(wrong, coordinator.said.splitlines()[-1])
    for name, daemon in zip(SENSORS, nodes, strict=True):
        assert daemon.end() == 0
        assert fleet.spends(name) == []


@pytest.mark.mosquitto
def test_a_sensor_may_write_to_its_neighbours_and_hear_from_them_and_from_nobody_else(fleet):
    everybody = (*SENSORS, "coordinator")
    every = [f"{ROOT}/{kind}/{n}" for kind in ("state", "all") for n in everybody]
    every += [f"{ROOT}/edge/{a}/{b}" for a in everybody for b in everybody]
    own = {
        n: {f"{ROOT}/state/{n}", f"{ROOT}/all/{n}", f"{ROOT}/edge/{n}/coordinator"}
        | {f"{ROOT}/edge/{n}/{m}" for m in NEAR[n]}
        for n in SENSORS
    }
    heard = {
        n: {f"{ROOT}/{t}" for t in ("state/coordinator", "all/coordinator", f"edge/coordinator/{n}")}
        | {f"{ROOT}/{t}" for m in NEAR[n] for t in (f"edge/{m}/{n}", f"all/{m}")}
        for n in SENSORS
    }
    links = {n: MqttLink(fleet.url, n, username=n, subscriptions=["#"], persistent=False) for n in everybody}
    received = {n: set() for n in everybody}
    try:
        for link in links.values():
            link.connect(PATIENCE)
        for link in links.values():
            for topic in every:
                assert link.publish(topic, b"x")
        deadline = time.monotonic() + PATIENCE
        while any(len(links[n].refused) < len(every) - len(own[n]) or received[n] != heard[n] for n in SENSORS):
            assert time.monotonic() < deadline, (received, {n: link.refused for n, link in links.items()})
            for name, link in links.items():
                received[name] |= {m.topic for m in link.poll(0.01)}
        for name in SENSORS:
            assert {t for t, _ in links[name].refused} == set(every) - own[name], name
    finally:
        for link in links.values():
            link.close()


# --- what is for simulation only ---


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("name: recal", "name: recal\n  variant: none", "algorithm.variant"),
        ("name: ring\n", "name: ring\nseed: 7\n", "seed"),
        (
            "{devices: {features: 8, rows: 200}}",
            "{synthetic: {rows: 200, features: 8}, normalize: unit-rows}",
            "problem.data",
        ),
    ],
    ids=["none", "seed", "rows of its own"],
)
def test_a_coordinator_of_sensors_refuses_a_scenario_of_simulation(old, new, key, tmp_path):
    fleet = ring(tmp_path / "ring", "mqtt://127.0.0.1:1", ExitStack())
    fleet.edit("scenario.yaml", old, new)
    if "none" in new:
        text = (fleet.directory / "scenario.yaml").read_text()
        (fleet.directory / "scenario.yaml").write_text(text[: text.index("privacy:")])
    command = [*HUSHGRID, "coordinator", str(fleet.directory / "coordinator.yaml"), "--once"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"scenario.yaml: {key}: found " in done.stderr


def hostile(fleet, session):
    """A run without privacy, as a coordinator would announce it that does not keep the rules."""
    scenario = load_scenario(
        fleet.directory / "scenario.yaml", {"algorithm.variant": "none"}, ["privacy=null"]
    )  # fmt: skip
    blob, nonce = encode_plan(make_plan(scenario, scenario.kind.public(scenario, "scenario"))), bytes(16)
    members = dict.fromkeys(SENSORS, session)
    run = wire.run_id(blob, nonce, members)
    body = wire.Plan(blob, nonce, members, {})
    return SimpleNamespace(run=run, payload=wire.encode(wire.Envelope(run, 0, 0, None, body)))


@pytest.mark.mosquitto
def test_a_sensor_refuses_a_plan_without_privacy_whoever_sends_it(fleet):
    daemon = fleet.node("n0")
    topics = [f"{ROOT}/state/n0", f"{ROOT}/edge/n0/coordinator"]
    link = MqttLink(fleet.url, "coordinator", username="coordinator", subscriptions=topics, persistent=False)
    link.connect(PATIENCE)
    try:
        deadline, refusals = time.monotonic() + PATIENCE, []
        while not refusals:
            assert time.monotonic() < deadline
            for m in link.poll(0.1):
                if m.topic == topics[0]:
                    plan = hostile(fleet, wire.decode_presence(m.payload).session)
                    link.publish(f"{ROOT}/all/coordinator", plan.payload)
                else:
                    refusals.append(wire.decode_envelope(m.payload, wire.PLAN_LIMIT))
        assert refusals[0].run == plan.run
        assert refusals[0].body == wire.Refuse("n0: variant none runs in simulation only (hushgrid run)", "refused")
    finally:
        link.close()
    assert daemon.end() == 0
    assert fleet.spends("n0") == []
