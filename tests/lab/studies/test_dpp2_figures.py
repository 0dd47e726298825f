"""DPP2's Figures 1 to 3 on small settings: their figures come from runs, and are what their columns say."""

from math import inf

import numpy as np
import pytest

from hushgrid.kernels.algorithms import dmsp, dpp2, weakening
from hushgrid.kernels.algorithms.mixing import metropolis
from hushgrid.kernels.privacy.accounting import gdp_epsilon
from hushgrid.kernels.privacy.limits import mu_max
from hushgrid.lab.rollout.machines import run_rounds
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


# --- one total ---


def test_the_gate_s_noise_of_all_answers_is_the_total_and_no_more():
    """mu of K answers of mu/sqrt(K) each: sd = Delta sqrt(K)/mu, and mu-GDP is (TOTAL, DELTA)."""
    fs, graph = dpp2_figures.problem(6)
    mu = mu_max(dpp2_figures.TOTAL, dpp2_figures.DELTA)
    assert gdp_epsilon(mu, dpp2_figures.DELTA) == pytest.approx(dpp2_figures.TOTAL, rel=1e-6)
    task = dpp2_figures.TotalTask("DiaDSP", "gate", 0.01, 0, 6, 25)
    nodes, _ = dpp2_figures._fleet(task, fs, graph, mu)
    assert nodes[0].gate.sd == pytest.approx(2 * dpp2_figures.CLIP / dpp2_figures.ROWS * 5 / mu, rel=1e-9)
    asked = []
    nodes[0].gate.gradient = lambda x: asked.append(x) or np.zeros(x.size)
    for _ in run_rounds(nodes):
        pass
    assert len(asked) == 25


@pytest.mark.parametrize("method", ["DPP2", "DMSP", "weakening factor"])
def test_a_method_s_own_noise_is_scaled_to_the_same_total(method):
    fs, graph = dpp2_figures.problem(6)
    change, least = fs[0].sensitivity(dpp2_figures.CLIP), min(sum(metropolis(graph, i)) for i in range(6))
    p = dpp2_figures.sections(dpp2_figures.TotalTask(method, "own", 0.01, 0, 6, 25), change, least, fs[0])
    total = {
        "DPP2": lambda: dpp2.epsilon(p, change, dpp2_figures.M, dpp2_figures.D),
        "DMSP": lambda: dmsp.epsilon(p, change, dpp2_figures.D),
        "weakening factor": lambda: weakening.epsilon(
            p, change, dpp2_figures.D, least, fs[0].L, -fs[0].objective.convexity
        ),
    }[method]()
    assert total == pytest.approx(dpp2_figures.TOTAL, rel=1e-9)


@pytest.mark.runs
def test_the_page_has_a_table_a_figure(in_turn):
    (page,) = dpp2_figures.study(n=6, rounds=20, rivalry=(0.5,), steps=(0.01, 0.1))
    assert len(page.tables) == 6
    assert [tuple(row[:2]) for row in page.tables[-1].rows] == [*dpp2_figures.CELLS, ("x = 0", "none")]
    assert "| 0.5 | PPDC |" in page.markdown()
    assert [row[0] for row in page.tables[2].rows] == [20, 40, 80, 160, 320]
    assert list(page.pictures) == ["dpp2-figures.svg"]
