"""What simulated brokers do beside delivering: elections, bridges, sessions that are lost."""

import pytest

from hushgrid.lab.simulate.network import Broker
from hushgrid.lab.simulate.world import World

TOPIC = "hushgrid/1/f/state/n0"


@pytest.fixture
def world():
    return World(1)


@pytest.fixture
def broker(world):
    return Broker(world, lambda *message: None)


def test_an_election_takes_back_what_was_retained_last_and_nothing_older(world, broker):
    broker.publish("n0", TOPIC, b"old", True)
    world.run(10.0)
    broker.publish("n0", TOPIC, b"new", True)
    broker.publish("n1", TOPIC.replace("n0", "n1"), b"new", True)
    broker.elect(0.5)
    assert broker.retained == {TOPIC: b"old"}
    assert not broker.up


def test_a_broker_that_loses_its_sessions_keeps_what_is_retained(broker):
    broker.publish("n0", TOPIC, b"here", True)
    broker.forget_sessions()
    assert (broker.sessions, broker.retained) == ({}, {TOPIC: b"here"})


def test_a_bridge_ends(world, broker):
    broker.bridge(["n0", "n1"], 0.1, 5.0)
    world.run(4.0)
    assert set(broker.bridged) == {"n0", "n1"}
    world.run(6.0)
    assert not broker.bridged
