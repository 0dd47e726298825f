"""The verdict on an answer: its bounds against what they bound, each verdict by a run that earns it, and from public
numbers alone.
"""

from __future__ import annotations

import json
from math import inf, log, nan, sqrt

import numpy as np
import pytest

from hushgrid.broker.report import quality, summary
from hushgrid.broker.report.quality import judged, largest_answer
from hushgrid.broker.report.wording import Records
from hushgrid.broker.simulation import run
from hushgrid.broker.simulation.problems.records import RowSetup
from hushgrid.broker.simulation.setup import prepare
from hushgrid.cli.owner.check import check
from hushgrid.grid_cases import load
from hushgrid.grid_cases.centralised import solve
from hushgrid.kernels.privacy.noise import Lattice
from hushgrid.kernels.privacy.perturbation import spherical
from hushgrid.kernels.problems.centralised import optimum
from hushgrid.node.config.scenario import scenario_from
from tests.support.runs.report_pages import Page
from tests.support.scenarios.record_scenarios import GAUSSIAN, NOT_PRIVATE, iadmm, scenario

POWER = ("generation_mw", "load_mw", "served_mw", "unserved_mw", "spilled_mw")
DEMO = {
    "hushgrid": 1, "name": "demo", "problem": {"kind": "zones", "case": "case14", "zones": 3},
    "algorithm": {"name": "ladmm", "rounds": 30},
    "privacy": {"adjacency": {"bounded-change": 0.01}, "epsilon": 5.0, "mode": "input"},
}  # fmt: skip


# --- the rule ---


@pytest.mark.parametrize(
    ("residual", "size", "noise", "largest", "met", "verdict"),
    [
        (0.1, 1.0, 0.0, inf, False, "agreed"),  # sqrt(4) |x| = 2: exactly 0.05 of it
        (0.11, 1.0, 0.0, inf, False, "not-converged"),
        (0.11, 1.0, 0.0, inf, True, "agreed"),  # run.stop was met
        (0.11, 1.0, 0.06, inf, False, "noise-limited"),
        (0.13, 1.0, 0.06, inf, False, "not-converged"),  # beyond twice the noise
        (0.01, 3.1, 9.0, 3.0, False, "diverged"),  # no answer is so large, whatever the noise
        (0.01, 2.9, 0.0, 3.0, False, "agreed"),
        (6.1, 1.0, 0.0, 3.0, False, "diverged"),  # copies farther apart than any answer is large
        (6.1, 1.0, 4.0, 3.0, False, "noise-limited"),
        (nan, nan, 0.0, inf, False, "diverged"),
        (nan, 1.0, 9.0, inf, True, "diverged"),
        (0.0, 0.0, 0.0, inf, False, "agreed"),
        (1.0, 0.0, 0.0, inf, False, "not-converged"),
        (None, 0.0, 0.0, inf, False, "not-converged"),
    ],
)
def test_the_first_verdict_that_applies_is_given(residual, size, noise, largest, met, verdict):
    found = judged(residual, size, 4, noise, largest, None, met)
    assert found.verdict == verdict
    told = dict(found)
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert set(told) >= {"verdict", "residual_relative", "step_ratio"}
    assert quality.sentence(told, Records.differ)


# --- the largest answer ---


@pytest.mark.parametrize("kind", ["logistic", "softmax"])
@pytest.mark.parametrize(
    "over",
    [
        {"problem.l2": 0.01},
        {"problem.l2": 1.0, "problem.scale": 30.0},
        {"problem.regularizer": {"l1": 0.02}, "problem.l2": 0.001},
        {"problem.regularizer": {"l2": 0.01}, "problem.l2": 0.0},
        {"problem.box": 0.1},
    ],
    ids=str,
)
def test_no_optimum_is_larger_than_its_public_bound(kind, over):
    classes = {"problem.kind": "softmax", "problem.classes": 3} if kind == "softmax" else {}
    for seed in range(3):
        setup = prepare(
            scenario_from(scenario({**over, **classes, **NOT_PRIVATE, "problem.data.synthetic.seed": seed}))
        )
        best = optimum(setup.losses, setup.public.regularizer)
        assert np.linalg.norm(best.x) <= largest_answer(setup.public) < inf


def test_the_bound_is_the_one_derived():
    shown = prepare(scenario_from(scenario({"problem.l2": 0.016, "problem.scale": 16.0}))).public
    assert largest_answer(shown) == pytest.approx(sqrt(16 * log(2) / 0.016), rel=1e-8)  # adult-ring's: 26.3
    assert largest_answer(prepare(scenario_from(scenario({"problem.l2": 0.0}))).public) == inf


# --- what noise explains ---


