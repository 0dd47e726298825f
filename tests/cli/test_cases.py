"""`hushgrid case`: power-system cases, their zones and their central solution."""

import json
import re
import sys

import pytest

from tests.support.paths import ROOT
from tests.support.scenarios.parted_cases import path, text

CASES = ROOT / "grid_cases"

# --- cases ---


def test_the_cases_are_listed_with_their_sizes(hushgrid):
    lines = hushgrid("case", "list").out.splitlines()
    assert lines[0].split()[:4] == ["case", "buses", "lines", "generators"]
    sizes = {line.split()[0]: line.split()[1:5] for line in lines[1:]}
    assert sizes["case14"] == ["14", "20", "5", "259.0"]
    assert sizes["case118"] == ["118", "186", "54", "4242.0"]


def test_a_case_is_shown_in_figures(hushgrid):
    seen = json.loads(hushgrid("case", "show", "case14", "--json").out)
    assert (seen["buses"], seen["loaded_buses"], seen["load_mw"]) == (14, 11, pytest.approx(259.0))
    shown = hushgrid("case", "show", "case14").out
    assert "259.0 MW, 73.5 MVAr" in shown
    assert "  costs       5 polynomial\n" in shown


def test_the_zones_of_a_case_their_tie_lines_and_their_models(hushgrid, tmp_path):
    lists = "[[1, 2, 3, 4, 5], [7, 8, 9, 10, 14], [6, 11, 12, 13]]"
    seen = json.loads(hushgrid("case", "zones", "case14", "--zones", lists, "--export", "models", "--json").out)
    assert seen["zones"]["z2"] == [7, 8, 9, 10, 14]
    assert {(t["from"], t["to"]) for t in seen["tie_lines"]} == {(4, 7), (4, 9), (5, 6), (10, 11), (13, 14)}
    assert sorted(p.name for p in (tmp_path / "models").iterdir()) == ["z1.npz", "z2.npz", "z3.npz"]
    from hushgrid.grid_cases.zone.model import load_model

    assert load_model(tmp_path / "models" / "z3.npz").buses == (6, 11, 12, 13)
    shown = hushgrid("case", "zones", "case14", "--zones", lists).out
    assert "case14: 3 zones, 5 tie lines" in shown
    assert "\n  z2  7-10 14\n  z3  6 11-13\n" in shown
    assert "without a generator" not in shown


def test_zones_without_a_generator_are_said(hushgrid):
    lists = "[[1, 2, 3, 4, 5], [7, 8], [6, 11, 12, 13], [9, 10, 14]]"
    assert json.loads(hushgrid("case", "zones", "case14", "--zones", lists, "--json").out)["without_generator"] == [
        "z4"
    ]
    shown = hushgrid("case", "zones", "case14", "--zones", lists).out
    assert "without a generator, so all power comes over tie lines: z4" in shown


def test_the_central_solution_serves_every_load_at_the_published_cost(hushgrid):
    """PGLib-OPF v23.07, BASELINE.md: case14_ieee, AC 2178.1 $/h, gap of the SOC relaxation 0.11 %."""
    seen = json.loads(hushgrid("case", "solve", "case14", "--objective", "cost", "--json").out)
    assert seen["status"] == "optimal"
    assert seen["value"] == pytest.approx(2178.1 * (1 - 0.0011), abs=0.05 + 2178.1 * 0.00005)
    assert seen["generation_mw"] > seen["load_mw"]
    assert "shedding" in hushgrid("case", "solve", "case14").out


def test_case_solve_says_what_the_network_would_do_at_the_central_solution(hushgrid):
    ac = json.loads(hushgrid("case", "solve", "case14", "--ac", "--json").out)["ac"]
    assert ac["converged"]
    assert 0 < ac["losses_mw"] < ac["relaxed_losses_mw"] + ac["slack_change_mw"] + 1e-6  # generation covers the losses
    shown = hushgrid("case", "solve", "case14", "--ac").out
    assert f"losses {ac['losses_mw']:.2f} MW" in shown
    assert f"bus {ac['slack_bus']} gives {-ac['slack_change_mw']:.2f} MW less" in shown
    assert "limits of voltages and lines hold" in shown


