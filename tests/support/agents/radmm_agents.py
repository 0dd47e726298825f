"""The nodes of ADMM and R-ADMM without a gate, and the stored iterates of their papers."""

import numpy as np

from hushgrid.kernels.algorithms import radmm
from hushgrid.kernels.algorithms.radmm import Recycled
from hushgrid.kernels.graphs import Network
from hushgrid.kernels.problems.losses import Loss, Objective
from tests.support import paths
from tests.support.agents.agents_without_gate import Data
from tests.support.agents.lockstep_rounds import messages

VECTORS = np.load(paths.VECTORS / "radmm.npz")
UNLIKE = (0.3, 0.6, 0.9, 0.5)


def nodes(fs, neighbours, params=Recycled, gates=None, **keys):
    p = params(**{"variant": "none", "rounds": 20, "eta": 0.5} | keys)
    gates = gates or [Data(f) for f in fs]
    return [
        radmm.Agent(p, gates[i], f.size, f"n{i}", [f"n{j}" for j in neighbours[i]], centre="coordinator")
        for i, f in enumerate(fs)
    ]


def sent(fleet):
    """All messages (K, n, d)."""
    return np.array([f for _, f in messages(fleet)])


def ring(n):
    return Network(kind="ring", nodes=n).build().neighbours


def stored():
    """The vectors' problem: O = C mean logistic + (rho/N)/2 |f|^2 on a ring of four."""
    objective = Objective(kind="logistic", scale=float(VECTORS["C"]), l2=float(VECTORS["rho"]) / 4)
    return [Loss(objective, VECTORS["X"][i], VECTORS["Y"][i]) for i in range(4)], VECTORS["adj"].tolist()
