"""The league table and DPP2's figures, on small settings: their figures come from runs, and are what their columns say."""

from math import inf, isfinite, nan

import numpy as np
import pytest

from hushgrid.broker.simulation import run
from hushgrid.kernels.algorithms.registry import ALGORITHMS
from hushgrid.node.problems.records.kind import KIND as RECORDS
from hushgrid.studies import dpp2_figures, league
from hushgrid.studies.league import METHODS, PRIVACY, Race, Task

EPSILON = 50.0


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(league, "ROWS", 100)


@pytest.fixture
def in_turn(monkeypatch):
    for study in (league, dpp2_figures):
        monkeypatch.setattr(study, "on_two", lambda work, tasks, name: [work(task) for task in tasks])


def guarded(method, answers, epsilon=EPSILON, parameters=0):
    m = METHODS[method]
    algorithm = m.algorithm | m.grid[parameters]
    privacy = PRIVACY[m.asks] | {"epsilon": epsilon}
    return league.scenario(algorithm, league.rounds_of(algorithm, answers), 0, privacy)


# --- the league ---


def test_every_algorithm_that_solves_data_problems_races_under_titles_of_its_own():
    on_a_graph = {name for name in RECORDS.algorithms if ALGORITHMS[name].networked}
    assert {m.algorithm["name"] for m in METHODS.values()} == on_a_graph
    assert len(METHODS) == sum(len(kind.raced()) for kind in league.RACING.values())


@pytest.mark.parametrize("method", METHODS)
def test_what_is_tuned_is_the_run_itself_to_the_last_bit(small, method):
    raw = guarded(method, 3)
    *_, x = league.played(league.setup_of(raw))
    assert np.array_equal(x, run(raw).solution["x"])


def test_the_tokens_of_the_league_walk_around_a_hamiltonian_cycle():
    plan = league.setup_of(guarded("RECAL, cycle", 1)).plan
    assert (plan.problem.route_is, len(plan.problem.route)) == ("hamiltonian", league.N)


@pytest.mark.parametrize("method", METHODS)
def test_each_line_costs_its_epsilon_by_the_gates_spends_and_counts_what_was_sent(small, method):
    line = league.measure(Task(method, EPSILON, (0,), (1,), (3,)))
    f, walks = line.figures, METHODS[method].declared.pattern == "token"
    if (
        league.declared(guarded(method, 3)["algorithm"] | {"name": METHODS[method].algorithm["name"]}, 9).walks
        == "random"
    ):
        # a node that is asked less often than the cap spends less
        assert 0 < f["epsilon"] <= EPSILON
        assert 3 <= f["answers"] <= max(league.setup_of(guarded(method, 3)).plan.caps) == 11
    else:
        assert 0.99 * EPSILON < f["epsilon"] <= EPSILON
        assert f["answers"] == 3
    per = 1 if walks else METHODS[method].declared.messages * league.N
    assert f["messages"] == per * f["rounds"] - walks  # the last token is not sent on
    assert f["bytes"] > 8 * league.FEATURES * f["messages"]
    assert f["error"] == pytest.approx(line.curve[1][-1], rel=1e-12)
    assert line.curve[0][-1] == f["messages"]


def test_more_privacy_is_more_error(small):
    race = Race()
    little, much = (race.errors(guarded("NIDS", 20, epsilon, parameters=2))[-1] for epsilon in (1000.0, 0.1))
    assert little < 1 < much  # the zero vector's is 1


def test_what_is_refused_is_out_of_the_race(small):
    race = Race()
    assert race.errors(guarded("ADMM (dual perturbation)", 20, epsilon=0.01)).tolist() == [inf]
    raw = guarded("DPP2", 2)
    raw["algorithm"]["alpha"] = 4.0  # DPP2 may diverge
    assert race.errors(raw).tolist() == [inf]


@pytest.mark.parametrize("method", ["NIDS", "RECAL, cycle"])
def test_without_privacy_a_line_has_the_fewest_rounds_to_the_accuracy(small, method):
    race = Race()
    algorithm, rounds, reached = league.fastest(race, method)
    assert reached
    errors = [race.errors(league.scenario(algorithm, k, 0, None))[-1] for k in (rounds - 1, rounds)]
    assert errors[0] > league.ACCURACY >= errors[1]


def test_what_never_gets_there_is_said_to_take_more_than_the_limit(small, monkeypatch):
    monkeypatch.setattr(league, "LIMIT", 5)
    line = league.measure(Task("DGD", inf, (0,), (), None))
    assert not line.reached
    assert league.row(line)[league.COLUMNS.index("rounds or activations")] == "> 5"
    assert line.figures["error"] > league.ACCURACY


@pytest.mark.parametrize("method", league.PUBLISHED)
def test_what_is_published_has_no_honest_epsilon(small, monkeypatch, method):
    monkeypatch.setattr(league, "PUBLISHED_ANSWERS", 3)
    line = league.measure(Task(method, nan, (0,), (), None))
    assert line.figures["epsilon"] == inf
    assert isfinite(line.figures["error"])


def test_the_league_is_written_best_first(small, in_turn, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(league, "LIMIT", 60)
    league.league(("EXTRA", "NIDS"), (EPSILON,), ("PPDC",), (0,), (1,), (2,), tmp_path)
    text = (tmp_path / "league-table.md").read_text()
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## Honest total ε = 50 of each node, δ = 1e-05",
        "## Without privacy, to a relative error of 1e-06",
        "## As published: no honest ε",
    ]
    rows = (tmp_path / "league-table-1.csv").read_text().splitlines()[-2:]
    assert sorted(row.split(",")[0] for row in rows) == ["EXTRA", "NIDS"]
    errors = [float(row.split('"')[-1].split(",")[1] if '"' in row else row.split(",")[5]) for row in rows]
    assert errors == sorted(errors)
    assert "</svg>" in (tmp_path / "league-table.svg").read_text()
    capsys.readouterr()


# --- DPP2's Figures 1 to 3 ---


def task(figure="1", method="DPP2", r=0.9, u=1.0, eta="random", rounds=60):
    return dpp2_figures.Task(figure, method, r, u, eta, 6, rounds)


def test_eta_changes_no_x_and_makes_y_grow():
    """Rounding alone: 60 rounds of numbers below 1e3."""
    less, more = (dpp2_figures.measure(task(eta=eta)) for eta in (0.9, 0.1))
    assert np.max(np.abs(less.x - more.x)) < 1e-9
    assert more.said > less.said > 0


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


def test_the_figures_are_written(in_turn, tmp_path, capsys):
    dpp2_figures.figures(n=6, rounds=20, rivalry=(0.5,), target=tmp_path)
    text = (tmp_path / "dpp2-figures.md").read_text()
    assert text.count("## ") == 5
    assert "| 0.5 | PPDC |" in text
    assert [row.split(",")[0] for row in (tmp_path / "dpp2-figures-3.csv").read_text().splitlines()[-5:]] == [
        "20", "40", "80", "160", "320",
    ]  # fmt: skip
    capsys.readouterr()