@pytest.mark.runs
@pytest.mark.parametrize(
    ("name", "relaxation", "optimum"), [("case14", 2175.70, 2178.08), ("case300", 550393.75, 565220.0)]
)
def test_case_solve_prints_the_ac_optimum_beside_the_relaxations(hushgrid, name, relaxation, optimum):
    pytest.importorskip("casadi", reason="no Ipopt: the extra laptop is not installed")
    told = json.loads(hushgrid("case", "solve", name, "--objective", "cost", "--ac", "--json").out)
    ac = told["ac"]
    assert [told["value"], told["cost"]] == pytest.approx([relaxation] * 2, rel=1e-5)
    assert [ac["value"], ac["cost"]] == pytest.approx([optimum] * 2, rel=1e-5)
    assert ac["gap_percent"] == pytest.approx(100 * (1 - relaxation / optimum), abs=1e-3)
    assert (told["voll"], ac["unserved_mw"], ac["spilled_mvar"]) == (None, 0, 0)
    assert ac["generation_mw"] - told["load_mw"] - ac["losses_mw"] == pytest.approx(0, abs=4)  # shunts
    assert 0.9 < ac["v_min_pu"] < ac["v_max_pu"] <= 1.1
    shown = hushgrid("case", "solve", name, "--objective", "cost", "--ac").out
    assert f"AC optimum: {ac['value']:.2f} $/h" in shown
    assert f"the relaxation is {ac['gap_percent']:.3f} % below it" in shown


@pytest.mark.runs
def test_case_solve_names_what_is_at_a_limit(hushgrid):
    """PowerModels' AC optimum of case118 has two lines at their ratings."""
    pytest.importorskip("casadi", reason="no Ipopt: the extra laptop is not installed")
    told = json.loads(hushgrid("case", "solve", "case118", "--objective", "cost", "--ac", "--json").out)
    binding = told["ac"]["binding"]
    assert [(line["from"], line["to"]) for line in binding["rating"]] == [(49, 69), (100, 103)]
    assert binding["angle"] == []
    assert told["prices"]["15"] == pytest.approx(28.335, abs=0.05)
    shown = hushgrid("case", "solve", "case118", "--objective", "cost", "--ac").out
    assert "ratings of lines 49-69 100-103" in shown
    assert f"voltages of buses {binding['v'][0]} " in shown


def test_without_an_ipopt_case_solve_says_so_and_prints_the_rest(hushgrid, monkeypatch):
    monkeypatch.setitem(sys.modules, "casadi", None)
    shown = hushgrid("case", "solve", "case14", "--objective", "cost", "--ac").out
    assert "AC optimum: none; Ipopt is not installed: pip install 'hushgrid[laptop]'" in shown
    assert "cost 2175.70 $/h" in shown


@pytest.mark.runs
def test_loads_that_cannot_be_served_are_told_in_mw(hushgrid, tmp_path):
    """case14 with loads times 1.6: 399 MW of capacity for 414.4 MW."""
    pytest.importorskip("casadi", reason="no Ipopt: the extra laptop is not installed")
    (tmp_path / "heavy.m").write_text(with_loads_times(1.6))
    told = json.loads(hushgrid("case", "solve", "heavy.m", "--objective", "cost", "--ac", "--json").out)
    assert told["cost"] == pytest.approx(4066.02, abs=0.5)
    assert (told["unserved_mw"], told["unserved_mvar"]) == pytest.approx((43.91, 59.24), abs=0.5)
    assert told["spilled_mw"] == 0
    assert told["ac"]["unserved_mw"] == pytest.approx(44.03, abs=0.5)
    assert 0 < told["ac"]["gap_percent"] < 0.1
    shown = hushgrid("case", "solve", "heavy.m", "--objective", "cost").out
    assert "43.91 MW and 59.24 MVAr of load are not served" in shown
    assert "at 10000 $/MWh" in shown


def test_a_concave_cost_is_refused_in_one_line(hushgrid, tmp_path):
    text = (CASES / "pglib_opf_case14_ieee.m").read_text()
    row = next(line for line in text.splitlines() if "7.920951" in line)
    (tmp_path / "concave.m").write_text(text.replace(row, row.replace("0.000000", "-0.100000", 1)))
    ended = hushgrid("case", "solve", "concave.m", "--objective", "cost", "--ac")
    assert ended.code == 2
    assert "found a concave cost, expected c2 >= 0" in ended.err
    assert len(ended.err.splitlines()) == 1


def with_loads_times(factor: float) -> str:
    text = (CASES / "pglib_opf_case14_ieee.m").read_text()
    first = text.index("mpc.bus = [") + len("mpc.bus = [")
    last = text.index("];", first)
    rows = [row.replace(";", "").split() for row in text[first:last].splitlines()]
    heavier = [[*row[:2], str(float(row[2]) * factor), str(float(row[3]) * factor), *row[4:]] for row in rows if row]
    return text[:first] + "\n" + "\n".join("\t".join(row) + ";" for row in heavier) + "\n" + text[last:]


# --- what a case holds beside buses, generators and lines ---


