"""Real members under each unit of loads and release: what the ledger has, what is repeated, and what is refused."""

import json

import msgspec
import pytest

from hushgrid.broker.simulation.problems.power_flow import ZoneSetup
from hushgrid.node import wire
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.problems.plan import encode_plan
from hushgrid.node.schema.sections import Budget
from hushgrid.node.wire import COORDINATOR, Refuse
from tests.support.devices.hostile_messages import plan_message
from tests.support.devices.zone_fleet import World

UNITS = {
    "a number": 0.01,
    "pair": {"pair": 0.01, "power_factor": 0.95},
    "relative": {"relative": 0.05, "of": "capacity.csv"},
}


@pytest.fixture(params=UNITS)
def setup(request, tmp_path):
    """case5 in two zones, mode input, totals."""
    rows = "".join(f"{bus},{100 * bus},{50 * bus}\n" for bus in range(1, 6))
    (tmp_path / "capacity.csv").write_text(f"bus,p_mw,q_mvar\n{rows}")
    raw = {
        "hushgrid": 1,
        "name": "world",
        "problem": {"kind": "zones", "case": "case5", "zones": 2},
        "algorithm": {"name": "ladmm", "rounds": 2},
        "privacy": {"epsilon": 1.0, "mode": "input", "release": "totals"}
        | {"adjacency": {"bounded-change": UNITS[request.param]}},
    }
    return ZoneSetup(scenario_from(raw, base=tmp_path))


def budget(setup):
    return Budget(epsilon=5.0, adjacency=setup.adjacency)


def test_a_run_of_real_members_costs_one_answer_a_zone_at_the_plans_epsilon(tmp_path, setup):
    world = World(tmp_path, setup, seed=None, budget=budget(setup))
    world.run()
    assert {ledger.runs.last().status for ledger in world.ledgers.values()} == {"done"}
    for name in ("z1", "z2"):
        ledger = world.ledgers[name]
        (spend,) = ledger.spends.rows()
        assert spend.adjacency == setup.plan.terms.adjacency
        assert 0.99 < spend.value <= 1.0
        assert 0.99 < ledger.spends.totals(spend.adjacency).epsilon <= 1.0
    world.close()


@pytest.mark.parametrize(
    "lie",
    [
        {"adjacency": {"bounded-change": 0.001}},
        {"adjacency": {"bounded-change": {"pair": 0.001, "power_factor": 0.95}}},
        {"adjacency": {"bounded-change": {"relative": 0.0001, "of": "ab" * 32}}},
        {"release": "totals", "mode": "objective"},
        {"release": "sums"},
    ],
    ids=str,
)
def test_a_device_refuses_a_plan_of_another_unit_or_release_and_spends_nothing(tmp_path, setup, lie):
    world = World(tmp_path, setup, seed=None, budget=budget(setup))
    raw = json.loads(encode_plan(setup.plan))
    wrong = raw | {"privacy": raw["privacy"] | lie}
    assert isinstance(answer_to(world, wrong), Refuse)
    assert world.rows("z1")["spend"] == []
    assert not isinstance(answer_to(world, raw), Refuse)  # the honest plan
    world.close()


def answer_to(world, raw):
    """What z1 answers a coordinator's plan."""
    z1 = world["z1"]
    message = plan_message(msgspec.json.encode(raw), {"z1": z1.session, "z2": 1})
    said = z1.on_message(z1.topics.all(COORDINATOR), message)
    return wire.decode_envelope(said[0].payload, 10_000).body
