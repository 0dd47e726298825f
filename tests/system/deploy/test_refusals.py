"""What a real device and the coordinator of real devices refuse of simulation."""

import subprocess
import time
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from hushgrid.node.config.scenario import load_scenario
from hushgrid.node.transport.mqtt import MqttLink
from hushgrid.node.wire import Birth, decode_presence
from tests.support.daemons.deployed_fleet import HUSHGRID, PATIENCE, ROOT, ZONES, Fleet

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
    fleet.gradients(100)
    fleet.edit("scenario.yaml", old, new)
    config = str(fleet.directory / "coordinator.yaml")
    done = subprocess.run(
        [*HUSHGRID, "coordinator", config, "--once"], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def _hostile_plan(fleet: Fleet, birth: Birth, variant: str) -> SimpleNamespace:
    """A run of this variant, as a coordinator would announce it that does not keep the rules."""
    from hushgrid.node import wire
    from hushgrid.node.config.planning import make_plan
    from hushgrid.node.problems.plan import encode_plan

    scenario = load_scenario(
        fleet.directory / "scenario.yaml",
        {"algorithm.name": "ladmm", "privacy.mode": "objective", "algorithm.variant": variant}
        if variant == "published"
        else {"algorithm.variant": variant},
        ["privacy=null"] if variant == "none" else [],
    )
    blob, nonce = encode_plan(make_plan(scenario, scenario.kind.public(scenario, "scenario"))), bytes(16)
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
