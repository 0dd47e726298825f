"""Synchronous rounds without a network: every node of a graph makes step t, then everybody has message t + 1."""

from __future__ import annotations

import numpy as np

from hushgrid.kernels.algorithms.mixing import metropolis
from hushgrid.kernels.problems.losses import Loss


class Data:
    """An oracle of one node's f_i. `noise`: what is added to its next answers; `scales`, of what it was asked to
    perturb.
    """

    def __init__(self, loss, noise=None, perturbations=None):
        self.loss, self.noise, self.perturbations = loss, noise, perturbations
        self.answers, self.scales = [], []

    def exact_gradient(self, x):
        self.answers.append(self.loss.gradient(x))
        return self.answers[-1]

    def gradient(self, x):
        noise = 0.0 if self.noise is None else self.noise[len(self.answers)]
        self.answers.append(self.loss.gradient(x) + noise)
        return self.answers[-1]

    def perturb(self, x, scale):
        self.scales.append(scale)
        return x if self.perturbations is None else x + self.perturbations[len(self.scales) - 1]


def weights(graph, i):
    """W_ij of node i by name; names sort as numbers do."""
    return {name(j): w for j, w in zip(graph.neighbours[i], metropolis(graph, i), strict=True)}


def name(i):
    return f"n{i:03}"


def messages(nodes):
    """After each step t of all nodes: (t, what they sent as message t, (n, size))."""
    sent = [node.first() for node in nodes]
    at = {node.name: i for i, node in enumerate(nodes)}
    for t in range(1, nodes[0].messages + 1):
        new = [node.step(t, sent[i], {j: sent[at[j]] for j in node.neighbours}) for i, node in enumerate(nodes)]
        yield t, np.array(sent)
        sent = new


def run(nodes):
    """x (n, d) after the last step."""
    for _ in messages(nodes):
        pass
    return states(nodes, "x")


def states(nodes, field):
    return np.array([getattr(node.state, field) for node in nodes])


def classification(objective, n, m, d, seed):
    """n logistic losses of m random rows and labels, as the DPP2 paper draws them."""
    draw = np.random.default_rng(seed)
    return [Loss(objective, draw.normal(size=(m, d)), np.sign(draw.normal(size=m))) for _ in range(n)]
