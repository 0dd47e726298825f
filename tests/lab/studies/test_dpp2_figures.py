"""DPP2's Figures 1 to 3 on small settings: their figures come from runs, and are what their columns say."""

from math import inf

import numpy as np
import pytest

from hushgrid.lab.studies.papers import dpp2_figures


@pytest.fixture
def in_turn(monkeypatch):
    monkeypatch.setattr(dpp2_figures, "on_two", lambda work, tasks, name: [work(task) for task in tasks])


def task(figure="1", method="DPP2", r=0.9, u=1.0, eta="random", rounds=60):
    return dpp2_figures.Dpp2Task(figure, method, r, u, eta, 6, rounds)


def test_eta_changes_no_x_and_makes_y_grow():
    """Rounding alone: 60 rounds of numbers below 1e3."""
    less, more = (dpp2_figures.measure(task(eta=eta)) for eta in (0.9, 0.1))
    assert np.max(np.abs(less.x - more.x)) < 1e-9
    assert more.merging > less.merging > 0


def test_the_more_noise_the_farther_from_stationary():
    plain, little, much = (dpp2_figures.measure(task("2", r=0.95, u=u)) for u in (0.0, 0.1, 5.0))
    assert plain.optimality[-1] < little.optimality[-1] < much.optimality[-1]
    assert plain.optimality[-1] < plain.optimality[0]


@pytest.mark.parametrize("method", dpp2_figures.METHODS)
def test_the_rivals_run_with_the_papers_parameters(method):
    line = dpp2_figures.measure(task("3", method, r=0.5))
    assert 0 < line.gradient < inf
    assert line.gradient <= line.optimality[-1]  # (31) has N |mean|^2 and the disagreement


def test_the_papers_setting_claims_5e24_and_its_proof_no_less():
    claimed, honest = dpp2_figures.claims(task(rounds=501, eta=0.5))
    assert 5e24 < claimed < 6e24
    assert honest == pytest.approx(claimed, rel=0.05)
    assert dpp2_figures.claims(task(u=0.0)) == (inf, inf)


@pytest.mark.runs
def test_the_page_has_a_table_a_figure(in_turn):
    (page,) = dpp2_figures.study(n=6, rounds=20, rivalry=(0.5,))
    assert len(page.tables) == 5
    assert "| 0.5 | PPDC |" in page.markdown()
    assert [row[0] for row in page.tables[2].rows] == [20, 40, 80, 160, 320]
    assert list(page.pictures) == ["dpp2-figures.svg"]
