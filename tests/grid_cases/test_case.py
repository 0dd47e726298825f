"""A case is checked once, read-only, and its public part does not know the loads."""

from dataclasses import replace

import numpy as np
import pytest

from hushgrid.grid_cases import load
from hushgrid.grid_cases.case import loads
from hushgrid.kernels.errors import InputError

CASE = load("case14")


def test_the_public_digest_ignores_the_loads_and_sees_everything_else():
    buses = CASE.buses
    assert CASE.public_digest() == CASE.without_loads().public_digest()
    assert CASE.public_digest() == replace(CASE, buses=replace(buses, p_d=buses.p_d * 2)).public_digest()
    changed = [
        replace(CASE, base_mva=99.0),
        replace(CASE, buses=replace(buses, g_s=buses.g_s + 0.001)),
        replace(CASE, lines=replace(CASE.lines, rate=np.nextafter(CASE.lines.rate, 99))),
        replace(CASE, generators=replace(CASE.generators, cost_1=CASE.generators.cost_1 + 1e-9)),
    ]
    assert len({CASE.public_digest(), *(case.public_digest() for case in changed)}) == 1 + len(changed)


def test_a_case_without_loads_has_zeros_and_the_same_network():
    public = CASE.without_loads()
    assert not public.buses.p_d.any()
    assert not public.buses.q_d.any()
    assert public.lines is CASE.lines


def test_arrays_are_read_only_and_own_their_numbers():
    with pytest.raises(ValueError, match="read-only"):
        CASE.buses.p_d[0] = 1.0
    mine = CASE.buses.p_d.copy()
    case = replace(CASE, buses=replace(CASE.buses, p_d=mine))
    mine[:] = 7.0
    assert case.buses.p_d.tolist() == CASE.buses.p_d.tolist()


def test_loads_are_p_then_q_of_the_buses_in_the_order_given():
    d = loads(CASE, (14, 2))
    assert d.tolist() == pytest.approx([0.149, 0.217, 0.05, 0.127])


def test_columns_of_unequal_length_are_refused():
    with pytest.raises(InputError, match=r"Buses: found columns of lengths \[13, 14\]"):
        replace(CASE.buses, p_d=CASE.buses.p_d[:-1])


def test_a_generator_at_an_unknown_bus_is_named_by_its_row():
    with pytest.raises(InputError, match="case case14: generator row 4: found an unknown bus"):
        replace(CASE, generators=replace(CASE.generators, bus=[1, 2, 3, 6, 99]))
