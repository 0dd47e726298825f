"""The access lists of deploy/ are enough for every pattern, with real daemons; what a list forgets is said on both
sides.
"""

from contextlib import ExitStack

import pytest

from tests.support.daemons.deployed_fleet import ZONES, Fleet, finishes_a_run, tried
from tests.support.daemons.deployed_ring import ROOT, SENSORS, ring

pytestmark = pytest.mark.mosquitto

#: Of the example's scenario: rounds among neighbours in the place of the walk.
WALK = (
    "  name: recal\n  rounds: 200                                 # activations: 50 of each sensor\n  walk: "
    "hamiltonian\n"
)
DPP2 = "  name: dpp2\n  alpha: 1.0\n  beta: 0.25\n  rho: 0.1\n  rounds: {rounds}\n"


@pytest.fixture
def at_broker(tmp_path, mosquitto_program):
    """at_broker(make): a fleet on the broker of mosquitto-try.conf, under its own access list, once `edit` has changed
    it.
    """
    with ExitStack() as stack:

        def start(make, edit=lambda fleet: None):
            return tried(tmp_path / "fleet", mosquitto_program, stack, edit, make)

        yield start


def neighbours(fleet, rounds=100):
    """The ring's sensors, in rounds among neighbours."""
    fleet.edit("scenario.yaml", WALK, DPP2.format(rounds=rounds))
    for name in SENSORS:
        fleet.edit(f"nodes/{name}.yaml", "algorithms: [recal]", "algorithms: [recal, dpp2]")


def said(nodes, words):
    return [name for name, daemon in nodes.items() if words in daemon.said]


@pytest.mark.parametrize("pattern", ["star", "token", "neighbours"])
def test_under_its_access_list_the_example_runs_by_every_pattern_and_nothing_is_refused(pattern, at_broker):
    make = Fleet if pattern == "star" else ring
    fleet = at_broker(make, neighbours if pattern == "neighbours" else lambda fleet: None)
    nodes = {name: fleet.node(name) for name in (ZONES if pattern == "star" else SENSORS)}
    finishes_a_run(fleet, list(nodes.values()))
    assert said(nodes, "refuses") == said(nodes, "access list") == []


def lacking(fleet, line):
    neighbours(fleet, rounds=12)
    text = (fleet.directory / "acl").read_text()
    head, tail = text.split(f"user {line[0]}\n")
    (fleet.directory / "acl").write_text(f"{head}user {line[0]}\n{tail.replace(line[1], '', 1)}")


def test_a_broadcast_that_the_list_forbids_is_said_by_its_device_and_by_the_coordinator(at_broker):
    topic = f"{ROOT}/all/n2"
    fleet = at_broker(ring, lambda fleet: lacking(fleet, ("n2", f"topic write {topic}\n")))
    nodes = {name: fleet.node(name) for name in SENSORS}
    coordinator = fleet.coordinator("--once")
    coordinator.wait_for(f"coordinator: n2 cannot publish: does the access list allow {topic}?")
    nodes["n2"].wait_for(f"n2: the broker refuses {topic}: Not authorized")
    assert coordinator.said.count("n2 cannot publish") == 1


def test_a_broadcast_that_a_neighbour_may_not_hear_is_said_by_that_neighbour_and_by_the_coordinator(at_broker):
    """The broker takes the subscription and delivers nothing: the neighbour notices that it must ask for every
    message.
    """
    topic = f"{ROOT}/all/n2"
    fleet = at_broker(ring, lambda fleet: lacking(fleet, ("n3", f"topic read {topic}\n")))
    nodes = {name: fleet.node(name) for name in SENSORS}
    coordinator = fleet.coordinator("--once")
    coordinator.wait_for(f"coordinator: n3 lacks messages of n2: does the access list allow {topic}?")
    nodes["n3"].wait_for(f"n3: n2 is heard on request alone: does the access list allow {topic}?")
    assert coordinator.said.count("lacks messages") == 1
    assert said(nodes, "on request alone") == ["n3"]
