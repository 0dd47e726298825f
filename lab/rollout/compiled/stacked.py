"""The functions f_i of n agents in a few arrays, as compiled whole runs take them.

For studies: no gate stands before it.

`gradient` is the one of losses.Loss: by the Gram form where that is cheaper, else by the rows, margin, slope and sum in
one pass. `minimizer` is the closed form of minimizer.Minimizer, whose refinement is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.jit import kernel, kernel_or
from hushgrid.kernels.problems.losses import Loss, least_squares_slope, logistic_slope, public_gradient
from hushgrid.kernels.problems.minimizer import Minimizer
from hushgrid.kernels.types import Index, Matrix, Tensor, Vector

LEAST_SQUARES, LOGISTIC, GRAM, SPECTRAL = range(4)


class Stack(NamedTuple):
    """Agent i has the rows start_i to start_{i+1} - 1 of A and b: a_j and b_j; GRAM: H_i = A_i'A_i/m_i, h_i =
    A_i'b_i/m_i; SPECTRAL: an eigenvector of scale H_i a row, V_i, and scale V_i h_i."""

    kind: int
    A: Matrix  #: (M, q)
    b: Vector  #: (M,)
    start: Index  #: (n + 1,)
    factor: Vector  #: (n,) of what A and b give: scale/m_i; GRAM: scale
    e: Matrix  #: (n, q) eigenvalues, l2 added; (0, q) unless SPECTRAL
    l2: float  #: these three are the public part p(x), as in losses
    lam: float
    omega: float


def stack(fs: Sequence[Loss], exact: bool = False) -> Stack:
    """`exact`: for minimizers. Raises InputError unless all have one objective, and compiled code takes it."""
    o, q = fs[0].objective, fs[0].size
    if any(f.objective != o or f.size != q for f in fs):
        raise InputError("whole run: found agents of different objectives or sizes, expected one")
    if o.kind == "softmax" or (exact and (o.kind == "logistic" or o.lam)):
        expected = "least-squares without nonconvex" if exact else "least-squares or logistic"
        raise InputError(f"whole run: found {o.kind}{' with nonconvex' * bool(o.lam)}, expected {expected}")
    e, factor = np.zeros((0, q)), np.full(len(fs), o.scale)
    gram = [f.gram for f in fs if f.gram is not None]
    if exact:
        spectra = [Minimizer(f).spectrum for f in fs]
        kind, blocks, e = SPECTRAL, [(V.T, h) for _, V, h in spectra], np.array([e for e, _, _ in spectra]) + o.l2
    elif len(gram) == len(fs):
        kind, blocks = GRAM, gram
    else:
        kind, blocks = LOGISTIC if o.kind == "logistic" else LEAST_SQUARES, [(f.A, f.b) for f in fs]
        factor /= [f.rows for f in fs]
    A, b = (np.concatenate(part) for part in zip(*blocks, strict=True))
    start = np.cumsum([0, *(len(b) for _, b in blocks)], dtype=np.int64)
    return Stack(kind, A, b, start, factor, e, o.l2, o.lam, o.omega)


@kernel
def slope(kind: int, t: Vector, b: Vector) -> Vector:
    """l'(t; b) of LEAST_SQUARES or LOGISTIC; t - b of GRAM too. Shape (m,)."""
    return logistic_slope(t, b) if kind == LOGISTIC else least_squares_slope(t, b)


def _gradient(
    kind: int, A: Matrix, b: Vector, factor: float, l2: float, lam: float, omega: float, x: Vector, out: Vector
) -> None:
    s = slope(kind, A @ x, b)
    out[:] = factor * (s if kind == GRAM else s @ A)
    out += public_gradient(x, l2, lam, omega)


@kernel_or(_gradient)
def gradient(
    kind: int, A: Matrix, b: Vector, factor: float, l2: float, lam: float, omega: float, x: Vector, out: Vector
) -> None:
    """out (q,) = f_i'(x); A (m, q) and b (m,) are the agent's own rows, or H_i and h_i."""
    m, q = A.shape
    if b.size != m or x.size != q or out.size != q or (kind == GRAM and m != q):
        raise ValueError("A, b, x, out: shape mismatch")
    zero: Any = 0.0
    for k in range(q):
        out[k] = 0.0
    single = m if kind == GRAM else m % 4
    for j in range(single):
        t0 = zero
        for k in range(q):
            t0 += A[j, k] * x[k]
        s0 = slope(kind, t0, b[j])
        if kind == GRAM:
            out[j] = s0
        else:
            for k in range(q):
                out[k] += s0 * A[j, k]
    for j in range(single, m, 4):  # four sums under way at once: one addition waits for the last
        t0 = t1 = t2 = t3 = zero
        for k in range(q):
            t0, t1 = t0 + A[j, k] * x[k], t1 + A[j + 1, k] * x[k]
            t2, t3 = t2 + A[j + 2, k] * x[k], t3 + A[j + 3, k] * x[k]
        s0, s1 = slope(kind, t0, b[j]), slope(kind, t1, b[j + 1])
        s2, s3 = slope(kind, t2, b[j + 2]), slope(kind, t3, b[j + 3])
        for k in range(q):
            out[k] += (s0 * A[j, k] + s1 * A[j + 1, k]) + (s2 * A[j + 2, k] + s3 * A[j + 3, k])
    for k in range(q):
        out[k] = factor * out[k] + public_gradient(x[k], l2, lam, omega)


def _minimizer(e: Vector, V: Matrix, h: Vector, linear: Vector, rho: float, out: Vector) -> None:
    out[:] = ((h - V @ linear) / (e + rho)) @ V


@kernel_or(_minimizer)
def minimizer(e: Vector, V: Matrix, h: Vector, linear: Vector, rho: float, out: Vector) -> None:
    """out (q,) = argmin_x f_i(x) + <linear, x> + rho/2 |x|^2; e, h (q,) and V (q, q) are the agent's own."""
    q = linear.size
    if not e.size == h.size == V.shape[0] == V.shape[1] == out.size == q:
        raise ValueError("e, V, h, linear, out: shape mismatch")
    for k in range(q):
        out[k] = 0.0
    for j in range(q):
        w = h[j]
        for k in range(q):
            w -= V[j, k] * linear[k]
        w /= e[j] + rho
        for k in range(q):
            out[k] += V[j, k] * w


@kernel
def check(walk: Index, y: Matrix, noise: Matrix, record: Tensor) -> None:
    """Raises ValueError if a walk (K,) leaves the agents of y (n, q), or noise is not (K or 0, q), record (K or
    0, 2, q).
    """
    K, (n, q) = walk.size, y.shape
    for k in range(K):
        if not 0 <= walk[k] < n:
            raise ValueError("walk: mismatch with the number of agents")
    if noise.shape[0] not in (0, K) or record.shape[0] not in (0, K):
        raise ValueError("noise, record: shape mismatch with the walk")
    if noise.shape[1] != q or record.shape[1] != 2 or record.shape[2] != q:
        raise ValueError("noise, record: shape mismatch with the state")