@pytest.mark.parametrize(
    "lattice", [Lattice.laplace(0.5, 1.0, 4), Lattice.gaussian(0.5, 1.0, 4)], ids=["laplace", "gaussian"]
)
def test_the_mean_square_of_noise_is_that_of_samples(lattice):
    """40,000 coordinates: five standard errors of a mean of squares, whose relative spread is at most sqrt(5)."""
    n = lattice.sample(40_000) * lattice.g
    assert np.mean(n**2) == pytest.approx(quality.mean_square(lattice), rel=5 * sqrt(5 / 40_000))


@pytest.mark.runs
def test_the_mean_square_of_a_perturbed_objective_is_that_of_samples():
    """|eps| is Gamma(d, 1/alpha): E|eps|^2 = d (d + 1)/alpha^2, its square's relative spread 1 for d = 6."""
    d, alpha = 6, 2.0
    drawn = [float(np.sum(spherical(d, alpha, np.random.default_rng(s).bytes)[0] ** 2)) for s in range(4000)]
    assert np.mean(drawn) == pytest.approx(d * (d + 1) / alpha**2, rel=5 / sqrt(4000))


@pytest.mark.runs
def test_noise_that_drowns_the_data_is_what_limits_the_answer():
    """At epsilon 1 of 20 answers of 10 records the copies are noise; without noise such nodes agree."""
    over = {"algorithm.rounds": 40, "algorithm.alpha": 1.0, "problem.l2": 0.001, "algorithm.walk": "hamiltonian"}
    assert run(scenario({**over, "privacy.epsilon": 20.0})).quality["verdict"] == "noise-limited"
    plain = run(iadmm({**NOT_PRIVATE, "problem.l2": 0.1, "algorithm.rounds": 100})).quality
    assert plain["verdict"] == "solved"
    assert plain["noise_relative"] == 0


def test_too_few_rounds_are_not_converged_and_no_noise_is_blamed():
    result = run(scenario({**NOT_PRIVATE, "algorithm.rounds": 4}))
    assert result.quality["verdict"] == "not-converged"
    assert "that shows the optimum to be near" in quality.sentence(result.quality, Records.differ)


# --- runs that look well and are not ---


@pytest.mark.runs
def test_agreement_that_averaging_has_made_is_not_taken_for_a_good_answer():
    """At epsilon 1 each node has noise; forty rounds of averaging later all have the same noise."""
    raw = scenario({"algorithm": {"name": "dgd", "rounds": 10, "step_size": 1.0}, "privacy.epsilon": 1.0})
    plain, found = (
        run(raw | {"seed": 1}),
        run(raw | {"seed": 1, "algorithm": raw["algorithm"] | {"finish": {"gossip": 40}}}),
    )
    assert plain.quality["before_averaging"] is None
    assert "averaged" not in quality.sentence(plain.quality, Records.differ)
    assert found.quality["verdict"] == "noise-limited"  # they agree, and it is not the optimum
    assert found.quality["residual_relative"] < 0.01
    before = plain.consensus_residual / (2 * found.quality["size"])
    assert before > 0.05
    assert found.quality["before_averaging"] == pytest.approx(before)
    assert f"averaged; before that by {quality.percent(before)}, no more than" in quality.sentence(
        found.quality, Records.differ
    )


FAR = {"problem.l2": 4.0, "privacy.epsilon": 500.0}  # L = 4.25; steps of three to four times their bounds


@pytest.mark.runs
@pytest.mark.parametrize(
    "raw",
    [
        iadmm({**FAR, "algorithm.rho": 1.2, "algorithm.rounds": 40}),
        scenario({**FAR, "algorithm": {"name": "extra", "rounds": 20, "step_size": 0.6}}),
    ],
    ids=["iadmm", "extra"],
)
def test_a_run_that_goes_far_out_is_called_diverged_beside_its_privacy(raw, tmp_path):
    result = run(raw, out=tmp_path / "run")
    assert result.privacy["upheld"] is True
    assert result.quality["verdict"] == "diverged"
    html = (tmp_path / "run" / "report.html").read_text()
    assert '<section class="banner upheld"' in html
    assert '<section class="banner diverged"' in html
    assert "\nDiverged\n" in Page(html).text
    assert "\n  quality" in summary.text(result, scenario_from(raw))


@pytest.mark.parametrize(
    ("verdict", "over"), [("solved", {"algorithm.step_size": 0.2}), ("diverged", {"algorithm.step_size": 2.7})]
)
def test_the_verdict_of_an_upheld_run_is_of_released_values_and_the_plan(verdict, over, monkeypatch):
    """No loss is computed from raw rows for it: what tests the answer are the gates' answers."""
    monkeypatch.setattr(RowSetup, "losses", property(lambda setup: pytest.fail("raw rows were read")))
    raw = scenario({"problem.l2": 1.0, "algorithm": {"name": "nids", "rounds": 20}, "privacy.epsilon": 1e5, **over})
    result = run(raw)
    assert result.privacy["upheld"] is True
    assert result.quality["verdict"] == verdict
    assert result.quality["bound"]["confidence"] == 0.999


