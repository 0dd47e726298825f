"""An independent recount: who listened to everything counts answers and prices by his own code, and asks the ledgers.

The upper half knows the bytes on the wire and the public plans, by MessagePack and JSON alone, and nothing of hushgrid.
"""

import base64
import time
from contextlib import ExitStack
from typing import Any

import pytest
import yaml

from hushgrid.broker.servers import choose as brokers
from hushgrid.broker.servers.mosquitto import find_mosquitto
from hushgrid.broker.simulation import run
from hushgrid.node.transport.mqtt import MqttLink
from tests.support.daemons.deployed_fleet import PATIENCE, Daemon, Fleet
from tests.support.runs.recount import Recount, agree, zones

# --- simulated fleets, their ledgers kept over runs ---


def data(algorithm: dict[str, Any], privacy: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {
        "hushgrid": 1, "name": "recount",
        "problem": {
            "kind": "logistic", "row_bound": 1.0, "l2": 0.1,
            "data": {"synthetic": {"rows": 120, "features": 3}, "nodes": 4, "normalize": "unit-rows"},
        },
        "network": {"kind": "ring", "nodes": 4},
        "algorithm": algorithm,
        "privacy": {"adjacency": {"replace-one-record": {"clip": 1.0}}, "epsilon": 40.0} | (privacy or {}),
        "run": {"record": "transcript"} | more,
    }  # fmt: skip


ROUNDS = 7
GAUSSIAN = {"mechanism": "gaussian", "epsilon": 3.0, "delta": 1e-5}
RUNS = {
    "zones, objective": [zones({"rounds": 4}, {}), zones({"rounds": 3, "local_updates": 2}, {})],
    "zones, input": [zones({"rounds": r}, {"mode": "input", "epsilon": e}) for r, e in ((3, 5.0), (4, 5.0), (3, 6.0))],
    "zones, gaussian": [zones({"rounds": 3}, GAUSSIAN | {"accountant": a}) for a in ("zcdp", "gdp")],
    "walks": [
        data({"name": "recal", "rounds": 22, "walk": "hamiltonian"}),
        data({"name": "iadmm", "rounds": 9, "rho": 1.0, "walk": [0, 1, 2, 1, 0, 3, 2, 1, 0]}, GAUSSIAN),
    ],
    "a random walk": [data({"name": "recal", "rounds": 40, "walk": "random"}, {"epsilon": e}) for e in (4.0, 5.0)],
    "gradients among neighbours": [
        data({"name": "dgd", "rounds": ROUNDS, "step_size": 1.0}),
        data({"name": "extra", "rounds": ROUNDS, "step_size": 1.0}, GAUSSIAN | {"accountant": "gdp"}),
        data({"name": "nids", "rounds": ROUNDS, "step_size": 1.0}),
        data({"name": "dpp2", "rounds": ROUNDS, "alpha": 1.0, "beta": 0.5, "rho": 0.5}),
    ],
    "minimisers among neighbours": [
        data({"name": name, "rounds": ROUNDS, "eta": 0.5} | more, {"epsilon": 140.0})
        for name, more in (
            ("admm", {}), ("radmm", {"gamma": 0.2}), ("mradmm", {"gamma": 0.2}), ("dpadmm", {"perturb": "primal"}),
            ("dpladmm", {"step": 1.0}), ("madmm", {"theta": 0.3}),
        )
    ],
    "faults": [
        data({"name": name, "rounds": 12} | more, faults={"loss": 0.1, "duplicate": 0.1, "reorder": 0.1, "crash": 0.02})
        for name, more in (("recal", {"walk": "hamiltonian"}), ("dgd", {"step_size": 1.0}))
    ],
}  # fmt: skip


def heard(recount: Recount, scenario: dict[str, Any], **options: Any) -> None:
    result = run(scenario, **options)
    assert result.transcript
    for line in result.transcript:
        recount.hear(line["topic"], base64.b64decode(line["bytes"]))


def assert_counted(recount: Recount, state: Any, runs: int) -> None:
    assert len(recount.plans) == runs
    assert any(recount.prices.values())
    for node, counted in recount.prices.items():
        agree(counted, Fleet.spends_of(state / f"{node}.ledger"))


@pytest.mark.parametrize("runs", RUNS)
def test_an_eavesdropper_counts_what_the_ledgers_count(tmp_path, runs):
    recount = Recount()
    for scenario in RUNS[runs]:
        heard(recount, scenario, state=tmp_path / "state")
    assert_counted(recount, tmp_path / "state", len(RUNS[runs]))


def test_he_counts_the_same_on_a_broker(tmp_path, any_broker):
    recount, scenarios = (
        Recount(),
        [RUNS["zones, objective"][1], RUNS["walks"][0], RUNS["gradients among neighbours"][2]],
    )
    for k, scenario in enumerate(scenarios):
        heard(recount, scenario, transport="mqtt", broker=any_broker.url, state=tmp_path / f"{k > 0}")
    zones_alone, rows_alone = Recount(), Recount()
    for run_id, plan in recount.plans.items():
        part = zones_alone if plan["problem"]["kind"] == "zones" else rows_alone
        part.plans[run_id], part.said = plan, recount.said
    assert_counted(zones_alone, tmp_path / "False", 1)
    assert_counted(rows_alone, tmp_path / "True", 2)


# --- real devices ---


def test_he_counts_what_real_devices_count(tmp_path):
    """deploy's example over three runs: new loads' one answer, the same again for nothing, and at other terms anew."""
    recount = Recount()
    with ExitStack() as stack:
        kind = "mosquitto" if find_mosquitto() else "embedded"
        broker = stack.enter_context(brokers.start(kind, tmp_path / "broker"))
        fleet = Fleet(tmp_path / "deploy", broker.url, stack)
        spy = MqttLink(broker.url, "eavesdropper", subscriptions=["hushgrid/1/demo/#"], persistent=False)
        spy.connect(PATIENCE)
        stack.callback(spy.close)
        nodes = {z: fleet.node(z) for z in ("z1", "z2", "z3")}

        def one_run() -> None:
            coordinator: Daemon = fleet.coordinator("--once")
            deadline = time.monotonic() + PATIENCE
            while coordinator.child.poll() is None and time.monotonic() < deadline:
                listen(0.05)
            assert coordinator.code() == 0, coordinator.said

        def listen(seconds: float) -> None:
            for message in spy.poll(seconds):
                if message.payload:
                    recount.hear(message.topic, message.payload)

        path = fleet.directory / "scenario.yaml"
        scenario = yaml.safe_load(path.read_text())
        for epsilon, rounds in ((5.0, 10), (5.0, 12), (4.0, 8)):
            scenario["privacy"]["epsilon"], scenario["algorithm"]["rounds"] = epsilon, rounds
            path.write_text(yaml.safe_dump(scenario))
            one_run()
        listen(0.5)
        for daemon in nodes.values():
            assert daemon.end() == 0
        assert len(recount.plans) == 3
        for z in nodes:
            assert recount.prices[z] == [5.0, 4.0]
            agree(recount.prices[z], fleet.spends(z))


# --- the recount is not blind ---


@pytest.mark.parametrize("lost", ["a spend", "half a price", "one too many"])
def test_a_ledger_that_counts_otherwise_is_noticed(lost):
    counted = [0.5, 0.5, 0.25]
    ledger = {
        "a spend": [0.5, 0.25], "half a price": [0.5, 0.25, 0.25], "one too many": [0.5, 0.5, 0.25, 0.25],
    }[lost]  # fmt: skip
    agree(counted, [("laplace", value) for value in counted])
    with pytest.raises(AssertionError):
        agree(counted, [("laplace", value) for value in ledger])
