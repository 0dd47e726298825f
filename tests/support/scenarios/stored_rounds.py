"""The first iterates of DPP2 and of ADMM's family, from independent reference code, and the runs that must give
them.
"""

import numpy as np

from tests.support.paths import VECTORS
from tests.support.scenarios.record_scenarios import NOT_PRIVATE, files, scenario

DPP2, RADMM = np.load(VECTORS / "dpp2.npz"), np.load(VECTORS / "radmm.npz")
UNLIKE = [0.3, 0.6, 0.9, 0.5]


def apart(found, stored):
    assert found.shape == stored.shape
    return float(np.max(np.abs(found - stored)))


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


# --- The first iterates of RECAL and I-ADMM, from independent reference code, and the runs that must give them ---

RECAL, IADMM = np.load(VECTORS / "recal.npz"), np.load(VECTORS / "iadmm.npz")


def recal(name, directory):
    l1, l2, mu = RECAL[f"{name}/par"].tolist()
    return scenario(
        NOT_PRIVATE,
        problem={
            "kind": "logistic" if "logistic" in name else "least-squares",
            "l2": mu,
            "regularizer": {"l1": l1, "l2": l2},
            "data": {"files": files(directory, RECAL[f"{name}/B"], RECAL[f"{name}/b"])},
        },
        algorithm={
            "name": "recal",
            "variant": "none",
            "rounds": 12,
            "walk": RECAL["walk"].tolist(),
            "alpha": RECAL[f"{name}/alpha"].tolist(),
            "beta": float(RECAL[f"{name}/beta"]),
        },
        run={"record": "trajectory"},
    )


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
