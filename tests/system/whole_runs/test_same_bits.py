"""The same scenario and seed give the same bits through real brokers as in memory."""

import pytest

from hushgrid.broker.simulation import run
from tests.support.runs import background_run

TRAJECTORY = {"run.record": "trajectory"}


@pytest.mark.parametrize("variant", ["laplace-objective-E2", "gaussian-input-E1", "none"])
def test_through_a_broker_the_bits_are_those_of_memory(variant, any_broker):
    scenario = background_run.scenario(background_run.VARIANTS[variant] | TRAJECTORY, seed=11)
    background_run.assert_same_bits(run(scenario), run(scenario, transport="mqtt", broker=any_broker.url))


@pytest.mark.parametrize("kernels", ["numpy", "numba"])
def test_the_environment_of_the_kernels_is_not_an_input_of_a_zone_run(monkeypatch, embedded, kernels):
    scenario = background_run.scenario(seed=11)
    plain = run(scenario)
    monkeypatch.setenv("HUSHGRID_KERNELS", kernels)
    background_run.assert_same_bits(plain, run(scenario, transport="mqtt", broker=embedded.url))


@pytest.mark.mosquitto
def test_a_run_leaves_nothing_on_a_broker_of_somebody_else(start_mosquitto):
    broker = start_mosquitto(config=["sys_interval 1"])
    background = background_run.Background(background_run.scenario(seed=11), transport="mqtt", broker=broker.url)
    background.wait(30)
    assert background.processes() == []
    assert background_run.retained(broker.url) == {}
    assert background_run.sessions(broker.url) == 0
