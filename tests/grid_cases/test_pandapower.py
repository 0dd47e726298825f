"""Networks of pandapower are read and written; its power flow finds the voltages that ours finds."""

import json
from dataclasses import fields
from importlib.util import find_spec

import numpy as np
import pytest

from hushgrid.grid_cases import archive, load
from hushgrid.grid_cases.ac.feasibility import ac_check
from hushgrid.grid_cases.centralised import solve
from hushgrid.grid_cases.matpower import parse
from hushgrid.grid_cases.pandapower import from_pandapower, to_pandapower
from hushgrid.grid_cases.variables import admittance
from hushgrid.kernels.errors import InputError

INSTALLED = find_spec("pandapower") is not None
needs_pandapower = pytest.mark.skipif(not INSTALLED, reason="pandapower is not installed (extra pandapower)")
# pandapower's own warnings are none of this program's.
pytestmark = [pytest.mark.filterwarnings("ignore")]

PIECEWISE = """mpc.version = '2';
mpc.baseMVA = 50;
mpc.bus = [1 3 0 0 0 0 1 1 0 20 1 1.1 0.9; 2 1 25 5 0 0 1 1 0 20 1 1.1 0.9];
mpc.gen = [1 0 0 9 -9 1 100 1 60 0; 2 0 0 9 -9 1 100 1 40 0];
mpc.gencost = [1 0 0 4 0 0 12 144 36 1008 60 2832; 2 0 0 3 0 5 100 0 0 0 0 0];
mpc.branch = [1 2 0.01 0.1 0.02 0 0 0 0 0 1 -360 360];
"""


def bus_admittance(case):
    n, line = len(case.buses), np.arange(len(case.lines))
    i, j = case.index(case.lines.from_bus), case.index(case.lines.to_bus)
    matrix = np.diag(case.buses.g_s + 1j * case.buses.b_s)
    for ends, values in zip(((i, i), (i, j), (j, i), (j, j)), admittance(case, line), strict=True):
        np.add.at(matrix, ends, values)
    assert matrix.shape == (n, n)
    return matrix


@needs_pandapower
@pytest.mark.parametrize("name", ["case14", "case118"])
def test_its_power_flow_at_our_solution_finds_our_voltages(name):
    import pandapower

    case = load(name)
    solution = solve(case, "cost")
    ours = ac_check(case, solution)
    net = to_pandapower(case, solution.p_g, solution.q_g, np.sqrt(solution.c))
    pandapower.runpp(net, calculate_voltage_angles=True, init="flat", tolerance_mva=1e-9)
    buses = net.res_bus.loc[case.buses.numbers]
    theirs = buses.vm_pu.to_numpy() * np.exp(1j * np.deg2rad(buses.va_degree.to_numpy()))
    assert ours.converged
    assert net.ext_grid.bus.tolist() == [ours.slack]
    assert np.abs(theirs - ours.voltage).max() < 1e-6


@needs_pandapower
def test_its_optimal_power_flow_finds_the_published_cost():
    """PGLib-OPF v23.07, BASELINE.md: case14_ieee, AC 2178.1 $/h."""
    import pandapower

    net = to_pandapower(load("case14"))
    pandapower.runopp(net, init="flat")
    assert net.res_cost == pytest.approx(2178.08, rel=1e-5)


@needs_pandapower
@pytest.mark.parametrize("name", ["case5", "case14", "case30", "case39", "case57", "case118", "case300"])
def test_a_case_that_was_written_is_read_again_as_the_same_circuit(name):
    case = load(name)
    again = from_pandapower(to_pandapower(case), name)
    assert again.buses.numbers.tolist() == case.buses.numbers.tolist()
    for column in ("p_d", "q_d", "v_min", "v_max", "base_kv"):
        assert getattr(again.buses, column) == pytest.approx(getattr(case.buses, column), abs=1e-9)
    matrix = bus_admittance(case)
    assert np.abs(bus_admittance(again) - matrix).max() < 1e-12 * np.abs(matrix).max()
    # pandapower puts the external grid first, then generators, then what else stands at a bus.
    order, order_again = (np.lexsort((c.generators.p_max, c.generators.bus)) for c in (case, again))
    for column in fields(case.generators):
        if column.name != "rows":
            values = getattr(again.generators, column.name)[order_again]
            assert values == pytest.approx(getattr(case.generators, column.name)[order], abs=1e-9)
    assert np.sum(again.lines.rate > 0) == np.sum(case.lines.rate > 0)


@needs_pandapower
def test_a_piecewise_cost_keeps_its_slopes():
    case = parse(PIECEWISE.encode(), "two")
    again = from_pandapower(to_pandapower(case), "two")
    # Beside a piecewise cost pandapower's optimal power flow takes a linear one for another.
    assert again.piecewise.generator.tolist() == [0, 0, 0, 1]
    assert again.piecewise.slope == pytest.approx([*case.piecewise.slope, 250])


@needs_pandapower
def test_a_network_file_is_a_case_for_every_command(hushgrid, tmp_path):
    assert "14 buses" in hushgrid("case", "export", "case14", "net.json").out
    seen = json.loads(hushgrid("case", "show", "net.json", "--json").out)
    assert (seen["buses"], seen["lines"], seen["generators"]) == (14, 20, 5)
    assert seen["load_mw"] == pytest.approx(259.0)
    assert "net: 3 zones, 5 tie lines" in hushgrid("case", "zones", "net.json").out


def multivoltage():
    """Transformers with two and three windings and iron losses, switches between buses, a shunt, an impedance, a
    generator without limits.
    """
    from pandapower.networks import example_multivoltage

    net = example_multivoltage()
    net.xward["in_service"] = False
    return net


