"""The same scenario and seed give the same bits, whatever carries the messages and whatever happens to them."""

import fleet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hushgrid.broker.simulation import run

TRAJECTORY = {"run.record": "trajectory"}


@pytest.mark.parametrize("variant", fleet.VARIANTS)
def test_two_runs_of_one_seed_are_the_same(variant):
    scenario = fleet.scenario(fleet.VARIANTS[variant] | TRAJECTORY, seed=11)
    fleet.assert_same_bits(run(scenario), run(scenario))


@pytest.mark.parametrize("variant", [v for v in fleet.VARIANTS if v != "none"])
def test_another_seed_is_another_answer(variant):
    scenario = fleet.scenario(fleet.VARIANTS[variant])
    one, other = run(scenario, seed=11), run(scenario, seed=12)
    assert all((one.solution[f"z_{z}"] != other.solution[f"z_{z}"]).any() for z in ("z1", "z2", "z3"))


def test_without_a_seed_no_two_runs_are_the_same():
    one, other = run(fleet.scenario()), run(fleet.scenario())
    assert (one.solution["w"] != other.solution["w"]).any()


@pytest.mark.parametrize("variant", ["laplace-objective-E2", "gaussian-input-E1", "none"])
def test_through_a_broker_the_bits_are_those_of_memory(variant, any_broker):
    scenario = fleet.scenario(fleet.VARIANTS[variant] | TRAJECTORY, seed=11)
    fleet.assert_same_bits(run(scenario), run(scenario, transport="mqtt", broker=any_broker.url))


@pytest.mark.parametrize("kernels", ["numpy", "numba"])
def test_the_environment_of_the_kernels_is_not_an_input_of_a_zone_run(monkeypatch, embedded, kernels):
    scenario = fleet.scenario(seed=11)
    plain = run(scenario)
    monkeypatch.setenv("HUSHGRID_KERNELS", kernels)
    fleet.assert_same_bits(plain, run(scenario, transport="mqtt", broker=embedded.url))


@pytest.fixture(scope="module")
def undisturbed():
    return {v: run(fleet.scenario(fleet.VARIANTS[v] | TRAJECTORY, seed=11)) for v in fleet.VARIANTS}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    variant=st.sampled_from(sorted(fleet.VARIANTS)),
    loss=st.floats(0, 0.5), duplicate=st.floats(0, 0.5), reorder=st.floats(0, 1), crash=st.floats(0, 0.05),
    seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_faults_change_nothing(undisturbed, variant, loss, duplicate, reorder, crash, seed):
    faults = {"loss": loss, "duplicate": duplicate, "reorder": reorder, "crash": crash, "seed": seed}
    disturbed = run(fleet.scenario(fleet.VARIANTS[variant] | TRAJECTORY, seed=11, **{"run.faults": faults}))
    fleet.assert_same_bits(undisturbed[variant], disturbed)


@pytest.mark.mosquitto
def test_a_run_leaves_nothing_on_a_broker_of_somebody_else(start_mosquitto):
    broker = start_mosquitto(config=["sys_interval 1"])
    background = fleet.Background(fleet.scenario(seed=11), transport="mqtt", broker=broker.url)
    background.wait(30)
    assert background.processes() == []
    assert fleet.retained(broker.url) == {}
    assert fleet.sessions(broker.url) == 0
