"""How many rows are enough for a loss, and what a paper's theorem promises of one: `hushgrid plan`."""

import json
from math import sqrt

import numpy as np
import pytest

from hushgrid.kernels.errors import InputError
from hushgrid.lab.planning import samples, trial
from hushgrid.lab.planning.samples import Needed, between
from hushgrid.lab.planning.theorems import promised
from tests.support.scenarios.record_scenarios import scenario


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(trial, "TESTED", 500)
    trial.world.cache_clear()


def star(**over):
    """Four nodes of 400 rows learn in a box by linearised ADMM with the step of Theorem 5.3."""
    raw = scenario(
        {
            "problem.data": {"devices": {"features": 3, "rows": [400] * 4}},
            "problem.box": 3.0,
            "algorithm": {"name": "ladmm", "rounds": 40, "rho": 0.1, "eta": "1/(L+sqrt(t))"},
            "privacy": {
                "adjacency": {"replace-one-record": {"clip": 1.0}},
                "mechanism": "gaussian", "accountant": "gdp", "epsilon": 2.0, "delta": 1e-5,
            },
        }
        | over
    )  # fmt: skip
    del raw["network"]
    return raw


def test_more_rows_have_less_noise_and_as_many_are_named_as_meet_the_loss():
    raw = star(**{"algorithm": {"name": "ladmm", "rounds": 20, "rho": 0.1, "eta": 2.0}})
    tried = samples.samples(raw, 1.0, seeds=5).tried
    assert tried[0].middle > tried[-1].middle
    wanted = (tried[0].middle * tried[-1].middle) ** 0.5
    found = samples.samples(raw, wanted, seeds=5)
    assert found.tried[0].rows < found.enough < found.tried[-1].rows
    assert found.tried[0].middle > wanted >= found.tried[-1].middle
    assert all(np.median(one.without) < one.middle for one in found.tried[:1])


def test_no_number_of_rows_makes_up_for_an_iteration_that_is_too_short():
    raw = star(**{"algorithm": {"name": "ladmm", "rounds": 1, "rho": 0.1, "eta": 0.001}})
    found = samples.samples(raw, 1e-4, seeds=3)
    assert found.enough is None
    assert len(found.tried) < 5  # it does not go on where more rows do not help


def test_between_two_numbers_of_rows_the_loss_falls_by_a_power():
    tried = [Needed(rows, rows, (100 / rows,), (0.0,), 0.0) for rows in (100, 400, 1600)]
    assert between(tried, 0.1) == pytest.approx(1000, rel=0.01)
    assert between(tried, 2.0) == 100
    assert between(tried, 0.01) is None


def test_the_bound_is_that_of_the_gates_own_noise_and_of_public_numbers():
    plan = trial.plan_of(star(), "scenario")
    theorem, bound = promised(plan)
    p, T, rho, d, P = plan.problem, 40, 0.1, 3, 4
    deviation = 2 * 1.0 / 400 / plan.terms.per_answer  # of the mean's clipped gradient: 2 c/m over mu
    slope = sqrt(P) * (1.0 + p.objective.l2 * 3.0 * sqrt(d))  # no clipped gradient is longer in the box
    diameter = 2 * 3.0 * sqrt(P * d)
    first = (P * d * deviation**2 + diameter**2 / 2) / sqrt(T)
    expected = first + (diameter**2 * (rho + max(p.L)) + (2 * slope) ** 2 / rho) / (2 * T)
    assert (theorem, bound * P) == ("5.3", pytest.approx(expected, rel=0.01))


@pytest.mark.parametrize(
    "over",
    [
        {"algorithm": {"name": "ladmm", "rounds": 40, "eta": 0.5}},
        {"algorithm": {"name": "fedavg", "rounds": 4, "step_size": 0.5}},
    ],
    ids=["another step", "another algorithm"],
)
def test_where_no_theorem_speaks_nothing_is_promised(over):
    assert promised(trial.plan_of(star(**over), "scenario")) is None


@pytest.mark.runs
def test_the_command_says_rows_and_bounds(hushgrid, tmp_path):
    short = ("plan", "digits-star", "--seeds", "2", "--quiet", "--set", "algorithm.rounds=4")
    said = hushgrid(*short, "--loss", "0.9").out
    assert "enough for an expected loss of at most 0.9 beyond that of the best model" in said
    assert json.loads(hushgrid(*short, "--loss", "0.9", "--json").out)["data"] == "made up"


@pytest.mark.parametrize("loss", ["0", "-1", "inf", "nan"])
def test_a_loss_is_a_positive_number(hushgrid, loss):
    said = hushgrid("plan", "digits-star", "--loss", loss)
    assert (said.code, f"--loss: found {loss}" in said.err) == (2, True)


def test_rows_that_cannot_be_planned_are_refused():
    with pytest.raises(InputError, match="expected guarded"):
        samples.samples(star(**{"algorithm": {"name": "ladmm", "rounds": 4, "variant": "none"}, "privacy": None}), 0.1)
