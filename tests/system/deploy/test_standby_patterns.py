"""A standby takes over in the rounds of every pattern, and between the runs of a schedule: nothing is paid twice."""

import re
import signal
import time

import pytest

from tests.support.daemons.deployed_fleet import ZONES
from tests.support.daemons.deployed_ring import SENSORS
from tests.support.daemons.masked_fleet import ROUNDS as MASKED
from tests.support.daemons.masked_fleet import SCENARIO, masked_fleet
from tests.support.daemons.standby_fleet import ROUNDS, objective, second, standby_fleet
from tests.support.paths import DEPLOY
from tests.support.transport.killed_intervals import COUNT

RING = (DEPLOY / "ring" / "scenario.yaml").read_text()
WALK = (
    "  name: recal\n  rounds: 200                                 # activations: 50 of each sensor\n  walk: "
    "hamiltonian\n"
)
DPP2 = "  name: dpp2\n  alpha: 1.0\n  beta: 0.25\n  rho: 0.1\n  rounds: 600\n"
#: Scenario, algorithm, and how many answers each sensor gives.
PATTERNS = {
    "masked": (SCENARIO.replace(f"rounds: {MASKED}", "rounds: 60"), "fedavg", 60),
    "token": (RING.replace("rounds: 200 ", "rounds: 1200 "), "recal", 300),
    "neighbours": (RING.replace(WALK, DPP2), "dpp2", 600),
}


@pytest.fixture
def fleet(tmp_path, mosquitto_program, stack):
    return standby_fleet(tmp_path, mosquitto_program, stack)


@pytest.fixture
def sensors(request, tmp_path, mosquitto_program, stack):
    """The ring in one pattern, with a standby."""
    scenario, algorithm, _ = PATTERNS[request.param]
    made = masked_fleet(tmp_path / "fleet", mosquitto_program, stack, scenario=scenario, more=("standby",))
    for name in SENSORS:
        made.edit(f"nodes/{name}.yaml", "algorithms: [fedavg, sum]", f"algorithms: [{algorithm}]")
    file = made.directory / "coordinator.yaml"
    file.write_text(file.read_text() + "standby: 3s\n")
    (made.directory / "second.yaml").write_text(file.read_text().replace("hushgrid/coordinator", "hushgrid/second"))
    made.answers = PATTERNS[request.param][2]
    return made


@pytest.mark.parametrize("sensors", PATTERNS, indirect=True)
def test_the_standby_goes_on_with_a_run_of_every_pattern(sensors):
    first = sensors.coordinator()
    standby = sensors.start("coordinator", "second.yaml", "", "--standby")
    standby.wait_for("the coordinator is there")
    nodes = [sensors.node(name) for name in SENSORS]
    first.wait_for(": round ")
    first.kill()
    standby.wait_for("goes on with run")
    standby.wait_for("the next run:")
    for node in nodes:
        node.wait_for(" done: ")
    assert {name: len(sensors.spends(name)) for name in SENSORS} == dict.fromkeys(SENSORS, sensors.answers)


@pytest.mark.long
def test_a_coordinator_that_is_stopped_behind_a_live_connection_is_dead_by_its_silence(fleet):
    """No last will comes: the connection stands, and its keepalive is a minute."""
    objective(fleet)
    nodes = [fleet.node(z) for z in ZONES]
    first = fleet.coordinator()
    standby = second(fleet, "--standby")
    standby.wait_for("the coordinator is there")
    first.wait_for(f"round {ROUNDS // 5} of")
    first.child.send_signal(signal.SIGSTOP)
    standby.wait_for("says nothing")
    standby.wait_for("goes on with run")
    first.child.send_signal(signal.SIGCONT)
    assert first.code() == 3
    standby.wait_for("the next run:")
    for node in nodes:
        node.wait_for(" done: ")
    for z in ZONES:
        assert len(fleet.spends(z)) == ROUNDS


def test_a_run_that_is_over_is_not_made_again_by_who_takes_over(fleet):
    objective(fleet)
    for z in ZONES:
        fleet.node(z)
    first = fleet.coordinator()
    first.wait_for("the next run:")
    before = {z: len(fleet.spends(z)) for z in ZONES}
    first.kill()
    standby = second(fleet, "--standby")
    standby.wait_for("the last run is over; the next run:")
    assert "asked to join" not in standby.said
    assert {z: len(fleet.spends(z)) for z in ZONES} == before
    standby.child.send_signal(signal.SIGUSR1)
    standby.wait_for("asked to join")


def test_the_coordinator_is_killed_in_every_interval_and_the_other_goes_on_with_it_and_with_the_beat(fleet):
    """Each interval is answered once, whoever answers it: every zone pays for its rounds once.

    As many as HUSHGRID_INTERVALS says.
    """
    objective(fleet)
    for z in ZONES:
        fleet.edit(f"nodes/{z}.yaml", "  epsilon: 20.0", f"  epsilon: {100 * COUNT}.0")
    path = fleet.path / "coordinator.yaml"
    text = path.read_text().replace("standby: 8s", "standby: 3s")
    path.write_text(re.sub("^wait_s: .*$", "wait_s: 10", text, flags=re.M) + "run: {every: 20s}\n")
    for z in ZONES:
        fleet.node(z)
    acting, waiting = fleet.coordinator(), second(fleet, "--standby")
    midway = f"round {ROUNDS // 5} of"
    for number in range(1, COUNT + 1):
        earlier = acting.said.count(midway)  # it may have said so of the interval that it has taken over
        waiting.wait_for("the coordinator is there")
        acting.wait_for(midway, earlier + 1)
        acting.kill()
        died = time.monotonic()
        waiting.wait_for("goes on with run")
        waiting.wait_for(f"interval {number}: answer")
        print(f"interval {number}: death to answer {time.monotonic() - died:.1f} s", flush=True)
        assert {z: len(fleet.spends(z)) for z in ZONES} == dict.fromkeys(ZONES, ROUNDS * number)
        acting, waiting = waiting, (second(fleet, "--standby") if number % 2 == 0 else fleet.coordinator("--standby"))
    assert acting.end() == 0


def test_between_intervals_each_takes_the_place_of_the_other_and_nobody_is_asked_before_the_next_is_due(fleet):
    objective(fleet)
    for z in ZONES:
        fleet.edit(f"nodes/{z}.yaml", "  epsilon: 20.0", "  epsilon: 200.0")
    path = fleet.path / "coordinator.yaml"
    path.write_text(path.read_text().replace("standby: 8s", "standby: 3s") + "run: {every: 1h}\n")
    for z in ZONES:
        fleet.node(z)
    first, standby = fleet.coordinator(), second(fleet, "--standby")
    first.wait_for("interval 1: answer")
    standby.wait_for("the coordinator is there")
    first.kill()
    standby.wait_for("takes over\n")
    third = fleet.coordinator("--standby")
    third.wait_for("the coordinator is there")
    standby.kill()
    third.wait_for("takes over\n")
    third.child.send_signal(signal.SIGUSR1)
    third.wait_for("interval 2: answer")
    assert "asked to join" not in standby.said
    assert {z: len(fleet.spends(z)) for z in ZONES} == dict.fromkeys(ZONES, 2 * ROUNDS)
