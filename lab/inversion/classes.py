"""From gradients of softmax regression the rows of a node: class sums, and what is mixed in them.

At x = 0 every class has probability 1/C: a gradient, m/scale times, is sum_j (1/C - Y_j) a_j'. A class that no row has
shows sum_j a_j'/C, so every other class shows the sum of its rows. A row that is alone in its class is plain.
Rows of one class are told apart by gradients at other points, where their probabilities differ: all gradients together
span the space of the rows, whose coordinates are then fitted, a few numbers, class sums kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations_with_replacement
from math import comb
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares

from hushgrid.kernels.problems.losses import SLOPE
from hushgrid.kernels.randomness import counter_generator
from hushgrid.kernels.types import Matrix, Vector
from hushgrid.lab.inversion.recovered import NONE, Rows

ALIKE = 1e-5  #: of two classes that no row has, relative: how far what they show differs
STARTS = 8  #: of a fit, for each way in which the rows may be spread over the classes
MOST = 5000  #: ways there may be; of more the rows are not told
WAYS = 200  #: in which rows may be spread over classes, at most
FOUND = 1e-8  #: a fit that leaves less is taken
HOPELESS = 1e-3  #: of what lies outside of m dimensions: no m rows explain it
USED = 24  #: points of a fit, those nearest to 0; its residual is that of all


class Spanned(NamedTuple):
    """Sums of s_j a_j in the m coordinates of the space that the rows span."""

    Z: np.ndarray  #: (V, C, m) the points
    N: np.ndarray  #: (V, C, m)

    def fitted(self, W: Matrix, Y: Matrix) -> np.ndarray:
        """What rows W (m, m) with labels Y (C, m) would show, (V, C, m)."""
        return np.array([SLOPE["softmax"](Z @ W.T, Y) @ W for Z in self.Z])


def batch(X: np.ndarray, H: np.ndarray, m: int) -> Rows:
    """m rows behind sums H (V, C, q) of s_j a_j at points X (V, C, q), the first of which is 0."""
    V, C, q = H.shape
    if np.any(X[0]) or m > min(q, V * (C - 1) - 1):
        return NONE
    B = np.linalg.svd(H.reshape(-1, q), full_matrices=False)[2][:m]
    N = H @ B.T
    outside = float(np.linalg.norm(H - N @ B) / np.linalg.norm(H))  # more than m rows, or noise
    present, sums = class_sums(N[0], m)
    if not len(present) or comb(m - 1, len(present) - 1) > MOST:
        return NONE
    used = np.sort(np.argsort(np.linalg.norm(X, axis=(1, 2)), kind="stable")[:USED])  # far away, slopes are flat
    part, every = Spanned(X[used] @ B.T, N[used]), Spanned(X @ B.T, N)
    enough = max(FOUND, 10 * outside)
    best = (np.inf, np.zeros((m, m)), np.zeros(m))
    for spread in ways(part, sums, m)[: WAYS if outside < HOPELESS else 1]:
        labels = np.repeat(present, spread)
        Y = (np.arange(C)[:, None] == labels).astype(np.float64)
        for start in range(STARTS if max(spread) > 1 and outside < HOPELESS else 1):
            W = fit(part, sums, spread, Y, start)
            residual = float(np.linalg.norm(every.fitted(W, Y) @ B - H) / np.linalg.norm(H))
            best = min(best, (residual, W, labels), key=lambda candidate: candidate[0])
            if residual <= enough:
                break
        if best[0] <= enough:
            break
    residual, W, labels = best
    return Rows(W @ B, labels.astype(np.float64), "class-sums", residual)


def class_sums(N: Matrix, m: int) -> tuple[np.ndarray, Matrix]:
    """The classes that m rows have, and the sum of the rows of each, from N (C, m) at x = 0.

    Classes without rows show the same. None is returned where every class may have a row. Of noise no two are alike:
    the classes that differ most are taken, a guess that the residual then gives away.
    """
    apart = np.linalg.norm(N[:, None] - N[None], axis=2) / float(np.linalg.norm(N, axis=1).max())
    empty = apart[int(np.argmax((apart <= ALIKE).sum(axis=1)))] <= ALIKE
    if empty.sum() < 2:
        if m > len(N) - 2:
            return np.zeros(0, dtype=np.int64), N
        empty = np.argsort(np.argsort(np.median(apart, axis=1))) < len(N) - m
    present = np.flatnonzero(~empty)
    if len(present) > m:
        return present[:0], N
    return present, N[empty].mean(axis=0) - N[present]


def ways(s: Spanned, sums: Matrix, m: int) -> list[tuple[int, ...]]:
    """How many rows each class may have, the likeliest first: those that second moments of the rows leave most room
    for.
    """
    k = len(sums)
    every = [tuple(1 + more.count(c) for c in range(k)) for more in combinations_with_replacement(range(k), m - k)]
    if len(every) == 1:
        return every
    moment = second_moment(s)

    def missed(spread: tuple[int, ...]) -> float:
        residual = moment - (sums.T / np.array(spread)) @ sums
        size = np.linalg.eigvalsh(residual)[::-1]
        return float(np.sum(np.abs(size[m - k :])) + np.sum(np.maximum(-size[: m - k], 0)))

    return sorted(every, key=missed)


def second_moment(s: Spanned) -> Matrix:
    """sum_j w_j w_j' (m, m), by softmax' first order: N(Z) - N(0) is near 1/C (Z - mean over classes) sum_j w_j
    w_j'.
    """
    C, m = s.N.shape[1:]
    weight = 1 / np.maximum(1.0, np.abs(s.Z[1:]).max(axis=(1, 2), keepdims=True)) ** 2  # it is far from true far away
    centred = (weight * (s.Z[1:] - s.Z[1:].mean(axis=1, keepdims=True))).reshape(-1, m)
    solved = np.linalg.lstsq(centred / C, (weight * (s.N[1:] - s.N[0])).reshape(-1, m), rcond=None)[0]
    moment: Matrix = (solved + solved.T) / 2
    return moment


def fit(s: Spanned, sums: Matrix, spread: Sequence[int], Y: Matrix, start: int) -> Matrix:
    """W (m, m) near a start, by least squares: each class keeps its sum, its rows differ by what is fitted."""
    m = s.Z.shape[2]
    free = m - len(spread)
    mean = np.repeat(sums / np.array(spread)[:, None], spread, axis=0)
    if not free:
        return mean
    apart = np.zeros((m, free))  #: of differences: columns that sum to 0 over each class
    row = column = 0
    for n in spread:
        apart[row : row + n, column : column + n - 1] = contrasts(n)
        row, column = row + n, column + n - 1

    def missed(v: Vector) -> Vector:
        residual: Vector = (s.fitted(mean + apart @ v.reshape(free, m), Y) - s.N).ravel()
        return residual

    def slope(v: Vector) -> Matrix:
        W = mean + apart @ v.reshape(free, m)
        J = np.empty((*s.N.shape, free, m))
        for Z, block in zip(s.Z, J, strict=True):
            S = SLOPE["softmax"](Z @ W.T, Y)
            P = S + Y
            # dS_j = (diag p_j - p_j p_j') Z dw_j, of every row; then d(S W) = dS W + S dW
            turned = P[:, :, None] * (Z[:, None, :] - np.einsum("cj,ci->ji", P, Z)[None])  # (C, m rows, m)
            block[:] = np.einsum("cji,jk,jf->ckfi", turned, W, apart) + np.einsum("cj,jf,ki->ckfi", S, apart, np.eye(m))
        return J.reshape(s.N.size, free * m)

    moment = second_moment(s) - mean.T @ mean
    size, axes = np.linalg.eigh(moment)
    first = np.sqrt(np.abs(size[-free:]))[:, None] * axes[:, -free:].T
    turn = np.eye(free)
    if start:
        turn = np.linalg.qr(counter_generator(start, "turn", free).normal(size=(free, free)))[0]
    solved = least_squares(
        missed, (turn @ first).ravel(), slope, method="lm", xtol=1e-15, ftol=1e-15, gtol=1e-15, max_nfev=200
    )
    W: Matrix = mean + apart @ solved.x.reshape(free, m)
    return W


def contrasts(n: int) -> Matrix:
    """(n, n - 1) orthonormal columns that sum to 0."""
    Q: Matrix = np.linalg.qr(np.hstack([np.ones((n, 1)), np.eye(n)[:, :-1]]))[0][:, 1:]
    return Q
