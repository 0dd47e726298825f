"""The central solution of least cost: hard, with a value of lost load, and its prices."""

from dataclasses import replace

import numpy as np
import pytest

from hushgrid.grid_cases import load
from hushgrid.grid_cases.case import loads
from hushgrid.grid_cases.centralised import solve
from hushgrid.grid_cases.costs import VOLL, cost_scale, generation_cost
from hushgrid.kernels.errors import InputError, Stopped


def own_loads(case):
    return loads(case, tuple(case.buses.numbers.tolist()))


@pytest.mark.runs
@pytest.mark.parametrize(
    ("name", "cost"), [("case14", 2175.70), ("case30", 6662.16), ("case39", 137654.07), ("case300", 550393.75)]
)
def test_the_least_cost_with_every_load_served_is_the_known_one(name, cost):
    found = solve(load(name), "cost")
    assert found.value == pytest.approx(cost, rel=1e-5)
    assert found.cost == pytest.approx(found.value, rel=1e-6)
    assert np.abs(found.shed).max() < 1e-6


@pytest.mark.runs
@pytest.mark.parametrize(("name", "value"), [("case14", 2175.70), ("case118", 96335.86), ("case300", 550002.4)])
def test_with_a_value_of_lost_load_the_cost_is_the_known_one(name, value):
    """case300: 0.054 of the 0.65 MVAr at bus 9033 are not served, for they would cost more than 10,000 $ a MVArh."""
    found = solve(load(name), "cost", VOLL)
    assert found.value == pytest.approx(value, rel=1e-5)
    slack = np.where(np.abs(found.shed) > 1e-6, found.shed, 0.0) * 100
    assert slack.sum() == pytest.approx(0.0543 if name == "case300" else 0, abs=1e-3)
    assert np.all(slack >= 0)
    assert found.value == pytest.approx(found.cost + VOLL * slack.sum(), rel=1e-6)


@pytest.mark.parametrize(("factor", "mw", "mvar"), [(1.6, 43.91, 59.24), (3.0, 402.60, 140.16)])
def test_loads_beyond_the_capacity_are_served_up_to_it(factor, mw, mvar):
    case = load("case14")
    found = solve(case, "cost", VOLL, factor * own_loads(case))
    assert found.cost == pytest.approx(4066.02, abs=0.5)
    assert found.shed.sum(axis=0) * 100 == pytest.approx([mw, mvar], abs=0.5)
    assert found.prices.max() == pytest.approx(VOLL, rel=1e-6)
    with pytest.raises(Stopped, match="expected a solution with every load served"):
        solve(case, "cost", None, factor * own_loads(case))


@pytest.mark.parametrize("voll", [None, VOLL])
@pytest.mark.parametrize(
    ("name", "prices"),
    [
        ("case14", {4: 8.894, 5: 8.738, 6: 8.745, 7: 8.899, 14: 9.109}),
        ("case118", {15: 28.335, 24: 27.504, 65: 26.218, 68: 25.767}),
    ],
)
def test_the_prices_are_the_known_ones(name, prices, voll):
    case = load(name)
    found = solve(case, "cost", voll).prices[case.index(np.array(list(prices))), 0]
    assert found == pytest.approx(list(prices.values()), abs=0.05)


@pytest.mark.runs
@pytest.mark.parametrize("row", [3, 13, 17])
def test_a_price_is_what_one_more_mw_or_mvar_of_load_costs(row):
    case, step = load("case14"), 0.001
    d, more = own_loads(case), np.zeros(28)
    more[row] = step
    difference = solve(case, "cost", loads=d + more).value - solve(case, "cost", loads=d - more).value
    price = solve(case, "cost").prices.T.ravel()[row]
    assert difference / (2 * step * case.base_mva) == pytest.approx(price, abs=0.01)


def test_the_objective_shedding_has_no_cost_and_no_prices():
    found = solve(load("case14"))
    assert found.value == pytest.approx(0, abs=1e-6)
    assert found.cost is None
    assert found.prices is None


def test_loads_of_another_shape_and_concave_costs_are_refused():
    case = load("case14")
    with pytest.raises(InputError, match=r"loads: found shape \(3,\), expected \(28,\) finite numbers"):
        solve(case, "cost", loads=np.zeros(3))
    concave = replace(case, generators=replace(case.generators, cost_2=np.array([0, 0, -1.0, 0, 0])))
    with pytest.raises(InputError, match="generator row 2: found a concave cost, expected c2 >= 0"):
        solve(concave, "cost")


def test_the_scale_of_the_costs_is_the_known_one_and_public():
    known = {"case14": 1559.5, "case30": 3530.2, "case118": 2575.8, "case300": 3262.1}
    assert {name: round(cost_scale(load(name)), 1) for name in known} == known
    case = load("case14")
    assert cost_scale(case.without_loads()) == cost_scale(case)
    free = replace(case, generators=replace(case.generators, cost_1=np.zeros(5)))
    assert cost_scale(free) == 1.0
    assert generation_cost(case, np.array([1.0, 0, 0, 0, 0])) == pytest.approx(792.0951, rel=1e-5)
