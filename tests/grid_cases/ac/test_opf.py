"""The AC optimal power flow reaches the published optima and says what it could not serve."""

import sys
from dataclasses import replace

import numpy as np
import pytest

from hushgrid.grid_cases import load
from hushgrid.grid_cases.ac.network import Point, relaxed
from hushgrid.grid_cases.ac.opf import AcDispatch, AcSolver, NoDispatch, recover
from hushgrid.grid_cases.ac.program import Margins, Program
from hushgrid.grid_cases.case import Case, loads
from hushgrid.grid_cases.centralised import solve
from hushgrid.kernels.errors import InputError

#: $/h, every load served. PGLib-OPF v23.07, BASELINE.md, has them to five figures.
OPTIMA = {
    "case5": 17551.89,
    "case14": 2178.08,
    "case30": 8208.52,
    "case39": 138415.6,
    "case57": 37589.34,
    "case118": 97213.6,
    "case300": 565220.0,
}


def own_loads(case: Case) -> np.ndarray:
    return loads(case, tuple(case.buses.numbers.tolist()))


def dispatch(case: Case, d=None, start: Point | None = None, **of) -> AcDispatch:
    pytest.importorskip("casadi", reason="no Ipopt: the extra laptop is not installed")
    found = AcSolver(Program.from_case(case, **of)).solve(own_loads(case) if d is None else d, start)
    assert isinstance(found, AcDispatch), found
    return found


@pytest.mark.runs
@pytest.mark.parametrize("name", OPTIMA)
def test_the_optimum_is_the_published_one_and_keeps_every_limit(name):
    found = dispatch(load(name), voll=None)
    assert found.cost == found.objective == pytest.approx(OPTIMA[name], rel=1e-5)
    assert max(found.violations.values()) == 0
    assert found.mismatch < 1e-8


@pytest.mark.runs
@pytest.mark.parametrize("name", ["case14", "case57", "case118"])
def test_a_value_of_lost_load_changes_nothing_if_every_load_is_worth_serving(name):
    found = dispatch(load(name))
    assert set(found.totals.values()) == {0.0}
    assert found.objective == pytest.approx(OPTIMA[name], rel=1e-5)


@pytest.mark.runs
def test_the_start_at_the_relaxation_leads_to_the_same_optimum():
    case = load("case118")
    solution = solve(case, "cost")
    start = relaxed(case, dict(zip(solution.keys, solution.z.tolist(), strict=True)))
    assert dispatch(case, start=start).objective == pytest.approx(OPTIMA["case118"], rel=1e-5)


@pytest.mark.parametrize(("factor", "mw", "mvar"), [(1.6, 43.91, None), (3.0, 402.60, 140.16)])
def test_loads_beyond_the_capacity_are_served_up_to_it_at_its_cost(factor, mw, mvar):
    case = load("case14")
    found = dispatch(case, factor * own_loads(case))
    unserved = found.totals
    assert found.cost == pytest.approx(4066.02, abs=0.5)
    assert unserved["p_unserved"] * case.base_mva == pytest.approx(mw, abs=0.5)
    if mvar is not None:
        assert unserved["q_unserved"] * case.base_mva == pytest.approx(mvar, abs=0.5)
    lost = found.slack.sum() * case.base_mva * 10_000
    assert found.objective == pytest.approx(found.cost + lost, rel=1e-9)
    assert found.mismatch < 1e-8


def test_loads_beyond_the_capacity_have_no_dispatch_if_all_must_be_served():
    pytest.importorskip("casadi", reason="no Ipopt: the extra laptop is not installed")
    case = load("case14")
    found = AcSolver(Program.from_case(case, voll=None)).solve(3 * own_loads(case))
    assert isinstance(found, NoDispatch)
    assert found.reason == "failed"
    assert "Infeasible_Problem_Detected" in found.why


@pytest.mark.runs
def test_load_whose_service_costs_more_than_the_value_of_lost_load_is_not_served():
    """case300: a fifth of a MVAr; served too, the least cost is 1,016 $/h higher (OPTIMA)."""
    found = dispatch(load("case300"))
    assert found.objective == pytest.approx(564204.4, rel=1e-5)
    assert found.totals["q_unserved"] * 100 == pytest.approx(0.2153, abs=1e-3)


def test_one_program_is_solved_for_many_loads():
    pytest.importorskip("casadi", reason="no Ipopt: the extra laptop is not installed")
    case = load("case30")
    solver, d = AcSolver(Program.from_case(case)), own_loads(case)
    lighter, own = (solver.solve(k) for k in (0.9 * d, d))
    assert isinstance(lighter, AcDispatch)
    assert isinstance(own, AcDispatch)
    assert lighter.objective < own.objective == pytest.approx(OPTIMA["case30"], rel=1e-5)
    again = dispatch(case, 0.9 * d)
    assert np.array_equal(again.p_g, lighter.p_g)


@pytest.mark.runs
def test_margins_are_kept_where_that_is_cheap_and_given_up_where_it_is_dear():
    case = load("case118")
    g = case.generators
    margins = Margins(v=0.005, rating=0.05, p=0.1 * (g.p_max - g.p_min), q=0.1 * (g.q_max - g.q_min))
    plain, careful = dispatch(case), dispatch(case, margins=margins)
    assert careful.objective >= careful.cost > plain.cost
    apparent = np.hypot(careful.flows[:, [0, 2]], careful.flows[:, [1, 3]]).max(axis=1)
    assert np.all(apparent < 0.95 * case.lines.rate + 1e-3)  # ratings: dear to nobody here
    assert np.mean(careful.v > case.buses.v_max - 0.004) < np.mean(plain.v > case.buses.v_max - 0.004)
    free = dispatch(case, margins=replace(margins, price=1e-3))
    assert free.cost == pytest.approx(plain.cost, rel=1e-5)


def test_a_concave_cost_and_loads_of_another_shape_are_refused_in_one_line():
    case = load("case14")
    concave = replace(case, generators=replace(case.generators, cost_2=-np.ones(5)))
    with pytest.raises(InputError, match="generator row 0: found a concave cost, expected c2 >= 0"):
        recover(concave, own_loads(case))
    with pytest.raises(InputError, match=r"loads: found shape \(14,\), expected \(28,\) finite numbers"):
        recover(case, own_loads(case)[:14])


def test_without_an_ipopt_the_outcome_is_absent_and_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "casadi", None)
    case = load("case14")
    found = recover(case, own_loads(case))
    assert isinstance(found, NoDispatch)
    assert found.reason == "absent"
    assert "hushgrid[laptop]" in found.why


def test_a_case_of_one_bus_and_no_line_is_solved_too():
    case = load("case14")
    none = np.zeros(len(case.lines), np.bool_)
    one = Case(
        "one",
        100.0,
        replace(case.buses, **{k: getattr(case.buses, k)[:1] for k in case.buses.__dataclass_fields__}),
        replace(case.generators, **{k: getattr(case.generators, k)[:1] for k in case.generators.__dataclass_fields__}),
        replace(case.lines, **{k: getattr(case.lines, k)[none] for k in case.lines.__dataclass_fields__}),
    )
    found = dispatch(one, np.array([1.0, 0.05]))
    assert found.p_g == pytest.approx([1.0])
    assert found.cost == pytest.approx(792.0951, rel=1e-5)
