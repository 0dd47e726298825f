"""Real daemons with `trust:` on a broker that anybody may use in any name."""

import json
from contextlib import ExitStack

import pytest

from hushgrid.broker.enrolment.authority import Authority
from tests.support.daemons.deployed_fleet import ZONES, Fleet, until
from tests.support.daemons.deployed_ring import SENSORS, ring, to_the_end
from tests.support.daemons.masked_fleet import masked_fleet
from tests.support.trust.daemons import Liar, members_of, trusted, trusting
from tests.support.trust.lies import CLAIM

pytestmark = pytest.mark.mosquitto


@pytest.mark.parametrize("pattern", ["star", "token", "neighbours"])
def test_a_fleet_that_trusts_no_broker_makes_its_runs(pattern, tmp_path, mosquitto):
    with ExitStack() as stack:
        fleet = trusted(pattern, tmp_path / "fleet", mosquitto.url, stack)
        nodes = [fleet.node(name) for name in members_of(pattern)]
        for _ in range(2):
            coordinator = fleet.coordinator("--once")
            assert coordinator.code() == 0, coordinator.said
        for daemon in nodes:
            daemon.wait_for(" done: ", 2)
            assert "dropped" not in daemon.said
            assert daemon.end() == 0


@pytest.mark.parametrize("pattern", ["star", "token", "neighbours"])
def test_a_liar_at_the_broker_plans_ends_and_alters_nothing(pattern, tmp_path, mosquitto):
    """It tells every lie about every message of two runs, and repeats the first one's in the second."""
    with ExitStack() as stack:
        fleet, names = trusted(pattern, tmp_path / "fleet", mosquitto.url, stack), members_of(pattern)
        nodes = [fleet.node(name) for name in names]
        liar = Liar(mosquitto.url, "demo" if pattern == "star" else "ring", names)
        stack.callback(liar.link.close)
        paid = []
        for _ in range(2):
            coordinator = fleet.coordinator("--once")
            liar.until(lambda coordinator=coordinator: coordinator.child.poll() is not None)
            assert coordinator.code() == 0, coordinator.said
            paid.append([len(fleet.spends(name)) for name in names])
        assert len(liar.lies) > 1000
        once, twice = paid
        assert twice == [2 * answers for answers in once]
        assert all(once)
        for name, daemon in zip(names, nodes, strict=True):
            daemon.wait_for(" done: ", 2)
            assert daemon.said.count("joined run") == 2
            assert daemon.said.count("dropped a message: forged") == 1
            assert daemon.end() == 0
            assert CLAIM.ledger.hex() not in (fleet.state(name) / f"{name}.ledger").read_bytes().hex()
        off = {topic: json.loads(m) for topic, m in liar.statuses.items()}
        assert all(status["forged"] > 0 for topic, status in off.items() if not topic.endswith("coordinator"))


def test_a_liar_at_the_broker_changes_nothing_in_a_run_that_a_standby_takes_over(tmp_path, mosquitto):
    """It repeats each state of the run and alters it, and says that the coordinator is dead while it is not."""
    with ExitStack() as stack:
        fleet, rounds = trusted("star", tmp_path / "fleet", mosquitto.url, stack, 60), 60
        file = fleet.directory / "coordinator.yaml"
        file.write_text(file.read_text() + "standby: 3s\n")
        other = file.read_text().replace("hushgrid/coordinator", "hushgrid/second")
        (fleet.directory / "second.yaml").write_text(other)
        nodes = [fleet.node(z) for z in ZONES]
        liar = Liar(mosquitto.url, "demo", ZONES)
        stack.callback(liar.link.close)
        first = fleet.coordinator()
        standby = fleet.start("coordinator", "second.yaml", "coordinator", "--standby")
        liar.until(lambda: f"round {rounds // 5} of" in first.said)
        first.kill()
        liar.until(lambda: all(" done: " in node.said for node in nodes))
        assert "goes on with run" in standby.said
        assert {z: len(fleet.spends(z)) for z in ZONES} == dict.fromkeys(ZONES, rounds)


def test_the_same_liar_ends_the_run_of_a_fleet_that_trusts_its_broker(tmp_path, mosquitto):
    with ExitStack() as stack:
        fleet = ring(tmp_path / "fleet", mosquitto.url, stack)
        for name in members_of("token"):
            fleet.node(name)
        liar = Liar(mosquitto.url, "ring", members_of("token"))
        stack.callback(liar.link.close)
        coordinator = fleet.coordinator("--once")
        liar.until(lambda: coordinator.child.poll() is not None)
        assert coordinator.code() != 0


def test_intervals_go_on_while_devices_and_the_coordinator_are_killed_and_start_again(tmp_path, mosquitto):
    with ExitStack() as stack:
        fleet = Fleet(tmp_path / "fleet", mosquitto.url, stack)
        trusting(fleet, ZONES)
        fleet.edit("coordinator.yaml", "wait_s: 60 ", "wait_s: 2 ")
        path = fleet.directory / "coordinator.yaml"
        path.write_text(path.read_text() + "run: {every: 4s}\n")
        nodes = {z: fleet.node(z) for z in ZONES}
        coordinator = fleet.coordinator()
        answered(fleet, 2)
        nodes["z2"].kill()
        nodes["z2"] = fleet.node("z2")
        answered(fleet, 4)
        coordinator.kill()
        coordinator = fleet.coordinator()
        answered(fleet, 6)
        assert coordinator.end() == 0
        for daemon in nodes.values():
            assert daemon.end() == 0
            assert "forged" not in daemon.said


def answered(fleet, count):
    """Until so many intervals have an answer."""
    until(fleet, lambda rows: [row["outcome"] for row in rows].count("answer") >= count)


def test_masked_sums_of_a_fleet_that_trusts_no_broker(tmp_path, mosquitto_program):
    with ExitStack() as stack:
        fleet = masked_fleet(tmp_path / "fleet", mosquitto_program, stack)
        trusting(fleet, SENSORS, "ca: ../certs/ca.crt, crl: ../certs/crl.pem")
        authority = Authority.read(tmp_path / "fleet/certs/ca.key", tmp_path / "fleet/certs/ca.crt")
        (tmp_path / "fleet/certs/crl.pem").write_bytes(authority.revoked([]))
        to_the_end(fleet)
