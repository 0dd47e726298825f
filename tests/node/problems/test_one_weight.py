"""An entry that zones share has one weight, whichever of the lines at it a zone sees."""

from contextlib import closing

import msgspec
import numpy as np
import pytest

from hushgrid.broker.simulation.problems.power_flow import ZoneSetup
from hushgrid.grid_cases import load
from hushgrid.grid_cases.zone.cost import joint_stiffness, stiffness
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.privacy.budget import BudgetCheck
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.noise_source import noise_source
from hushgrid.node.problems.plan import decode_plan, encode_plan
from hushgrid.node.problems.power_flow.centre import centre
from hushgrid.node.problems.power_flow.device import wiring
from hushgrid.node.problems.power_flow.section import ZonesPlan
from hushgrid.node.schema.sections import Allow
from tests.support.scenarios.least_cost import ZONES, scenario
from tests.support.scenarios.parted_cases import random_zones, triple_points


def plan_of(case, zones):
    """The zones' part of a plan, without the constants that are under test."""
    return ZonesPlan(case.name, "", {f"z{k}": buses for k, buses in enumerate(zones, 1)}, 1.0, objective="cost")


def shared_keys(wired):
    return {z: [layout.keys[k] for k in wired.shared[z]] for z, layout in wired.layouts.items()}


@pytest.mark.parametrize("case", ["case14", "case30", "case57", "case118"])
@pytest.mark.parametrize("seed", range(5))
def test_zones_and_the_coordinator_give_an_entry_the_same_weight(case, seed):
    network = load(case)
    zones = random_zones(network, len(network.buses) // 4 + 2 + seed, seed, singles=1 + seed)
    assert triple_points(network, zones)
    assert min(map(len, zones)) == 1
    wired = wiring(network, plan_of(network, zones))
    keys = shared_keys(wired)
    joint = joint_stiffness(network, keys)
    whole = stiffness(network, wired.keys, joint)
    np.testing.assert_array_equal(whole, stiffness(network, wired.keys))  # over all ties
    for zone, at in wired.position.items():
        np.testing.assert_array_equal(stiffness(network, keys[zone], joint), whole[at])


def test_so_do_the_machines_that_a_plan_makes(tmp_path):
    zones = random_zones(load("case14"), 7, 3, singles=3)
    setup = ZoneSetup(scenario_from(scenario(zones=zones, ac="none")))
    plan = decode_plan(encode_plan(setup.plan))  # as a device has it
    assert plan.problem.stiffness
    server = plan.running.server(centre(plan, "case14"))
    for zone in plan.nodes:
        with closing(Ledger(tmp_path / f"{zone}.ledger", zone)) as ledger:
            limits = BudgetCheck(zone, ledger, b"run", plan.algorithm, None, None, Allow(), simulated=True)
            agent, _ = setup.device(zone).machine(plan, b"run", ledger, noise_source(1, zone), limits)
        np.testing.assert_array_equal(agent.weight, server.entries.common[server.position[zone]])


@pytest.mark.parametrize("case", ["case14", "case118"])
def test_a_plan_says_nothing_of_weights_where_every_zone_sees_its_stiffest_tie(case):
    """So the bytes of such a plan are as they were, and peers that do not know the key take it."""
    network = load(case)
    assert triple_points(network, ZONES[case]) == []
    setup = ZoneSetup(scenario_from(scenario(case)))
    assert b"stiffness" not in encode_plan(setup.plan)


def test_a_plan_with_a_weight_that_is_none_is_refused():
    plan = msgspec.json.encode(plan_of(load("case14"), [[1]]))
    for wrong in ('{"1":0.0}', '{"1":1e300}', '{"x":1.0}'):
        text = plan.decode()[:-1] + f',"stiffness":{wrong}}}'
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(text, type=ZonesPlan)
