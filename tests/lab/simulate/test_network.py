"""The broker of a simulation: in order unless it is told otherwise; retained messages; last wills."""

import pytest

from hushgrid.lab.simulate.machine import Machine
from hushgrid.lab.simulate.network import Broker, SimulatedLink, Weather, matches
from hushgrid.lab.simulate.world import World
from hushgrid.node import system
from hushgrid.node.transport.link import Party


class Fleet:
    """Two parties that only listen: what each has heard, in order."""

    def __init__(self, tmp_path):
        self.world, self.received, self.links = World(3), {"a": [], "b": []}, {}
        self.broker = Broker(self.world, lambda *facts: None)
        for name in ("a", "b"):
            machine = Machine(self.world, name, tmp_path / name, lambda signals, name=name: self.main(name))
            self.world.schedule(0.0, machine.boot)
        self.world.run(1.0)

    def main(self, name):
        party = Party(name, (f"news/{name}", b"gone"), ("news/#",))
        link = self.links[name] = SimulatedLink(self.broker, party)
        poller = system.machine.poller()
        link.open()
        poller.register(link.fileno(), 1)
        while True:
            self.received[name] += [message.payload for message in link.turn(True)]
            poller.poll(1000.0)

    def publish(self, number, retain=False):
        self.broker.publish("c", "news/c", b"%d" % number, retain)


@pytest.fixture
def fleet(tmp_path):
    return Fleet(tmp_path)


def test_without_faults_all_messages_come_once_and_in_order(fleet):
    for number in range(50):
        fleet.publish(number)
    fleet.world.run(10.0)
    assert fleet.received["a"] == fleet.received["b"] == [b"%d" % number for number in range(50)]


def test_in_bad_weather_messages_are_lost_doubled_and_overtaken_and_counted(fleet):
    fleet.broker.weather = Weather(loss=0.2, double=0.2, overtake=0.5)
    for number in range(200):
        fleet.publish(number)
    fleet.world.run(10.0)
    received, counts = fleet.received["a"], fleet.broker.counts
    assert received != sorted(received, key=int)
    assert len(fleet.received["a"] + fleet.received["b"]) == 400 - counts["lost"] + counts["doubled"]
    assert min(counts["lost"], counts["doubled"], counts["overtaken"]) > 20


def test_who_comes_late_hears_what_is_retained(fleet):
    fleet.publish(7, retain=True)
    fleet.links["a"].follow(())
    fleet.links["a"].follow(("news/#",))
    fleet.world.run(10.0)
    assert fleet.received["a"] == [b"7", b"7"]


def test_the_will_of_a_process_that_was_killed_is_published(fleet):
    next(iter(fleet.links.values())).machine.kill()
    fleet.world.run(2.0)
    assert fleet.received["b"] == [b"gone"]


def test_a_connection_behind_a_cut_of_power_is_dead_after_its_keepalive(fleet):
    link = fleet.links["a"]
    link.machine.cut(None)
    fleet.world.run(1.0 + 1.4 * link.party.keepalive)
    assert fleet.received["b"] == []
    fleet.world.run(2.0 + 1.6 * link.party.keepalive)
    assert fleet.received["b"] == [b"gone"]


@pytest.mark.parametrize(
    ("pattern", "topic", "yes"),
    [("a/+", "a/b", True), ("a/+", "a/b/c", False), ("a/#", "a/b/c", True), ("a", "a/b", False)],
)
def test_subscriptions_match_as_in_mqtt(pattern, topic, yes):
    assert matches(pattern, topic) is yes
