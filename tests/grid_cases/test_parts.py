"""Nothing that a case file holds is dropped in silence: what is read is modelled, left out on purpose, or refused."""

import numpy as np
import pytest

from hushgrid.grid_cases import load
from hushgrid.grid_cases.ac.network import relaxed, violations
from hushgrid.grid_cases.ac.opf import AcDispatch, AcSolver
from hushgrid.grid_cases.ac.program import Program
from hushgrid.grid_cases.case import Case, loads
from hushgrid.grid_cases.centralised import solve
from hushgrid.grid_cases.costs import require_convex, require_modelled
from hushgrid.grid_cases.elements.parts import WITHOUT
from hushgrid.grid_cases.matpower import parse
from hushgrid.grid_cases.variables import Layout
from hushgrid.grid_cases.zone.build import build
from hushgrid.grid_cases.zone.model import violation
from hushgrid.kernels.errors import InputError
from tests.support.references import rectangular_opf
from tests.support.scenarios.parted_cases import AC, NAMES, RELAXED, ZONES9, path, text

LAST = "\t2\t0\t0\t2\t7.3" + 9 * "\t0" + ";\n"  #: row of mpc.dclinecost


def case_of(content: str) -> Case:
    return parse(content.encode(), "edited")


def optimum(case: Case, voll: float | None = None) -> AcDispatch:
    pytest.importorskip("casadi", reason="no Ipopt: the extra laptop is not installed")
    dispatch = AcSolver(Program.from_case(case, voll)).solve(loads(case, tuple(case.buses.numbers.tolist())))
    assert isinstance(dispatch, AcDispatch), dispatch
    return dispatch


# --- what is read ---


def test_each_part_is_named_in_a_line():
    assert {name: load(path(name)).held_parts() for name in NAMES} == {
        "case30Q": {"reactive-costs": "reactive costs of 6 generators"},
        "t_case9_opfv2": {"capability-curves": "capability curves of 2 generators"},
        "t_case9_dcline": {"capability-curves": "capability curves of 2 generators", "dc-lines": "3 dc lines"},
        "case9_loads": {
            "capability-curves": "capability curves of 2 generators",
            "dispatchable-loads": "the power factor of 2 dispatchable loads",
        },
    }
    assert load("case118").held_parts() == {}


@pytest.mark.parametrize("field", ["A = [1 0 0; 0 1 0]", "A = sparse(1, 2, 3)", "N = [1]", "reserves.cost = [1 2]"])
def test_constraints_of_the_users_own_are_named_and_no_least_cost_goes_past_them(field):
    case = case_of(f"{text('t_case9_opfv2')}\nmpc.{field};\n")
    name = field.partition(" ")[0].partition(".")[0]
    said = f"constraints or costs of the user's own (mpc.{name})"
    assert case.held_parts()["constraints"] == said
    assert case.left_out([]) == [f"{said}: not modelled"]
    for refused in (require_modelled, lambda one: solve(one, "cost"), Program.from_case):
        with pytest.raises(InputError, match=r"found constraints or costs of .*, expected a case without, or ignore:"):
            refused(case)
    owned = case.without(["constraints"])
    require_modelled(owned)
    assert owned.public_digest() == case.public_digest()  # the model is the same


def test_an_empty_field_and_notes_of_a_file_are_no_constraints():
    case = case_of(f"{text('t_case9_opfv2')}\nmpc.A = [];\nmpc.areas = [1 5];\nmpc.gentype = {{'ST'}};\n")
    assert "constraints" not in case.held_parts()


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("t_case9_opfv2", "0\t200\t-20", "300\t200\t-20", "found a capability curve from Pc1 300 to Pc2 200"),
        ("t_case9_dcline", "30\t4\t1\t10", "31\t4\t1\t10", "dcline row 0: found an unknown from bus"),
        ("t_case9_dcline", "1\t0.01;", "1\t1.01;", "dcline row 0: found loss1 beyond 1"),
        ("t_case9_dcline", "30\t4\t1\t10", "4\t4\t1\t10", "dcline row 0: found both ends at one bus"),
        ("t_case9_dcline", "1\t2\t10\t0", "1\t12\t10\t0", "dcline row 1: found p_min > p_max"),
        ("t_case9_dcline", LAST, f"{LAST}{LAST}", "found 5 rows in mpc.dclinecost, expected 4"),
    ],
)
def test_a_part_that_cannot_be_is_refused_in_one_line(name, old, new, said):
    content = text(name)
    assert old in content
    with pytest.raises(InputError, match=said) as refused:
        case_of(content.replace(old, new, 1))
    assert "\n" not in str(refused.value)


