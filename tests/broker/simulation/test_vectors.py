"""The papers' first iterates, from independent reference code, through whole runs: real nodes, ledgers, wire and files.

The non-private ones from a zero start. Those with stored noise or a stored start are matched by the machines
(test_recal, test_iadmm). Tolerance 1e-9: what the reference's own order of summation is good for.
"""

import numpy as np
import pytest

from hushgrid.broker.simulation import run
from tests.support.scenarios.record_scenarios import NOT_PRIVATE, files, scenario
from tests.support.scenarios.stored_walks import IADMM, apart, assert_recal, recal


def iadmm(problem, update, name, directory):
    rows = files(directory, IADMM[f"{problem}_O"], IADMM[f"{problem}_T"])
    walk = IADMM[f"{problem}_walk"].tolist() if name == "wadmm" else IADMM[f"{problem}_route"].tolist() * 5
    edges = np.argwhere(np.triu(IADMM[f"{problem}_adj"])).tolist()
    return scenario(
        NOT_PRIVATE,
        network={"kind": "edges", "nodes": 8, "edges": edges},
        problem={  # ridge there is the mean of squares, no halves
            "kind": "least-squares" if problem == "ridge" else "logistic", "scale": 2.0 if problem == "ridge" else 1.0,
            "data": {"files": rows},
        },
        algorithm={
            "name": name, "variant": "none", "rounds": 40, "walk": walk, "rho": float(IADMM[f"{problem}_rho"]),
            "update": {"exact": "exact", "fo": "first-order"}[update],
        },
        run={"record": "trajectory"},
    )  # fmt: skip


@pytest.mark.parametrize("name", ["ridge_l2", "ls_r0_mu", "lasso", "elastic", "logistic_elastic"])
def test_RECAL_runs_through_the_stored_iterates(name, tmp_path):
    assert_recal(run(recal(name, tmp_path)), name)


@pytest.mark.runs
@pytest.mark.parametrize("problem", ["ridge", "logistic"])
@pytest.mark.parametrize("update", ["exact", "fo"])
@pytest.mark.parametrize("name", ["iadmm", "wadmm"])
def test_I_ADMM_and_W_ADMM_run_through_the_stored_iterates(problem, update, name, tmp_path):
    t = run(iadmm(problem, update, name, tmp_path)).trajectory
    for key in ("z", "x", "y"):
        assert apart(t[key], IADMM[f"{problem}_{update}_{name}_{key}"]) <= 1e-9
