"""Gradient matching: rows and labels are sought whose gradients are those that were heard, where no closed form is
known.

L. Zhu, Z. Liu, S. Han, Deep leakage from gradients (2019): the squared distance of gradients, over rows and soft labels
at once. J. Geiping, H. Bauermeister, H. Dröge, M. Moeller, Inverting gradients (2020): one less the cosine instead, and
a total-variation prior on images. Both by L-BFGS from random starts; the slopes of the distance are written out.
"""

from __future__ import annotations

from math import isqrt
from typing import Literal, NamedTuple

import numpy as np
from scipy.optimize import least_squares, minimize

from hushgrid.kernels.problems.losses import SLOPE
from hushgrid.kernels.randomness import counter_generator
from hushgrid.kernels.types import Matrix, Vector
from hushgrid.lab.inversion.recovered import NONE, Rows

Distance = Literal["squared", "cosine"]
STARTS = 4
ITERATIONS = 2000
POINTS = 8  #: that are matched at most, those nearest to 0; the residual is that of all
LARGEST = 24  #: rows of a node; of more the guess is blind
FOUND = 1e-8  #: a fit that leaves less is taken
HOPELESS = 1e-3  #: of what lies outside of the span of m rows: no m rows explain it


class Batch(NamedTuple):
    """What is to be matched: sums H (V, C, q) of s_j a_j over m rows, at points X (V, C, q)."""

    X: np.ndarray
    H: np.ndarray
    m: int
    distance: Distance = "squared"
    tv: float = 0.0  #: weight of the total variation, for rows that are square images

    def split(self, v: Vector) -> tuple[Matrix, Matrix]:
        """Rows A (m, q), and the soft labels' logits (C, m)."""
        C, q = self.H.shape[1:]
        return v[: self.m * q].reshape(self.m, q), v[self.m * q :].reshape(C, self.m)

    def value(self, v: Vector) -> tuple[float, Vector]:
        """The distance and its slope in rows and logits."""
        A, logits = self.split(v)
        Y = _softmax(logits)
        T = np.einsum("vcq,mq->vcm", self.X, A)
        P = _softmax(T)
        S = P - Y
        G = S @ A
        distance, R = (_squared if self.distance == "squared" else _cosine)(G, self.H)
        Q = np.einsum("vcq,mq->vcm", R, A)  # the slope in S
        in_T = P * (Q - (P * Q).sum(axis=1, keepdims=True))
        in_A = np.einsum("vcm,vcq->mq", S, R) + np.einsum("vcm,vcq->mq", in_T, self.X)
        in_Y = -Q.sum(axis=0)
        in_logits = Y * (in_Y - (Y * in_Y).sum(axis=0))
        if self.tv:
            rough, slope = total_variation(A)
            distance, in_A = distance + self.tv * rough, in_A + self.tv * slope
        return distance, np.concatenate([in_A.ravel(), in_logits.ravel()])


def _softmax(T: np.ndarray) -> np.ndarray:
    """Over the classes, the last axis but one."""
    E = np.exp(T - T.max(axis=-2, keepdims=True))
    probabilities: np.ndarray = E / E.sum(axis=-2, keepdims=True)
    return probabilities


def _squared(G: np.ndarray, H: np.ndarray) -> tuple[float, np.ndarray]:
    """|G - H|^2/|H|^2, and its slope."""
    size, difference = float(np.sum(H**2)), G - H
    return float(np.sum(difference**2)) / size, 2 * difference / size


def _cosine(G: np.ndarray, H: np.ndarray) -> tuple[float, np.ndarray]:
    """1 - <G, H>/(|G| |H|), and its slope."""
    g, h, both = float(np.linalg.norm(G)) or 1e-300, float(np.linalg.norm(H)), float(np.sum(G * H))
    return 1 - both / (g * h), -H / (g * h) + both * G / (g**3 * h)


def total_variation(A: Matrix) -> tuple[float, Matrix]:
    """sum over neighbouring pixels of sqrt(difference^2 + 1e-6), rows as square images, and its slope."""
    side = isqrt(A.shape[1])
    images = A.reshape(len(A), side, side)
    slope, total = np.zeros_like(images), 0.0
    for axis in (1, 2):
        step = np.diff(images, axis=axis)
        size = np.sqrt(step**2 + 1e-6)
        total += float(size.sum())
        pull = step / size
        zero = np.zeros_like(np.take(pull, [0], axis=axis))
        slope += np.concatenate([zero, pull], axis=axis) - np.concatenate([pull, zero], axis=axis)
    return total, slope.reshape(A.shape)


