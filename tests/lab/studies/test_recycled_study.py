"""The study of Recycled ADMM, on short runs: what it pays is what it says, and its tables come from runs."""

from math import inf, isnan, nan

import numpy as np
import pytest

from hushgrid.kernels.privacy import perturbation
from hushgrid.lab.rollout.machines import AllowAll, run_rounds
from hushgrid.lab.studies.common.study import Exact
from hushgrid.lab.studies.papers import recycled, recycled_limits, recycled_runs
from hushgrid.lab.studies.papers.recycled_runs import METHODS, RunsResult, Setting
from hushgrid.node.privacy.noise_source import SeededNoise
from hushgrid.node.problems.records.gate import RowsGate
from tests.support.agents import lockstep_rounds

QUIET = {"variant": "none", "rounds": 4}


@pytest.mark.runs
def test_nodes_learn_from_rows_of_norm_one_that_no_other_node_and_no_test_has():
    learn, test = recycled_runs.adult()
    assert len(learn.b) + len(test.b) == 48_842
    for N in recycled.EPSILONS:
        fs = recycled_runs.losses(N)
        assert np.array_equal(np.concatenate([f.b for f in fs]), learn.b)
        assert all(f.rows == 40_000 / N and f.objective.l2 == 0.22 / N for f in fs)
        assert max(np.max(f.row_norms(2)) for f in fs) <= 1 + 1e-15


@pytest.mark.runs
def test_messages_are_those_of_any_rounds_in_process():
    fs = recycled_runs.losses(5)
    one, two = (
        recycled_runs.fleet(METHODS["R-ADMM"], METHODS["R-ADMM"].keys | QUIET, [Exact(f) for f in fs],
                            recycled_runs.neighbours(5), fs[0].size)
        for _ in range(2)
    )  # fmt: skip
    expected = [sent for _, sent in lockstep_rounds.messages(two)]
    assert np.array_equal(list(run_rounds(one, of_messages=True)), expected)


@pytest.mark.runs
@pytest.mark.parametrize("name", METHODS)
def test_every_gate_has_spent_the_total_that_the_table_says(name):
    method, fs = METHODS[name], recycled_runs.losses(5)
    keys = method.keys | {"rounds": 4, "variant": "guarded"} | ({"step": 0.01} if "linearised" in name else {})
    answers = method.params(**keys).answers
    assert answers == (2 if "R-ADMM" in name else 4)
    t = recycled_runs.terms(method.mechanism, 2.0, answers)
    gates = [RowsGate(f"n00{i}", f, t, SeededNoise(0, f"n00{i}"), AllowAll()) for i, f in enumerate(fs)]
    fleet = recycled_runs.fleet(method, keys, gates, recycled_runs.neighbours(5), fs[0].size)
    assert len(list(run_rounds(fleet, of_messages=True))) == 4
    for gate in gates:
        assert len(gate.spends) == answers
        assert t.cost(answers) == pytest.approx(2.0, rel=1e-9)
        assert all(s.value <= t.per_answer for s in gate.spends)


@pytest.mark.runs
def test_32_asks_more_for_the_same_noise_and_a_price_of_one_iteration_less():
    """An answer at epsilon has 2 C alpha/B = epsilon (1 - 2^-10) - ln(1 + x), x = C c1/(B mu); (32) adds 2.8 x to
    it.
    """
    dual = recycled_runs.run(Setting("5", "ADMM", {}, 8.0, rounds=4), 0)
    assert dual.stated == pytest.approx(8.0 / 4)
    o = recycled_runs.losses(5)[0].objective
    for method, etas in (("R-ADMM", (1.0, 1.0)), ("MR-ADMM", (1.04, 1.04**2))):
        x = 1750 / 4 / 8000 / (o.l2 + 2 * np.outer([len(js) for js in recycled_runs.neighbours(5)], etas))
        expected = np.max(np.sum(4.0 * (1 - perturbation.SHARE) - np.log1p(x) + 2.8 * x, axis=1))
        said = recycled_runs.run(Setting("5", method, {}, 8.0, rounds=4), 0).stated
        assert said == pytest.approx(expected, rel=1e-9)
        assert said > 8.0


