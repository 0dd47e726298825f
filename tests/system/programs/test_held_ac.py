"""The AC step of an interval in which a zone is held: the others' dispatch is made around its last set-points."""

import msgspec
import numpy as np
import pytest

from hushgrid.broker.coordinator import warm_start
from hushgrid.grid_cases.ac.network import flows, outflow
from hushgrid.kernels.algorithms.consensus_admm import AgentState
from hushgrid.node import wire
from hushgrid.node.problems.power_flow.conclusion import SOLVED, UNKNOWN, Standing
from hushgrid.node.problems.power_flow.device import wiring
from hushgrid.node.problems.power_flow.files import site_setpoints
from hushgrid.node.runtime.driver import Stored
from hushgrid.node.wire import COORDINATOR
from tests.support.runs.continuous_fleet import GONE, Fleet, held_fleet, record, scenario

pytest.importorskip("casadi")


@pytest.fixture(scope="module")
def recovered(tmp_path_factory):
    return held_fleet(tmp_path_factory.mktemp("ac"), moved=1.05, ac="polish")


def test_the_others_get_an_ac_dispatch_around_the_last_set_points_of_the_held_zone(recovered):
    fleet, row = recovered
    assert row["outcome"] == "held"
    case = fleet.setup.case
    start, _ = warm_start.load(fleet.ledgers[COORDINATOR], fleet.setup.plan)
    last = Standing.unpacked(wiring(case, fleet.setup.plan.problem).layouts[GONE], start.parts[GONE].standing)
    n, g = len(case.buses), len(case.generators)
    _, p_g, q_g, v, angle, slack, *_ = np.split(
        fleet.centre.driver.machine.state.dispatch, np.cumsum([2, g, g, n, n, 4 * n])
    )
    own = last.layout.generators
    assert p_g[own] == pytest.approx(last.p_g, abs=1e-7)
    assert q_g[own] == pytest.approx(last.q_g, abs=1e-7)
    # By the power flow equations of the whole network: its buses inject what they did, and nothing is shed there.
    at = case.index(np.array(last.layout.buses, np.int64))
    injected = -last.d.reshape(2, -1).T
    for k, bus in zip(own, case.generators.bus[own], strict=True):
        injected[last.layout.buses.index(bus)] += (p_g[k], q_g[k])
    assert outflow(case, v, flows(case, v, angle))[at] == pytest.approx(injected, abs=1e-6)
    assert slack.reshape(n, 4)[at].max() < 1e-9


def test_its_figures_are_sums_over_those_who_are_there(recovered):
    fleet, row = recovered
    found = record(fleet, row)
    assert found["ac"]["status"] == SOLVED
    drawn = 100 * sum(d[: d.size // 2].sum() for z, d in fleet.loads.items() if z != GONE)
    assert found["ac"]["served_mw"] + found["ac"]["unserved_mw"] == pytest.approx(drawn, rel=1e-6)
    assert found["ac"]["load_mw"] == pytest.approx(found["load_mw"])
    assert "prices" not in found


def test_the_zones_take_it(recovered):
    fleet, _ = recovered
    for z in ("z1", "z3"):
        state = wire.decode_state(AgentState, wire.decode_state(Stored, fleet.ledgers[z].last_run().state).machine)
        device = fleet.hub.endpoints[z].device
        told = site_setpoints(device, {"z": state.z, "released": state.released.values})
        assert told.body["source"] == "ac", told.why


def test_what_an_older_ledger_does_not_know_leaves_the_step_out_and_says_so(tmp_path):
    fleet = Fleet(tmp_path, scenario("consensus-admm", 200, None, ac="polish"), quorum=2)
    fleet.interval()
    ledger = fleet.ledgers[COORDINATOR]
    kept = wire.decode_state(warm_start.WarmState, ledger.note(warm_start.KEY))
    older = {m: msgspec.structs.replace(part, standing=np.zeros(0)) for m, part in kept.parts.items()}
    ledger.keep_note(warm_start.KEY, wire.encode(msgspec.structs.replace(kept, parts=older)))
    fleet.goes(GONE)
    row = fleet.interval()
    assert row["outcome"] == "held"
    assert record(fleet, row)["ac"] == {"status": UNKNOWN}
