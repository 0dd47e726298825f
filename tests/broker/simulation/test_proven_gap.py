"""Random zones of the public cases, with buses that end ties to several zones, zones of one bus, and zones without
generators.

Whatever the zones are they come to the least cost and its prices, and the bound that they prove is one.
"""

import numpy as np
import pytest

from hushgrid.broker.simulation import run
from hushgrid.grid_cases import load
from hushgrid.grid_cases.case import loads
from hushgrid.grid_cases.zone.build import zone_models
from hushgrid.grid_cases.zone.cost import CostStep
from hushgrid.node.problems.power_flow.section import VOLL
from tests.support.scenarios.least_cost import scenario
from tests.support.scenarios.parted_cases import random_zones, triple_points

pytestmark = pytest.mark.runs


FEW = [("case14", 7, 5, 2), ("case14", 14, 3, 13), ("case30", 8, 16, 3), ("case57", 6, 7, 2)]
CASES = ("case14", "case30", "case39", "case57", "case118")
MANY = [(CASES[seed % 5], 3 + (7 * seed) % (5 if seed % 5 == 0 else 10), seed, (seed // 5) % 4) for seed in range(200)]


@pytest.fixture(scope="module")
def central():
    """(least cost, price of each bus) of a case by one solver that has all of it; made when it is asked for."""
    known = {}

    def found(name):
        if name not in known:
            case, none = load(name), np.zeros(0)
            (whole,) = zone_models(case, [case.buses.numbers.tolist()]).values()
            step = CostStep(case, whole, loads(case, whole.buses), none.astype(np.int64), none, VOLL)
            least = step.minimum(none, 1.0)
            known[name] = least.value, dict(zip(map(str, whole.buses), least.price.tolist(), strict=False))
        return known[name]

    return found


def checked(central, case, count, seed, singles):
    zones = random_zones(load(case), count, seed, min(singles, count - 1))
    raw = scenario(case, zones=zones, ac="none")
    raw["algorithm"]["rounds"] = 400
    found, (least, prices) = run(raw), central(case)
    assert found.stopped_because == "tolerance"
    assert found.bound <= least * (1 + 1e-8)
    assert found.bound == pytest.approx(least, rel=3e-4)
    assert 0 <= found.gap <= 3e-4
    assert found.objective == pytest.approx(least, rel=3e-4)
    assert found.quality.verdict == "solved"
    highest = max(map(abs, prices.values()))
    assert all(abs(found.prices[bus] - price) <= 0.01 * max(abs(price), 0.1 * highest) for bus, price in prices.items())


@pytest.mark.parametrize(("case", "count", "seed", "singles"), FEW)
def test_random_zones_find_the_least_cost_prove_it_and_price_it(central, case, count, seed, singles):
    assert triple_points(load(case), random_zones(load(case), count, seed, singles))
    checked(central, case, count, seed, singles)


@pytest.mark.long
@pytest.mark.parametrize(("case", "count", "seed", "singles"), MANY)
def test_so_do_two_hundred(central, case, count, seed, singles):
    checked(central, case, count, seed, singles)


def test_a_run_that_ends_too_early_has_a_bound_too_and_is_no_solution():
    raw = scenario("case14", ac="none")
    raw["algorithm"]["rounds"] = 4
    found = run(raw)
    assert found.bound <= 2175.71
    assert found.gap > 0.01
    assert found.quality.verdict == "not-converged"
