"""Angles fitted to a relaxation's point, and flows in polar coordinates."""

import numpy as np
import pytest

from hushgrid.grid_cases import load
from hushgrid.grid_cases.ac.network import Point, bus_admittance, excess, flat, flows, outflow, relaxed, violations


def names(case, v, angle):
    """c, cr, si of these voltages, by name."""
    numbers = case.buses.numbers
    values = {f"c:{bus}": v_i**2 for bus, v_i in zip(numbers.tolist(), v.tolist(), strict=True)}
    V = v * np.exp(1j * angle)
    for i, j in np.sort(np.stack([case.lines.from_bus, case.lines.to_bus], axis=1), axis=1).tolist():
        w = V[case.index(i)] * np.conj(V[case.index(j)])
        values |= {f"cr:{i}-{j}": w.real, f"si:{i}-{j}": w.imag}
    return values


@pytest.mark.parametrize("name", ["case14", "case118"])
def test_the_angles_of_a_point_of_the_network_are_found_again(name):
    """case118 has lines whose from bus has the greater number, and parallel lines."""
    case, rng = load(name), np.random.default_rng(1)
    v, angle = rng.uniform(0.95, 1.05, len(case.buses)), rng.uniform(-0.6, 0.6, len(case.buses))
    found = relaxed(case, names(case, v, angle))
    assert found.v == pytest.approx(v, abs=1e-12)
    assert found.angle - found.angle[0] == pytest.approx(angle - angle[0], abs=1e-10)


def test_names_that_are_missing_are_taken_from_the_flat_start():
    case = load("case14")
    start, found = flat(case), relaxed(case, {"pg:1": 0.3})
    assert np.array_equal(found.v, start.v)
    assert np.array_equal(found.angle, start.angle)
    assert found.p_g[1] == 0.3
    assert np.array_equal(np.delete(found.p_g, 1), np.delete(start.p_g, 1))


@pytest.mark.parametrize("name", ["case14", "case300"])
def test_the_flows_by_cosine_and_sine_are_those_of_the_admittance_matrix(name):
    """case300 has taps, shifts and negative reactances."""
    case, rng = load(name), np.random.default_rng(2)
    v, angle = rng.uniform(0.9, 1.1, len(case.buses)), rng.uniform(-0.5, 0.5, len(case.buses))
    V = v * np.exp(1j * angle)
    out = outflow(case, v, flows(case, v, angle))
    assert out[:, 0] + 1j * out[:, 1] == pytest.approx(V * np.conj(bus_admittance(case) @ V), rel=1e-9, abs=1e-9)


def test_every_kind_of_limit_is_measured_at_its_own_element():
    case = load("case14")
    start = flat(case)
    v, p_g, q_g = start.v.copy(), start.p_g.copy(), start.q_g.copy()
    v[3], p_g[0], q_g[2] = case.buses.v_max[3] + 0.01, case.generators.p_max[0] + 0.2, case.generators.q_min[2] - 0.3
    over = excess(case, Point(v, start.angle, p_g, q_g))
    assert {k: np.flatnonzero(over[k]).tolist() for k in ("v", "p", "q")} == {"v": [3], "p": [0], "q": [2]}
    angle = np.zeros(14)
    angle[0] = 1.0  # lines 1-2, 1-5: limits of 30 degrees, and far more current than their ratings
    told = violations(case, Point(start.v, angle, start.p_g, start.q_g))
    assert told["angle"] == pytest.approx(1.0 - np.pi / 6)
    ends = np.hypot(flows(case, start.v, angle)[0, [0, 2]], flows(case, start.v, angle)[0, [1, 3]])
    assert told["rating"] == pytest.approx(ends.max() - case.lines.rate[0])
    assert told["v"] == told["p"] == told["q"] == 0
