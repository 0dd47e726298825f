"""The first iterates of DPP2 and of ADMM's family through a real broker."""

import pytest

from hushgrid.broker.simulation import run
from tests.support.scenarios.stored_rounds import assert_admm, of_admm

# --- ADMM, R-ADMM, MR-ADMM ---


@pytest.mark.mosquitto
def test_over_mosquitto_processes_run_through_them_too(mosquitto, tmp_path):
    name = "mradmm_hetero_edgefix"
    assert_admm(run(of_admm(name, tmp_path), transport="mqtt", broker=mosquitto.url), name)
