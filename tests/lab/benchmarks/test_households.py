"""A day of households is a day of loads of the case: of its size in the mean, and different in every interval."""

import numpy as np
import pytest

from hushgrid.grid_cases import load
from hushgrid.scenarios.households import day, hours, profiles
from tests.support.paths import ROOT


@pytest.mark.parametrize("name", ["case14", "case118"])
def test_the_mean_of_the_day_is_the_load_of_the_case(name):
    case = load(name)
    loads = day(case)
    assert loads.shape == (96, 2, len(case.buses))
    np.testing.assert_allclose(loads.mean(axis=0), [case.buses.p_d, case.buses.q_d], atol=1e-12)
    moved = np.abs(np.diff(loads[:, 0, case.buses.p_d != 0], axis=0))
    assert (moved.max(axis=1) > 0).all()


def test_every_house_is_dealt_out_once_and_none_is_negative():
    kw = profiles()
    assert kw.shape == (1440, 100)
    assert (kw >= 0).all()
    with pytest.raises(ValueError, match="expected a divisor of 1440"):
        day(load("case14"), 7)


def test_the_hours_that_ship_are_those_of_the_profiles():
    table = np.genfromtxt(ROOT / "scenarios/data/household-hours.csv", delimiter=",", skip_header=1)
    assert np.abs(table[:, :24] - hours()).max() <= 0.0005 + 1e-12
    assert np.allclose(table[:, 24], table[:, :24].sum(axis=1), atol=1e-9)