# --- zones ---


@pytest.mark.runs
def test_a_private_run_of_mode_input_tells_what_is_served_of_the_noisy_loads():
    result = run(DEMO)
    assert result.privacy["upheld"] is True
    told = {key: getattr(result, key) for key in POWER}
    assert told["served_mw"] + told["unserved_mw"] == pytest.approx(told["load_mw"])
    # What is generated and not spilled serves the load or is lost in the lines, whose model has no negative losses.
    assert told["generation_mw"] - told["spilled_mw"] >= told["served_mw"] - 1e-6
    base = load("case14").base_mva
    made = sum(value for _, quantity, _, value, *_ in result.setpoints if quantity == "p_g")
    assert told["generation_mw"] == pytest.approx(made)
    # 28 loads, 14 of them active, each with Laplace noise of scale beta/epsilon = 0.2 MW: 12 scales of their sum's root
    # of variance, sqrt(28) 0.2 MW, at once the chance that a sum of Laplace deviates goes beyond is below 1e-9.
    true = float(np.sum(load("case14").buses.p_d)) * base
    assert told["load_mw"] == pytest.approx(true, abs=12 * sqrt(28) * 0.2)
    assert result.objective >= result.optimality_gap - 1e-9
    assert result.history["objective"] == [None] * 30


@pytest.mark.parametrize("privacy", [{"mode": "objective"}, {"mode": "objective", "at": "gradient"}])
def test_a_private_run_of_mode_objective_tells_nothing_of_the_loads(privacy):
    result = run({**DEMO, "algorithm": {"name": "ladmm", "rounds": 3}, "privacy": DEMO["privacy"] | privacy})
    assert {getattr(result, key) for key in (*POWER, "objective", "optimality_gap")} == {None}


@pytest.mark.runs
def test_the_loads_told_of_are_the_gates_and_the_raw_ones_only_where_nothing_is_private():
    plain = {key: value for key, value in DEMO.items() if key != "privacy"}
    open_run = run({**plain, "algorithm": {"name": "ladmm", "rounds": 3, "variant": "none"}})
    true = float(np.sum(load("case14").buses.p_d)) * load("case14").base_mva
    assert open_run.load_mw == pytest.approx(true)
    seeded = run({**DEMO, "algorithm": {"name": "ladmm", "rounds": 3}}, seed=1)
    assert seeded.load_mw != pytest.approx(true, abs=1e-6)


@pytest.mark.runs
def test_the_gap_at_the_noisy_loads_is_to_the_central_optimum_of_these_loads(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "hushgrid.broker.simulation.problems.power_flow.solve",
        lambda case, kind: asked.append(case) or solve(case, kind),
    )
    result = run({**DEMO, "algorithm": {"name": "ladmm", "rounds": 3}}, out=tmp_path / "run")
    (case,) = asked
    assert float(np.sum(case.buses.p_d)) * case.base_mva == pytest.approx(result.load_mw)
    assert result.optimality_gap == pytest.approx(result.objective - solve(case).value)
    text = Page((tmp_path / "run" / "report.html").read_text()).text
    assert "are generated for a load of" in text
    assert "Objective, at the gate's noisy loads" in text
    assert "withheld" not in text


@pytest.mark.runs
def test_the_summary_begins_with_what_is_served_and_how_good_it_is():
    lines = summary.text(run(DEMO), scenario_from(DEMO)).splitlines()
    assert " MW generated for a load of " in lines[1]
    assert lines[2].startswith("  quality")


# --- check ---


@pytest.mark.parametrize(
    ("raw", "unit"),
    [
        (scenario(), "20 activations"),
        (scenario({"algorithm": {"name": "nids", "rounds": 5, "step_size": 0.1}, **GAUSSIAN}), "5 rounds"),
        (DEMO, "30 rounds"),
    ],
    ids=["token", "neighbours", "star"],
)
def test_check_counts_in_the_patterns_own_unit(raw, unit, tmp_path):
    (tmp_path / "s.yaml").write_text(json.dumps(raw))
    assert f", {unit}, " in check(tmp_path / "s.yaml")


@pytest.mark.runs
def test_check_and_summary_tell_the_steps_ratio_to_its_bound(tmp_path, monkeypatch):
    for module in ("cli.owner.check", "broker.simulation.problems.on_graph"):
        monkeypatch.setattr(f"hushgrid.{module}.step_ratio", lambda plan: 2.0)
    (tmp_path / "s.yaml").write_text(json.dumps(scenario()))
    assert "step 2 times its public bound" in check(tmp_path / "s.yaml")
    assert "the step is 2 times its public bound" in summary.text(run(scenario()), scenario_from(scenario()))
