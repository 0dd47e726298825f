"""Costs of generation: polynomials, and convex piecewise-linear costs as the largest of their lines."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from hushgrid.grid_cases import load
from hushgrid.grid_cases.case import CostLines
from hushgrid.grid_cases.costs import of_generation
from hushgrid.grid_cases.matpower import parse
from hushgrid.kernels.errors import InputError
from tests.support import examples

# Base 50 MVA. Generator rows 0 and 2 cost piecewise linearly, row 1 by a polynomial, row 3 is out of service.
FOUR = """mpc.version = '2';
mpc.baseMVA = 50;
mpc.bus = [1 3 0 0 0 0 1 1 0 1 1 1.1 0.9; 2 1 25 0 0 0 1 1 0 1 1 1.1 0.9];
mpc.gen = [1 0 0 9 -9 1 100 1 60 0; 1 0 0 9 -9 1 100 1 40 0; 2 0 0 9 -9 1 100 1 30 0; 2 0 0 9 -9 1 100 0 30 0];
mpc.gencost = [
    1 0 0 4 0 0 12 144 36 1008 60 2832;
    2 0 0 3 0.01 5 100 0 0 0 0 0;
    1 0 0 2 -10 50 30 450 0 0 0 0;
    1 0 0 2 0 0 0 0 0 0 0 0;
];
mpc.branch = [1 2 0.01 0.1 0 0 0 0 0 0 1 -30 30];
"""
POINTS = np.array([[0, 0], [12, 144], [36, 1008], [60, 2832]], float)


def read(text: str):
    return parse(text.encode(), "four", "four.m")


def test_the_lines_of_a_piecewise_cost_are_in_dollars_an_hour_of_per_unit():
    case = read(FOUR)
    piecewise = case.piecewise
    assert piecewise.generator.tolist() == [0, 0, 0, 2]
    # 12, 36 and 76 $/MWh, then 10 $/MWh; times 50 MVA. Intercepts: 0, 144 - 36 12, 1008 - 76 36; 50 + 10 10.
    assert piecewise.slope.tolist() == pytest.approx([600, 1800, 3800, 500])
    assert piecewise.intercept.tolist() == pytest.approx([0, -288, -1728, 150])
    assert np.isnan(case.generators.cost_1).tolist() == [True, False, True]
    assert case.generators.cost_2[1] == 25.0
    assert case.without_cost().tolist() == []


@pytest.mark.parametrize("mw", [-5.0, 0.0, 7.0, 12.0, 20.0, 36.0, 59.0, 60.0])
def test_a_piecewise_cost_goes_through_its_points_and_on_along_its_last_segments(mw):
    expected = np.interp(mw, POINTS[:, 0], POINTS[:, 1]) if mw >= 0 else 12 * mw
    costs = of_generation(read(FOUR), np.array([mw, 20.0, 20.0]) / 50)
    assert costs.tolist() == pytest.approx([expected, 0.01 * 400 + 5 * 20 + 100, 350.0])


@examples.of(50)
@given(
    st.lists(st.tuples(st.floats(0.1, 50), st.floats(0, 20)), min_size=1, max_size=6),
    st.floats(-30, 100),
    st.floats(0, 1),
)
def test_any_ascending_convex_points_are_met(steps, first, at):
    widths, rises = zip(*steps, strict=True)
    mw = first + np.concatenate([[0], np.cumsum(widths)])
    dollars = np.concatenate([[0], np.cumsum(np.cumsum(rises) * widths)])
    row = " ".join(f"{p!r} {f!r}" for p, f in zip(mw.tolist(), dollars.tolist(), strict=True))
    text = FOUR.replace("1 0 0 4 0 0 12 144 36 1008 60 2832", f"1 0 0 {len(mw)} {row}")
    width = 4 + 2 * len(mw)
    rows = [line.split(";")[0].split() for line in text.split("mpc.gencost = [\n")[1].split("\n")[:4]]
    padded = ";\n".join(" ".join((r + ["0"] * width)[: max(width, 8)]) for r in rows)
    text = text.split("mpc.gencost")[0] + f"mpc.gencost = [{padded}];\n" + FOUR[FOUR.index("mpc.branch") :]
    p = mw[0] + at * (mw[-1] - mw[0])
    found = of_generation(read(text), np.array([p, 0, 0]) / 50)[0]
    assert found == pytest.approx(np.interp(p, mw, dollars), rel=1e-5, abs=1e-5 * max(1.0, dollars[-1]))


def test_a_linear_program_with_a_row_for_each_line_finds_the_cheapest_dispatch():
    """60 MW from rows 0 and 2: 30 MW from row 2 at 10 $/MWh; the rest 12 MW at 12 and 18 MW at 36 $/MWh."""
    case = read(FOUR)
    lines, count = case.piecewise, 2
    place = {0: 0, 2: 1}
    rows = np.zeros((len(lines), 2 * count))  # p of both, then the cost t of both: slope p - t <= -intercept
    for k, (g, slope) in enumerate(zip(lines.generator.tolist(), lines.slope.tolist(), strict=True)):
        rows[k, [place[g], count + place[g]]] = slope, -1
    bounds = [(0, 1.2), (-0.2, 0.6), (None, None), (None, None)]
    found = linprog([0, 0, 1, 1], rows, -lines.intercept, [[1, 1, 0, 0]], [60 / 50], bounds)
    assert found.x[:2] * 50 == pytest.approx([30, 30])
    assert found.fun == pytest.approx(144 + 18 * 36 + 450)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("36 1008 60 2832", "36 1008 36 2832", "four.m:6: found 36 MW after 36 MW in a piecewise-linear cost"),
        ("36 1008 60 2832", "10 1008 60 2832", "four.m:6: found 10 MW after 12 MW in a piecewise-linear cost"),
        ("36 1008 60 2832", "36 2000 60 2832", "four.m:6: found a piecewise-linear cost that is concave at 36 MW"),
        ("1 0 0 4 0 0", "1 0 0 1 0 0", "four.m:6: found 1 points of a piecewise-linear cost in 12 columns"),
        ("1 0 0 4 0 0", "1 0 0 5 0 0", "four.m:6: found 5 points of a piecewise-linear cost in 12 columns"),
        ("1 0 0 4 0 0", "1 0 0 2.5 0 0", "four.m:6: found 2.5 points of a piecewise-linear cost in 12 columns"),
        ("1 0 0 2 -10 50", "1 0 0 2 -Inf 50", "four.m:8: found a point of a piecewise-linear cost that is not finite"),
    ],
)
def test_a_piecewise_cost_that_is_no_convex_function_is_refused_in_one_line(old, new, said):
    assert old in FOUR
    with pytest.raises(InputError) as error:
        read(FOUR.replace(old, new))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_points_that_were_rounded_are_no_reason_to_refuse():
    text = FOUR.replace("0 0 12 144 36 1008 60 2832", "0 0 3.33333 1 6.66667 2 10 3")  # a straight line, rounded
    assert of_generation(read(text), np.array([0.1, 0, 0]))[0] == pytest.approx(1.5, rel=1e-5)


def test_generators_without_either_cost_are_known():
    case = read(FOUR.replace("2 0 0 3 0.01 5 100 0", "2 0 0 4 0.01 5 100 1"))  # a cubic
    assert case.without_cost().tolist() == [1]
    assert np.isnan(of_generation(case, np.zeros(3))).tolist() == [False, True, False]


def test_the_public_digest_sees_piecewise_costs_and_is_as_before_without_them():
    case = read(FOUR)
    steeper = replace(case, piecewise=replace(case.piecewise, slope=case.piecewise.slope * 1.01))
    assert case.public_digest() != steeper.public_digest()
    # Ledgers, caches and plans of earlier versions name this case so.
    assert load("case14").public_digest()[:16] == "2a38d0ec63fb44c5"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (CostLines([3], [1.0], [0.0]), "piecewise cost of generator 3: found no such generator"),
        (CostLines([0], [np.inf], [0.0]), "generator row 0: found a slope of its cost not finite"),
        (CostLines([1], [1.0], [0.0]), "generator row 1: found a polynomial and a piecewise-linear cost"),
    ],
)
def test_a_case_with_impossible_cost_lines_is_refused(lines, said):
    with pytest.raises(InputError, match=said):
        replace(read(FOUR), piecewise=lines)
