"""argmin_x F(x) = f_i(x) + <v, x> + rho/2 |x|^2, with a certificate: what ADMM's x-steps ask of a node.

F is mu-convex, mu = rho + l2 - lambda omega/2 > 0 (a public number), so |F'(x)| <= tau proves |x - x*| <= tau/mu. tau
is the residual as computed plus a bound of its rounding error. Least squares have a closed form: one eigendecomposition
of A'A/m serves every rho (which PI-ADMM changes at each step, R-ADMM each round). The rest is Newton's method with
conjugate gradients (J. Nocedal, S. Wright, Numerical Optimization (2006), 7.1), each step halved until |F'| falls; the
direction descends on |F'|^2 for as long as the inner residual is below |F'|, so only gradients are needed, and
the limit is the rounding of the gradient, not of F. The same eigendecomposition preconditions them: c1 A'A/m bounds the
Hessian of the data, whatever x is, and an answer after a restart has the bits it would have had.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import inf, sqrt

import numpy as np

from hushgrid.kernels.errors import InputError, Refused
from hushgrid.kernels.problems.losses import CURVATURE, Loss, U
from hushgrid.kernels.types import Matrix, Vector

Operator = Callable[[Vector], Vector]
STEPS = 500  #: of Newton's method; mu-convex functions of these kinds take 5 to 20
HALVINGS = 40
NEGLIGIBLE = 2.0**-8  #: a residual beside its rounding
COLUMNS = 500  #: of A at most, for a preconditioner: an eigendecomposition takes d^3


@dataclass(frozen=True)
class Minimum:
    x: Vector  #: (d,)
    residual: float  #: tau >= |F'(x)|_2, rounding included
    distance: float  #: tau/mu >= |x - x*|_2


class Minimizer:
    """Minimises F for one node's loss, any v (d,) and rho >= 0."""

    def __init__(self, loss: Loss) -> None:
        self.loss = loss

    def __call__(
        self, linear: Vector, quadratic: float, *, start: Vector | None = None, tolerance: float = inf
    ) -> Minimum:
        """As near as rounding allows, whatever `tolerance` is. Raises InputError unless mu > 0. Raises Refused if tau >
        tolerance.
        """
        loss, o = self.loss, self.loss.objective
        mu = quadratic + o.convexity
        if not 0 < mu < inf:
            raise InputError(f"minimizer: found mu = rho + l2 - lambda omega/2 = {mu:g}, expected a finite number > 0")
        if linear.shape != (loss.size,) or not np.all(np.isfinite(linear)):
            raise InputError(
                f"minimizer: found a linear term of shape {linear.shape}, expected {loss.size} finite numbers"
            )
        F = _Function(loss, linear, quadratic)
        if o.kind == "least-squares" and not o.lam:
            best = self._closed_form(F, quadratic + o.l2)
        else:
            best = _newton(F, self._preconditioner(quadratic), np.zeros(loss.size) if start is None else start)
        residual = best.norm + best.rounding
        if not residual <= tolerance:
            raise Refused(f"minimizer: found certified residual {residual:.3g}, expected at most {tolerance:.3g}")
        return Minimum(best.x, residual, residual / mu)

    @cached_property
    def spectrum(self) -> tuple[Vector, Matrix, Vector]:
        """Eigenvalues e (q,), eigenvectors V (q, q) of scale A'A/m, and scale V'A'b/m (q,)."""
        A, b, factor = self.loss.A, self.loss.b, self.loss.objective.scale / self.loss.rows
        e, V = np.linalg.eigh(A.T @ A * factor)
        return np.maximum(e, 0.0), V, V.T @ (b @ A) * factor

    def _closed_form(self, F: _Function, shift: float) -> _Point:
        e, V, h = self.spectrum
        best = F.evaluated(V @ ((h - V.T @ F.linear) / (e + shift)))
        while (
            better := F.evaluated(best.x - V @ (V.T @ best.g / (e + shift)))
        ).norm < best.norm / 2:  # iterative refinement
            best = better
        return best if best.norm <= better.norm else better

    def _preconditioner(self, quadratic: float) -> Operator:
        """Nearly the inverse of F'' at any x: it changes the number of steps, not what is certified."""
        loss, o = self.loss, self.loss.objective
        if loss.A.shape[1] > COLUMNS:
            return lambda r: r
        e, V, _ = self.spectrum
        inverse = 1 / (CURVATURE[o.kind] * e + o.l2 + o.lam * o.omega + quadratic)
        return lambda r: ((r.reshape(-1, len(e)) @ V * inverse) @ V.T).ravel()


