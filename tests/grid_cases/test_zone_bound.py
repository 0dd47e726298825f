"""A lower bound of a zone's step is never above its minimum, whatever multipliers it is made from."""

from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.grid_cases import load
from hushgrid.grid_cases.case import loads
from hushgrid.grid_cases.matrix import Matrix
from hushgrid.grid_cases.zone.bound import bounds, lower_bound
from hushgrid.grid_cases.zone.build import build
from hushgrid.grid_cases.zone.conic import Cones, built, multipliers
from hushgrid.grid_cases.zone.cost import CostStep

VOLL = 10_000.0


def step(case, buses, shared=True):
    model = build(case, "z1", buses)
    at = model.shared if shared else np.zeros(0, np.int64)
    return CostStep(case, model, loads(case, model.buses), at, np.ones(at.size), VOLL)


@pytest.fixture(scope="module")
def whole():
    """(step, P, q, cones) of all of case14, without shared entries."""
    case = load("case14")
    one = step(case, case.buses.numbers.tolist(), shared=False)
    return one, one._P, one._q, one._cones


@pytest.fixture(scope="module")
def zone():
    """A zone of case14 with lines to others."""
    return step(load("case14"), [6, 11, 12, 13])


def test_at_a_solvers_multipliers_it_is_the_minimum(whole):
    one, *_ = whole
    least = one.minimum(np.zeros(0), 1.0).value
    assert least * (1 - 1e-7) <= one.bound(np.zeros(0)) <= least


@pytest.mark.parametrize("tolerance", [1e-1, 1e-2, 1e-3, 1e-5])
def test_it_holds_at_the_multipliers_of_a_solver_that_has_hardly_begun(whole, tolerance):
    one, P, q, cones = whole
    least = (one.minimum(np.zeros(0), 1.0).value - one._constant) / one.scale
    y = np.array(built(cones, P, q, tolerance, tolerance).solve().z)
    found = lower_bound(P, q, cones, y)
    assert least * (1 - 100 * tolerance) <= found <= least


@pytest.mark.runs
@given(seed=st.integers(0, 2**32 - 1), far=st.sampled_from([1e-6, 1e-3, 0.1, 1.0, 30.0]))
def test_it_holds_at_any_multipliers(whole, seed, far):
    one, P, q, cones = whole
    least = (one.minimum(np.zeros(0), 1.0).value - one._constant) / one.scale
    rng = np.random.default_rng(seed)
    y = next(multipliers(cones, P, q, 1e-9)) + far * rng.normal(size=cones.b.size)
    assert lower_bound(P, q, cones, y) <= least * (1 + 1e-9)


@given(seed=st.integers(0, 2**32 - 1), size=st.sampled_from([1e-3, 1.0, 100.0]))
def test_at_any_prices_of_what_is_shared_no_point_of_the_zone_is_below_it(zone, seed, size):
    rng = np.random.default_rng(seed)
    lam = size * rng.normal(size=zone.shared.size)
    bound = zone.bound(lam)
    for v in (np.zeros(lam.size), rng.normal(size=lam.size)):
        least = zone.minimum(v, 0.1)
        value = least.value + zone.scale * float(lam @ least.z[zone.shared])
        assert bound <= value + 1e-6 * abs(value)


def test_near_the_prices_of_a_step_it_is_what_the_step_costs(zone):
    v = zone.model.start[zone.shared] * 1.01
    least = zone.minimum(v, 0.5)
    lam = 0.5 * (least.z[zone.shared] - v)
    value = least.value + zone.scale * float(lam @ least.z[zone.shared])
    assert value - 1e-5 * abs(value) <= zone.bound(lam) <= value + 1e-6 * abs(value)


@pytest.mark.parametrize("limits", [{"q_max": inf}, {"q_min": -inf}, {"p_max": inf}, {"q_max": inf, "q_min": -inf}])
def test_generators_without_limits_have_a_bound_too(limits):
    case = load("case5")
    g = case.generators
    freed = replace(g, **{key: np.full(len(g), value) for key, value in limits.items()})
    one = step(replace(case, generators=freed), case.buses.numbers.tolist(), shared=False)
    least = one.minimum(np.zeros(0), 1.0).value
    assert least * (1 - 1e-6) <= one.bound(np.zeros(0)) <= least * (1 + 1e-9)


def test_every_variable_of_a_zone_is_bounded_but_for_the_slack(zone):
    lowest, highest = bounds(zone._cones)
    n = zone.model.n
    assert np.isfinite(lowest).all()
    assert np.isfinite(highest[:n]).all()
    assert (lowest[n:] == 0).all()
    z = zone.minimum(np.ones(zone.shared.size), 1.0).z
    assert (lowest[:n] <= z + 1e-7).all()
    assert (z <= highest[:n] + 1e-7).all()


def test_where_nothing_bounds_it_there_is_none():
    one = Matrix.from_entries((1, 2), np.array([0, 0]), np.array([0, 1]), np.array([1.0, 1.0]))
    cones = Cones(one, np.ones(1), 1, 0, ())  # x1 + x2 = 1
    P, q = np.zeros(2), np.array([1.0, 2.0])
    assert lower_bound(P, q, cones, np.array([-1.0])) == -inf
    assert lower_bound(P, q, cones, np.array([nan])) == -inf
    assert lower_bound(np.ones(2), q, cones, np.zeros(1)) == pytest.approx(-2.5)


def test_a_price_beyond_all_bounds_ends_in_no_bound_or_a_true_one(zone):
    lam = np.full(zone.shared.size, 1e12)
    bound = zone.bound(lam)
    least = zone.minimum(np.zeros(lam.size), 1.0)
    assert bound <= least.value + zone.scale * float(lam @ least.z[zone.shared])
