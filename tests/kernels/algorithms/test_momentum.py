"""`momentum` of DGD, EXTRA, NIDS and gradient tracking: the running mean of answers, which asks for nothing more."""

import numpy as np
import pytest

from hushgrid.broker.simulation import run
from hushgrid.broker.simulation.setup import prepare
from hushgrid.kernels.errors import InputError
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.problems.plan import decode_plan, encode_plan
from tests.support.runs import background_run
from tests.support.scenarios.neighbour_scenarios import scenario
from tests.support.scenarios.record_scenarios import NOT_PRIVATE

NAMES = ["dgd", "extra", "nids", "gradient-tracking"]
TRAJECTORY = {"run.record": "trajectory"}


def test_dgd_goes_by_the_mean_of_its_answers_weighted_by_age():
    """x+ = W x - alpha m, m+ = b m + (1 - b) f'(x), from the first answer on."""
    b, step = 0.6, 0.8
    over = (
        NOT_PRIVATE
        | TRAJECTORY
        | {"algorithm": {"name": "dgd", "variant": "none", "rounds": 9, "step_size": step, "momentum": b}}
    )
    result = run(scenario("dgd", over=over, seed=3))
    losses = prepare(scenario_from(scenario("dgd", over=over, seed=3))).losses
    W = np.array([[1, 1, 0, 1], [1, 1, 1, 0], [0, 1, 1, 1], [1, 0, 1, 1]]) / 3.0
    x, m = np.zeros((4, 3)), None
    for k in range(9):
        g = np.array([f.gradient(row) for f, row in zip(losses, x, strict=True)])
        m = g if m is None else b * m + (1 - b) * g
        x = W @ x - step * m
        assert np.allclose(result.trajectory["x"][k + 1], x, rtol=1e-12, atol=1e-14)


@pytest.mark.runs
@pytest.mark.parametrize("name", NAMES[1:])
def test_the_limit_of_an_exact_method_is_the_optimum_still(name):
    keys = {"name": name, "variant": "none", "rounds": 1500, "step_size": 0.3, "momentum": 0.5}
    result = run(scenario(name, over=NOT_PRIVATE | {"algorithm": keys}, seed=3))
    assert result.relative_error <= 1e-9


@pytest.mark.runs
@pytest.mark.parametrize("name", NAMES)
def test_answers_and_their_price_are_as_without_it_and_restarts_change_no_bit(name):
    plain, with_it = (run(scenario(name, over=TRAJECTORY | over, seed=3)) for over in ({}, {"algorithm.momentum": 0.7}))
    assert with_it.privacy["spent"] == plain.privacy["spent"]
    assert not np.array_equal(with_it.solution["x"], plain.solution["x"])
    faults = {"loss": 0.1, "duplicate": 0.1, "reorder": 0.3, "crash": 0.05, "seed": 2}
    again = run(scenario(name, over=TRAJECTORY | {"algorithm.momentum": 0.7, "run.faults": faults}, seed=3))
    background_run.assert_same_bits(with_it, again)


def test_a_plan_without_it_has_the_bytes_it_had():
    plan, other = (prepare(scenario_from(scenario("dgd", over=o))).plan for o in ({}, {"algorithm.momentum": 0.5}))
    assert b"momentum" not in encode_plan(plan)
    assert decode_plan(encode_plan(other)).algorithm.momentum == 0.5


@pytest.mark.parametrize("value", [-0.1, 1.0, 1e300])
def test_a_weight_that_forgets_nothing_is_refused(value):
    with pytest.raises(InputError, match=r"algorithm\.momentum: found .*, expected"):
        scenario_from(scenario("dgd", over={"algorithm.momentum": value}))
