"""`problem.margins`: who may ask for them, what the plan says of them, and what the coordinator makes of that."""

import numpy as np
import pytest

from hushgrid.broker.simulation.problems.power_flow import ZoneSetup
from hushgrid.grid_cases.ac.margins import margins, sigma_of_load
from hushgrid.grid_cases.ac.network import flat
from hushgrid.kernels.errors import InputError
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.problems.plan import decode_plan, encode_plan
from hushgrid.node.problems.power_flow.conclusion import margins_of
from hushgrid.node.problems.power_flow.gate import lattice_of

PRIVACY = {"adjacency": {"bounded-change": 0.01}, "epsilon": 2.0}


def scenario(problem=None, privacy=PRIVACY, **algorithm):
    raw = {
        "hushgrid": 1,
        "name": "kept",
        "problem": {"kind": "zones", "case": "case5", "zones": 2} | (problem or {}),
        "algorithm": {"name": "consensus-admm", "rounds": 20} | algorithm,
    }
    return scenario_from(raw | ({"privacy": privacy} if privacy else {}))


@pytest.mark.parametrize(
    ("over", "why"),
    [
        ({"algorithm": {"name": "ladmm"}}, r"problem.objective: shedding\)"),
        ({"algorithm": {"variant": "none"}, "privacy": None}, r"algorithm.variant: none; .*\)"),
        ({"problem": {"ac": "none"}}, r"problem.ac: none; .*\)"),
    ],
)
def test_margins_are_refused_where_there_is_no_noise_or_no_dispatch_to_keep_them(over, why):
    problem = over.get("problem", {}) | {"margins": True}
    with pytest.raises(InputError, match=rf"^scenario: problem.margins: found true, expected false \({why}$"):
        scenario(problem, over.get("privacy", PRIVACY), **over.get("algorithm", {}))


def test_a_plan_without_margins_has_the_bytes_that_it_had_before_there_were_any():
    without, kept = (ZoneSetup(scenario({"margins": asked})) for asked in (False, True))
    assert b"margins" not in encode_plan(without.plan)
    assert decode_plan(encode_plan(kept.plan)).problem.margins is True
    assert without.written_out({"problem": {}})["problem"]["margins"] is False
    assert kept.written_out({"problem": {}})["problem"]["margins"] is True


PAIR = {"adjacency": {"bounded-change": {"pair": 0.01, "power_factor": 0.95}}}


@pytest.mark.parametrize(
    ("over", "release"),
    [
        ({}, "plain"),
        ({"release": "totals"}, "totals"),
        (PAIR, "plain"),
        ({"mechanism": "gaussian", "delta": 1e-6, "accountant": "gdp"}, "plain"),
        (PAIR | {"mechanism": "gaussian", "delta": 1e-6, "accountant": "gdp"}, "plain"),
    ],
    ids=["laplace", "totals", "pair", "gaussian", "pair, gaussian"],
)
def test_the_coordinator_takes_margins_of_the_noise_that_the_plan_asks_for(over, release):
    made = ZoneSetup(scenario({"margins": True, "loads": {"nonzero": "case"}}, PRIVACY | over))
    case, p_g, of_gate = made.case, flat(made.case).p_g, lattice_of("z1", made.public_loss("z1"), made.terms)
    sd = of_gate.scale * (np.sqrt(2) if of_gate.kind == "laplace" else 1.0)
    found = margins_of(case, made.plan, p_g)
    loaded = [int(sum(case.buses.p_d[case.index(np.array(buses))] != 0)) for buses in made.zones.values()]
    expected = margins(case, 0.01, sigma_of_load(0.01, 1.0, release) / sd, loaded, release, p_g=p_g)
    for name in ("rating", "p", "q"):  # the grid is a thousandth of the scale, and the scale a whole number of steps
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=2e-3)
    assert margins_of(case, ZoneSetup(scenario()).plan, p_g) is None


def test_margins_are_refused_where_every_load_has_a_noise_of_its_own(tmp_path):
    (tmp_path / "capacity.csv").write_text("bus,p_mw,q_mvar\n2,100,100\n")
    change = {"relative": 0.05, "of": str(tmp_path / "capacity.csv")}
    with pytest.raises(InputError, match=r"problem.margins: found true, expected false \(bounded-change: relative"):
        scenario({"margins": True}, PRIVACY | {"adjacency": {"bounded-change": change}})
