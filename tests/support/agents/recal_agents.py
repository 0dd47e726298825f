"""The agents of RECAL without a gate, and the stored iterates of its paper."""

import numpy as np

from hushgrid.kernels.algorithms import recal
from hushgrid.kernels.algorithms.recal import Params
from hushgrid.kernels.problems.losses import Loss, Objective
from hushgrid.kernels.problems.prox import Regularizer
from tests.support import paths
from tests.support.agents.agents_without_gate import Data, along, names

VECTORS = np.load(paths.VECTORS / "recal.npz")
WALK = VECTORS["walk"].tolist()
PROBLEMS = ("ridge_l2", "ls_r0_mu", "lasso", "elastic", "logistic_elastic")


def agents(fs, regularizer, walk, *, neighbours=None, noise=None, reading="B", **params):
    """One agent for each loss. `noise` (K, q) is that of each activation."""
    n = len(fs)
    p = Params(rounds=len(walk), **{"variant": "none"} | params)
    noise = np.zeros((len(walk), fs[0].size)) if noise is None else noise
    return [
        recal.Agent(
            p, Data(fs[i], noise[[k for k, at in enumerate(walk) if at == i]]), regularizer, i, n, fs[i].L, fs[i].size,
            f"n{i}", names(neighbours[i]) if neighbours else names(range(n)), along(walk), reading=reading,
        )
        for i in range(n)
    ]  # fmt: skip


def stored(name):
    """The vectors' problem: losses, regulariser and parameters."""
    B, b, (l1, l2, mu) = VECTORS[f"{name}/B"], VECTORS[f"{name}/b"], VECTORS[f"{name}/par"]
    kind = "logistic" if "logistic" in name else "least-squares"
    fs = [Loss(Objective(kind=kind, l2=float(mu)), B[i], b[i]) for i in range(4)]
    params = {"alpha": tuple(VECTORS[f"{name}/alpha"].tolist()), "beta": float(VECTORS[f"{name}/beta"])}
    return fs, Regularizer(l1=float(l1), l2=float(l2)), params
