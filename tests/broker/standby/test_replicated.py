"""A coordinator with a standby that connects again says nothing before it knows that nobody has replaced it."""

from types import SimpleNamespace

import pytest

from hushgrid.broker.standby.replica import QUIET_S, Replicated
from hushgrid.node.runtime.endpoint import Clock
from hushgrid.node.wire import COORDINATOR, Publication, Topics

TOPICS = Topics("demo")
OWN, MEMBER, EDGE = TOPICS.state(COORDINATOR), TOPICS.state("z1"), TOPICS.edge("z1", COORDINATOR)
STATE = Publication(OWN, b"it is there", True)


class Coordinator:
    """It greets with its state and answers each message of a member. A word of another one ends it."""

    subscriptions = (OWN, MEMBER, EDGE)
    due, patient, instance, log = 0.25, False, None, print

    def __init__(self):
        self.clock, self.ledger, self.replaced = Clock(), SimpleNamespace(note=lambda key: None), False

    def connected(self):
        return [STATE]

    def on_message(self, topic, payload):
        self.replaced = self.replaced or payload == b"another one"
        return [] if topic == OWN else [Publication(TOPICS.edge(COORDINATOR, "z1"), payload, False)]

    def on_tick(self, now):
        return [Publication(TOPICS.edge(COORDINATOR, "z1"), b"a step, again", False)]


@pytest.fixture
def again():
    """One that has been connected, and is connected again."""
    coordinator = Coordinator()
    served = Replicated(coordinator, "demo", lambda: False, lambda: coordinator.replaced)
    assert served.connected() == [STATE]
    assert served.connected() == []
    return served


def test_what_the_broker_retains_of_itself_lets_it_go_on_with_the_births_that_came_before(again):
    assert again.on_message(MEMBER, b"birth") == []
    assert again.on_message(EDGE, b"an answer") == []  # its sender sends it again
    assert again.on_message(OWN, b"of itself") == [STATE, Publication(TOPICS.edge(COORDINATOR, "z1"), b"birth", False)]
    assert again.on_message(EDGE, b"an answer") == [Publication(TOPICS.edge(COORDINATOR, "z1"), b"an answer", False)]


def test_what_it_retains_of_a_later_one_ends_it_without_a_word(again):
    assert again.on_message(OWN, b"another one") == []
    assert again.on_tick(100.0) == []
    assert again.on_message(EDGE, b"an answer") == []
    assert again.concluded() == []


def test_a_broker_that_has_lost_what_it_retained_delays_it_for_a_moment(again):
    assert again.due == QUIET_S
    assert again.on_tick(QUIET_S - 0.01) == []
    assert again.on_tick(QUIET_S) == [STATE]
    assert again.due == Coordinator.due
