"""Two sites with a mosquitto of their own, bridged to that of the fleet, as `hushgrid fleet init` writes them."""

import json
import re
import time

import pytest

from hushgrid.broker.enrolment.authority import DAY
from hushgrid.broker.enrolment.verify.run import verify
from hushgrid.node.transport.mqtt import MqttLink
from tests.support.daemons.deployed_fleet import PATIENCE, ZONES, Fleet
from tests.support.daemons.deployed_ring import SENSORS, ring
from tests.support.transport.bridged import Bridged, begun, moved
from tests.support.transport.fleet_brokers import started

ZONE_SITES = {"north": ("z1", "z2"), "south": ("z3",)}
RING_SITES = {"north": ("n0", "n1"), "south": ("n2", "n3")}
WALK = (
    "  name: recal\n  rounds: 200                                 # activations: 50 of each sensor\n  walk: "
    "hamiltonian\n"
)
DPP2 = "  name: dpp2\n  alpha: 1.0\n  beta: 0.25\n  rho: 0.1\n  rounds: 20\n"


def one_run(fleet, names):
    """What the coordinator keeps of a run, of devices that are started for it and ended after it."""
    nodes = begun(fleet, names)
    coordinator = fleet.coordinator("--once")
    assert coordinator.code() == 0, coordinator.said
    for node in nodes:
        node.wait_for(" done: ")
        assert node.end() == 0
    return last(fleet)


def last(fleet):
    """Residuals of every round and the cost, of the newest record."""
    file = max((fleet.state("coordinator") / "runs").glob("*.json"), key=lambda file: file.stat().st_mtime_ns)
    record = json.loads(file.read_text())
    return [row["consensus_residual"] for row in record["history"]], record.get("objective"), record.get("prices")


def setpoints(fleet):
    return {z: (fleet.state(z) / f"{z}.setpoints.csv").read_text() for z in ZONES}


def test_a_run_over_two_bridged_sites_has_the_same_bits_as_on_one_broker(tmp_path, stack):
    """Each zone answers once and repeats that, so that the runs differ in their brokers alone."""
    directory, _ = started(tmp_path / "one", "mosquitto", "demo", stack)
    bridged = Bridged(tmp_path / "F", "demo", ZONE_SITES, stack)
    fleet = Fleet(tmp_path / "deploy", directory.broker, stack)
    moved(fleet, directory, ZONES)
    first, points, spends = one_run(fleet, ZONES), setpoints(fleet), {z: fleet.spends(z) for z in ZONES}
    moved(fleet, bridged.directory, ZONES)
    assert one_run(fleet, ZONES) == first
    assert setpoints(fleet) == points
    assert {z: fleet.spends(z) for z in ZONES} == spends


@pytest.mark.parametrize("pattern", ["token", "neighbours"])
def test_neighbours_at_two_sites_reach_each_other_through_the_bridges(pattern, tmp_path, stack):
    bridged = Bridged(tmp_path / "F", "ring", RING_SITES, stack)
    fleet = ring(tmp_path / "deploy", bridged.directory.broker, stack)
    moved(fleet, bridged.directory, SENSORS)
    if pattern == "neighbours":
        fleet.edit("scenario.yaml", WALK, DPP2)
        for name in SENSORS:
            fleet.edit(f"nodes/{name}.yaml", "algorithms: [recal]", "algorithms: [recal, dpp2]")
    one_run(fleet, SENSORS)


def noticed(broker, name):
    """Until the broker has lost this connection."""
    deadline = time.monotonic() + PATIENCE
    while not re.search(f"Client {name} (closed|has exceeded|disconnected)", broker.log.read_text()):
        assert time.monotonic() < deadline, broker.log.read_text()
        time.sleep(0.02)


@pytest.mark.parametrize("how", ["cut", pytest.param("silence", marks=pytest.mark.long)])
def test_a_site_that_is_cut_off_comes_back_into_the_run(how, tmp_path, stack):
    """Every round is paid for, and each once. In silence both ends have to notice it: one and a half keepalives."""
    rounds = 120
    bridged = Bridged(tmp_path / "F", "demo", ZONE_SITES, stack)
    fleet = Fleet(tmp_path / "deploy", bridged.directory.broker, stack)
    moved(fleet, bridged.directory, ZONES)
    fleet.gradients(rounds)
    fleet.edit("coordinator.yaml", "silent_s: 10 ", "silent_s: 60 ")
    nodes = begun(fleet, ZONES)
    coordinator = fleet.coordinator("--once")
    coordinator.wait_for("round 24 of")
    getattr(bridged.lines, how)("north")
    noticed(bridged.above, "north")
    before = {z: len(fleet.spends(z)) for z in ZONES}
    bridged.lines.mend("north")
    assert coordinator.code() == 0, coordinator.said
    for node in nodes:
        node.wait_for(" done: ")
    assert all(before[z] < rounds for z in ZONES)
    assert {z: len(fleet.spends(z)) for z in ZONES} == dict.fromkeys(ZONES, rounds)


def test_the_bridge_of_a_site_may_say_what_its_devices_may_say_and_nothing_else(tmp_path, stack):
    """Every topic is tried as every identity; then one forgery by hand, under the eyes of the coordinator's name."""
    bridged = Bridged(tmp_path / "F", "ring", RING_SITES, stack)
    directory = bridged.directory
    for name in bridged.sites:
        bridged.lines.cut(name)
    brokers = directory.brokers()
    authority = directory.authority()
    verdict = verify(brokers["broker"].access, authority, directory.broker, "mosquitto", interrupt=True)
    assert (verdict.code, verdict.forbidden, verdict.lacking) == (0, [], [])
    verdict = verify(brokers["north"].access, authority, brokers["north"].urls, "mosquitto", interrupt=True)
    assert (verdict.code, verdict.forbidden, verdict.lacking) == (0, [], [])


def test_a_site_cannot_forge_what_a_device_of_another_site_says(tmp_path, stack):
    bridged = Bridged(tmp_path / "F", "demo", ZONE_SITES, stack)
    bridged.lines.cut("north")
    authority, edge = bridged.directory.authority(), "hushgrid/1/demo/edge/{}/coordinator"
    (tmp_path / "certs").mkdir()

    def link(name, *topics):
        tls = authority.passing(name, tmp_path / "certs", DAY)
        made = MqttLink(bridged.directory.broker, name, tls=tls, subscriptions=topics, persistent=False)
        stack.callback(made.close)
        made.connect(PATIENCE)
        return made

    reader, forger = link("coordinator", edge.format("+")), link("north")
    for device in ("z3", "z1"):
        forger.publish(edge.format(device), b"forged")
    seen = []
    while not seen:
        forger.poll(0.05)
        seen = [message.topic for message in reader.poll(0.05)]
    assert seen == [edge.format("z1")]  # in order: what came before it was dropped
    assert [topic for topic, _ in forger.refused] == [edge.format("z3")]
