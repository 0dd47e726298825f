"""A day of households is a day of loads of the case: of its size in the mean, and different in every interval."""

import numpy as np
import pytest

from hushgrid.grid_cases import load
from hushgrid.scenarios.households import day, profiles


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
