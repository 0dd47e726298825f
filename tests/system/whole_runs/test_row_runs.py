"""Runs over rows of data give the same bits through a real broker."""

import pytest

from hushgrid.broker.simulation import run
from tests.support.runs.background_run import assert_same_bits
from tests.support.scenarios.seeded_walks import SEEDED

# --- the same bits ---


@pytest.mark.parametrize("name", ["recal", "PI-ADMM1"])
def test_a_seed_gives_the_same_bits_through_a_broker(name, any_broker):
    assert_same_bits(run(SEEDED[name]), run(SEEDED[name], transport="mqtt", broker=any_broker.url))
