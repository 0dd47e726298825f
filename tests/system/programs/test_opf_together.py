"""AC optimal power flows of consecutive periods, tied by ramps."""

from dataclasses import replace

import numpy as np
import pytest

from hushgrid.grid_cases import load
from hushgrid.grid_cases.ac.opf import AcDispatch, NoDispatch, recover_each
from hushgrid.grid_cases.ac.presence import installed

pytestmark = pytest.mark.skipif(not installed(), reason="missing: casadi")

SHARES = (0.7, 0.85, 1.0, 0.8)


@pytest.fixture(scope="module")
def case():
    return load("case14")


def problems(case, shares=SHARES):
    loads = np.concatenate([case.buses.p_d, case.buses.q_d])
    return [(case, share * loads) for share in shares]


def test_no_generator_changes_by_more_than_its_ramp_and_every_load_is_served(case):
    steps = 0.15 * case.generators.p_max
    alone = np.stack([one.p_g for one in recover_each(problems(case))])
    assert np.any(np.abs(np.diff(alone, axis=0)) > steps + 1e-3)  # else it shows nothing
    tied = recover_each(problems(case), steps=steps)
    assert all(isinstance(one, AcDispatch) and not sum(one.totals.values()) for one in tied)
    assert np.all(np.abs(np.diff([one.p_g for one in tied], axis=0)) <= steps + 1e-7)
    assert max(one.mismatch for one in tied) <= 1e-6


def test_without_a_limit_it_costs_what_each_period_costs_alone(case):
    alone = recover_each(problems(case))
    tied = recover_each(problems(case), steps=np.full(len(case.generators), np.inf))
    assert [one.objective for one in tied] == pytest.approx([one.objective for one in alone], rel=1e-6)


def test_a_price_of_one_period_is_that_periods_alone(case):
    dear = replace(case, generators=replace(case.generators, cost_1=2 * case.generators.cost_1))
    (first, loads), (_, more) = problems(case, (0.7, 0.7))
    cheap, twice = recover_each([(first, loads), (dear, more)], steps=np.full(len(case.generators), np.inf))
    (expected,) = recover_each([(dear, more)])
    assert twice.objective == pytest.approx(expected.objective, rel=1e-6)
    assert cheap.objective < twice.objective


def test_where_the_ramps_allow_no_dispatch_no_period_has_one(case):
    tied = recover_each(problems(case, (0.5, 1.0)), voll=None, steps=np.zeros(len(case.generators)))
    assert all(isinstance(one, NoDispatch) for one in tied)
