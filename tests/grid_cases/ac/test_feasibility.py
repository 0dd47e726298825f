"""The AC power flow shows how far the relaxation is from the network."""

from dataclasses import replace

import numpy as np
import pytest

from hushgrid.grid_cases import load
from hushgrid.grid_cases.ac.feasibility import ac_check
from hushgrid.grid_cases.centralised import solve


@pytest.mark.runs
@pytest.mark.parametrize("name", ["case14", "case57", "case118"])
def test_the_minimum_cost_solution_is_nearly_a_dispatch_and_the_least_shedding_one_is_not(name):
    """The slack bus then moves by at most a hundredth of the load; fictitious losses move it by much more."""
    case = load(name)
    cost, shedding = (ac_check(case, solve(case, objective)) for objective in ("cost", "shedding"))
    assert cost.converged
    assert shedding.converged
    load_served = case.buses.p_d.sum()
    assert abs(cost.slack_change) < 0.01 * load_served < abs(shedding.slack_change)


def test_the_losses_of_the_least_shedding_solution_are_fictitious_so_it_is_no_dispatch():
    case = load("case118")
    check = ac_check(case, solve(case))
    assert check.converged
    assert check.relaxed_losses > 3 * check.losses


def test_power_is_balanced_at_every_bus_of_the_answer():
    """Summed over the network: generation - load - shunts = losses, and the slack bus closes the balance."""
    case = load("case118")
    solution = solve(case, "cost")
    check = ac_check(case, solution)
    shunts = float(case.buses.g_s @ np.abs(check.voltage) ** 2)
    generated = solution.p_g.sum() + check.slack_change
    assert generated - case.buses.p_d.sum() - shunts == pytest.approx(check.losses, abs=1e-8 * len(case.buses))


def test_loads_beyond_what_the_lines_carry_do_not_converge():
    case = load("case14")
    solution = solve(case, "cost")
    heavy = replace(case, buses=replace(case.buses, p_d=case.buses.p_d * 20))
    assert not ac_check(heavy, solution).converged
