"""The processes of a run over a broker: one for each node, or some for many, killed and started again with all of
theirs.
"""

from pathlib import Path

import pytest

from hushgrid.broker.simulation import run
from tests.support.runs import background_run
from tests.support.scenarios.record_scenarios import sensors


def test_a_process_of_many_nodes_that_is_killed_comes_back_with_all_of_them(any_broker):
    raw = sensors(6, rounds=600, processes=2)
    background = background_run.Background(raw, transport="mqtt", broker=any_broker.url)
    for victim in ("n0-and-2", "n1-and-2", "n0-and-2"):
        before = background.child(victim)
        place = Path(before.cmdline()[-1]).parent
        seen = steps(place)
        background.when(lambda place=place, seen=seen: steps(place) > seen)  # all its nodes are in the run
        before.kill()
    result = background.wait(600)
    background_run.assert_same_bits(run(raw), result)
    assert background.processes() == []
    assert background_run.retained(any_broker.url) == {}


def steps(place):
    """Bytes of the trace: it grows with each activation."""
    return sum(path.stat().st_size for path in place.glob("walk*.trace"))


@pytest.mark.long
@pytest.mark.mosquitto
def test_two_hundred_nodes_in_two_processes_finish_over_one_broker(mosquitto):
    raw = sensors(200, rounds=400, processes=2)
    result = run(raw, transport="mqtt", broker=mosquitto.url, silent_s=120.0)
    assert (result.rounds_done, result.stopped_because) == (400, "rounds")
    background_run.assert_same_bits(run(raw), result)
    assert background_run.retained(mosquitto.url) == {}


# --- The same scenario and seed give the same bits through real brokers as in memory ---

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
