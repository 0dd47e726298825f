"""The private functions of data problems, f_i(x) = scale * mean_j loss(x; a_j, b_j) + p(x), with the public part
p(x) = l2/2 |x|^2 + lambda sum_k omega x_k^2 / (1 + omega x_k^2):

 - least-squares  1/2 (a.x - b)^2              b real
 - logistic       log(1 + exp(-b a.x))         b in {-1, 1}
 - softmax        -log softmax_b(X a)          b in 0..C-1, x = X (C, q) row-major

Every loss is l(t; b) of the margins t = a.x (softmax: X a). With its slope s_j = l'(t_j; b_j), a number or C of them,
a record's gradient is s_j a_j, of norm |s_j| |a_j|: clipping it scales s_j and touches no row.

Public bounds: l'' <= c1 (CURVATURE), hence L_i = scale c1 R^2 + l2 + 2 lambda omega for rows |a_j|_2 <= R; and
p'' >= l2 - lambda omega/2 (least at omega x_k^2 = 1).

Time. Whoever asks chooses x and sees how long an answer takes. A processor is up to a hundred times slower on subnormal
numbers: by an x that makes some rows' slopes subnormal these rows could be counted. So nothing that is computed of rows
and x is subnormal, infinite or nan: rows are 0 or from 2^-200 to LARGEST, x is 0 or from 2^-200 to 2^200, an
exponential is at least e^-300 (which moves a slope by less than 1e-130); and no branch depends on rows (`hushgrid bench
timing`). Source of the numerical bounds: N. Higham, Accuracy and Stability of Numerical Algorithms (2002), chapter 3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isfinite
from typing import Literal, Protocol

import numpy as np
from msgspec import Struct
from msgspec import field as key
from numpy.typing import NDArray

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.jit import kernel
from hushgrid.kernels.ranges import Magnitude, Weight
from hushgrid.kernels.types import Matrix, Vector

Kind = Literal["least-squares", "logistic", "softmax"]
CURVATURE: dict[Kind, float] = {"least-squares": 1.0, "logistic": 0.25, "softmax": 0.5}  #: c1 >= l''
U = 2.0**-53  #: unit roundoff
LARGEST = 1e150  #: of a slope; its product with a row norm (at most LARGEST too) is then finite
SMALLEST = 2.0**-200  #: of what is not 0 in rows and points
FARTHEST = 2.0**200  #: of an entry of a point: margins are then finite
FLATTEST = 300.0  #: margins beyond it count as it where they are exponents


# --- slopes s and mean losses of margins t (m,), labels b (m,); softmax: T (C, m), Y (C, m) of zeros and ones ---
# Matrix products stay outside of the kernels: compiled, they would need scipy, and another BLAS than numpy's.


@kernel
def least_squares_slope(t: Vector, b: Vector) -> Vector:
    """t_j - b_j, at most LARGEST, shape (m,)."""
    s: Vector = np.minimum(np.maximum(t - b, -LARGEST), LARGEST)
    return s


@kernel
def logistic_slope(t: Vector, b: Vector) -> Vector:
    """-b_j/(1 + exp(b_j t_j)), shape (m,); no exponential overflows."""
    e = np.exp(-np.minimum(np.abs(t), FLATTEST))
    s: Vector = -b * np.maximum(e, b * t < 0) / (1.0 + e)  # e <= 1: 1 where b t < 0
    return s


@kernel
def softmax_slope(T: Matrix, Y: Matrix) -> Matrix:
    """softmax(t_j) - e_{b_j}, shape (C, m)."""
    top = T[0].copy()
    for c in range(1, T.shape[0]):
        top = np.maximum(top, T[c])
    E = np.exp(np.maximum(T - top, -FLATTEST))
    S: Matrix = E / np.sum(E, axis=0) - Y
    return S


def least_squares_value(t: Vector, b: Vector) -> float:
    """mean_j 1/2 (t_j - b_j)^2."""
    return float(np.mean((t - b) ** 2) / 2)


def logistic_value(t: Vector, b: Vector) -> float:
    """mean_j log(1 + exp(-b_j t_j))."""
    return float(np.mean(np.log1p(np.exp(-np.abs(t))) + np.maximum(-b * t, 0.0)))


def softmax_value(T: Matrix, Y: Matrix) -> float:
    """mean_j -log softmax_{b_j}(t_j)."""
    top = np.max(T, axis=0)
    return float(np.mean(np.log(np.sum(np.exp(T - top), axis=0)) + top - np.sum(Y * T, axis=0)))


SLOPE: dict[Kind, Callable[[Matrix, Matrix], Matrix]] = {
    "least-squares": least_squares_slope,
    "logistic": logistic_slope,
    "softmax": softmax_slope,
}
VALUE: dict[Kind, Callable[[Matrix, Matrix], float]] = {
    "least-squares": least_squares_value,
    "logistic": logistic_value,
    "softmax": softmax_value,
}


@kernel
def public_gradient(x: Vector, l2: float, lam: float, omega: float) -> Vector:
    """p'(x) = l2 x + 2 lambda omega x/(1 + omega x^2)^2. Shape (d,)."""
    if lam == 0.0:
        return l2 * x
    return l2 * x + (2.0 * lam * omega) * (x / (1.0 + omega * x * x) ** 2)


