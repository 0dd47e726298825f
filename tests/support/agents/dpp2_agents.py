"""The agents of DPP2 without a gate, and the stored iterates of its paper."""

from dataclasses import replace

import numpy as np

from hushgrid.kernels.algorithms import dpp2
from hushgrid.kernels.algorithms.dpp2 import Params
from hushgrid.kernels.graphs import Graph, Network
from hushgrid.kernels.problems.losses import CURVATURE, Loss, Nonconvex, Objective
from tests.support import paths
from tests.support.agents.lockstep_rounds import Data, classification, name, weights

V = np.load(paths.VECTORS / "dpp2.npz")
K, N, D = V["w"].shape
STORED = Graph.from_edges(N, [(i, j) for i in range(N) for j in range(i) if V["P"][i, j]])
NUMBERS = {key: float(V[key]) for key in ("alpha", "beta", "rho")}
NOISY = {"decay": 0.9, "u_w": 1.0, "u_e": 1.0}
NONCONVEX = Objective(kind="logistic", nonconvex=Nonconvex(lam=0.001, omega=1.0))
FUNCTIONS = [Loss(NONCONVEX, A, np.ones(len(A))) for A in V["A"]]  # the rows are label times feature


def smoothness(f):
    """M_i, from the rows: sharper than their norms."""
    if isinstance(f, Slope):
        return f.M
    o = f.objective
    curvature = CURVATURE[o.kind] * o.scale * float(np.linalg.eigvalsh(f.A.T @ f.A / f.rows)[-1])
    return curvature + o.l2 + 2 * o.lam * o.omega


class Slope:
    """f'(x) = delta - M x, on one coordinate."""

    size = 1

    def __init__(self, delta, M):
        self.delta, self.M = delta, M

    def gradient(self, x):
        return self.delta - self.M * x


def nodes(fs, graph, *, x0=None, noise=None, w=None, e=None, **params):
    """A node for each function. Of round k and node i: `noise` on the gradient, `w` on y and `e` on z, (K, n, d)."""
    p = Params(**{"variant": "none", "rounds": K, **NUMBERS} | params)
    degree, M = max(map(len, graph.neighbours)), max(map(smoothness, fs))
    found = []
    for i, f in enumerate(fs):
        both = None if w is None else np.stack([w[:, i], e[:, i]], axis=1).reshape(-1, f.size)  # w^0, e^0, w^1, ...
        gate = Data(f, None if noise is None else noise[:, i], both)
        found.append(dpp2.Node(p, gate, weights(graph, i), degree, M, f.size, name(i)))
        if x0 is not None:
            found[i].state = replace(found[i].state, x=x0[i])
    return found


def published(fs, graph, eta, **more):
    return nodes(fs, graph, variant="published", eta=eta, **NOISY | more)


def near(found, stored):
    return np.max(np.abs(np.asarray(found) - stored)) <= 1e-9


def logistic(kind="geometric", n=8, **keys):
    graph = Network(kind=kind, nodes=n, **({"radius": 0.5, "seed": 1} if kind == "geometric" else {})).build()
    return classification(NONCONVEX, n, 20, 3, 4), graph
