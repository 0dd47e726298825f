"""The papers' first iterates, from independent reference code, through whole runs: real nodes, ledgers, wire and files.

The non-private ones from a zero start. Those with stored noise or a stored start are matched by the machines
(test_recal, test_iadmm). Tolerance 1e-9: what the reference's own order of summation is good for.
"""

import numpy as np
import pytest

from hushgrid.broker.simulation import run
from hushgrid.kernels.problems.losses import Loss, Nonconvex, Objective
from tests.support.scenarios.record_scenarios import NOT_PRIVATE, files, scenario
from tests.support.scenarios.stored_rounds import ADMM, DPP2, IADMM, apart, assert_admm, assert_recal, of_admm, recal


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


# --- The first iterates of DPP2 and of ADMM's family, from independent reference code, through whole runs among nei ---

NUMBERS = {"alpha": 0.05, "beta": 0.02, "rho": 10.0}  #: stable by the rows' norms, which is what a plan knows of M


# --- ADMM, R-ADMM, MR-ADMM ---


@pytest.mark.parametrize("name", ADMM)
def test_ADMM_and_its_recycled_kin_run_through_the_stored_iterates(name, tmp_path):
    assert_admm(run(of_admm(name, tmp_path)), name)


# --- DPP2 ---


def of_dpp2(directory, **algorithm):
    n, K = len(DPP2["A"]), len(DPP2["eta"])
    edges = [[i, j] for i in range(n) for j in range(i + 1, n) if DPP2["P"][i, j]]
    return scenario(
        NOT_PRIVATE,
        network={"kind": "edges", "nodes": n, "edges": edges},
        problem={  # its rows are label times feature
            "kind": "logistic", "nonconvex": {"lambda": float(DPP2["lam"]), "omega": float(DPP2["omega"])},
            "data": {"files": files(directory, DPP2["A"], np.ones(DPP2["A"].shape[:2]))},
        },
        algorithm={"name": "dpp2", "variant": "none", "rounds": K, **NUMBERS} | algorithm,
        run={"record": "trajectory"}, seed=1,
    )  # fmt: skip


def functions():
    objective = Objective(kind="logistic", nonconvex=Nonconvex(lam=float(DPP2["lam"]), omega=float(DPP2["omega"])))
    return [Loss(objective, A, np.ones(len(A))) for A in DPP2["A"]]


def gradients(x):
    return np.array([f.gradient(v) for f, v in zip(functions(), x, strict=True)])


@pytest.mark.runs
def test_DPP2_runs_through_20_and_21_from_zero(tmp_path):
    t, P = run(of_dpp2(tmp_path)).trajectory, DPP2["P"]
    G = NUMBERS["alpha"] * np.eye(len(P)) - NUMBERS["beta"] * P
    x, q = t["x"][0], t["q"][0]
    assert not x.any()
    assert not q.any()
    for k in range(1, len(t["x"])):
        Px = NUMBERS["rho"] * P @ x
        x, q = x - G @ (gradients(x) + q + Px), q + Px
        assert apart(t["x"][k], x) <= 1e-9
        assert apart(t["q"][k], q) <= 1e-9


@pytest.mark.runs
def test_published_DPP2_runs_through_algorithm_1(tmp_path):
    """(16)-(19), from what was sent: y and z, noises and all."""
    eta, u = DPP2["eta"], {"decay": 0.9, "u_w": 1e-3, "u_e": 1e-3}
    t, P = run(of_dpp2(tmp_path, variant="published", eta=eta.tolist(), **u)).trajectory, DPP2["P"]
    x, q, y, z, K = t["x"], t["q"], t["y"], t["z"], len(eta)
    assert y.shape == z.shape == (K, *x.shape[1:])
    d = np.zeros_like(x[0])
    for k in range(K):
        plain = y[k] - (1 - eta[k]) * d  # x + w
        quiet = gradients(x[k]) + eta[k] * q[k] + NUMBERS["rho"] * P @ y[k]  # z - e
        for noise in (plain - x[k], z[k] - quiet):  # of 18 Laplace numbers; 18 e^-40 is the chance of a larger one
            assert 1e-9 < np.max(np.abs(noise)) < 40 * 0.9**k * 1e-3
        assert apart(x[k + 1], plain - NUMBERS["alpha"] * quiet + NUMBERS["beta"] * P @ z[k]) <= 1e-9
        assert apart(q[k + 1], eta[k] * q[k] + NUMBERS["rho"] * P @ y[k]) <= 1e-9
        d = eta[k] * d + y[k]