def oberrhein():
    """Two islands, each with its grid, lines that are open at a switch."""
    from pandapower.networks import mv_oberrhein

    return mv_oberrhein()


def cigre_hv():
    """Generators without limits."""
    from pandapower.networks import create_cigre_network_hv

    return create_cigre_network_hv()


def without_numbers():
    """Columns of flags and of limits that hold no value, as SimBench's do, and two generators that nobody controls."""
    net = cigre()
    for name in ("sgen", "load", "ext_grid"):
        for column in ("controllable", "min_p_mw", "max_p_mw", "min_q_mvar", "max_q_mvar"):
            net[name][column] = None
    return net


def cigre():
    """Lines that are open at a switch, transformers with a tap."""
    from pandapower.networks import create_cigre_network_mv

    return create_cigre_network_mv()


@needs_pandapower
@pytest.mark.parametrize("network", [multivoltage, cigre, oberrhein, cigre_hv, without_numbers])
def test_a_network_built_in_pandapower_is_read_as_its_power_flow_sees_it(network):
    import pandapower

    net = network()
    case = from_pandapower(net, "built")
    pandapower.runpp(net, calculate_voltage_angles=True, init="dc", tolerance_mva=1e-9)
    inner = ~np.isin(case.buses.numbers, net.bus.index)  # open ends of lines, star points: nothing is drawn there
    outer = net.res_bus.loc[case.buses.numbers[~inner]]
    v = np.zeros(len(case.buses), complex)
    v[~inner] = outer.vm_pu.to_numpy() * np.exp(1j * np.deg2rad(outer.va_degree.to_numpy()))
    matrix = bus_admittance(case)
    v[inner] = np.linalg.solve(matrix[np.ix_(inner, inner)], -matrix[np.ix_(inner, ~inner)] @ v[~inner])
    balance = v * np.conj(matrix @ v) + case.buses.p_d + 1j * case.buses.q_d
    supplied = np.isin(case.buses.numbers, case.generators.bus)
    assert np.abs(balance[~supplied]).max() < 1e-6


@needs_pandapower
def test_of_several_islands_the_largest_with_a_grid_is_kept_and_the_others_are_named(hushgrid, tmp_path):
    import pandapower

    case = from_pandapower(oberrhein(), "oberrhein")
    (words,) = case.omitted
    assert words.startswith("island of 71 buses (lowest 32) apart from the rest")
    assert "left out" in case.left_out(())[0]
    pandapower.to_json(oberrhein(), "net.json")
    assert words in hushgrid("case", "show", "net.json").out


@needs_pandapower
def test_a_generator_without_limits_gives_up_to_its_rating_and_a_grid_what_its_lines_carry():
    case = from_pandapower(cigre_hv(), "hv")
    mva = case.base_mva
    assert sorted(case.generators.p_max * mva)[:3] == pytest.approx([200, 300, 500])
    assert sorted(case.generators.p_min * mva)[1:] == pytest.approx([0, 0, 0], abs=1e-6)
    grid = int(np.argmin(case.generators.p_min))
    ends = (case.lines.from_bus == case.generators.bus[grid]) | (case.lines.to_bus == case.generators.bus[grid])
    rated = case.lines.rate[ends].sum()
    expected = rated if np.all(case.lines.rate[ends] > 0) else np.inf
    assert (case.generators.p_max[grid], case.generators.q_min[grid]) == pytest.approx((expected, -expected))


@needs_pandapower
def test_coordinates_come_with_the_buses_and_go_with_an_archive(tmp_path):
    case = from_pandapower(oberrhein(), "oberrhein")
    assert case.coordinates.bus.tolist() == case.buses.numbers.tolist()
    assert 7 < case.coordinates.x.min() < case.coordinates.x.max() < 9  # degrees, on the Rhine
    archive.write(case, tmp_path / "case.npz")
    again = load(tmp_path / "case.npz")
    assert again.coordinates.y.tolist() == case.coordinates.y.tolist()
    assert again.omitted == case.omitted
    assert again.public_digest() == case.public_digest()


@needs_pandapower
def test_what_a_case_cannot_hold_is_refused_in_one_line(tmp_path):
    from pandapower import create_empty_network

    with pytest.raises(InputError, match=r"found no external grid in net\.ext_grid, expected one"):
        from_pandapower(create_empty_network(), "empty")
    file = tmp_path / "net.json"
    for content in ("{", "[1, 2]", "", '{"_module": "pandapower.auxiliary", "_class": "pandapowerNet", "_object": 3}'):
        file.write_text(content)
        with pytest.raises(InputError) as error:
            load(file)
        assert str(error.value).startswith(f"case: {file}: ")
        assert "\n" not in str(error.value)
    with pytest.raises(InputError, match="found no such file"):
        load(tmp_path / "absent.json")


@pytest.mark.skipif(INSTALLED, reason="pandapower is installed")
def test_without_pandapower_the_line_says_what_to_install():
    with pytest.raises(
        InputError, match=r"net\.json: found no module pandapower.*pip install 'hushgrid\[pandapower\]'"
    ):
        load("net.json")
    with pytest.raises(InputError, match=r"found no module simbench, expected it \(pip install"):
        load("simbench:1-MV-rural--0-sw")
    with pytest.raises(InputError, match="case14: found no module pandapower"):
        to_pandapower(load("case14"))
    with pytest.raises(InputError, match="net: found no module pandapower"):
        from_pandapower(object(), "net")


@pytest.mark.skipif(INSTALLED, reason="pandapower is installed")
def test_a_result_without_pandapower_says_so_in_one_line():
    import hushgrid

    result = hushgrid.run("case14", set={"algorithm.rounds": 2, "problem.ac": "none"})
    with pytest.raises(InputError, match=r"found no module pandapower, expected it .*pip install"):
        result.to_pandapower()
