"""Runs in two levels as processes, a real broker above and one a site: the bits of memory, kill -9 of every role."""

import random
import time

import numpy as np
import pytest

from hushgrid.broker.simulation import run
from hushgrid.kernels.errors import Stopped
from tests.support.runs import background_run
from tests.support.runs.masked_runs import assert_no_pad_twice, masked, summed
from tests.support.runs.zone_levels import LARGE, THREE, assert_same_run, scenario

SITES = {"privacy": {"masked": {"corrupt": 0, "sites": {"number": 2}}}}
NODES = [f"n{i}" for i in range(6)]


@pytest.mark.parametrize("broker", [pytest.param("mosquitto", marks=pytest.mark.mosquitto), "embedded"])
@pytest.mark.parametrize("make", [masked, summed], ids=["fedavg", "sum"])
def test_through_three_brokers_the_bits_are_those_of_memory_and_of_one_level(tmp_path, broker, make):
    """The sites hand up what their devices have said, and no clock of theirs is told."""
    raw = make(tmp_path, nodes=6, run={"record": "trajectory"}, **SITES)
    result = run(raw, transport="mqtt", broker=broker)
    memory = run(raw)
    background_run.assert_same_bits(memory, result)
    flat = run(make(tmp_path, nodes=6, run={"record": "trajectory"}, privacy={"masked": {"corrupt": 0}}))
    assert np.array_equal(flat.solution["x"], result.solution["x"])
    assert result.between_sites.seconds is result.in_sites.seconds is None
    assert result.in_sites.messages >= memory.in_sites.messages


@pytest.mark.mosquitto
@pytest.mark.parametrize("early", [True, False], ids=["while they meet", "later"])
def test_killed_at_random_the_answer_keeps_its_bits_and_no_device_pays_twice(tmp_path, early):
    raw = masked(tmp_path, nodes=6, algorithm={"rounds": 40}, run={"record": "transcript"}, **SITES)
    background = background_run.Background(
        raw, transport="mqtt", broker="mosquitto", state=tmp_path / "state", silent_s=120.0
    )
    strike(background, 8, 0.1 if early else 0.6, int(early))
    result = background.wait(600)
    background_run.assert_same_bits(run(raw), result)
    assert_no_pad_twice(result.transcript)
    for node in NODES:
        assert background_run.spends(tmp_path / "state" / f"{node}.ledger") == [(k, k) for k in range(1, 41)]
    assert background.processes() == []


@pytest.mark.parametrize("broker", [pytest.param("mosquitto", marks=pytest.mark.mosquitto), "embedded"])
def test_zones_through_three_brokers_take_the_steps_of_memory(broker):
    over_mqtt = run(scenario(record="trajectory"), transport="mqtt", broker=broker)
    memory = run(scenario(record="trajectory"))
    assert_same_run(over_mqtt, memory)
    assert over_mqtt.between_sites.bytes == memory.between_sites.bytes
    assert over_mqtt.in_sites.bytes == memory.in_sites.bytes


@pytest.mark.mosquitto
@pytest.mark.parametrize("seed", range(3))
def test_zones_killed_at_random_take_the_same_steps_and_pay_once(tmp_path, seed):
    raw = scenario(LARGE | THREE)
    background = background_run.Background(
        raw, transport="mqtt", broker="mosquitto", state=tmp_path / "state", silent_s=120.0
    )
    strike(background, 6, 0.4, seed)
    result = background.wait(600)
    background_run.assert_same_bits(run(raw), result)
    for zone in result.privacy.per_node:
        assert background_run.spends(tmp_path / "state" / f"{zone}.ledger") == [(1, 1)]
    assert background.processes() == []


def strike(background, number, apart_s, seed):
    """Kills so many children, each site once and then whoever it is, within `apart_s` of each other."""
    dice, struck = random.Random(seed), set()
    while len(struck) < number and background.going:
        time.sleep(dice.uniform(0.0, apart_s))
        first = ("s1", "s2")[len(struck) :][:1]
        if alive := [(n, p) for n, p in background.children().items() if n in first or not first]:
            name, process = dice.choice(alive)
            process.kill()
            struck.add((name, process.pid))


@pytest.mark.mosquitto
def test_a_site_that_falls_silent_ends_the_run_in_one_line(tmp_path):
    """All sites are needed: s2 is stopped for longer than the fleet waits."""
    raw = masked(tmp_path, nodes=6, algorithm={"rounds": 400}, **SITES)
    background = background_run.Background(raw, transport="mqtt", broker="mosquitto", silent_s=1.0)
    site = background.child("s2")
    background.when(lambda: running(site))
    site.suspend()
    with pytest.raises(Stopped, match=r"s2 (silent|is gone) since") as raised:
        background.wait(120)
    assert "\n" not in str(raised.value)
    assert background.processes() == []


def running(process):
    """Whether it has two connections, so that its devices are asked."""
    return len([c for c in process.net_connections() if c.status == "ESTABLISHED"]) >= 2
