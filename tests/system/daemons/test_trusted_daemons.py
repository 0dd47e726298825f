"""Real daemons with `trust:` on a broker that anybody may use in any name."""

from contextlib import ExitStack

import pytest

from tests.support.trust.daemons import members_of, trusted

pytestmark = pytest.mark.mosquitto


@pytest.mark.parametrize("pattern", ["star", "token", "neighbours"])
def test_a_fleet_that_trusts_no_broker_makes_its_runs(pattern, tmp_path, mosquitto):
    with ExitStack() as stack:
        fleet = trusted(pattern, tmp_path / "fleet", mosquitto.url, stack)
        nodes = [fleet.node(name) for name in members_of(pattern)]
        for _ in range(2):
            coordinator = fleet.coordinator("--once")
            assert coordinator.code() == 0, coordinator.said
        for daemon in nodes:
            daemon.wait_for(" done: ", 2)
            assert "dropped" not in daemon.said
            assert daemon.end() == 0
