"""kill -9 of anything, at any instant: the answer keeps its bits, and no ledger shows less than what has left.

And what cannot go on ends: said in one line, in bounded time, with nothing left behind.
"""

from hushgrid.node import wire
from tests.support.devices.zone_fleet import World, setup


def test_births_that_were_lost_are_called_for(tmp_path):
    undisturbed, deaf = (World(tmp_path / name, setup()) for name in ("undisturbed", "deaf"))
    undisturbed.run()
    undisturbed.close()
    lost = []

    def lose(world):  # the first time: all that is on its way, and what the broker has retained
        if not lost:
            lost.extend(world.hub.queue)
            world.hub.queue.clear()
            world.hub.retained.clear()

    deaf.run(lose)
    deaf.close()
    assert {d.topic for d in lost if d.dst == "coordinator"} == {
        "hushgrid/1/world/state/z1",
        "hushgrid/1/world/state/z2",
    }
    assert deaf.final == undisturbed.final


def test_a_birth_that_is_overtaken_by_the_next_is_forgotten(tmp_path):
    world = World(tmp_path, setup())
    topic, first, _ = world["z1"].connected()[0]
    _, second, _ = world.build("z1").connected()[0]
    world.centre.on_message(topic, second)
    world.centre.on_message(topic, first)
    assert world.centre.membership.births["z1"].session == wire.decode_presence(second).session
    world.close()