@dataclass(frozen=True)
class _Point:
    x: Vector
    S: Matrix  #: the records' slopes
    g: Vector  #: F'(x)
    norm: float  #: |F'(x)|_2 as computed
    rounding: float  #: bound of its error


class _Function:
    """F, its gradient with a bound of its rounding, and products with its Hessian."""

    def __init__(self, loss: Loss, linear: Vector, quadratic: float) -> None:
        self.loss, self.linear, self.quadratic = loss, linear, quadratic
        self.rows, self.length = loss.row_norms(2), _length(linear)
        m, q = loss.A.shape
        self.margin = CURVATURE[loss.objective.kind] * _gamma(q + 4) * self.rows
        self.evaluation, self.mean, self.all = _gamma(loss.classes + 16), _gamma(m + 8), _gamma(m + q + 64)

    def evaluated(self, x: Vector) -> _Point:
        """F'(x) from the rows, and a bound of |computed - true|_2.

        With gamma(k) = k U/(1 - k U): a margin errs by gamma(q + 4) |a| |x|, so a slope by c1 times that, and by
        gamma(C + 16) (|s| + 1) in its own evaluation (exp to 4 units in the last place); the mean by gamma(m + 8) of
        the mean of |s| |a|; every other term by gamma(12) of its own size.
        """
        loss, o = self.loss, self.loss.objective
        S = loss.slope(x)
        data = loss.mean(S)
        g = data + loss.public_gradient(x) + self.linear + self.quadratic * x
        size = np.abs(S) if S.ndim == 1 else np.linalg.norm(S, axis=0)
        length = _length(x)
        slope = self.margin * length + self.evaluation * (size + 1)
        if o.kind == "least-squares":
            slope += _gamma(2) * np.abs(loss.b)
        of_data = o.scale * float((self.rows * (slope + self.mean * size)).mean())
        others = (o.l2 + 2 * o.lam * o.omega + self.quadratic) * length + self.length
        rounding = (of_data + _gamma(12) * (_length(data) + others)) * (1 + self.all)
        return _Point(x, S, g, _length(g), rounding)

    def hessian(self, point: _Point) -> Operator:
        """p -> F''(x) p."""
        loss, o = self.loss, self.loss.objective
        square = o.omega * point.x * point.x
        diagonal = o.l2 + self.quadratic + 2 * o.lam * o.omega * (1 - 3 * square) / (1 + square) ** 3
        if o.kind == "softmax":
            P = point.S + loss.target

            def data(p: Vector) -> Vector:
                D = P * loss.margins(p)
                return loss.mean(D - P * np.sum(D, axis=0))
        else:
            s = np.abs(point.S)
            curvature = s * (1 - s) if o.kind == "logistic" else np.ones(loss.rows)

            def data(p: Vector) -> Vector:
                return loss.mean(curvature * loss.margins(p))

        return lambda p: data(p) + diagonal * p


def _newton(F: _Function, inverse: Operator, start: Vector) -> _Point:
    best, first = F.evaluated(start), 0.0
    for _ in range(STEPS):
        first = max(first, best.norm)
        if best.norm <= NEGLIGIBLE * best.rounding:
            break
        inner = max(min(0.1, (best.norm / first) ** 0.5) * best.norm, NEGLIGIBLE * best.rounding / 2)
        direction = _conjugate_gradients(F.hessian(best), inverse, -best.g, inner)
        step = 1.0
        for _ in range(HALVINGS):
            point = F.evaluated(best.x + step * direction)
            if point.norm <= (1 - 1e-4 * step) * best.norm:
                break
            step /= 2
        else:
            break  # no point along the direction is better: the gradient's rounding is reached
        at_rounding = best.norm <= best.rounding
        enough = point.norm > best.norm / 2
        best = point
        if at_rounding and enough:  # what is left is rounding
            break
    return best


def _conjugate_gradients(product: Operator, inverse: Operator, b: Vector, tolerance: float) -> Vector:
    """x with |product(x) - b| <= tolerance, or the last one after 2 d + 10 steps; both operators are positive
    definite.
    """
    x, r = np.zeros_like(b), b.copy()
    z = inverse(r)
    p, rz = z, float(r @ z)
    for _ in range(2 * b.size + 10):
        if float(r @ r) <= tolerance**2:
            break
        Hp = product(p)
        alpha = rz / float(p @ Hp)
        x, r = x + alpha * p, r - alpha * Hp
        z = inverse(r)
        rz, before = float(r @ z), rz
        p = z + rz / before * p
    return x


def _length(x: Vector) -> float:
    """|x|_2, the bits of np.linalg.norm."""
    return sqrt(float(x @ x))


def _gamma(k: int) -> float:
    return k * U / (1 - k * U)
