"""A run's dispatch as a network of pandapower: its power flow finds what the run's tables say."""

from importlib.util import find_spec

import numpy as np
import pytest

import hushgrid

pytestmark = [pytest.mark.filterwarnings("ignore")]  # pandapower's own warnings are none of this program's
needs_pandapower = pytest.mark.skipif(find_spec("pandapower") is None, reason="pandapower is not installed")


@needs_pandapower
@pytest.mark.parametrize("loaded", [False, True])
def test_a_runs_dispatch_is_a_network_whose_power_flow_is_that_of_its_tables(loaded, tmp_path):
    result = hushgrid.run("case14", out=tmp_path / "run")
    net = (hushgrid.Result.load(tmp_path / "run") if loaded else result).to_pandapower()
    buses = {row[0]: row[2] for row in result.tables["buses"][1]}
    voltages = np.array([buses[bus] for bus in net.res_bus.index])
    assert np.abs(net.res_bus.vm_pu - voltages).max() < 2e-3  # the tables have three places
    assert net.load.p_mw.sum() == pytest.approx(result.ac.served_mw, abs=0.05)
    generated = net.res_ext_grid.p_mw.sum() + net.res_gen.p_mw.sum()
    assert generated == pytest.approx(result.frame("generation")["p_mw"].sum(), abs=0.05)
