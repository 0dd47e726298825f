"""The prices of an AC dispatch are its own multipliers, in $/MWh and $/MVArh."""

from importlib import resources

import numpy as np
import pytest

from hushgrid.grid_cases import load
from hushgrid.grid_cases.ac.opf import AcDispatch, AcSolver
from hushgrid.grid_cases.ac.program import Program
from hushgrid.grid_cases.case import loads
from hushgrid.grid_cases.costs import marginal
from hushgrid.grid_cases.matpower import BUILT_IN
from tests.support.references import rectangular_opf

pytest.importorskip("casadi", reason="no Ipopt: the extra laptop is not installed")

IPOPT = 1e-8  #: its tolerance, of stationarity and of complementarity, in the objective's scale
NAMES = ["case5", "case14", "case30", "case39", "case57", "case118"]


@pytest.fixture(scope="module")
def of():
    known: dict[str, AcDispatch] = {}

    def found(name):
        if name not in known:
            case = load(name)
            dispatch = AcSolver(Program.from_case(case, None)).solve(loads(case, tuple(case.buses.numbers.tolist())))
            assert isinstance(dispatch, AcDispatch), dispatch
            known[name] = dispatch
        return known[name]

    return found


@pytest.mark.runs
@pytest.mark.parametrize("name", NAMES)
def test_they_are_those_of_a_second_formulation(name, of):
    reference = rectangular_opf.solve((resources.files("hushgrid.grid_cases") / BUILT_IN[name]).read_text())
    at = [reference.bus.index(bus) for bus in load(name).buses.numbers.tolist()]
    assert of(name).objective == pytest.approx(reference.cost, rel=1e-7)
    assert of(name).price == pytest.approx(reference.price[at], rel=1e-5, abs=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_a_generator_strictly_inside_its_limits_has_its_bus_price(name, of):
    """Its bound multipliers are at most the complementarity over the room that is left, its own row's error the
    other.
    """
    case, found = load(name), of(name)
    g, at = case.generators, case.index(case.generators.bus)
    room = np.minimum(found.p_g - g.p_min, g.p_max - found.p_g)
    inside = np.flatnonzero(room > 1e-4)
    assert inside.size
    tolerance = 10 * IPOPT * (1 + 2 / room[inside]) * Program.from_case(case).scale / case.base_mva
    apart = np.abs(marginal(case, found.p_g)[inside] / case.base_mva - found.price[at[inside], 0])
    assert np.all(apart <= tolerance), (apart, tolerance)
    assert tolerance.max() < 0.05  # $/MWh


def test_case30_pays_its_interior_generator_what_it_asks(of):
    """The relaxation's price there is 45.67 $/MWh."""
    assert of("case30").price[0, 0] == pytest.approx(18.42, abs=0.005)
    assert marginal(load("case30"), of("case30").p_g)[0] / 100 == pytest.approx(18.42, abs=0.005)


def test_the_price_of_load_that_is_not_served_is_what_it_is_worth():
    case = load("case14")
    found = AcSolver(Program.from_case(case)).solve(3 * loads(case, tuple(case.buses.numbers.tolist())))
    assert isinstance(found, AcDispatch)
    assert found.price[found.slack[:, 0] > 1e-3, 0] == pytest.approx(10_000, rel=1e-5)
