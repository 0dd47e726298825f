"""The papers' first iterates through a real broker."""

import pytest

from hushgrid.broker.simulation import run
from tests.support.scenarios.stored_rounds import assert_recal, recal


@pytest.mark.mosquitto
def test_over_mosquitto_processes_run_through_them_too(mosquitto, tmp_path):
    assert_recal(run(recal("elastic", tmp_path), transport="mqtt", broker=mosquitto.url), "elastic")
