"""N-1 screening: each line out in turn, against a power flow of the network without it and a search for its bridges."""

from dataclasses import replace

import numpy as np
import pytest

from hushgrid.grid_cases import load
from hushgrid.grid_cases.ac.contingencies import COLUMNS, bridges, outages, rows
from hushgrid.grid_cases.ac.network import Point, flat
from hushgrid.grid_cases.ac.power_flow import operate
from hushgrid.grid_cases.case import _component
from hushgrid.grid_cases.elements.table import rows_but
from hushgrid.kernels.errors import InputError


def setting(name):
    case = load(name)
    point = flat(case)
    share = case.buses.p_d.sum() / case.generators.p_max.sum()
    at = Point(np.ones(len(case.buses)), point.angle, case.generators.p_max * share, point.q_g)
    return case, at, np.concatenate([case.buses.p_d, case.buses.q_d])


@pytest.mark.parametrize("name", ["case14", "case30", "case57"])
def test_the_lines_that_cut_something_off_are_those_without_which_no_case_is_connected(name):
    case = load(name)
    apart = []
    for k in range(len(case.lines)):
        try:
            replace(case, lines=rows_but(case.lines, np.arange(len(case.lines)) == k))
        except InputError:
            apart.append(k)
    assert bridges(case).tolist() == apart
    assert _component(case).all()


def test_each_row_is_what_a_power_flow_of_the_network_without_the_line_says():
    case, point, loads = setting("case14")
    table = [dict(zip(COLUMNS, row, strict=True)) for row in rows(case, point, loads)]
    assert [row["branch"] for row in table] == list(range(1, 21))
    assert [row["branch"] for row in table if row["outcome"] == "island"] == [14]  # to bus 8 alone
    without = replace(case, lines=rows_but(case.lines, np.arange(20) == 0))
    seen = operate(without, point, loads)
    size = np.maximum(np.hypot(*seen.flows[:, :2].T), np.hypot(*seen.flows[:, 2:].T)) / without.lines.rate * 100
    assert table[0]["worst_branch"] == int(np.argmax(size)) + 2
    assert table[0]["loading_percent"] == pytest.approx(size.max(), abs=1e-2)
    room = np.minimum(seen.point.v - case.buses.v_min, case.buses.v_max - seen.point.v)
    assert table[0]["worst_bus"] == case.buses.numbers[np.argmin(room)]
    assert table[0]["v_pu"] == pytest.approx(seen.point.v[np.argmin(room)], abs=1e-6)


def test_a_line_that_is_out_carries_nothing_and_the_load_is_served():
    case, point, loads = setting("case14")
    for outage in outages(case, point, loads):
        if outage.operation is not None:
            assert outage.operation.converged
            assert outage.row not in case.lines.rows[bridges(case)]
            given = outage.operation.point.p_g.sum()
            assert given == pytest.approx(case.buses.p_d.sum() + outage.operation.losses, abs=1e-6)
