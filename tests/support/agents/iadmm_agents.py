"""The agents of I-ADMM and W-ADMM without a gate, and the stored iterates of their papers."""

import numpy as np

from hushgrid.kernels.algorithms import iadmm
from tests.support import paths
from tests.support.agents.agents_without_gate import Data, along, names

VECTORS = np.load(paths.VECTORS / "iadmm.npz")


class Stored:
    """The random numbers of one agent's activation: `number` whatever the range, or `vector`."""

    def __init__(self, number=1.0, vector=None):
        self.number, self.vector = number, vector

    def uniform(self, low, high, size):
        return np.full(size, self.number) if self.vector is None else self.vector

    def normal(self, loc, scale, size):
        return self.vector


def seeded(seed, i):
    """The draws of agent i."""
    return lambda k: np.random.default_rng([seed, i, k])


def agents(fs, walk, *, params=iadmm.Params, draws=None, noise=None, neighbours=None, **over):
    n = len(fs)
    p = params(rounds=len(walk), **{"variant": "none", "rho": 5.0} | over)
    return [
        iadmm.Agent(
            p, Data(f, noise[[k for k, at in enumerate(walk) if at == i]] if noise is not None else ()), n, f.size,
            f"n{i}", names(neighbours[i]) if neighbours else names(range(n)), along(walk),
            draws=draws(i) if draws else seeded(1, i),
        )
        for i, f in enumerate(fs)
    ]  # fmt: skip


ALGORITHMS = {
    "iadmm": {},
    "alg2": {"start": iadmm.Uniform((0.0, 1.0))},
    "pi1": {"variant": "published", "start": iadmm.Uniform((0.0, 1.0)), "gamma": (0.9, 1.1)},
    "pi2": {"variant": "published", "start": iadmm.Uniform((0.0, 1.0)), "noise_sd": 1e-3},
    "wadmm": {},
}
