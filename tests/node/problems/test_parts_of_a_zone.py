"""Zones of a case with dc lines, capability curves and dispatchable loads: what a device takes, checks and does."""

from dataclasses import replace

import numpy as np
import pytest

from hushgrid.broker.simulation.problems.power_flow import ZoneSetup
from hushgrid.grid_cases import load
from hushgrid.grid_cases.ac.opf import AcDispatch, AcSolver
from hushgrid.grid_cases.ac.program import Program
from hushgrid.grid_cases.case import loads
from hushgrid.grid_cases.setpoints import released, released_keys
from hushgrid.grid_cases.variables import Layout
from hushgrid.grid_cases.zone.build import zone_models
from hushgrid.kernels.errors import InputError
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.problems.power_flow.conclusion import Standing, _pinned
from hushgrid.node.problems.power_flow.device import Zone
from hushgrid.node.problems.power_flow.files import keep_setpoints, site_setpoints
from hushgrid.node.problems.power_flow.own_check import operation, own_check
from tests.support.scenarios.least_cost import scenario
from tests.support.scenarios.parted_cases import ZONES9, path

pytest.importorskip("casadi", reason="no Ipopt: the extra laptop is not installed")
NAMES = ["t_case9_dcline", "case9_loads"]


@pytest.fixture(scope="module")
def parted():
    """{name: (case, {zone: Zone with the true loads}, AC dispatch)}."""
    made = {}
    for name in NAMES:
        case = load(path(name))
        models = zone_models(case, ZONES9)
        zones = {p: Zone(p, case.without_loads(), m, loads(case, m.buses)) for p, m in models.items()}
        made[name] = (
            case,
            zones,
            AcSolver(Program.from_case(case)).solve(loads(case, tuple(case.buses.numbers.tolist()))),
        )
    return made


def told_of(zone: Zone, dispatch: AcDispatch) -> np.ndarray:
    keys = released_keys(zone.case, zone.layout)
    return released(zone.case, keys, dispatch.p_g, dispatch.q_g, dispatch.v, dispatch.flows, dispatch.dc)


@pytest.mark.runs
@pytest.mark.parametrize("name", NAMES)
def test_a_zone_at_the_loads_that_a_dispatch_was_made_for_has_nothing_to_cover(name, parted, tmp_path):
    _, zones, dispatch = parted[name]
    for zone in zones.values():
        file = tmp_path / f"{zone.name}.setpoints.csv"
        assert keep_setpoints(zone, {"z": zone.model.start, "released": told_of(zone, dispatch)}, file) is None
        done = operation(zone, file)
        assert done.converged
        assert done.imbalance == pytest.approx(0.0, abs=1e-5)
        assert max(done.violations.values()) < 1e-5
        assert own_check(zone, file)[-1].startswith("capability curves and power factors: beyond by 0.000")


def test_a_controller_is_told_both_ends_of_its_dc_lines(parted):
    _, zones, dispatch = parted["t_case9_dcline"]
    told = site_setpoints(zones["z1"], {"z": zones["z1"].model.start, "released": told_of(zones["z1"], dispatch)})
    assert [(one["dcline"], one["bus"]) for one in told.body["dc_lines"]] == [(1, 4), (4, 5)]
    assert told.body["dc_lines"][0]["mw"] == pytest.approx(-8.9, abs=1e-4)
    assert told.body["dc_lines"][1]["mw"] == pytest.approx(6.0549, abs=1e-3)


@pytest.mark.parametrize(
    ("name", "zone", "key", "change", "said"),
    [
        ("t_case9_dcline", "z1", "dc_pT:0", -0.05, "found dc_pT:0 = "),
        ("t_case9_dcline", "z2", "dc_qF:0", 0.05, "found dc_qF:0 = "),
        ("t_case9_dcline", "z2", "qg:2", 0.5, "found pg:2, qg:2 off its capability curve by "),
        ("case9_loads", "z1", "qg:3", 0.02, "found pg:3, qg:3 off its power factor by "),
    ],
)
def test_a_dispatch_off_a_limit_of_the_zone_is_not_taken(name, zone, key, change, said, parted, tmp_path):
    _, zones, dispatch = parted[name]
    own, wrong = zones[zone], told_of(zones[zone], dispatch).copy()
    wrong[released_keys(own.case, own.layout).index(key)] += change
    refusal = keep_setpoints(own, {"z": own.model.start, "released": wrong}, tmp_path / "setpoints.csv")
    assert refusal is not None
    assert said in refusal


def test_a_zone_that_is_held_keeps_its_dc_lines(parted):
    """The others are dispatched anew at other loads, around what the held zone said last."""
    case, _, before = parted["t_case9_dcline"]
    layout = Layout.from_case(case, ZONES9[2])
    g, dc = layout.generators, layout.dc
    d = loads(case, tuple(case.buses.numbers.tolist()))
    own = loads(case, layout.buses)
    standing = Standing(layout, own, before.p_g[g], before.q_g[g], before.dc[dc].ravel())
    again = Standing.unpacked(layout, standing.packed)
    assert all(np.array_equal(getattr(again, name), getattr(standing, name)) for name in ("d", "p_g", "q_g", "dc"))
    heavier = d.copy()
    heavier[case.index(np.array([5]))] += 0.1
    dispatch = AcSolver(Program.from_case(_pinned(case, {"z3": standing}))).solve(heavier)
    assert isinstance(dispatch, AcDispatch)
    assert dispatch.dc[dc] == pytest.approx(before.dc[dc], abs=1e-7)
    assert dispatch.p_g[g] == pytest.approx(before.p_g[g], abs=1e-7)
    assert dispatch.objective > before.objective


# --- what is left out ---


def test_a_device_takes_only_a_plan_that_leaves_out_what_it_leaves_out(parted):
    file = path("t_case9_dcline")
    owned = ZoneSetup(scenario_from(scenario(file, ZONES9, ignore=["dc-lines"])))
    case = load(file).without(["dc-lines"])
    models = zone_models(case, ZONES9)
    Zone("z1", case.without_loads(), models["z1"], loads(case, models["z1"].buses), ignore=["dc-lines"]).check(
        owned.plan
    )
    with pytest.raises(InputError, match="z1: found a plan that leaves out dc-lines, expected nothing"):
        parted["t_case9_dcline"][1]["z1"].check(owned.plan)


def test_a_device_refuses_a_plan_of_least_cost_over_a_case_that_is_not_modelled():
    file = path("t_case9_opfv2")
    plan = ZoneSetup(scenario_from(scenario(file, ZONES9))).plan
    case = replace(load(file), constraints=("A",))
    models = zone_models(case, ZONES9)
    zone = Zone("z1", case.without_loads(), models["z1"], loads(case, models["z1"].buses))
    with pytest.raises(
        InputError, match=r"found constraints or costs of the user's own \(mpc.A\), which are not modelled"
    ):
        zone.check(plan)
