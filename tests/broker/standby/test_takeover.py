"""The coordinator dies before any delivery of a run: another one with a ledger of its own goes on with it from what
stands on the topic of the standby. The same bits, and nothing is paid twice.
"""

from contextlib import closing

import pytest

from hushgrid.broker.coordinator import run_history
from hushgrid.broker.standby.replica import (
    Noted,
    Replica,
    Replicated,
    decode,
    decode_notes,
    notes_topic,
    restore,
    topic,
)
from hushgrid.broker.standby.takeover import Claim
from hushgrid.kernels.machine import Malformed
from hushgrid.node import wire
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.runtime.driver import Stored
from hushgrid.node.wire import COORDINATOR, Finish, Instance, Plan
from tests.support.devices.zone_fleet import World, setup

pytestmark = pytest.mark.runs
TOPIC = topic("world")
ROUNDS = 3


class Seated(Replicated):
    """The coordinator in its place at the broker in memory."""

    def __getattr__(self, name):
        return getattr(self.endpoint, name)


class Watched(World):
    """A fleet whose coordinator has a standby."""

    def coordinator(self, ledger):
        made = super().coordinator(ledger)
        seated = Seated(made, "world", lambda: made.ending, lambda: False)
        made.observe = seated.observe
        if made.driver is not None:
            seated.observe(made.driver, True)
        return seated

    def take_over(self, lost, file="second.ledger"):
        """The coordinator dies, with the messages that are `lost`; another goes on, with a disk of its own."""
        self.hub.queue[:] = [one for one in self.hub.queue if not lost(one)]
        before = Instance(self.ledgers[COORDINATOR].id, 1, 0.0)
        self.ledgers[COORDINATOR].close()
        ledger = Ledger(self.directory / file, COORDINATOR)
        payload = self.hub.retained.get(TOPIC)
        restore(ledger, decode(payload) if payload else None, before)
        self.ledgers[COORDINATOR] = ledger
        self.hub.endpoints[COORDINATOR] = self.coordinator(ledger)
        self.hub._connect(COORDINATOR)


def members(world):
    return {name: value for name, value in world.final.items() if name != COORDINATOR}


def deliveries(directory):
    """How many there are in an undisturbed run, and what its members have in the end."""
    world, count = Watched(directory, setup(ROUNDS)), 0

    def one_more(_):
        nonlocal count
        count += 1

    world.run(one_more)
    world.close()
    return count, members(world)


LOST = {
    "nothing": lambda one: False,
    "what it was told": lambda one: one.dst == COORDINATOR,
    "what it has said": lambda one: one.dst != COORDINATOR,
    "everything": lambda one: True,
}


@pytest.mark.parametrize("lost", LOST.values(), ids=LOST)
def test_a_coordinator_that_dies_before_any_delivery_is_replaced_and_nothing_is_paid_twice(tmp_path, lost):
    (tmp_path / "undisturbed").mkdir()
    count, expected = deliveries(tmp_path / "undisturbed")
    assert count > 6 * ROUNDS
    for moment in range(count - 1):
        directory = tmp_path / str(moment)
        directory.mkdir()
        world, now = Watched(directory, setup(ROUNDS)), 0

        def die(world, moment=moment):
            nonlocal now
            if now == moment:
                world.take_over(lost)
            now += 1

        world.run(die)
        world.close()
        assert members(world) == expected, moment


@pytest.mark.parametrize("later", [2, 9, 16])
def test_the_first_comes_back_with_its_old_ledger_and_goes_on_where_the_second_was(tmp_path, later):
    (tmp_path / "undisturbed").mkdir()
    count, expected = deliveries(tmp_path / "undisturbed")
    for moment in range(0, count - 1 - later, 3):
        directory = tmp_path / str(moment)
        directory.mkdir()
        world, now = Watched(directory, setup(ROUNDS)), 0

        def die(world, moment=moment):
            nonlocal now
            if now == moment:
                world.take_over(LOST["nothing"])
            if now == moment + later:
                world.take_over(LOST["everything"], f"{COORDINATOR}.ledger")
            now += 1

        world.run(die)
        world.close()
        assert members(world) == expected, moment


def test_a_run_of_ones_own_that_another_has_ended_is_over(tmp_path):
    another, ended = Instance(b"b" * 16, 1, 200.0), b"r" * 16
    with closing(Ledger(tmp_path / "first.ledger", COORDINATOR)) as ledger:
        ledger.join(ended, b"plan")
        restore(ledger, None, None)
        restore(ledger, None, Instance(ledger.id, 7, 100.0))
        assert ledger.runs.running() == ended
        restore(ledger, None, another)
        assert ledger.runs.running() == b""