def test_show_names_each_part_and_what_is_not_modelled(hushgrid, tmp_path):
    shown = hushgrid("case", "show", path("t_case9_dcline")).out
    assert "\n  capability-curves  capability curves of 2 generators\n" in shown
    assert "\n  dc-lines           3 dc lines\n" in shown
    (tmp_path / "constrained.m").write_text(f"{text('t_case9_opfv2')}\nmpc.A = [1 0];\nmpc.l = 0;\nmpc.u = 0;\n")
    shown = hushgrid("case", "show", "constrained.m").out
    assert "constraints or costs of the user's own (mpc.A, mpc.l, mpc.u): not modelled\n" in shown
    seen = json.loads(hushgrid("case", "show", "constrained.m", "--json").out)
    assert seen["not_modelled"] == ["constraints"]
    assert list(seen["parts"]) == ["capability-curves", "constraints"]


def test_solve_refuses_what_is_not_modelled_unless_it_is_left_out_by_name(hushgrid, tmp_path):
    (tmp_path / "constrained.m").write_text(f"{text('t_case9_opfv2')}\nmpc.A = [1 0];\nmpc.l = 0;\nmpc.u = 0;\n")
    refused = hushgrid("case", "solve", "constrained.m", "--objective", "cost")
    assert refused.code == 2
    assert "which are not modelled, expected a case without, or ignore: [constraints]" in refused.err
    assert len(refused.err.splitlines()) == 1
    owned = hushgrid("case", "solve", "constrained.m", "--objective", "cost", "--ignore", "constraints").out
    assert "mpc.A, mpc.l, mpc.u): left out (ignore: constraints)\n" in owned
    assert "constrained: cost 6520.54 $/h" in owned


@pytest.mark.runs
def test_solve_counts_generators_and_lines_from_1_and_shows_dc_lines(hushgrid):
    pytest.importorskip("casadi", reason="no Ipopt: the extra laptop is not installed")
    asked = ("case", "solve", path("t_case9_dcline"), "--objective", "cost", "--ac")
    seen = json.loads(hushgrid(*asked, "--json").out)
    assert seen["ac"]["value"] == pytest.approx(6518.894, abs=1e-3)
    assert [(one["row"], one["bus"]) for one in seen["generators"]] == [(1, 1), (2, 2), (3, 30)]
    assert [(one["row"], one["from"], one["to"]) for one in seen["ac"]["dc_lines"]] == [
        (1, 30, 4),
        (2, 7, 9),
        (4, 5, 9),
    ]
    assert seen["ac"]["binding"]["p"] == [1]  # the first row of mpc.gen, at its 90 MW
    assert {"row": 5, "from": 6, "to": 7} in seen["ac"]["binding"]["rating"]
    assert seen["ac"]["prices"]["2"] == pytest.approx(24.035, abs=1e-3)
    shown = hushgrid(*asked).out
    assert re.search(r"\n +1 +30 +4 +10\.00 +8\.90 +10\.00 +8\.90", shown)
    assert "active power of generators 1; capability curves of generators 3; dc lines 1 2 4" in shown


def test_the_zones_of_a_case_name_the_dc_lines_between_them(hushgrid):
    lists = "[[1, 4, 5], [30, 6, 7], [2, 8, 9]]"
    asked = ("case", "zones", path("t_case9_dcline"), "--zones", lists)
    seen = json.loads(hushgrid(*asked, "--json").out)
    assert {(t["row"], t["from"], t["to"]) for t in seen["dc_tie_lines"]} == {(1, 30, 4), (2, 7, 9), (4, 5, 9)}
    assert {t["row"] for t in seen["tie_lines"]} == {3, 6, 9}  # rows of mpc.branch, from 1
    assert "3 dc tie lines" in hushgrid(*asked).out


def test_check_names_what_a_scenario_leaves_out_of_its_case(hushgrid, tmp_path):
    (tmp_path / "constrained.m").write_text(f"{text('case30Q')}\nmpc.A = [1 0];\nmpc.l = 0;\nmpc.u = 0;\n")
    scenario = tmp_path / "scenario.yaml"
    body = (
        "hushgrid: 1\nname: named\nproblem: {{kind: zones, case: constrained.m, zones: 3{}}}\n"
        "algorithm: {{name: consensus-admm, rounds: 50, variant: none}}\n"
    )
    scenario.write_text(body.format(""))
    refused = hushgrid("check", "scenario.yaml")
    assert refused.code == 2
    assert "problem.ignore: case constrained: found constraints or costs of the user's own" in refused.err
    scenario.write_text(body.format(", ignore: [constraints, reactive-costs]"))
    first, *rest = hushgrid("check", "scenario.yaml").out.splitlines()
    assert first.startswith("ok: scenario named: ")
    assert [line.strip() for line in rest] == [
        "reactive costs of 6 generators: left out (ignore: reactive-costs)",
        "constraints or costs of the user's own (mpc.A, mpc.l, mpc.u): left out (ignore: constraints)",
    ]