@pytest.mark.runs
def test_equal_answers_are_equal_noise():
    """What R-ADMM gains over ADMM at one total and one number of rounds is the noise of half the answers."""
    half = recycled_runs.run(Setting("5", "ADMM", {}, 8.0, rounds=2), 0)
    recycled_admm = recycled_runs.run(Setting("5", "R-ADMM", {}, 8.0, rounds=4), 0)
    assert half.alpha == recycled_admm.alpha
    assert half.loss[0, 0] == recycled_admm.loss[0, 0]


@pytest.mark.runs
def test_what_the_gate_refuses_has_no_figure():
    found = recycled_runs.measure(Setting("5", "ADMM", {}, 0.1, rounds=30, runs=2))
    assert np.isnan(found.loss).all()
    assert all(map(isnan, found.last))


@pytest.mark.runs
def test_without_noise_runs_do_not_differ_and_mr_admm_with_a_constant_eta_is_r_admm():
    constant = {"eta": recycled.Growth(1.0, 1.0)}
    runs = [
        recycled_runs.run(Setting("1c", m, k, rounds=4), s) for m, k, s in (("MR-ADMM", constant, 0), ("R-ADMM", {}, 1))
    ]
    assert np.array_equal(runs[0].loss, runs[1].loss)
    assert runs[0].loss[0, 0] > runs[0].loss[0, 2]


@pytest.mark.runs
def test_node_penalties_end_up_at_the_wrong_limit_and_edge_penalties_at_the_optimum():
    (_, _, right_n, wrong_n), (_, _, right_e, wrong_e) = recycled_limits.wrong_limit(rounds=30).rows
    assert wrong_n < right_n / 4
    assert right_e < wrong_e / 4


@pytest.mark.runs
def test_the_stored_gradient_of_an_inexact_solve_tells_the_data_set_and_the_public_one_does_not():
    told = [row[-1] for row in recycled_limits.recycled_gradient(games=16).rows]
    assert told[0] == "16/16"
    assert "16/16" not in told[1:]


@pytest.mark.runs
def test_tables_and_charts_hold_the_mean_and_the_range_over_runs():
    loss = np.array([[0.7, 0.5], [0.7, 0.3]])
    noisy = RunsResult(Setting("5", "R-ADMM", {}, 16.0, rounds=2), loss, np.array([0.2, 0.1]), 1, (1.0, 1.0), 17.0, nan)
    plain = RunsResult(Setting("3", "ADMM", {}, inf, rounds=2), loss[:1], np.array([0.2]), 2, (inf, inf), nan, nan)
    one, second = recycled.tables([plain, noisy])
    assert len(one.rows) == 1
    assert second.rows[0][-4:] == pytest.approx((0.4, 0.2, 0.15, 0.1))
    shown = recycled.panel("5", [plain, noisy])
    low = recycled_runs.lowest(5)
    assert np.allclose(shown.curves["R-ADMM"][1], [0.7 - low, 0.4 - low])
    assert np.allclose(shown.ranges["R-ADMM"], np.array([[0.7, 0.3], [0.7, 0.5]]) - low)
    first = plain._replace(setting=Setting("1a", "ADMM", {}, inf, rounds=2))
    of_20 = [f._replace(setting=f.setting._replace(N=20)) for f in (plain, noisy)]
    assert all("</svg>" in svg for svg in recycled.pictures([first, plain, noisy, *of_20], 2))


def test_figures_ask_for_every_method_at_every_total_and_for_fewer_rounds():
    five = [s for s in recycled.every_setting(runs=3, rounds=6) if s.figure == "5"]
    assert {(s.method, s.N, s.epsilon, s.rounds) for s in five} == {
        (m, N, e, T) for m in METHODS for N, es in recycled.EPSILONS.items() for e in es for T in (6, *recycled.SHORTER)
    }
