"""What a zone's set-points do at its own true loads: computed on the device, for its owner."""

import numpy as np
import pytest

from hushgrid.grid_cases import load
from hushgrid.grid_cases.ac.opf import AcSolver
from hushgrid.grid_cases.ac.program import Program
from hushgrid.grid_cases.case import loads
from hushgrid.grid_cases.setpoints import released, released_keys
from hushgrid.grid_cases.zone.build import zone_models
from hushgrid.kernels.errors import InputError
from hushgrid.node.problems.power_flow.device import Zone
from hushgrid.node.problems.power_flow.files import keep_setpoints
from hushgrid.node.problems.power_flow.own_check import operation, own_check
from tests.support.scenarios.least_cost import ZONES

CASE = load("case14")


@pytest.fixture(scope="module")
def zones():
    """{name: zone}, with the true loads."""
    models = zone_models(CASE, ZONES["case14"])
    return {p: Zone(p, CASE.without_loads(), m, loads(CASE, m.buses)) for p, m in models.items()}


@pytest.fixture(scope="module")
def dispatch():
    buses = tuple(CASE.buses.numbers.tolist())
    return AcSolver(Program.from_case(CASE)).solve(loads(CASE, buses))


def kept(zone, dispatch, directory):
    """The set-points that the coordinator's dispatch leaves on the device."""
    keys = released_keys(zone.case, zone.layout)
    told = released(zone.case, keys, dispatch.p_g, dispatch.q_g, dispatch.v, dispatch.flows)
    file = directory / f"{zone.name}.setpoints.csv"
    assert keep_setpoints(zone, {"z": zone.model.start, "released": told}, file) is None
    return file


@pytest.mark.parametrize("name", ["z1", "z2", "z3"])
def test_at_the_loads_that_it_was_made_for_a_zone_has_nothing_to_cover(name, zones, dispatch, tmp_path):
    zone = zones[name]
    found = operation(zone, kept(zone, dispatch, tmp_path))
    assert found.converged
    assert found.imbalance == pytest.approx(0.0, abs=1e-5)
    assert max(found.violations.values()) < 1e-5


def test_at_other_loads_it_covers_the_difference_and_what_more_is_lost(zones, dispatch, tmp_path):
    zone = zones["z1"]
    file = kept(zone, dispatch, tmp_path)
    d = zone.d.copy()
    d[1] += 0.02  # 2 MW at bus 2
    more = Zone("z1", zone.case, zone.model, d)
    found = operation(more, file)
    assert found.imbalance * CASE.base_mva == pytest.approx(2.0, abs=0.2)
    (first, *rest) = own_check(more, file)
    assert first.startswith("imbalance its own generators must cover: +2.")
    assert [line.split(":")[0] for line in rest] == ["voltages", "lines inside the zone", "generators"]


def test_a_dispatch_beyond_a_limit_of_the_zone_is_not_taken_and_the_last_one_stays(zones, dispatch, tmp_path):
    zone = zones["z1"]
    file = kept(zone, dispatch, tmp_path)
    before = file.read_bytes()
    keys = released_keys(zone.case, zone.layout)
    told = released(zone.case, keys, dispatch.p_g, dispatch.q_g, dispatch.v, dispatch.flows)
    for key, value in (("v:1", 1.2), ("pg:0", 99.0), ("pg:0", -1.0), ("qg:1", -9.0), ("v:2", 0.5)):
        wrong = told.copy()
        wrong[keys.index(key)] = value
        said = keep_setpoints(zone, {"z": zone.model.start, "released": wrong}, file)
        assert f"found {key} = {value:g} p.u., expected " in said
        assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file"),
        ("a,b\n1,2\n", "found another table"),
        ("quantity,element,value,unit,source\np_g,0,1.0,MW,relaxed\n", "found values of the relaxation"),
        ("quantity,element,value,unit,source\np_g,0,1.0,MW,ac\n", "found no "),
        ("quantity,element,value,unit,source\np_g,0,x,MW,ac\n", "found another table"),
    ],
)
def test_what_is_no_dispatch_is_one_line(text, said, zones, tmp_path):
    file = tmp_path / "z1.setpoints.csv"
    if text is not None:
        file.write_text(text)
    with pytest.raises(InputError, match=said) as refused:
        own_check(zones["z1"], file)
    assert "\n" not in str(refused.value)


def test_a_zone_is_told_what_is_its_own_and_no_more(zones, dispatch):
    for zone in zones.values():
        keys = released_keys(zone.case, zone.layout)
        assert set(keys) <= {*zone.model.keys, *(f"v:{bus}" for bus in zone.model.buses)}
        told = dict(
            zip(keys, released(zone.case, keys, dispatch.p_g, dispatch.q_g, dispatch.v, dispatch.flows), strict=True)
        )
        out = sum(value for key, value in told.items() if key[:2] in ("pF", "pT"))
        at = CASE.index(np.array(zone.model.buses))
        made = sum(value for key, value in told.items() if key[:2] == "pg")
        inside = made - CASE.buses.p_d[at].sum() - out  # losses inside, and shunts
        assert 0 <= inside < 0.2


def test_loads_that_the_mask_of_a_plan_leaves_out_are_told_to_the_devices_own_log(zones):
    from types import SimpleNamespace

    from hushgrid.node.problems.power_flow.section import ZonesPlan
    from hushgrid.node.schema.sections import Loaded

    zone = zones["z1"]  # buses 2, 3, 4, 5 draw p and q

    def said(p, q):
        problem = ZonesPlan("case14", "", {"z1": [1, 2, 3, 4, 5]}, 1.0, loaded=Loaded(p=p, q=q))
        return zone.remark(SimpleNamespace(problem=problem))

    assert said([2, 3, 4, 5], [2, 3, 4, 5]) == ""
    assert "(3 of its loads are not zero where the plan has none" in said([2, 3], [2, 3, 4])
