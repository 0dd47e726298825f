"""Piecewise-linear costs: every solver minimises the largest of a generator's lines, and they agree."""

from dataclasses import replace

import numpy as np
import pytest

from hushgrid.grid_cases import load
from hushgrid.grid_cases.ac.opf import AcSolver
from hushgrid.grid_cases.ac.program import Program
from hushgrid.grid_cases.case import CostLines, loads
from hushgrid.grid_cases.centralised import solve
from hushgrid.grid_cases.costs import generation_cost
from hushgrid.grid_cases.zone.build import zone_models
from hushgrid.grid_cases.zone.cost import CostStep

NONE = np.zeros(0, np.int64)


def with_lines(case, pieces):
    """The case with each polynomial cost replaced by tangents at so many points of its range, or the straight cost
    itself.
    """
    g = case.generators
    low, high = g.p_min, np.minimum(g.p_max, 100.0)
    points = np.linspace(low, high, pieces)  # (pieces, generators)
    slope = 2 * g.cost_2 * points + g.cost_1
    intercept = g.cost_0 - g.cost_2 * points**2
    at = np.tile(np.arange(len(g)), pieces)
    order = np.lexsort((slope.ravel(), at))
    lines = CostLines(at[order], slope.ravel()[order], intercept.ravel()[order])
    nan = np.full(len(g), np.nan)
    return replace(case, generators=replace(g, cost_2=nan, cost_1=nan, cost_0=nan), piecewise=lines)


@pytest.fixture(scope="module")
def cases():
    case = load("case30")  # quadratic costs
    return case, with_lines(case, 40)


def whole(case):
    (model,) = zone_models(case, [case.buses.numbers.tolist()]).values()
    d = loads(case, model.buses)
    return CostStep(case, model, d, NONE, np.zeros(0), 1e4).minimum(np.zeros(0), 1.0), d


def test_tangents_bound_a_quadratic_cost_from_below_and_many_of_them_closely(cases):
    smooth, lined = cases
    p_g = np.linspace(smooth.generators.p_min, np.minimum(smooth.generators.p_max, 100.0), 7)
    for p in p_g:
        assert generation_cost(lined, p) <= generation_cost(smooth, p) + 1e-9
        assert generation_cost(lined, p) == pytest.approx(generation_cost(smooth, p), rel=1e-2)


@pytest.mark.runs
def test_a_zone_step_the_central_solver_and_the_AC_optimum_minimise_the_largest_line(cases):
    smooth, lined = cases
    found, d = whole(lined)
    assert found.value == pytest.approx(generation_cost(lined, p_of(lined, found)), rel=1e-6)
    assert found.value == pytest.approx(solve(lined, "cost").value, rel=1e-5)
    assert found.value == pytest.approx(solve(smooth, "cost").value, rel=2e-3)
    recovered = AcSolver(Program.from_case(lined)).solve(d)
    exact = AcSolver(Program.from_case(smooth)).solve(d)
    assert recovered.cost == pytest.approx(exact.cost, rel=2e-3)
    assert recovered.cost == pytest.approx(generation_cost(lined, recovered.p_g))
    assert recovered.cost >= found.value - 1e-3


def p_of(case, least):
    """p_g of the whole case as one zone."""
    (model,) = zone_models(case, [case.buses.numbers.tolist()]).values()
    return np.array([v for key, v in zip(model.keys, least.z, strict=True) if key.startswith("pg:")])
