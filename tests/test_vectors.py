"""The papers' first iterates, from independent reference code, through whole runs: real nodes, ledgers, wire and files.

The non-private ones from a zero start. Those with stored noise or a stored start are matched by the machines
(test_recal, test_iadmm). Tolerance 1e-9: what the reference's own order of summation is good for.
"""

from pathlib import Path

import numpy as np
import pytest
from sensor_runs import NOT_PRIVATE, files, scenario

from hushgrid.broker.simulation import run

HERE = Path(__file__).parent / "vectors"
RECAL, IADMM = np.load(HERE / "recal.npz"), np.load(HERE / "iadmm.npz")


def recal(name, directory):
    l1, l2, mu = RECAL[f"{name}/par"].tolist()
    return scenario(
        NOT_PRIVATE,
        problem={
            "kind": "logistic" if "logistic" in name else "least-squares", "l2": mu, "regularizer": {"l1": l1, "l2": l2},
            "data": {"files": files(directory, RECAL[f"{name}/B"], RECAL[f"{name}/b"])},
        },
        algorithm={
            "name": "recal", "variant": "none", "rounds": 12, "walk": RECAL["walk"].tolist(),
            "alpha": RECAL[f"{name}/alpha"].tolist(), "beta": float(RECAL[f"{name}/beta"]),
        },
        run={"record": "trajectory"},
    )  # fmt: skip


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


def apart(found, stored):
    assert found.shape == stored.shape
    return float(np.max(np.abs(found - stored)))


def of_the_active(name, key, walk):
    return RECAL[f"{name}/{key}"][np.arange(len(walk)), walk]


def assert_recal(result, name):
    t, walk = result.trajectory, RECAL["walk"]
    assert t["active"].tolist() == walk.tolist()
    for key in ("x", "u"):
        assert not t[key][0].any()
        assert apart(t[key][1:], RECAL[f"{name}/{key}"]) <= 1e-9
    for key in ("y", "lam"):
        assert apart(t[key], of_the_active(name, key, walk)) <= 1e-9


@pytest.mark.parametrize("name", ["ridge_l2", "ls_r0_mu", "lasso", "elastic", "logistic_elastic"])
def test_RECAL_runs_through_the_stored_iterates(name, tmp_path):
    assert_recal(run(recal(name, tmp_path)), name)


@pytest.mark.parametrize("problem", ["ridge", "logistic"])
@pytest.mark.parametrize("update", ["exact", "fo"])
@pytest.mark.parametrize("name", ["iadmm", "wadmm"])
def test_I_ADMM_and_W_ADMM_run_through_the_stored_iterates(problem, update, name, tmp_path):
    t = run(iadmm(problem, update, name, tmp_path)).trajectory
    for key in ("z", "x", "y"):
        assert apart(t[key], IADMM[f"{problem}_{update}_{name}_{key}"]) <= 1e-9


@pytest.mark.mosquitto
def test_over_mosquitto_processes_run_through_them_too(mosquitto, tmp_path):
    assert_recal(run(recal("elastic", tmp_path), transport="mqtt", broker=mosquitto.url), "elastic")