def matched(task: Batch, starts: int = STARTS, iterations: int = ITERATIONS) -> Rows:
    """The rows of the best of some starts, each with its likeliest label."""
    m, (_, C, q) = task.m, task.H.shape
    size = float(np.abs(task.H).max()) or 1.0
    best = (np.inf, NONE)
    for k in range(starts):
        draw = counter_generator(k, "matching", m)
        v = np.concatenate([draw.random(m * q) * size, draw.normal(size=C * m) * 0.1])
        solved = minimize(
            task.value, v, jac=True, method="L-BFGS-B", options={"maxiter": iterations, "ftol": 1e-30, "gtol": 1e-14}
        )
        A, logits = task.split(solved.x)
        b = logits.argmax(axis=0)
        misfit = residual(task.X, task.H, A, b)
        best = min(
            best, (misfit, Rows(A, b.astype(np.float64), "matching", misfit)), key=lambda candidate: candidate[0]
        )
        if misfit <= FOUND:
            break
    return best[1]


def residual(X: np.ndarray, H: np.ndarray, A: Matrix, b: np.ndarray) -> float:
    """|H(rows) - H|/|H| with hard labels."""
    Y = (np.arange(H.shape[1])[:, None] == b).astype(np.float64)
    return float(np.linalg.norm((_softmax(np.einsum("vcq,mq->vcm", X, A)) - Y) @ A - H) / np.linalg.norm(H))


def softmax_batch(X: np.ndarray, H: np.ndarray, m: int) -> Rows:
    """m rows behind sums H (V, C, q) where every class may have some, so that class sums are not plain."""
    V, C, q = H.shape
    if m > min(LARGEST, q) or m >= V * (C - 1):
        return NONE
    smallest = np.sort(np.argsort(np.linalg.norm(X, axis=(1, 2)), kind="stable")[:POINTS])
    B = np.linalg.svd(H.reshape(-1, q), full_matrices=False)[2][:m]
    outside = float(np.linalg.norm(H - H @ B.T @ B) / np.linalg.norm(H))
    if outside > HOPELESS:
        return matched(Batch(X[smallest], H[smallest], m), 1, ITERATIONS // 10)
    first = matched(Batch(X[smallest], H[smallest], m))
    rows = sharpened(Batch(X[smallest] @ B.T, H[smallest] @ B.T, m), first.rows @ B.T, first.labels) @ B
    return Rows(rows, first.labels, "matching", residual(X, H, rows, first.labels))


def sharpened(task: Batch, W: Matrix, b: Vector) -> Matrix:
    """Rows (m, k) that match better, from rows near them, their labels known; by least squares, for k few."""
    Y = (np.arange(task.H.shape[1])[:, None] == b).astype(np.float64)

    def missed(w: Vector) -> Vector:
        weights = w.reshape(W.shape)
        residual: Vector = ((_softmax(np.einsum("vcq,mq->vcm", task.X, weights)) - Y) @ weights - task.H).ravel()
        return residual

    fit = least_squares(missed, W.ravel(), method="lm", xtol=1e-15, ftol=1e-15, gtol=1e-15)
    sharp: Matrix = fit.x.reshape(W.shape)
    return sharp


def logistic_batch(X: Matrix, H: Matrix, m: int) -> Rows:
    """m rows r_j = b_j a_j behind H (V, q) = -sum_j sigma(-r_j.x) r_j: (V, m) numbers in their span, fitted by (m, m).

    To first order H(x) - H(0) is sum_j r_j r_j' x/4, which tells the rows up to a rotation: where the fit begins.
    """
    V, q = H.shape
    if m > min(LARGEST, q) or m >= V:
        return NONE
    B = np.linalg.svd(H, full_matrices=False)[2][:m]
    Z, N, size = X @ B.T, H @ B.T, float(np.linalg.norm(H))
    outside = float(np.linalg.norm(H - N @ B)) / size

    def slopes(W: Matrix) -> Matrix:
        slope_sums: Matrix = SLOPE["logistic"](Z @ W.T, np.ones((V, m))) @ W
        return slope_sums

    def missed(w: Vector) -> Vector:
        misfit: Vector = (slopes(w.reshape(m, m)) - N).ravel()
        return misfit

    moment = 4 * np.linalg.lstsq(Z[1:] - Z[0], N[1:] - N[0], rcond=None)[0]
    scale, axes = np.linalg.eigh((moment + moment.T) / 2)
    root = np.sqrt(np.maximum(scale, 1e-3 * np.abs(scale).max()))[:, None] * axes.T
    best = (np.inf, NONE)
    for k in range(STARTS * m if outside <= HOPELESS else 1):
        turn = np.linalg.qr(counter_generator(k, "turn", m).normal(size=(m, m)))[0]
        fit = least_squares(missed, (turn @ root).ravel(), method="lm", xtol=1e-15, ftol=1e-15, gtol=1e-15)
        W = fit.x.reshape(m, m)
        misfit = float(np.linalg.norm(slopes(W) @ B - H)) / size
        best = min(best, (misfit, Rows(W @ B, np.ones(m), "matching", misfit)), key=lambda candidate: candidate[0])
        if misfit <= max(FOUND, 10 * outside):
            break
    return best[1]
