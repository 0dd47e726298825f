"""The first iterates of RECAL and I-ADMM, from independent reference code, and the runs that must give them."""

import numpy as np

from tests.support.paths import VECTORS
from tests.support.scenarios.record_scenarios import NOT_PRIVATE, files, scenario

RECAL, IADMM = np.load(VECTORS / "recal.npz"), np.load(VECTORS / "iadmm.npz")


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
