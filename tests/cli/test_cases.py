"""`hushgrid case`: power-system cases, their zones and their central solution."""

import json

import pytest

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
    ac = json.loads(hushgrid("case", "solve", "case14", "--objective", "cost", "--ac", "--json").out)["ac"]
    assert ac["converged"]
    assert 0 < ac["losses_mw"] < ac["relaxed_losses_mw"] + ac["slack_change_mw"] + 1e-6  # generation covers the losses
    shown = hushgrid("case", "solve", "case14", "--objective", "cost", "--ac").out
    assert f"losses {ac['losses_mw']:.2f} MW" in shown
    assert f"bus {ac['slack_bus']} gives {ac['slack_change_mw']:.2f} MW more" in shown
    assert "limits of voltages and lines hold" in shown
