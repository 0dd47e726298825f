"""Functions and graphs that the rivals of DPP2 are tried on, and how far their iterates are from the optimum."""

import numpy as np

from hushgrid.kernels.graphs import Network
from hushgrid.kernels.problems.centralised import optimum
from hushgrid.kernels.problems.losses import Loss, Objective
from tests.support.agents.lockstep_rounds import classification

N, D = 6, 3
GRAPHS = {
    "ring": Network(kind="ring", nodes=N).build(), "complete": Network(kind="complete", nodes=N).build(),
    "geometric": Network(kind="geometric", nodes=N, radius=0.6, seed=3).build(),
}  # fmt: skip


def functions(kind, seed=4, l2=0.1):
    if kind == "logistic":
        return classification(Objective(kind="logistic", l2=l2), N, 20, D, seed)
    draw = np.random.default_rng(seed)
    truth = draw.normal(size=D)
    rows = draw.normal(size=(N, 20, D)) / np.sqrt(D)
    o = Objective(kind="least-squares", l2=l2)
    return [Loss(o, A, A @ truth + 0.1 * draw.normal(size=20)) for A in rows]


def gradients(fs, x):
    return np.array([f.gradient(x[i]) for i, f in enumerate(fs)])


def error(fs, r, x):
    """max_i |x_i - x*|/|x*|."""
    star = optimum(fs, r)
    assert star.distance <= 1e-13
    return np.max(np.linalg.norm(x - star.x, axis=1)) / np.linalg.norm(star.x)


def close(a, b):
    """A few dozen rounds, each a dozen roundings of numbers below 10."""
    return np.max(np.abs(np.asarray(a) - b)) <= 1e-12
