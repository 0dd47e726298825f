"""A broker that lies to devices and coordinators which do not trust it, and one that repeats what it has delivered."""

import pytest

from hushgrid.broker.simulation.problems.power_flow import ZoneSetup
from hushgrid.broker.simulation.setup import prepare
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.wire import COORDINATOR
from tests.support.devices.zone_fleet import World
from tests.support.devices.zone_fleet import setup as zones
from tests.support.scenarios import neighbour_scenarios, record_scenarios
from tests.support.trust.fleet import TrustedWorld
from tests.support.trust.lies import Believed, BelievedBroker, LyingBroker

pytestmark = pytest.mark.runs

#: What its devices are told at the end are set-points.
DISPATCH = {
    "hushgrid": 1,
    "name": "world",
    "problem": {"kind": "zones", "case": "case5", "zones": 2, "objective": "cost", "ac": "none"},
    "algorithm": {"name": "consensus-admm", "rounds": 2},
    "privacy": {"epsilon": 5.0, "adjacency": {"bounded-change": 0.01}},
}
SETUPS = {
    "star": lambda: zones(2),
    "set-points": lambda: ZoneSetup(scenario_from(DISPATCH)),
    "token": lambda: prepare(scenario_from(record_scenarios.scenario({"seed": 7, "algorithm.rounds": 6}))),
    "neighbours": lambda: prepare(scenario_from(neighbour_scenarios.scenario("dpp2", rounds=2, seed=7))),
}
EVERYWHERE = {"plan", "mark", "iterate", "join", "refuse", "farewell", "finish", "state", "session", "birth", "hello"}
MORE = {"star": set(), "set-points": {"set-points"}, "token": {"epoch", "report"}, "neighbours": {"report"}}


@pytest.mark.parametrize("name", SETUPS)
def test_no_lie_changes_anything_and_the_run_ends_with_the_bits_of_one_without_lies(name, tmp_path):
    setup = SETUPS[name]()
    (tmp_path / "quiet").mkdir()
    quiet = World(tmp_path / "quiet", setup)
    quiet.run()
    quiet.close()
    world = TrustedWorld(tmp_path / "lied to", setup, broker=LyingBroker)
    world.hub.world = world
    world.run()
    assert world.centre.error is None
    forged = {end: world[end].forgeries for end in world.ledgers}
    world.close()
    assert world.final == quiet.final
    assert set(world.hub.lies) == EVERYWHERE | MORE[name]
    assert all(forged.values())


#: A farewell is believed at the end alone, when it says no more than the truth.
BELIEVED = EVERYWHERE - {"hello", "farewell"}


@pytest.mark.parametrize(("name", "lie"), [(name, lie) for name in SETUPS for lie in sorted(BELIEVED | MORE[name])])
def test_whoever_trusts_the_broker_believes_each_of_these_lies(name, lie, tmp_path):
    world = World(tmp_path, SETUPS[name](), broker=BelievedBroker)
    world.hub.world, world.hub.kind = world, lie
    with pytest.raises(Believed):
        world.run()
    world.close()


@pytest.mark.parametrize(
    ("name", "again"),
    [*((name, "everybody") for name in SETUPS), ("star", "the coordinator"), ("token", "a device too")],
)
def test_what_was_said_in_earlier_runs_and_sessions_is_refused(name, again, tmp_path):
    """All that the broker has carried in two runs comes back in the third, before each of its messages."""
    world = TrustedWorld(tmp_path, SETUPS[name](), broker=LyingBroker)
    device = world.setup.plan.nodes[0]
    world.hub.world, world.hub.lie_about = world, lambda delivery: None
    starts = {"the coordinator": [COORDINATOR], "a device too": [COORDINATOR, device], "everybody": [*world.ledgers]}
    runs, said = [], []
    for _ in range(3):
        world.run(lambda world, said=said: world.hub.repeats(said))
        runs.append(world.ledgers[COORDINATOR].runs.last().id)
        assert world.centre.error is None
        said = list(world.hub.recorded)
        world.hub.start_again(starts[again])
    assert len({*runs}) == 3
    assert world.hub.turn > 100
    world.close()
