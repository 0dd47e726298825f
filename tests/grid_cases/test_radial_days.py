"""A feeder of short lines: its zones' steps are accurate, and its days are agreed on, with noise too."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import yaml

from hushgrid.broker.simulation import run
from hushgrid.grid_cases import load
from hushgrid.grid_cases.case import loads
from hushgrid.grid_cases.variables import Layout
from hushgrid.grid_cases.zone.branch_flow import BranchFlow
from hushgrid.grid_cases.zone.build import zone_models
from hushgrid.grid_cases.zone.conic import Cones, SolverResult, built
from hushgrid.grid_cases.zone.cost import Epigraphs, cones, stiffness

BUSES = 24
SHAPE = (0.7, 1.0, 1.2, 0.8)
NONE = np.zeros(0, np.int64)


def feeder(folder: Path) -> str:
    """Two branches of lines of 200 to 300 m at 20 kV, base 10 MVA, and the grid that they import from at 50 $/MWh."""
    bus = [f"{k} {1 if k > 1 else 3} {0.1 * (k > 1)} 0.05 0 0 1 1 0 20 1 1.06 0.94;" for k in range(1, BUSES + 1)]
    line = [
        f"{max(k - 2, 1)} {k} {0.001 + 1e-4 * (k % 3)} 8e-4 1e-4 8 8 8 0 0 1 -360 360;" for k in range(2, BUSES + 1)
    ]
    tables = {"bus": bus, "gen": ["1 0 0 10 -10 1 10 1 20 0;"], "branch": line, "gencost": ["2 0 0 3 2 50 0;"]}
    text = "".join(f"mpc.{name} = [\n{chr(10).join(rows)}\n];\n" for name, rows in tables.items())
    (folder / "feeder.m").write_text(f"function mpc = feeder\nmpc.version = '2';\nmpc.baseMVA = 10;\n{text}")
    return str(folder / "feeder.m")


class Step(NamedTuple):
    """A step of the feeder's second zone, in its own variables and in the other ones."""

    cones: Cones
    flows: BranchFlow
    P: np.ndarray
    q: np.ndarray


@pytest.fixture(scope="module")
def step(tmp_path_factory) -> Step:
    case = load(feeder(tmp_path_factory.mktemp("feeder")))
    model = zone_models(case, 2, cache=False)["z2"]
    own, layout = loads(case, model.buses), Layout.from_case(case, model.buses)
    plain = cones(model, own, case.base_mva, Epigraphs(np.zeros(0), NONE, NONE, np.zeros(0)))
    P, q = np.zeros(plain.A.shape[1]), np.zeros(plain.A.shape[1])
    q[model.n :] = 1.0  # lost load
    shared = model.shared
    P[shared] = np.where([model.keys[k].startswith(("p", "q")) for k in shared], 0.2, 20.0)
    q[shared] = -P[shared] * (model.start[shared] + 0.01 * np.cos(np.arange(shared.size)))
    y2 = stiffness(case, [f"cr:{i}-{j}" for i, j in layout.pairs.tolist()])
    return Step(plain, BranchFlow(plain, case, layout, np.zeros(1, np.int64), y2, shared), P, q)


def solved(cones: Cones, P: np.ndarray, q: np.ndarray) -> SolverResult:
    return SolverResult.from_solution(built(cones, P, q, 1e-12, 1e-12).solve())


def test_a_step_over_short_lines_is_solved_a_hundred_times_as_well_in_flows(step):
    plain = solved(step.cones, step.P, step.q)
    inside = solved(step.flows.cones, step.flows.diagonal(step.P), step.flows.linear(step.q))
    assert inside.solved
    assert inside.residual < 1e-12
    assert not plain.solved
    assert plain.residual > 100 * inside.residual


def test_what_is_solved_in_flows_is_the_optimum_in_the_zones_own_variables(step):
    inside = solved(step.flows.cones, step.flows.diagonal(step.P), step.flows.linear(step.q))
    x, u, plain = step.flows.variables(inside.x), step.flows.multipliers(inside.y), step.cones
    s, linear = plain.b - plain.A @ x, plain.zero + plain.nonneg
    assert np.abs(s[: plain.zero]).max() < 1e-9
    assert s[plain.zero : linear].min() > -1e-9
    assert u[plain.zero : linear].min() > -1e-9
    begin = linear
    for size in plain.soc:
        for vector in (s, u):
            assert vector[begin] - np.linalg.norm(vector[begin + 1 : begin + size]) > -1e-8
        begin += size
    assert step.P * x + step.q + plain.A.T @ u == pytest.approx(0, abs=1e-5)  # of coefficients of y^2 = 6e5
    assert s @ u == pytest.approx(0, abs=1e-8)


def day(folder: Path, periods: int) -> str:
    """A day of the feeder in three zones with a storage unit each, in mode input: a house's day is hidden."""
    hours, others = range(periods), range(2, BUSES + 1)
    shape = [0.7 + 0.5 * np.sin(2 * np.pi * t / periods) ** 2 for t in hours]
    loads = [
        f"{t + 1},{k},{0.1 * s * (1 + 0.3 * np.sin(k + t))},{0.05 * s}" for t, s in enumerate(shape) for k in others
    ]
    tables = {
        "profiles": ["period,bus,p_mw,q_mvar", *(f"{t + 1},1,0,0" for t in hours), *loads],
        "storage": [
            "name,bus,p_mw,e_mwh,eta,cost,e_start,e_end",
            *(f"s{k},{k},.3,.9,.95,.5,.45,.45" for k in (7, 16, 23)),
        ],
        "price": ["period,gen,value", *(f"{t + 1},1,{1 + 0.4 * np.cos(2.1 * t)}" for t in hours)],
    }
    for name, rows in tables.items():
        (folder / f"{name}.csv").write_text("\n".join(rows) + "\n")
    horizon = {"periods": periods, "hours": 1} | {name: f"{name}.csv" for name in tables}
    problem = {"kind": "zones", "case": feeder(folder), "zones": 3, "objective": "cost", "ac": "none"}
    raw = {
        "hushgrid": 1,
        "name": "feeder",
        "problem": problem | {"loads": {"nonzero": "case"}, "horizon": horizon},
        "algorithm": {"name": "consensus-admm", "rounds": 200},
        "privacy": {
            "adjacency": {"day": {"energy_mwh": 0.02, "power_factor": 0.97}},
            "epsilon": 1,
            "release": "totals",
        },
        "run": {"stop": {"tolerance": 1e-4, "patience": 3}},
    }
    (folder / "feeder.yaml").write_text(yaml.safe_dump(raw))
    return str(folder / "feeder.yaml")


@pytest.mark.runs
def test_zones_of_a_feeder_agree_on_a_noisy_day_in_forty_rounds(tmp_path):
    result = run(day(tmp_path, 8), seed=1)
    assert result.stopped_because == "tolerance"
    assert result.rounds_done <= 40  # 52 in the zones' own variables
