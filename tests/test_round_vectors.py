"""The first iterates of DPP2 and of ADMM's family, from independent reference code, through whole runs among neighbours.

As test_vectors, with which it shares its tolerance: the non-private ones from a zero start. DPP2's have a stored start and
are the machines' (test_dpp2); of it, whole runs on the stored problem are held against (20)-(21) in matrices.
"""

from pathlib import Path

import numpy as np
import pytest
from sensor_runs import NOT_PRIVATE, files, scenario

from hushgrid.broker.simulation import run
from hushgrid.kernels.losses import Loss, Nonconvex, Objective

HERE = Path(__file__).parent / "vectors"
DPP2, RADMM = np.load(HERE / "dpp2.npz"), np.load(HERE / "radmm.npz")
NUMBERS = {"alpha": 0.05, "beta": 0.02, "rho": 10.0}  #: stable by the rows' norms, which is what a plan knows of M
UNLIKE = [0.3, 0.6, 0.9, 0.5]


def apart(found, stored):
    assert found.shape == stored.shape
    return float(np.max(np.abs(found - stored)))


# --- ADMM, R-ADMM, MR-ADMM ---

ADMM = {
    "admm": {"name": "admm", "eta": 0.5},
    "radmm": {"name": "radmm", "eta": 0.5, "gamma": 0.5},
    "mradmm_common": {"name": "mradmm", "eta": {"start": 0.5, "growth": 1.05}, "gamma": 0.5},
    "mradmm_hetero_published": {"name": "mradmm", "eta": UNLIKE, "gamma": 0.5, "penalties": "node"},
    "mradmm_hetero_edgefix": {"name": "mradmm", "eta": UNLIKE, "gamma": 0.5},
}


def of_admm(name, directory):
    edges = sorted({tuple(sorted((i, int(j)))) for i, near in enumerate(RADMM["adj"]) for j in near})
    rounds = len(RADMM[f"{name}/lam"]) * (1 if name == "admm" else 2)
    return scenario(
        NOT_PRIVATE,
        network={"kind": "edges", "nodes": 4, "edges": [list(e) for e in edges]},
        problem={
            "kind": "logistic", "scale": float(RADMM["C"]), "l2": float(RADMM["rho"]) / 4,
            "data": {"files": files(directory, RADMM["X"], RADMM["Y"])},
        },
        algorithm=ADMM[name] | {"variant": "none", "rounds": rounds},
        run={"record": "trajectory"},
    )  # fmt: skip


def assert_admm(result, name):
    f, lam = result.trajectory["f"], result.trajectory["lam"]
    assert not f[0].any()
    assert not lam[0].any()
    if name == "admm":
        assert apart(f[1:], RADMM[f"{name}/f"]) <= 1e-9
        assert apart(lam[1:], RADMM[f"{name}/lam"]) <= 1e-9
        return
    assert apart(f[1::2], RADMM[f"{name}/f_odd"]) <= 1e-9
    assert apart(f[2::2], RADMM[f"{name}/f_even"]) <= 1e-9
    assert apart(lam[1::2], RADMM[f"{name}/lam"]) <= 1e-9  # the dual step is an odd round's
    assert apart(lam[2::2], RADMM[f"{name}/lam"]) <= 1e-9


@pytest.mark.parametrize("name", ADMM)
def test_ADMM_and_its_recycled_kin_run_through_the_stored_iterates(name, tmp_path):
    assert_admm(run(of_admm(name, tmp_path)), name)


@pytest.mark.mosquitto
def test_over_mosquitto_processes_run_through_them_too(mosquitto, tmp_path):
    name = "mradmm_hetero_edgefix"
    assert_admm(run(of_admm(name, tmp_path), transport="mqtt", broker=mosquitto.url), name)


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
