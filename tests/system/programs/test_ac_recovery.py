"""The AC optimal power flow in a process of its own, which ends."""

import subprocess
import sys

import numpy as np
import pytest

from hushgrid.broker.report.build import build
from hushgrid.broker.report.run_directory import read
from hushgrid.broker.simulation import run
from hushgrid.grid_cases import load
from hushgrid.grid_cases.ac.network import relaxed
from hushgrid.grid_cases.ac.opf import AcDispatch, AcSolver, NoDispatch, recover
from hushgrid.grid_cases.ac.program import Margins, Program
from hushgrid.grid_cases.case import loads
from tests.support.scenarios.least_cost import scenario
from tests.support.scenarios.parted_cases import ZONES9, ZONES14, ZONES30, path

CASE = load("case30")
LOADS = loads(CASE, tuple(CASE.buses.numbers.tolist()))


@pytest.fixture(autouse=True)
def ipopt():
    pytest.importorskip("casadi", reason="no Ipopt: the extra laptop is not installed")


def test_the_process_gives_the_same_answer_as_a_solve_here():
    g, start = CASE.generators, relaxed(CASE, {"pg:0": 1.0, "c:1": 1.05})
    keep = Margins(v=0.005, p=np.full(len(g), 0.01))
    for voll, margins in ((10_000.0, None), (None, None), (5_000.0, keep)):
        there = recover(CASE, LOADS, start, voll, margins=margins)
        here = AcSolver(Program.from_case(CASE, voll, margins)).solve(LOADS, start)
        assert isinstance(there, AcDispatch)
        assert isinstance(here, AcDispatch)
        for name in ("p_g", "q_g", "v", "angle", "flows", "slack", "price"):
            assert np.array_equal(getattr(there, name), getattr(here, name)), name
        same = ("status", "iterations", "cost", "objective", "mismatch", "violations")
        assert [getattr(there, name) for name in same] == [getattr(here, name) for name in same]


def test_what_has_no_dispatch_and_what_takes_too_long_are_outcomes():
    tripled = recover(CASE, 3 * LOADS, voll=None)
    assert isinstance(tripled, NoDispatch)
    assert tripled.reason == "failed"
    large = load("case300")
    late = recover(large, loads(large, tuple(large.buses.numbers.tolist())), limit_s=1e-3)
    assert isinstance(late, NoDispatch)
    assert late.reason == "time"


def test_the_process_that_asks_never_loads_casadi():
    program = (
        "import sys; from hushgrid.grid_cases import load; from hushgrid.grid_cases.case import loads\n"
        "from hushgrid.grid_cases.ac.opf import recover; c = load('case14')\n"
        "print(recover(c, loads(c, tuple(c.buses.numbers.tolist()))).status, 'casadi' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["solved", "False"]


def test_a_run_with_margins_ends_with_a_dispatch_that_keeps_them_and_costs_more():
    raw = {
        "hushgrid": 1,
        "name": "kept",
        "seed": 3,
        "problem": {"kind": "zones", "case": "case14", "zones": ZONES14, "loads": {"nonzero": "case"}},
        "algorithm": {"name": "consensus-admm", "rounds": 100},
        "privacy": {"adjacency": {"bounded-change": 0.01}, "epsilon": 1.0},
    }
    kept = raw | {"problem": raw["problem"] | {"margins": True}}
    costs, closest = zip(*(ended(one) for one in (raw, kept)), strict=True)
    assert costs[0] + 0.5 < costs[1] < costs[0] + 10
    assert closest[0] < 1e-4  # a voltage at its limit
    assert closest[1] == pytest.approx(0.005, abs=1e-4)


def ended(raw):
    """The cost of a run's AC dispatch, $/h, and the distance of its nearest voltage from a limit, p.u."""
    result = run(raw)
    columns, rows = result.tables["buses"]
    buses = [dict(zip(columns, row, strict=True)) for row in rows]
    near = [min(float(b["v_pu"]) - float(b["v_min"]), float(b["v_max"]) - float(b["v_pu"])) for b in buses]
    return result.summary["ac"]["objective"], min(near)


def test_the_prices_of_AC_rows_are_those_of_the_AC_dispatch():
    """case30, bus 1: its generator is inside its limits and asks 18.42 $/MWh, the relaxation's price is 45.67."""
    found = run(scenario("case30"))
    assert found.ac.status == "solved"
    assert found.prices["1"] == pytest.approx(18.42, abs=0.01)
    assert found.prices_relaxed["1"] == pytest.approx(45.67, abs=0.1)
    buses, generators = (
        [dict(zip(columns, row, strict=True)) for row in rows]
        for columns, rows in (found.tables[name] for name in ("buses", "generation"))
    )
    assert {row["source"] for row in buses} == {"ac"}
    for row in buses:
        assert row["price_per_mwh"] == pytest.approx(found.prices[str(row["bus"])], abs=1e-3)
        assert row["price_relaxed"] == pytest.approx(found.prices_relaxed[str(row["bus"])], abs=1e-3)
    price = {row["bus"]: row["price_per_mwh"] for row in buses}
    inside = [row for row in generators if row["p_min"] + 0.01 < row["p_mw"] < row["p_max"] - 0.01]
    assert inside
    for row in inside:
        assert row["marginal"] == pytest.approx(price[row["bus"]], abs=0.002)


@pytest.mark.parametrize(
    ("name", "zones", "cost"), [("t_case9_dcline", ZONES9, 6518.894), ("case30Q", ZONES30, 623.006)]
)
def test_a_run_over_a_case_with_more_parts_ends_with_its_AC_optimum_and_a_report_of_it(name, zones, cost, tmp_path):
    result = run(scenario(path(name), zones), out=tmp_path / "run")
    assert result.ac.status == "solved"
    assert result.ac.objective == pytest.approx(cost, abs=1e-2)
    text = build(tmp_path / "run").read_text(encoding="utf-8")
    assert ("DC lines" in text) == (name == "t_case9_dcline")
    if "dclines" not in result.tables:
        return
    columns, rows = result.tables["dclines"]
    lines = [dict(zip(columns, row, strict=True)) for row in rows]
    assert [line["p_from"] for line in lines] == pytest.approx([10.0, 7.843, 6.055], abs=2e-3)
    assert {line["source"] for line in lines} == {"ac"}
    assert [row["dcline"] for row in read(tmp_path / "run").tables["dclines"]] == [1, 2, 4]
    released = {(row[1], row[2]): row[3] for row in result.setpoints if row[0] == "z1"}
    assert released["dc_p_T", "0"] == pytest.approx(-8.9, abs=1e-3)
