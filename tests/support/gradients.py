"""Rows of each loss and their gradients, with noise or without."""

import numpy as np

from hushgrid.kernels.problems.losses import Loss, Objective
from hushgrid.lab.inversion.recovered import Gradients

C, Q = 10, 16


def asked(kind, m, V, seed, noise=0.0, labels=None, l2=0.1):
    """A loss of m rows, and its gradients at V points, the first of them 0, with noise of this size on them."""
    rng = np.random.default_rng(seed)
    A = np.abs(rng.normal(size=(m, Q)))
    A /= np.linalg.norm(A, axis=1, keepdims=True)
    b = {"softmax": rng.integers(0, C, m), "logistic": rng.choice([-1.0, 1.0], m), "least-squares": rng.normal(size=m)}
    classes = C if kind == "softmax" else 1
    label = b[kind] if labels is None else np.array(labels)
    loss = Loss(Objective(kind=kind, scale=0.5, l2=l2), A, label.astype(float), classes)
    at = rng.normal(size=(V, loss.size)) * 0.5
    at[0] = 0
    g = np.array([loss.gradient(x) for x in at])
    g += noise * np.abs(g).max() * rng.normal(size=g.shape)
    return loss, Gradients(at, g, np.arange(V), "gradient")


def distance(loss, rows):
    """The largest distance of a true row, with its label as one entry more, from the nearest that was found."""
    true = np.column_stack([loss.A, loss.b])
    found = np.column_stack([rows.rows, rows.labels])
    return max(np.linalg.norm(found - row, axis=1).min() for row in true)
