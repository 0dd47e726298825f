"""A fleet small enough to compute by hand: quadratic agents on a box. The machines are the real ones."""

from __future__ import annotations

from math import inf

import numpy as np

from hushgrid.kernels.algorithms.ladmm import Agent, Params, Server
from hushgrid.kernels.patterns.star import ServerContext


class Exact:
    """An oracle of f(x) = 1/2 sum_k h_k (x_k - c_k)^2 without a gate; `noise` is added to gradients and by perturb."""

    def __init__(self, h, c, noise=None):
        self.h, self.c = np.asarray(h, float), np.asarray(c, float)
        self.noise = iter(noise if noise is not None else ())
        self.asked = []  # where it was asked, in order

    def exact_gradient(self, x):
        self.asked.append(x.copy())
        return self.h * (x - self.c)

    def gradient(self, x):
        return self.exact_gradient(x) + next(self.noise, 0.0)

    def perturb(self, x):
        return x + next(self.noise)


class Box:
    """|x_k| <= limit: the weighted projection is a clip, whatever the weights."""

    def __init__(self, limit):
        self.limit, self.projected = limit, []

    def project(self, v, D):
        z = np.clip(v, -self.limit, self.limit)
        self.projected.append((v, D, z))
        return z


POSITION = {"n0": np.array([0, 1]), "n1": np.array([1, 2]), "n2": np.array([0, 2])}
SHARED = np.array([0, 2])  # of three entries, the middle one is the agent's own
CENTRES = {"n0": [1.0, -2.0, 0.5], "n1": [-1.5, 0.25, 2.0], "n2": [0.75, 3.0, -1.0]}
HESSIAN = [1.0, 2.0, 3.0]


def params(**over):
    return Params(**{"rounds": 5, "rho": 2.0} | over)


def agent(name, p, *, limit=10.0, noise=None, perturbation="gate", L=3.0):
    oracle, box = Exact(HESSIAN, CENTRES[name], noise), Box(limit)
    return Agent(p, oracle, box, SHARED, np.zeros(3), L, perturbation=perturbation)


def server(p, **over):
    at = {"epsilon": inf, "tolerance": 0.0, "patience": 0} | over
    return Server(p, ServerContext(position=POSITION, start={name: np.zeros(2) for name in POSITION}, **at))


def fleet(p, **over):
    return {name: agent(name, p, **over) for name in POSITION}


def converse(centre, agents):
    """Every message once, in order, until the centre is done; yields after each round."""
    step = centre.start()
    while step.done is None:
        t = centre.state.t
        for send in step.send:
            for answer in agents[send.dst].receive("coordinator", send.seq, send.body).send:
                step = centre.receive(send.dst, answer.seq, answer.body)
        yield t
