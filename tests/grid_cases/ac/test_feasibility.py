"""The AC power flow shows how far the relaxation is from the network."""

from dataclasses import replace

import numpy as np
import pytest

from hushgrid.grid_cases import load
from hushgrid.grid_cases.ac.feasibility import ac_check
from hushgrid.grid_cases.ac.margins import margins, sigma_of_imbalance, sigma_of_load
from hushgrid.grid_cases.ac.network import flat
from hushgrid.grid_cases.ac.power_flow import headroom
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


@pytest.mark.runs
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


# --- How far a dispatch at noisy loads keeps from limits: by the noise's spread, and by nothing that is private ---

CASE = load("case14")
N = [4, 3, 4]


def test_totals_double_the_noise_of_a_load_and_cut_that_of_a_sum_over_more_than_three():
    assert sigma_of_load(0.01, 1.0, "totals") == 2 * sigma_of_load(0.01, 1.0) == pytest.approx(0.02 * np.sqrt(2))
    assert sigma_of_imbalance(0.01, 1.0, [3]) == pytest.approx(sigma_of_imbalance(0.01, 1.0, [3], "totals"))
    assert sigma_of_imbalance(0.01, 1.0, [40]) > 3 * sigma_of_imbalance(0.01, 1.0, [40], "totals")


def test_margins_grow_with_the_noise_up_to_their_caps():
    little, much = (margins(CASE, 0.01, epsilon, N, "totals") for epsilon in (100.0, 0.01))
    assert little.v == much.v == 0.005
    sigma, g, rated = sigma_of_load(0.01, 100.0, "totals"), CASE.generators, CASE.lines.rate > 0
    assert little.rating[rated] * CASE.lines.rate[rated] == pytest.approx(3 * sigma)
    assert set(much.rating[rated]) == {0.05}
    assert little.q == pytest.approx(np.minimum(4.5 * sigma, 0.1 * (g.q_max - g.q_min)))
    assert much.q == pytest.approx(0.1 * (g.q_max - g.q_min))


def test_units_together_keep_2_5_deviations_of_the_imbalance_each_by_its_share_of_the_headroom():
    p_g, g = flat(CASE).p_g.copy(), CASE.generators
    p_g[0] = g.p_max[0]  # at its limit: it takes up nothing
    kept, room = margins(CASE, 0.01, 1.0, N, p_g=p_g).p, headroom(CASE, p_g)
    assert kept[0] == room[0] == 0
    assert kept.sum() == pytest.approx(2.5 * sigma_of_imbalance(0.01, 1.0, N))
    assert kept * room.sum() == pytest.approx(room * kept.sum())


def test_margins_are_the_same_whatever_the_loads():
    with_loads, without = (margins(case, 0.01, 1.0, N) for case in (CASE, CASE.without_loads()))
    for name in ("rating", "p", "q"):
        assert np.array_equal(getattr(with_loads, name), getattr(without, name))
