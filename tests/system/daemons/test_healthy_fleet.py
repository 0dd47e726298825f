"""A fleet in good health: in interval after interval nobody says that a message was dropped."""

from contextlib import ExitStack

import pytest

from tests.support.daemons.deployed_fleet import ZONES
from tests.support.daemons.intervals import until
from tests.system.daemons.test_continuous import made

pytestmark = pytest.mark.mosquitto


def test_no_interval_of_zones_says_that_a_message_was_dropped(tmp_path, mosquitto):
    """The AC step takes the coordinator seconds. It then sent again what it had just sent, and the second answers came too late."""
    with ExitStack() as stack:
        fleet = made(tmp_path / "fleet", mosquitto.url, stack, every="3s")
        daemons = [fleet.coordinator(), *(fleet.node(z) for z in ZONES)]
        until(fleet, lambda rows: [row["outcome"] for row in rows].count("answer") >= 4)
        for daemon in daemons:
            assert daemon.end() == 0
            assert "dropped a message" not in daemon.said
