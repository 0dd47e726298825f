"""The same scenario and seed give the same bits, whatever carries the messages and whatever happens to them."""

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from hushgrid.broker.simulation import run
from tests.support import examples
from tests.support.runs import background_run

pytestmark = pytest.mark.runs


TRAJECTORY = {"run.record": "trajectory"}
FEW = (
    "laplace-objective-E2",
    "gaussian-input-E1",
    "none",
)  #: each mechanism, question and number of local updates, and no noise


@pytest.mark.parametrize("variant", examples.few(background_run.VARIANTS, FEW))
def test_two_runs_of_one_seed_are_the_same(variant):
    scenario = background_run.scenario(background_run.VARIANTS[variant] | TRAJECTORY, seed=11)
    background_run.assert_same_bits(run(scenario), run(scenario))


@pytest.mark.parametrize("variant", examples.few([v for v in background_run.VARIANTS if v != "none"], FEW))
def test_another_seed_is_another_answer(variant):
    scenario = background_run.scenario(background_run.VARIANTS[variant])
    one, other = run(scenario, seed=11), run(scenario, seed=12)
    assert all((one.solution[f"z_{z}"] != other.solution[f"z_{z}"]).any() for z in ("z1", "z2", "z3"))


def test_without_a_seed_no_two_runs_are_the_same():
    one, other = run(background_run.scenario()), run(background_run.scenario())
    assert (one.solution["w"] != other.solution["w"]).any()


@pytest.fixture(scope="module")
def undisturbed():
    return {
        v: run(background_run.scenario(background_run.VARIANTS[v] | TRAJECTORY, seed=11))
        for v in background_run.VARIANTS
    }


@examples.of(25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    variant=st.sampled_from(sorted(background_run.VARIANTS)),
    loss=st.floats(0, 0.5), duplicate=st.floats(0, 0.5), reorder=st.floats(0, 1), crash=st.floats(0, 0.05),
    seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_faults_change_nothing(undisturbed, variant, loss, duplicate, reorder, crash, seed):
    faults = {"loss": loss, "duplicate": duplicate, "reorder": reorder, "crash": crash, "seed": seed}
    disturbed = run(
        background_run.scenario(background_run.VARIANTS[variant] | TRAJECTORY, seed=11, **{"run.faults": faults})
    )
    background_run.assert_same_bits(undisturbed[variant], disturbed)