def test_a_concave_cost_of_reactive_power_or_of_a_dc_line_is_refused_where_it_is_used():
    content = text("case30Q")
    first, second = content.index("\t2\t0\t0\t3\t0.02\t2"), content.index("\t2\t0\t0\t3\t0.02\t0\t0")
    assert first < second
    with pytest.raises(InputError, match="reactive power of generator row 0: found a concave cost, expected c2 >= 0"):
        require_convex(case_of(content[:second] + content[second:].replace("0.02", "-0.02", 1)))
    dc = text("t_case9_dcline").replace("\t2\t0\t0\t2\t7.3\t0\t0", "\t2\t0\t0\t3\t-7.3\t0\t0")
    with pytest.raises(InputError, match="dcline row 3: found a concave cost, expected c2 >= 0"):
        require_convex(case_of(dc))


def test_the_public_digest_sees_every_part():
    for name in NAMES:
        case = load(path(name))
        parts = list(case.held_parts())
        assert len({case.public_digest(), *(case.without([part]).public_digest() for part in parts)}) == 1 + len(parts)
    assert load("case14").without(WITHOUT).public_digest() == load("case14").public_digest()


def test_limits_of_a_flow_backwards_hold_at_the_bus_it_comes_from():
    """p_T in [-30, -5] at loss 1 MW and 10 %: p_F = (p_T + 1)/.9."""
    content = text("t_case9_dcline").replace("1.01\t1\t1\t10\t-10", "1.01\t1\t-30\t-5\t-10")
    dc = case_of(content.replace("1\t0.01;", "1\t0.1;", 1)).dc_lines
    assert (dc.p_min[0] * 100, dc.p_max[0] * 100) == pytest.approx((-29 / 0.9, -4 / 0.9))


# --- what is solved ---


@pytest.mark.parametrize("name", NAMES)
def test_the_AC_optimum_is_that_of_a_second_formulation_and_so_are_its_prices(name):
    case, dispatch = load(path(name)), optimum(load(path(name)))
    reference = rectangular_opf.solve(text(name))
    position = [reference.bus.index(bus) for bus in case.buses.numbers.tolist()]
    assert dispatch.objective == pytest.approx(AC[name], rel=1e-6)
    assert dispatch.objective == pytest.approx(reference.cost, rel=1e-6)
    assert dispatch.price == pytest.approx(reference.price[position], rel=1e-4, abs=1e-3)
    assert dispatch.p_g * case.base_mva == pytest.approx(reference.p_g[case.generators.rows], abs=1e-2)
    assert dispatch.q_g * case.base_mva == pytest.approx(reference.q_g[case.generators.rows], abs=1e-2)
    assert max(dispatch.violations.values()) < 1e-8
    assert dispatch.mismatch < 1e-8


def test_dc_lines_carry_what_matpowers_own_test_expects():
    """MATPOWER's t_dcline: P and Q at both ends, MW and MVAr given to the buses; voltages there."""
    case, dispatch = load(path("t_case9_dcline")), optimum(load(path("t_case9_dcline")))
    expected = [
        [10, 8.9, -10, 10, 1.0663, 1.0936],
        [7.8429, 7.8429, 0, 0, 1.0809, 1.0667],
        [6.0549, 5.7522, -0.5897, -10, 1.0778, 1.0667],
    ]
    lines, flow = case.dc_lines, dispatch.dc * case.base_mva
    v = [dispatch.v[case.index(end)] for end in (lines.from_bus, lines.to_bus)]
    seen = np.stack([flow[:, 0], -flow[:, 2], -flow[:, 1], -flow[:, 3], *v], axis=1)
    assert seen == pytest.approx(np.array(expected), abs=5e-4)


