"""How far a dispatch at noisy loads keeps from limits: by the noise's spread, and by nothing that is private."""

import numpy as np
import pytest

from hushgrid.grid_cases import load
from hushgrid.grid_cases.ac.margins import margins, sigma_of_imbalance, sigma_of_load
from hushgrid.grid_cases.ac.network import flat
from hushgrid.grid_cases.ac.power_flow import headroom

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
