"""Sums of declared statistics end to end in one process: what they say, their noise, what is claimed, paid and
refused.
"""

import csv
from math import sqrt

import numpy as np
import pytest

from hushgrid.broker.report.build import build
from hushgrid.broker.report.result import Result
from hushgrid.broker.simulation import run
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.problems.statistics import STATISTICS
from hushgrid.lab.attacks.attack import attack
from hushgrid.lab.audit.audit import audited
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.problems.statistics.centre import spread
from tests.support.runs.masked_runs import assert_faults_change_nothing, plain, records, summed

TRANSCRIPT = {"run": {"record": "transcript"}}


def exact(raw):
    """By numpy, from all records in one place."""
    A, b = records(raw)
    kind = raw["problem"]["kind"]
    if kind == "histogram":
        return np.array([np.sum(A[:, 0] < 0), np.sum(A[:, 0] >= 0)], dtype=float)
    if kind == "total":
        return np.maximum(np.column_stack([A[:, 0], A[:, 4]]), 0).sum(axis=0)
    if kind == "mean":
        return A.mean(axis=0)
    if kind == "gram":
        V = np.column_stack([A, b])
        return (V.T @ V)[np.triu_indices(6)]
    statistic = scenario_from(raw).problem.statistic  # tests/kernels/problems compares it with a naive twin
    return statistic.estimates(statistic.plain(A, b), 0.0, 5, len(b))[0]


@pytest.mark.parametrize("kind", STATISTICS)
def test_without_privacy_it_is_the_statistic_of_all_records_in_one_place(tmp_path, kind):
    raw = summed(tmp_path, kind)
    result = run(plain(raw))
    assert np.allclose(result.solution["x"], exact(raw), rtol=1e-12)
    assert result.relative_error == 0
    assert result.summary["records"] == 200


@pytest.mark.runs
@pytest.mark.parametrize("masked", [True, False], ids=["masked", "each by itself"])
@pytest.mark.parametrize("kind", STATISTICS)
def test_the_noise_of_each_entry_is_the_one_that_is_said(tmp_path, kind, masked):
    """By 80 seeds, around the sum without noise: chi-square over all entries, within five deviations of its mean."""
    raw = summed(tmp_path, kind, masked=masked)
    found = [run(raw | {"seed": seed}).solution for seed in range(80)]
    quiet = run(raw | {"privacy": raw["privacy"] | {"epsilon": 1e8}}).solution["x"]
    z = np.array([(one["x"] - quiet) / one["sd"] for one in found])
    assert abs(float(np.sum(z**2)) - z.size) < 5 * sqrt(2 * z.size)


def test_masked_the_noise_is_smaller_by_the_root_of_the_honest(tmp_path):
    one, alone = (run(summed(tmp_path, "histogram", masked=m)).solution["sd"][0] for m in (True, False))
    assert one / alone == pytest.approx(1 / sqrt(3), rel=1e-3)  # n shares of t_share against n of sqrt(h) t_share


