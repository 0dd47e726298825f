"""A dispatch operated at other loads than it was made for, by the network and by one zone alone."""

import numpy as np
import pytest

from hushgrid.grid_cases import load
from hushgrid.grid_cases.ac.network import Point, flat, outflow
from hushgrid.grid_cases.ac.opf import AcDispatch, AcSolver
from hushgrid.grid_cases.ac.power_flow import operate, operate_zone
from hushgrid.grid_cases.ac.program import Program
from hushgrid.grid_cases.case import loads
from hushgrid.kernels.errors import InputError
from tests.support.layers import LAPTOP, MODULES, imports, parsed, reached
from tests.support.scenarios.parted_cases import ZONES14


@pytest.fixture(scope="module", params=["case14", "case118"])
def planned(request):
    pytest.importorskip("casadi", reason="no Ipopt: the extra laptop is not installed")
    return plan(request.param)


def plan(name, factor=1.0):
    case = load(name)
    d = factor * loads(case, tuple(case.buses.numbers.tolist()))
    found = AcSolver(Program.from_case(case)).solve(d)
    assert isinstance(found, AcDispatch)
    return case, d, found


def moved(d):
    return d + (d != 0) * np.random.default_rng(7).laplace(0, 0.01, len(d))


def zone_of(case, found, zone):
    """Own voltages and set-points, and the flows out of the zone, of a dispatch of the whole network."""
    own, g = np.isin(case.buses.numbers, zone), np.isin(case.generators.bus, zone)
    point = Point(found.v[own], found.angle[own], found.p_g[g], found.q_g[g])
    lines, ties = case.lines, {}
    for k, row in enumerate(lines.rows.tolist()):
        ends = lines.from_bus[k] in zone, lines.to_bus[k] in zone
        if ends[0] != ends[1]:
            ties[row] = tuple(found.flows[k, :2] if ends[0] else found.flows[k, 2:])
    return own, point, ties


def test_at_the_loads_it_was_made_for_a_dispatch_needs_nothing(planned):
    case, d, found = planned
    told = operate(case, found.point, d)
    assert told.converged
    assert abs(told.imbalance) < 1e-8
    assert max(told.violations.values()) < 1e-7
    assert told.flows == pytest.approx(found.flows, abs=1e-6)


def test_at_other_loads_the_generators_with_headroom_take_up_the_difference_by_their_share(planned):
    case, d, found = planned
    told, g = operate(case, found.point, moved(d)), case.generators
    assert told.converged
    assert told.point.p_g.sum() - found.p_g.sum() == pytest.approx(told.imbalance)
    n = len(case.buses)
    more = moved(d)[:n].sum() - d[:n].sum() + told.losses - found.losses
    assert told.imbalance == pytest.approx(more, abs=0.01 * abs(more) + 1e-6)  # shunts take the rest
    headroom = np.minimum(g.p_max - found.p_g, found.p_g - g.p_min)
    takes = headroom > 1e-3
    assert (told.point.p_g - found.p_g)[takes] == pytest.approx(
        told.imbalance * headroom[takes] / headroom[takes].sum(), rel=0.01
    )
    assert (told.point.p_g - found.p_g)[headroom < 1e-5] == pytest.approx(0)
    assert told.headroom == pytest.approx(headroom[takes].sum(), rel=1e-3)
    assert told.uncovered == 0


def test_generators_hold_their_voltage_and_power_balances_at_every_bus(planned):
    case, d, found = planned
    d = moved(d)
    told, at = operate(case, found.point, d), case.index(case.generators.bus)
    ranges = case.generators.q_max > case.generators.q_min
    assert told.point.v[at[ranges]] == pytest.approx(found.v[at[ranges]], abs=1e-12)
    wrong = outflow(case, told.point.v, told.flows) + d.reshape(2, -1).T
    np.subtract.at(wrong, at, np.stack([told.point.p_g, told.point.q_g], axis=1))
    assert np.abs(wrong).max() < 1e-7


def test_load_that_the_dispatch_sheds_is_not_asked_for():
    pytest.importorskip("casadi", reason="no Ipopt: the extra laptop is not installed")
    case, d, found = plan("case14", 1.6)
    shed = found.slack[:, [0, 2]] - found.slack[:, [1, 3]]
    served = operate(case, found.point, d, shed)
    assert served.converged
    assert abs(served.imbalance) < 1e-7
    asked = operate(case, found.point, d)
    assert asked.uncovered > 0.4  # 43.9 MW are missing and every generator is at its limit


@pytest.mark.parametrize("zone", ZONES14, ids=str)
def test_a_zone_at_its_own_plan_needs_nothing_and_at_other_loads_what_the_difference_is(zone):
    pytest.importorskip("casadi", reason="no Ipopt: the extra laptop is not installed")
    case, d, found = plan("case14")
    own, point, ties = zone_of(case, found, zone)
    told = operate_zone(case, zone, point, d[np.tile(own, 2)], ties)
    assert told.converged
    assert abs(told.imbalance) < 1e-7
    assert max(told.violations.values()) < 1e-7
    other = moved(d)[np.tile(own, 2)]
    told = operate_zone(case, zone, point, other, ties)
    more = (other - d[np.tile(own, 2)])[: int(own.sum())].sum()
    assert told.converged
    assert told.imbalance == pytest.approx(more, abs=0.1 * abs(more) + 1e-3)  # and a little more or less losses
    assert np.isin(case.generators.bus[case.generators.p_max > 0], zone).any() or told.uncovered > 0


def test_a_zone_without_generators_is_told_what_its_ties_must_bring():
    pytest.importorskip("casadi", reason="no Ipopt: the extra laptop is not installed")
    case, d, found = plan("case14")
    own, point, ties = zone_of(case, found, [9, 10, 14])
    told = operate_zone(case, [9, 10, 14], point, d[np.tile(own, 2)] * 1.1, ties)
    assert told.converged
    assert told.headroom == 0
    assert told.uncovered == told.imbalance == pytest.approx(0.1 * d[np.tile(own, 2)][:3].sum(), rel=0.05)
    assert told.q_unheld == pytest.approx(0.1 * d[np.tile(own, 2)][3:].sum(), rel=0.5)


def test_ties_that_are_not_all_of_the_zones_and_loads_of_another_shape_are_refused():
    case = load("case14")
    start = flat(case)
    with pytest.raises(InputError, match=r"ties: found branch rows \[9\], expected \[7, 8, 9\]"):
        operate_zone(case, [1, 2, 3, 4, 5], start, np.zeros(10), {9: (0.0, 0.0)})
    with pytest.raises(InputError, match=r"loads: found shape \(3,\), expected \(28,\) finite numbers"):
        operate(case, start, np.zeros(3))


def test_a_device_that_checks_itself_imports_numpy_and_scipy_only():
    modules = reached("hushgrid.grid_cases.ac.power_flow")
    at_once = {i.name.split(".")[0] for name in modules for i in imports(parsed(MODULES[name])) if i.at_once}
    assert at_once & {*LAPTOP, "clarabel"} == set()
    assert {"numpy", "scipy"} <= at_once


def test_loads_beyond_what_the_lines_carry_do_not_converge():
    case = load("case14")
    told = operate(case, flat(case), 30 * loads(case, tuple(case.buses.numbers.tolist())))
    assert not told.converged
