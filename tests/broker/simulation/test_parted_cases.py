"""Zones at least cost over cases with reactive costs, capability curves, dc lines and dispatchable loads."""

import numpy as np
import pytest

from hushgrid.broker.simulation import run
from hushgrid.grid_cases import load
from hushgrid.grid_cases.centralised import solve
from hushgrid.grid_cases.costs import VOLL
from hushgrid.kernels.errors import InputError
from tests.support.scenarios.least_cost import scenario
from tests.support.scenarios.parted_cases import CASES, ZONES9, ZONES30, path, text


@pytest.mark.runs
@pytest.mark.parametrize(
    ("name", "zones"),
    [
        ("case30Q", ZONES30),
        ("t_case9_opfv2", ZONES9),
        ("t_case9_dcline", ZONES9),  # every dc line is cut
        ("t_case9_dcline", [[1, 4, 9, 8, 2], [5, 6, 7, 30]]),  # none inside z1, one inside z2
        ("case9_loads", ZONES9),
    ],
)
def test_the_zones_reach_the_central_optimum(name, zones):
    found, central = run(scenario(path(name), zones, ac="none")), solve(load(path(name)), "cost", VOLL)
    assert found.stopped_because == "tolerance"
    assert found.objective == pytest.approx(central.value, rel=5e-4)
    prices = np.array(list(found.prices_relaxed.values()))
    assert prices == pytest.approx(central.prices[:, 0], rel=0.03, abs=0.01)
    assert found.notes == []
    columns, rows = found.tables["generation"]
    cost = sum(row[columns.index("cost_per_h")] for row in rows)
    dc_cost = 7.3 * dc_of(found)[4]["p_from"] if name == "t_case9_dcline" else 0.0
    assert cost + dc_cost == pytest.approx(found.objective, rel=1e-4)


def dc_of(found):
    columns, rows = found.tables["dclines"]
    return {row[0]: dict(zip(columns, row, strict=True)) for row in rows}


@pytest.mark.runs
def test_the_table_of_dc_lines_has_what_goes_in_what_comes_out_and_what_is_lost():
    found = run(scenario(path("t_case9_dcline"), ZONES9, ac="none"))
    lines = dc_of(found)
    assert set(lines) == {1, 2, 4}  # rows of mpc.dcline, from 1; the third is out of service
    assert (lines[1]["from"], lines[1]["to"], lines[1]["zones"], lines[1]["tie"]) == (30, 4, "z2-z1", "yes")
    for row, loss_0, loss_1 in ((1, 1.0, 0.01), (2, 0.0, 0.0), (4, 0.0, 0.05)):
        line = lines[row]
        assert line["losses_mw"] == pytest.approx(loss_0 + loss_1 * line["p_from"], abs=0.02)
        assert line["p_from"] + line["p_to"] == pytest.approx(line["losses_mw"], abs=0.02)
    columns, rows = found.tables["balance"]
    out = {row[0]: row[columns.index("interchange_mw")] for row in rows}
    lost = sum(row[columns.index("losses_mw")] for row in rows)
    assert lost == pytest.approx(found.generation_mw - found.served_mw, abs=0.1)
    assert sum(out.values()) > 0  # what the lines between zones lose
    quantities = {row[1] for row in found.setpoints}
    assert {"dc_p_F", "dc_q_F", "dc_p_T", "dc_q_T"} <= quantities


@pytest.mark.runs
def test_a_case_that_is_not_modelled_is_refused_unless_the_scenario_owns_it(tmp_path):
    file = tmp_path / "constrained.m"
    file.write_text(f"{text('t_case9_opfv2')}\nmpc.A = [1 0 0];\nmpc.l = -1;\nmpc.u = 1;\n")
    with pytest.raises(
        InputError, match=r"problem\.ignore: case constrained: found constraints .*mpc.A, mpc.l, mpc.u"
    ) as said:
        run(scenario(str(file), ZONES9, ac="none"))
    assert "\n" not in str(said.value)
    owned = run(scenario(str(file), ZONES9, ac="none", ignore=["constraints"]))
    assert owned.notes == [
        "constraints or costs of the user's own (mpc.A, mpc.l, mpc.u): left out (ignore: constraints)"
    ]
    assert owned.objective == pytest.approx(solve(load(path("t_case9_opfv2")), "cost").value, rel=5e-4)


@pytest.mark.runs
def test_what_a_scenario_leaves_out_is_left_out_of_every_model_and_named():
    found = run(scenario(path("t_case9_dcline"), ZONES9, ac="none", ignore=["dc-lines", "capability-curves"]))
    central = solve(load(path("t_case9_dcline")).without(["dc-lines", "capability-curves"]), "cost", VOLL)
    assert found.objective == pytest.approx(central.value, rel=5e-4)
    assert "dclines" not in found.tables
    assert found.notes == [
        "capability curves of 2 generators: left out (ignore: capability-curves)",
        "3 dc lines: left out (ignore: dc-lines)",
    ]


def test_the_files_of_these_cases_say_whose_data_they_are():
    licence = (CASES / "LICENSE-MATPOWER.txt").read_text()
    assert "Redistributions of source code must retain the above copyright" in licence
    for name in ("case30Q", "t_case9_opfv2", "t_case9_dcline", "case9_loads"):
        assert "BSD 3-clause licence" in text(name)
