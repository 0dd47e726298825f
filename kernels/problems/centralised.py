"""The network-wide optimum of a data problem: min_x G(x) = sum_i f_i(x) + n r(x), r(x) = l1 |x|_1 + l2/2 |x|^2, |x_k|
<= box.

The referee of the algorithms' relative errors, computed from all raw rows at once: for runs that are not private.

Projected Newton: D. Bertsekas, "Projected Newton methods for optimization problems with simple constraints", SIAM J.
Control Optim. 20 (1982), on the piece (orthant and box) where G is smooth and into which its least subgradient points;
large l1 first, each optimum the next one's start. It runs in doubles, then from there in extended precision (numpy's
longdouble) with Hessians still in doubles: iterative refinement (N. Higham, Accuracy and Stability of Numerical
Algorithms (2002), chapter 12), after which x is right to about its own rounding.

Certificate. Let w be the least subgradient of G at x, F its smooth part, lambda the least eigenvalue of F''(x). These
losses satisfy |D3F[v, v, u]| <= M |u| F''[v, v], with M = 0 (least squares), max |a_j| (logistic), sqrt(2) max |a_j|
(softmax). So along x - x* F'' falls no faster than exp(-M |x - x*|), and as G' is monotone
|w| >= lambda (1 - exp(-M |x - x*|))/M: |x - x*| <= -log(1 - M |w|/lambda)/M where M |w| < lambda
(F. Bach, "Self-concordant analysis for logistic regression", Electron. J. Stat. 4 (2010), proposition 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log1p, sqrt
from typing import Any

import numpy as np

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.problems.losses import SLOPE, Loss, U, public_gradient
from hushgrid.kernels.problems.prox import Regularizer
from hushgrid.kernels.types import AnyArray, Matrix, Vector

STEPS = 300  #: of Newton's method in each precision; 5 to 40 are usual
HALVINGS = 50
BLOCK = 256  #: rows summed at once in extended precision

SHARE = 1e-4  #: of the decrease foretold that a step must bring
SELF_CONCORDANCE = {"least-squares": 0.0, "logistic": 1.0, "softmax": sqrt(2)}  #: M/max |a_j|


@dataclass(frozen=True)
class Optimum:
    x: Vector  #: (d,)
    value: float  #: G(x)
    residual: float  #: >= least |subgradient| of G, its rounding included, at the point whose nearest doubles are x
    distance: float  #: >= |x - x*|_2, proved; inf where G is not shown to be strongly convex
    unique: bool  #: x* is shown to be the only minimiser (zero strictly inside the subdifferential, or curvature)
    convex: bool  #: G is convex. False: x is a stationary point, reached from 0, perhaps no minimiser


@np.errstate(over="ignore", invalid="ignore")  # a step too long has no value, and is halved
def optimum(losses: Sequence[Loss], regularizer: Regularizer) -> Optimum:
    """A minimiser of G from the raw rows of all n = len(losses) nodes.

    Where there is none (separable labels, nothing that bounds x), x is far out, where rounding is all that is left of
    the gradient: `distance` is inf, `unique` false. Raises InputError if there are no losses or their lengths differ,
    if numbers are too large to square, or if Newton's method does not end.
    """
    if not losses or len({loss.size for loss in losses}) > 1:
        raise InputError(f"optimum: found losses of {[loss.size for loss in losses]} unknowns, expected one length")
    n = len(losses)
    best = _minimise(losses, regularizer)
    x = best.x.astype(np.float64)
    value = sum(loss.value(x) for loss in losses) + n * regularizer.value(x)

    residual = best.size + best.rounding
    mu = n * regularizer.l2 + sum(loss.objective.convexity for loss in losses)  # public
    distance, unique = _distance(residual, mu, 0.0), mu > 0
    if not any(loss.objective.lam for loss in losses):
        H, error = best.problem.hessian(x)
        M = max(SELF_CONCORDANCE[loss.objective.kind] * float(np.max(loss.row_norms(2))) for loss in losses)
        distance = min(distance, _distance(residual, float(np.linalg.eigvalsh(H)[0]) - error, M))
        loose = H[np.ix_(best.loose, best.loose)]
        unique = unique or not loose.size or float(np.linalg.eigvalsh(loose)[0]) > error
    return Optimum(x, value, residual, distance + U * _norm(x), unique, mu >= 0)


def _distance(residual: float, curvature: float, M: float) -> float:
    if not M * residual < curvature:
        return inf
    return -log1p(-M * residual / curvature) / M if M else residual / curvature


Precision = type[np.float64] | type[np.longdouble]


class _Problem:
    """G in the arithmetic of `dtype`."""

    def __init__(self, losses: Sequence[Loss], regularizer: Regularizer, dtype: Precision) -> None:
        self.losses, self.dtype, self.box = losses, dtype, regularizer.box
        self.l1, self.l2 = (dtype(len(losses)) * dtype(number) for number in (regularizer.l1, regularizer.l2))
        self.unit = float(np.finfo(dtype).eps)
        self.block = BLOCK if dtype is np.longdouble else max(loss.rows for loss in losses)

    def evaluated(self, x: AnyArray) -> tuple[Any, AnyArray, float]:
        """F(x), F'(x) (d,) and a bound of |computed - true F'|_2.

        A margin errs by q + 4 units of |a| |x|, a slope (c1 <= 1) by that and C + 16 units more; sums run over blocks.
        """
        value, gradient, rounding = self.l2 / 2 * (x @ x), self.l2 * x, 16 * self.unit * float(self.l2) * _norm(x)
        for loss in self.losses:
            o, square = loss.objective, loss.objective.omega * x * x
            scale, terms = self.dtype(o.scale) / loss.rows, 0.0
            for start in range(0, loss.rows, self.block):
                A = loss.A[start : start + self.block].astype(self.dtype, copy=False)
                target = loss.target[..., start : start + self.block].astype(self.dtype, copy=False)
                T = x.reshape(loss.classes, -1) @ A.T
                T = T if o.kind == "softmax" else T[0]
                S = _plain(SLOPE[o.kind])(T, target)
                value += scale * _sum(o.kind, T, target)
                gradient += scale * (S @ A).ravel()
                rows = loss.row_norms(2)[start : start + self.block]
                sizes = rows * _norm(x) + (
                    np.abs(loss.b[start : start + self.block]) if o.kind == "least-squares" else 1
                )
                terms += float(rows @ sizes)
            value += o.l2 / 2 * (x @ x) + o.lam * np.sum(square / (1 + square))
            gradient += _plain(public_gradient)(x, o.l2, o.lam, o.omega)
            units = 2 * (loss.A.shape[1] + loss.classes + min(self.block, loss.rows) + loss.rows // self.block + 32)
            rounding += self.unit * (units * float(scale) * terms + 16 * (o.l2 + 2 * o.lam * o.omega) * _norm(x))
        return value, gradient, rounding

    def hessian(self, x: Vector) -> tuple[Matrix, float]:
        """F''(x) (d, d) in doubles, and a bound of |computed - true|_2."""
        H, error = float(self.l2) * np.eye(x.size), 0.0
        for loss in self.losses:
            o, A, S, C = loss.objective, loss.A, loss.slope(x), loss.classes
            if o.kind == "softmax":
                P, q = S + loss.target, A.shape[1]
                blocks = H.reshape(C, q, C, q)
                for c in range(C):
                    for k in range(C):
                        blocks[c, :, k] += (A.T * (P[c] * ((c == k) - P[k]) * (o.scale / loss.rows))) @ A
            else:
                s = np.abs(S)
                curvature = s * (1 - s) if o.kind == "logistic" else np.ones(loss.rows)
                H += (A.T * (curvature * (o.scale / loss.rows))) @ A
            square = o.omega * x * x
            H[np.diag_indices_from(H)] += o.l2 + 2 * o.lam * o.omega * (1 - 3 * square) / (1 + square) ** 3
            rows = loss.row_norms(2)
            moment = o.scale * float(np.mean(rows**2 * (1 + rows * _norm(x))))
            error += U * (4 * (loss.rows + A.shape[1] + C + 32) * moment + 4 * x.size * o.l2)
        if not np.all(np.isfinite(H)):
            raise InputError("optimum: found data whose squares are not finite, expected smaller numbers")
        return (H + H.T) / 2, error + U * 4 * x.size * (float(self.l2) + float(np.trace(H)))


class _Point:
    """x and what is known there: G, its least subgradient w, and the piece lower <= x <= upper into which -w points."""

    def __init__(self, problem: _Problem, x: AnyArray) -> None:
        self.problem, self.x, l1, box = problem, x, problem.l1, problem.box
        F, self.gradient, self.rounding = problem.evaluated(x)
        self.value = F + l1 * np.sum(np.abs(x))
        w = self.gradient + l1 * np.sign(x)
        w = np.where(x == 0, w - np.clip(w, -l1, l1), w)
        side = np.where(x == 0, -np.sign(w), np.sign(x))
        self.lower = np.where((side < 0) | (l1 == 0), -box, 0.0).astype(x.dtype)
        self.upper = np.where((side > 0) | (l1 == 0), box, 0.0).astype(x.dtype)
        self.slope = w  #: of G along its piece
        held = ((x == box) & (w < 0)) | ((x == -box) & (w > 0))  # by the box
        self.size = _norm(np.where(held, 0, w))  #: |w|_2
        slack = np.where(held, np.abs(w), np.where(x == 0, l1 - np.abs(self.gradient), 0))
        self.loose = ~(slack > 2 * self.rounding)  #: coordinates in which another minimiser might differ
        self.noise = 64 * problem.unit * float(abs(self.value)) + self.rounding * _norm(x)  #: of the value


def _minimise(losses: Sequence[Loss], regularizer: Regularizer) -> _Point:
    best = _Point(_Problem(losses, regularizer, np.float64), np.zeros(losses[0].size))
    l1 = regularizer.l1 and float(np.max(np.abs(best.gradient))) / len(losses)  # from there on 0 is the optimum
    while (l1 := l1 / 10) > regularizer.l1:
        larger = Regularizer(l1=l1, l2=regularizer.l2, box=regularizer.box)
        best = _descend(_Point(_Problem(losses, larger, np.float64), best.x))
    for dtype in (np.float64, np.longdouble):
        best = _descend(_Point(_Problem(losses, regularizer, dtype), best.x.astype(dtype)))
    return best


def _descend(point: _Point) -> _Point:
    """Projected Newton until nothing but rounding is left."""
    for _ in range(STEPS):
        if 1000 * point.size <= point.rounding:  # a bound, far above the error itself
            return point
        direction, descent = _direction(point)
        step = 1.0
        for _ in range(HALVINGS):
            new = _Point(point.problem, np.clip(point.x + step * direction, point.lower, point.upper))
            if new.value <= point.value - SHARE * step * descent - point.noise:
                break
            if new.value <= point.value + point.noise and new.size <= point.size / 2:
                break  # too near for the value to tell
            if step * descent <= point.noise:
                return point
            step /= 2
        else:
            return point
        point = new
    raise InputError(
        f"optimum: found |subgradient| {point.size:.3g} after {STEPS} steps, expected a problem that Newton's method "
        "solves"
    )


def _direction(point: _Point) -> tuple[AnyArray, float]:
    """Newton's on the free coordinates, the scaled gradient's on those about to meet a bound; the decrease it
    foretells.
    """
    x, g = point.x, point.slope
    H, _ = point.problem.hessian(x.astype(np.float64))
    flat = max(float(np.trace(H)), float(np.finfo(np.float64).tiny)) * 8 * U
    direction = -g / np.maximum(np.abs(np.diag(H)), flat)
    move = np.clip(x + direction, point.lower, point.upper) - x
    margin = min(_norm(move), 0.01 * float(np.max(np.abs(x))))
    bound = ((x - point.lower <= margin) & (g > 0)) | ((point.upper - x <= margin) & (g < 0))
    free = ~bound & (point.lower < point.upper)
    # Where H is flat or bends down, a step is no longer than x and the scaled gradient.
    flat = max(flat, point.size / (_norm(x) + _norm(direction)))
    e, V = np.linalg.eigh(H[np.ix_(free, free)])
    direction[free] = -V @ (V.T @ g[free].astype(np.float64) / np.maximum(np.abs(e), flat))
    return direction, float(-(g[free] @ direction[free]) - g[bound] @ move[bound])


def _plain(kernel: Any) -> Any:
    """The kernel's Python function: numba knows no extended precision."""
    return getattr(kernel, "py_func", kernel)


def _sum(kind: str, T: AnyArray, target: AnyArray) -> Any:
    """sum_j l(t_j; b_j), in the precision of T."""
    if kind == "least-squares":
        return np.sum((T - target) ** 2) / 2
    if kind == "logistic":
        return np.sum(np.log1p(np.exp(-np.abs(T))) + np.maximum(-target * T, 0))
    top = np.max(T, axis=0)
    return np.sum(np.log(np.sum(np.exp(T - top), axis=0)) + top - np.sum(target * T, axis=0))


def _norm(v: AnyArray) -> float:
    return float(np.sqrt(v @ v))