def test_the_topic_says_how_the_run_has_ended_before_a_member_hears_it(tmp_path):
    world, seen = Watched(tmp_path, setup(ROUNDS)), []
    publish = world.hub.publish

    def listen(publications):
        seen.extend(publications)
        publish(publications)

    world.hub.publish = listen
    world.run()
    farewells = [n for n, one in enumerate(seen) if one.topic == TOPIC and decode(one.payload).last]
    told = [n for n, one in enumerate(seen) if one.topic.startswith("hushgrid/1/world/edge/coordinator/z")]
    assert farewells[0] < told[-1]
    (over,) = world[COORDINATOR].concluded()
    assert decode(over.payload).status == "done"
    with closing(Ledger(tmp_path / "other.ledger", COORDINATOR)) as other:
        restore(other, decode(over.payload), None)
        assert other.runs.under_way() is None
        assert run_history.farewell_to(other, world.centre.run) == decode(over.payload).last
    world.close()


def test_a_run_that_is_over_in_both_ledgers_ends_no_run_that_has_begun_since(tmp_path):
    world = Watched(tmp_path, setup(ROUNDS))
    world.run()
    (over,) = world[COORDINATOR].concluded()
    ledger, begun = world.ledgers[COORDINATOR], b"r" * 16
    ledger.join(begun, b"plan")
    restore(ledger, decode(over.payload), Instance(ledger.id, 7, 100.0))
    assert ledger.runs.running() == begun
    restore(ledger, decode(over.payload), Instance(b"b" * 16, 1, 200.0))
    assert ledger.runs.running() == b""
    world.close()


def test_the_topic_has_the_state_before_a_member_has_what_is_sent_after_it(tmp_path):
    world, seen = Watched(tmp_path, setup(ROUNDS)), []
    publish = world.hub.publish

    def listen(publications):
        seen.extend(publications)
        publish(publications)

    world.hub.publish = listen
    world.run()
    world.close()
    states = [n for n, one in enumerate(seen) if one.topic == TOPIC]
    asked = [n for n, one in enumerate(seen) if one.topic.startswith("hushgrid/1/world/edge/coordinator/z")]
    assert len(states) >= ROUNDS
    assert states[0] < asked[0]


def test_what_is_no_replica_is_refused():
    plan = wire.encode(Plan(b"plan", b"nonce", {"z1": 1}, {}))
    state = wire.encode(Stored(b"", None, {}, (0, 0), (0, 0)))
    run = wire.run_id(b"plan", b"nonce", {"z1": 1})
    assert decode(wire.encode(Replica(run, plan, state))).run == run
    farewell = wire.encode(wire.Envelope(b"r" * 16, 0, 0, None, Finish("done", "", "")))
    planted = [
        Replica(b"r" * 16, plan, state),
        Replica(run, b"plan", state),
        Replica(run, plan, b"state"),
        Replica(run, plan, state, "done", b"no message"),
        Replica(run, plan, state, "done", farewell),  # another run's
    ]
    for payload in (b"", b"x", b"\x81\xa3run\x01", *map(wire.encode, planted)):
        with pytest.raises(Malformed, match="no replica"):
            decode(payload)


def test_an_older_replica_that_another_server_still_retains_says_nothing():
    """RabbitMQ retains on one server: at the next one stands what was said there before."""
    plan = wire.encode(Plan(b"plan", b"nonce", {"z1": 1}, {}))
    run = wire.run_id(b"plan", b"nonce", {"z1": 1})
    state = wire.encode(Stored(b"", None, {}, (0, 0), (0, 0)))
    early, late = (wire.encode(Replica(run, plan, state, began, no)) for began, no in ((100.0, 7), (200.0, 1)))
    claim = Claim("world", Instance(b"b" * 16, 1, 300.0), print)
    for payload in (late, early):
        claim.on_message(TOPIC, payload)
    assert claim.replica == decode(late)
    first, second = (wire.encode(Noted({"schedule": note}, 200.0, no)) for note, no in ((b"1", 2), (b"2", 3)))
    for payload in (second, first, b"no notes"):
        claim.on_message(notes_topic("world"), payload)
    assert claim.noted == decode_notes(second)
