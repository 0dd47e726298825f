"""Rounds among neighbours give the same bits through real brokers as in memory."""

import pytest

from hushgrid.broker.simulation import run
from tests.support.runs.background_run import assert_same_bits
from tests.support.scenarios.neighbour_scenarios import scenario


@pytest.mark.parametrize("name", ["dpp2", "nids", "mradmm"])
def test_through_a_broker_the_bits_are_those_of_memory(name, any_broker):
    raw = scenario(name, over={"run.record": "trajectory"}, seed=3)
    assert_same_bits(run(raw), run(raw, transport="mqtt", broker=any_broker.url))