@kernel
def clip_slope(S: Vector, size: Vector, rows: Vector, c: float) -> Vector:
    """s_j min(1, c/(|s_j| |a_j|)); S (m,) or (C, m), size = |s_j| and rows = |a_j| (m,), c > 0."""
    return S * (c / np.maximum(size * rows, c))


def settled(a: Matrix) -> Matrix:
    """Numbers of records, those of magnitude below SMALLEST made 0. A copy, whatever they are."""
    return np.where(np.abs(a) < SMALLEST, 0.0, a)


# --- one node's function ---


class Nonconvex(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    lam: Weight = key(name="lambda")  #: lambda in lambda sum_k omega x_k^2 / (1 + omega x_k^2)
    omega: Magnitude = 1.0  #: omega of the same


class Objective(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """What is public of every f_i."""

    kind: Kind
    scale: Magnitude = 1.0
    l2: Weight = 0.0
    nonconvex: Nonconvex | None = None

    @property
    def lam(self) -> float:
        return self.nonconvex.lam if self.nonconvex else 0.0

    @property
    def omega(self) -> float:
        return self.nonconvex.omega if self.nonconvex else 1.0

    @property
    def convexity(self) -> float:
        """mu: every f_i - mu/2 |x|^2 is convex; l2 - lambda omega/2, perhaps negative."""
        return self.l2 - self.lam * self.omega / 2

    def lipschitz(self, R: float) -> float:
        """L_i of f_i' for rows of norm at most R: public where R is."""
        return self.scale * CURVATURE[self.kind] * R * R + self.l2 + 2 * self.lam * self.omega


class Public(Protocol):
    """What is public of one node's f_i: a Loss tells no more to who asks only this, a Declared has no more."""

    @property
    def objective(self) -> Objective: ...
    @property
    def rows(self) -> int: ...
    @property
    def features(self) -> int: ...
    @property
    def classes(self) -> int: ...
    @property
    def row_bound(self) -> float | None: ...
    @property
    def size(self) -> int: ...


@dataclass(frozen=True)
class Declared:
    """f_i without its data: `rows` m, `features` q, `classes` C of softmax (else 1), `row_bound` R >= |a_j|_2."""

    objective: Objective
    rows: int
    features: int
    classes: int
    row_bound: float | None

    @property
    def size(self) -> int:
        """d, the length of x."""
        return self.features * self.classes

    def sensitivity(self, c: float, records: int = 1) -> float:
        """Delta of `Loss.clipped_gradient` as computed: 2 c scale (k/m + (m + d + 4) 2^-53), for k `records` replaced,
        k <= m.

        A sum of m products, in any order, and its scaling err by at most gamma_{m+2} times sum_j |s_j a_j| <= m c.
        """
        moved = min(records, self.rows) / self.rows
        delta = 2 * c * self.objective.scale * (moved + (self.rows + self.size + 4) * U)
        return delta * (1 + 8 * U)  # its own roundings


@dataclass(frozen=True, eq=False)
class Loss:
    """f_i: the private rows A (m, q) and b (m,), C `classes` for softmax. Points x have shape (d,), d = q or C q.

    `row_bound`: R >= |a_j|_2, public; a row beyond it is an InputError. None: the largest row norm, private.
    """

    objective: Objective
    A: Matrix
    b: Vector
    classes: int = 1
    row_bound: float | None = None
    target: Matrix = field(init=False, repr=False)  #: b, or Y (C, m) for softmax

    def __post_init__(self) -> None:
        if self.A.ndim != 2 or not self.A.size or self.b.shape != self.A.shape[:1]:
            raise InputError(
                f"data: found A {self.A.shape} and b {self.b.shape}, expected (m, q) and (m,), m and q > 0"
            )
        keep = {name: np.ascontiguousarray(getattr(self, name), dtype=np.float64) for name in ("A", "b")}
        for name, array in keep.items():
            if not np.all(np.abs(array) <= LARGEST):  # false for nan too
                raise InputError(
                    f"data: {name}: found a number not finite or beyond {LARGEST:g}, expected smaller ones"
                )
            still = ((array == 0) | (np.abs(array) >= SMALLEST)).all()  # a device's are: it settles what it reads
            object.__setattr__(self, name, array if still else settled(array))
        object.__setattr__(self, "target", self._target())
        bound = self.row_bound
        if bound is not None and not 0 < bound <= LARGEST:
            raise InputError(f"row_bound: found {bound}, expected a number > 0, at most {LARGEST:g}")
        if bound is not None and np.any(beyond := self.row_norms(2) > bound * (1 + (self.A.shape[1] + 4) * U)):
            j = int(np.flatnonzero(beyond)[0])
            raise InputError(f"row {j + 1}: found norm {self.row_norms(2)[j]:g}, expected at most row_bound {bound:g}")

    def _target(self) -> Matrix:
        kind, b, C = self.objective.kind, self.b, self.classes
        if kind == "softmax":
            if C < 2:
                raise InputError(f"softmax: found {C} classes, expected at least 2")
            wrong = ~((b >= 0) & (b < C) & (b == np.floor(b)))
            expected = f"0..{C - 1} (softmax)"
        else:
            wrong = (np.abs(b) != 1.0) & (kind == "logistic")
            expected = "-1 or 1 (logistic)"
        if wrong.any():
            j = int(np.flatnonzero(wrong)[0])
            raise InputError(f"row {j + 1}: found label {b[j]:g}, expected {expected}")
        return np.ascontiguousarray(np.arange(C)[:, None] == b, dtype=np.float64) if kind == "softmax" else b

    def without(self, gone: NDArray[np.bool_]) -> Loss:
        """The same f_i with the zero row, which adds nothing to a gradient, in place of those that are `gone` (m,).

        It takes the same time whichever they are.
        """
        return replace(self, A=np.where(gone[:, None], 0.0, self.A))

    @property
    def rows(self) -> int:
        """m_i, declared public."""
        return int(self.A.shape[0])

    @property
    def features(self) -> int:
        """q."""
        return int(self.A.shape[1])

    @property
    def size(self) -> int:
        """d, the length of x."""
        return self.features * (self.classes if self.objective.kind == "softmax" else 1)

    @cached_property
    def R(self) -> float:
        """The public bound, or failing that the largest row norm."""
        return self.row_bound if self.row_bound is not None else float(np.max(self.row_norms(2)))

    @property
    def L(self) -> float:
        """L_i, public where row_bound is given."""
        return self.objective.lipschitz(self.R)

    def row_norms(self, order: int) -> Vector:
        """|a_j| in L1 (order 1) or L2 (order 2), shape (m,)."""
        l1, l2 = self._norms
        return l1 if order == 1 else l2

    @cached_property
    def _norms(self) -> tuple[Vector, Vector]:
        top = np.maximum(
            np.max(np.abs(self.A), axis=1), np.finfo(np.float64).tiny
        )  # squares neither over- nor underflow
        return np.sum(np.abs(self.A), axis=1), top * np.sqrt(np.sum((self.A / top[:, None]) ** 2, axis=1))

    @cached_property
    def gram(self) -> tuple[Matrix, Vector] | None:
        """H = A'A/m and h = A'b/m of a least squares with fewer columns than rows, else None."""
        if self.objective.kind != "least-squares" or self.A.shape[1] >= self.rows:
            return None
        return self.A.T @ self.A / self.rows, self.A.T @ self.b / self.rows

    def value(self, x: Vector) -> float:
        """f_i(x), from raw data."""
        o, x = self.objective, self._checked(x)
        with np.errstate(over="ignore", invalid="ignore"):
            square = o.omega * x * x
            public = o.l2 / 2 * (x @ x) + o.lam * np.sum(square / (1 + square))
            return float(o.scale * VALUE[o.kind](self.margins(x), self.target) + public)

    def margins(self, x: Vector) -> Matrix:
        """t = A x, shape (m,); softmax T = X A', shape (C, m). Linear in x."""
        if self.objective.kind == "softmax":
            return x.reshape(self.classes, -1) @ self.A.T
        t: Vector = self.A @ x
        return t

    def mean(self, S: Matrix) -> Vector:
        """scale * mean_j s_j a_j of slopes (m,) or (C, m). Shape (d,)."""
        g: Vector = (S @ self.A).ravel()
        g *= self.objective.scale / self.rows
        return g

    def slope(self, x: Vector) -> Matrix:
        """s, shape (m,) or (C, m) for softmax; finite for every finite x, however large."""
        return self._slope(self._checked(x))

    def _slope(self, x: Vector) -> Matrix:
        return SLOPE[self.objective.kind](self.margins(x), self.target)

    def gradient(self, x: Vector) -> Vector:
        """f_i'(x), exact but for rounding: no sensitivity is promised (variant none). Shape (d,)."""
        x, o = self._checked(x), self.objective
        with np.errstate(over="ignore", invalid="ignore"):
            if self.gram is None:
                data = self.mean(self._slope(x))
            else:
                H, h = self.gram
                data = o.scale * (H @ x - h)
            return data + public_gradient(x, o.l2, o.lam, o.omega)

    def data_gradient(self, x: Vector) -> Vector:
        """scale * mean_j s_j a_j from the rows themselves. Shape (d,)."""
        return self.mean(self._slope(self._checked(x)))

    def public_gradient(self, x: Vector) -> Vector:
        """p'(x), a function of public numbers: to be added after the noise. Shape (d,)."""
        o = self.objective
        with np.errstate(over="ignore"):
            return public_gradient(x, o.l2, o.lam, o.omega)

    def clipped_gradient(self, x: Vector, c: float, order: Literal[1, 2]) -> Vector:
        """scale * mean_j of the records' gradients, each clipped to norm c in L`order`, without p'. Shape (d,).

        Replacing a record moves what the machine returns by at most `sensitivity(c)` in that norm, whatever finite x
        is. (A generalised linear loss' clipped gradients are those of a convex, Huberised loss; softmax' are no
        gradients.)
        """
        S = self._slope(self._checked(x))
        size = np.abs(S) if S.ndim == 1 else np.linalg.norm(S, order, axis=0)
        # |s_j| |a_j| is known to (q + C + 8) U relative: clip that much lower, and no record passes c.
        low = c * (1 - (self.A.shape[1] + self.classes + 8) * U)
        return self.mean(clip_slope(S, size, self.row_norms(order), low))

    def sensitivity(self, c: float, records: int = 1) -> float:
        """How far one change of `records` moves `clipped_gradient`, by public numbers."""
        return self.declared.sensitivity(c, records)

    @property
    def declared(self) -> Declared:
        """f_i without its data."""
        return Declared(self.objective, self.rows, self.features, self.classes, self.row_bound)

    def _checked(self, x: Vector) -> Vector:
        """x, which is public, as rows are multiplied by it."""
        size = np.abs(x)
        if x.shape != (self.size,) or not isfinite(top := float(np.maximum.reduce(size))):
            raise InputError(f"x: found shape {x.shape}, expected {self.size} finite numbers")
        clipped = x if top <= FARTHEST else np.clip(x, -FARTHEST, FARTHEST)
        return np.where(size < SMALLEST, 0.0, clipped)