@pytest.mark.runs
def test_a_histogram_at_epsilon_1_is_a_count_one_can_use(tmp_path):
    """sqrt 2 over mu, by the four shares of three honest ones: 2 sqrt(2)/(mu sqrt 3) = 5.4 counts at epsilon 1."""
    raw = summed(tmp_path, "histogram")
    result = run(raw, out=tmp_path / "run")
    with (tmp_path / "run/sum.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["entry"] for row in rows] == ["-1 to 0", "0 to 1"]
    assert np.allclose([float(row["value"]) for row in rows], result.solution["x"])
    assert all(float(row["sd"]) == pytest.approx(2 * sqrt(2) / (0.2631 * sqrt(3)), rel=0.02) for row in rows)
    assert np.abs(result.solution["x"] - exact(raw)).max() < 5 * float(rows[0]["sd"])
    assert Result.load(tmp_path / "run").tables["sum"][0] == ("entry", "value", "sd")


@pytest.mark.runs
def test_the_report_says_whose_records_are_in_the_sum_and_how_noisy_it_is(tmp_path):
    run(summed(tmp_path, "histogram", seed=None), out=tmp_path / "run")
    text = build(tmp_path / "run").read_text()
    assert "4 nodes added up a histogram of 2 entries over 200 records, around a coordinator" in text
    assert "its noise is" in text
    assert "Against the broker, the coordinator and any 1 of the 4 devices together" in text
    assert "consensus" not in text.lower().split("scenario, resolved")[0]


def test_what_is_paid_is_one_answer(tmp_path):
    p = run(summed(tmp_path)).summary["privacy"]
    assert p["answers"] == 1
    assert p["claimed"] == {"epsilon": 1.0, "delta": 1e-5}
    assert p["spent"]["epsilon"] == pytest.approx(1.0, rel=1e-9)


@pytest.mark.runs
def test_faults_and_restarts_change_no_bit_and_use_no_pad_twice(tmp_path):
    assert_faults_change_nothing(summed(tmp_path, "gram", **TRANSCRIPT), seeds=6)


@pytest.mark.runs
def test_an_eavesdropper_has_the_sum_of_a_masked_run_and_the_parts_of_another(tmp_path):
    for masked in (True, False):
        raw = summed(tmp_path, masked=masked, **TRANSCRIPT)
        run(raw, out=tmp_path / str(masked))
        attack(tmp_path / str(masked))
        arrays = np.load(tmp_path / str(masked) / "attack/recovered.npz")
        assert any(name.startswith("s_") for name in arrays) is not masked
        assert ("g_sum" in arrays) is masked


@pytest.mark.runs
@pytest.mark.parametrize("kind", STATISTICS)
def test_games_at_the_gate_show_no_more_than_is_claimed_and_most_of_it(tmp_path, kind):
    raw = summed(tmp_path, kind, privacy={"epsilon": 4.0})
    found = audited(raw, games=4000)
    assert not found.above
    assert found.worst.bounds[0.95].epsilon > 3.0
    assert 0.99 < found.worst.canary.moved <= 1.0


@pytest.mark.parametrize(
    ("over", "words"),
    [
        (
            {"algorithm": {"name": "fedavg", "rounds": 3, "step_size": 1.0}},
            "algorithm.name: found fedavg, expected sum",
        ),
        ({"algorithm": {"name": "sum", "rounds": 2}}, "algorithm.rounds"),
        ({"network": {"kind": "ring", "nodes": 4}}, "network: found a section, expected none"),
        (
            {"privacy": {"adjacency": {"bounded-change": 0.1}}},
            "privacy.adjacency: found .*, expected replace-one-record",
        ),
        (
            {"privacy": {"adjacency": {"replace-one-record": {"clip": 2.0}}}, "kind": "histogram"},
            "clip: found 2, expected 1",
        ),
        (
            {"privacy": {"mechanism": "laplace", "delta": None, "accountant": None}, "kind": "gram"},
            "found laplace, expected gaussian",
        ),
        (
            {"privacy": {"sensitivity": "pointwise"}, "masked": False},
            "found sum, expected an algorithm that asks for gradients .privacy.sensitivity: pointwise",
        ),
        (
            {"privacy": {"schedule": {"growth": 1.1}}, "masked": False},
            "found sum, expected an algorithm that asks for gradients",
        ),
    ],
)
def test_what_is_no_such_sum_is_refused_in_one_line(tmp_path, over, words):
    over = dict(over)
    raw = summed(
        tmp_path,
        over.pop("kind", "total"),
        masked=over.pop("masked", "mechanism" not in str(over)),
        **{key: value for key, value in over.items() if key != "algorithm"},
    )
    raw["privacy"] = {k: v for k, v in raw["privacy"].items() if v is not None}
    raw |= {"algorithm": over.get("algorithm", raw["algorithm"])}
    with pytest.raises(InputError, match=words) as refused:
        run(raw)
    assert "\n" not in str(refused.value)


def test_a_learning_problem_is_no_sum(tmp_path):
    raw = summed(tmp_path)
    raw["problem"] = {"kind": "logistic", "row_bound": 1.0, "data": raw["problem"]["data"]}
    with pytest.raises(InputError, match=r"algorithm.name: found sum, expected .*problem.kind: logistic"):
        run(raw)


def test_the_coordinator_of_devices_says_the_same_noise_as_the_run(tmp_path):
    from hushgrid.broker.simulation.setup import prepare
    from hushgrid.node.config.scenario import scenario_from

    raw = summed(tmp_path, "total")
    plan = prepare(scenario_from(raw)).plan
    assert spread(plan, plan.nodes) == pytest.approx(run(raw).solution["sd"][0])
