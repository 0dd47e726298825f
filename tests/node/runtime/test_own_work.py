"""What an endpoint sends again: nothing because of its own work, and nothing that was sent a moment ago.

A fleet in good health sends nothing twice; it did in every interval, and its log said that messages were dropped.
"""

import pytest

from hushgrid.node import wire
from hushgrid.node.runtime.endpoint import RETRY_S, Clock
from tests.support.devices.zone_fleet import World, setup


def test_the_time_of_ones_own_work_is_nobodys_silence():
    clock = Clock()
    clock.time_at(100.0, True)
    clock.worked(2.0)  # it computes from 100 to 102, and hears nothing
    assert clock.time_at(102.1, True) == pytest.approx(0.1)
    assert clock.time_at(102.6, True) == pytest.approx(0.6)


def delivered(world, publications, to=None):
    """Delivers these, and all that they lead to; messages to others than `to` (absent: nobody is left out) are
    returned.
    """
    kept, queue = [], list(publications)
    while queue:
        topic, payload, _ = queue.pop(0)
        kind, src, dst = world.centre.topics.parse(topic)
        for name in [dst] if kind == "edge" else [n for n in world.hub.endpoints if n != src]:
            if to is not None and name not in to:
                kept.append((name, topic, payload))
            elif kind != "status":
                queue += world[name].on_message(topic, payload)
    return kept


@pytest.fixture
def world(tmp_path):
    """Two zones and their coordinator, in whose name the first round has just been told to the zones, and not yet
    heard.
    """
    world = World(tmp_path, setup(name="ladmm"))
    try:
        centre = world.centre
        centre.connected()
        for z in ("z1", "z2"):
            delivered(world, world[z].connected())
        asked = delivered(world, centre.on_tick(0.0), to=("z1", "z2"))
        assert centre.phase == "joining"
        world.told = []
        for name, topic, payload in asked:
            assert name == "coordinator"
            world.told += centre.on_message(topic, payload)
        assert centre.phase == "running"
        yield world
    finally:
        world.close()


def rounds(world, publications):
    """Whom they are to, of messages of the run."""
    parsed = [world.centre.topics.parse(topic) for topic, _, _ in publications]
    return sorted(dst for kind, _, dst in parsed if kind == "edge")


def test_what_a_star_has_sent_a_moment_ago_is_not_sent_again_and_what_waits_is(world):
    centre, wait = world.centre, RETRY_S[0]
    assert rounds(world, centre.on_tick(1.0)) == []  # a wait begins
    answers = [
        (topic, payload)
        for name, topic, payload in delivered(world, world.told, to=("z1", "z2"))
        if name == "coordinator"
    ]
    out = [p for topic, payload in answers for p in centre.on_message(topic, payload)]
    assert rounds(world, out) == ["z1", "z2"]  # the second round, told just before the wait is over
    assert rounds(world, centre.on_tick(1.0 + wait)) == []
    assert rounds(world, centre.on_tick(1.0 + 2 * wait)) == ["z1", "z2"]  # neither has answered for a whole wait
    assert rounds(world, centre.on_tick(1.0 + 2.5 * wait)) == []
    assert rounds(world, centre.on_tick(1.0 + 4 * wait)) == ["z1", "z2"]  # and the waits grow


def test_so_it_is_with_a_members_answer(world):
    member, wait = world["z1"], RETRY_S[0]
    to_z1 = [p for p in world.told if p.topic.endswith("/coordinator/z1")]
    assert len(to_z1) == 1
    member.on_tick(1.0)
    assert rounds(world, member.on_message(*to_z1[0][:2])) == ["coordinator"]
    assert rounds(world, member.on_tick(1.0 + wait)) == []
    assert rounds(world, member.on_tick(1.0 + 2 * wait)) == ["coordinator"]


def test_what_was_on_its_way_when_a_run_ended_is_no_message_of_a_foreign_one(world):
    centre, member = world.centre, world["z1"]
    late = [
        (topic, payload)
        for name, topic, payload in delivered(world, world.told, to=("z1", "z2"))
        if name == "coordinator"
    ]
    round_of = wire.decode_envelope(late[0][1], 10_000)
    delivered(world, centre.stop("enough"))
    for topic, payload in late:
        assert centre.on_message(topic, payload) == []
    member._on_step("z2", round_of, 100)  # as a neighbour's, of a problem that has neighbours
    assert centre.dropped == {}
    assert "a foreign run" not in member.dropped