@pytest.mark.parametrize(
    ("name", "part", "without"),
    [
        ("case30Q", "reactive-costs", 576.89),
        ("t_case9_opfv2", "capability-curves", 6619.70),
        ("t_case9_dcline", "dc-lines", 6621.74),
        ("case9_loads", "dispatchable-loads", 4847.80),
    ],
)
def test_each_part_changes_the_least_cost(name, part, without):
    assert optimum(load(path(name)).without([part])).objective == pytest.approx(without, abs=0.01)
    assert optimum(load(path(name))).objective == pytest.approx(AC[name], rel=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_the_relaxation_is_below_the_AC_optimum_which_is_a_point_of_it(name):
    case = load(path(name))
    found, dispatch = solve(case, "cost"), optimum(case)
    assert found.value == pytest.approx(RELAXED[name], abs=0.01)
    assert found.value == pytest.approx(found.cost, rel=1e-6)
    assert found.value <= dispatch.objective * (1 + 1e-7)
    keys = Layout.from_case(case, case.buses.numbers.tolist()).keys
    model = build(case, "z1", case.buses.numbers.tolist())
    assert model.keys == keys
    z = point_of(case, dispatch)
    assert violation(model, np.array([z[key] for key in keys])) < 1e-7
    d = loads(case, model.buses)
    assert np.abs(model.A @ np.array([z[key] for key in keys]) + d).max() < 1e-7


def point_of(case: Case, dispatch: AcDispatch) -> dict[str, float]:
    """The relaxation's variables at an AC dispatch, by name."""
    z: dict[str, float] = {}
    for k, row in enumerate(case.generators.rows.tolist()):
        z |= {f"pg:{row}": dispatch.p_g[k], f"qg:{row}": dispatch.q_g[k]}
    for table, flows, prefix in ((case.lines, dispatch.flows, ""), (case.dc_lines, dispatch.dc, "dc_")):
        for k, row in enumerate(table.rows.tolist()):
            z |= {f"{prefix}{kind}:{row}": flows[k, i] for i, kind in enumerate(("pF", "qF", "pT", "qT"))}
    voltage = dict(zip(case.buses.numbers.tolist(), dispatch.point.voltage, strict=True))
    z |= {f"c:{bus}": abs(v) ** 2 for bus, v in voltage.items()}
    for i, j in zip(case.lines.from_bus.tolist(), case.lines.to_bus.tolist(), strict=True):
        low, high = min(i, j), max(i, j)
        product = voltage[low] * np.conj(voltage[high])
        z |= {f"cr:{low}-{high}": product.real, f"si:{low}-{high}": product.imag}
    return z


def test_a_solution_starts_the_AC_solver_with_its_dc_lines():
    case = load(path("t_case9_dcline"))
    found = solve(case, "cost")
    start = relaxed(case, dict(zip(found.keys, found.z.tolist(), strict=True)))
    assert start.dc == pytest.approx(found.dc)
    assert violations(case, start)["dc"] < 1e-6


def test_a_zone_shares_the_flows_of_the_dc_lines_that_it_is_cut_across():
    case = load(path("t_case9_dcline"))
    for buses in ZONES9:
        layout = Layout.from_case(case, buses)
        shared = {layout.keys[k] for k in layout.shared()}
        own = {str(row) for row in case.dc_lines.rows[layout.dc].tolist()}
        assert {key.partition(":")[2] for key in shared if key.startswith("dc_")} == own
    together = Layout.from_case(case, [30, 4, 6, 5, 1, 7, 9, 8])
    assert not [key for key in (together.keys[k] for k in together.shared()) if key.startswith("dc_")]
