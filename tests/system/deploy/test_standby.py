"""A coordinator that stands by: the first is killed in its rounds, the other goes on with the run; nothing is paid
twice. And a hand-over by command, in which the first ends.
"""

import pytest

from tests.support.daemons.deployed_fleet import ZONES
from tests.support.daemons.standby_fleet import ROUNDS, objective, second, standby_fleet, stopped, trusting


@pytest.fixture
def fleet(tmp_path, mosquitto_program, stack):
    return standby_fleet(tmp_path, mosquitto_program, stack)


@pytest.fixture(params=["the broker is trusted", "it is not"])
def any_fleet(request, fleet):
    if request.param == "it is not":
        trusting(fleet)
    return fleet


def test_the_standby_takes_over_in_the_rounds_and_nothing_is_paid_twice(any_fleet):
    objective(any_fleet)
    nodes = [any_fleet.node(z) for z in ZONES]
    first = any_fleet.coordinator()
    first.wait_for("waits for")
    standby = second(any_fleet, "--standby")
    standby.wait_for("the coordinator is there")
    first.wait_for(f"round {ROUNDS // 5} of")
    first.kill()
    standby.wait_for("takes over in 8 s")
    standby.wait_for("goes on with run")
    standby.wait_for("the next run:")
    for node in nodes:
        node.wait_for(" done: ")
    for z in ZONES:
        assert len(any_fleet.spends(z)) == ROUNDS
    assert standby.end() == 0


def test_the_first_comes_back_in_the_rounds_and_takes_the_run_as_the_standby_has_it(any_fleet):
    objective(any_fleet)
    nodes = [any_fleet.node(z) for z in ZONES]
    first = any_fleet.coordinator()
    first.wait_for(f"round {ROUNDS // 10} of")
    with stopped(nodes[0]):
        standby = second(any_fleet, "--standby")
        standby.wait_for("the coordinator is there")
    first.wait_for(f"round {ROUNDS // 5} of")
    first.kill()
    standby.wait_for("goes on with run")
    standby.wait_for(f"round {ROUNDS // 2} of")
    with stopped(nodes[0]):
        again = any_fleet.coordinator()
        again.wait_for("goes on with run")
        assert standby.code() == 3
    again.wait_for("the next run:")
    for node in nodes:
        node.wait_for(" done: ")
    for z in ZONES:
        assert len(any_fleet.spends(z)) == ROUNDS
    assert again.end() == 0


def test_a_standby_that_starts_after_the_death_takes_over(any_fleet):
    objective(any_fleet)
    nodes = [any_fleet.node(z) for z in ZONES]
    first = any_fleet.coordinator()
    first.wait_for(f"round {ROUNDS // 5} of")
    first.kill()
    standby = second(any_fleet, "--standby")
    standby.wait_for("goes on with run")
    for node in nodes:
        node.wait_for(" done: ")
    for z in ZONES:
        assert len(any_fleet.spends(z)) == ROUNDS
    assert standby.end() == 0


def test_a_hand_over_ends_the_first_with_one_line(any_fleet):
    objective(any_fleet)
    nodes = [any_fleet.node(z) for z in ZONES]
    first = any_fleet.coordinator()
    first.wait_for(f"round {ROUNDS // 5} of")
    with stopped(nodes[0]):
        other = second(any_fleet, "--hand-over")
        assert first.code() == 3
    assert len([line for line in first.said.splitlines() if "another one" in line]) == 1, first.said
    other.wait_for("the next run:")
    for node in nodes:
        node.wait_for(" done: ")
    for z in ZONES:
        assert len(any_fleet.spends(z)) == ROUNDS
    assert other.end() == 0


def test_a_hand_over_between_two_runs_ends_the_first_with_one_line(any_fleet):
    objective(any_fleet)
    for z in ZONES:
        any_fleet.node(z)
    first = any_fleet.coordinator()
    first.wait_for("the next run:")
    other = second(any_fleet, "--hand-over")
    assert first.code() == 3
    assert len([line for line in first.said.splitlines() if "another one" in line]) == 1, first.said
    other.wait_for("the last run is over")
    assert other.end() == 0


def test_a_coordinator_that_comes_back_in_time_is_left_alone(fleet):
    for z in ZONES:
        fleet.node(z)
    first = fleet.coordinator()
    first.wait_for("the next run:")
    standby = second(fleet, "--standby")
    standby.wait_for("the coordinator is there")
    first.kill()
    standby.wait_for("takes over in 8 s")
    again = fleet.coordinator()
    standby.wait_for("the coordinator is there", 2)
    again.wait_for("the next run:")
    assert "takes over\n" not in standby.said
    assert standby.end() == 0
    assert again.end() == 0
