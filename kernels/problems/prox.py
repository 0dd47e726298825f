"""Proximal operators of the common regulariser r(x) = l1 |x|_1 + l2/2 |x|_2^2 under the box |x_k| <= bound.

prox_{t r}(v) = argmin_x t r(x) + 1/2 |x - v|^2 = clip(soft(v, t l1)/(1 + t l2), -bound, bound). The problem falls apart
into coordinates, each convex in one variable, so clipping its unconstrained minimiser is exact.
Source: N. Parikh, S. Boyd, Proximal Algorithms (2014), 6.5.2 (soft threshold), 6.2.1 (box), 6.5.3 (elastic net).
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from hushgrid.kernels.jit import kernel
from hushgrid.kernels.types import Vector

ROUNDED = 1e-12  #: of the box: room for the rounding of sums of up to thousands of points


@kernel
def soft(v: Vector, t: float) -> Vector:
    """prox of t |x|_1: v_k moved towards 0 by t >= 0, and 0 where |v_k| <= t. Shape (d,)."""
    return v - np.minimum(np.maximum(v, -t), t)


@kernel
def shrink(v: Vector, t: float) -> Vector:
    """prox of t/2 |x|_2^2: v/(1 + t). Shape (d,)."""
    return v / (1.0 + t)


@kernel
def clip(v: Vector, bound: float) -> Vector:
    """The projection onto |x_k| <= bound. Shape (d,)."""
    return np.minimum(np.maximum(v, -bound), bound)


@kernel
def elastic_net(v: Vector, t: float, l1: float, l2: float, bound: float) -> Vector:
    """prox_{t r}(v) with r = l1 |x|_1 + l2/2 |x|_2^2 on |x_k| <= bound (inf: no box). Shape (d,)."""
    return clip(shrink(soft(v, t * l1), t * l2), bound)


class Box(NamedTuple):
    """|x_k| <= bound, as a set to project onto."""

    bound: float

    def project(self, v: Vector, D: Vector) -> Vector:
        """argmin over the box of sum_k D_k/2 (x_k - v_k)^2, which is the same for all weights D > 0. Shapes (d,)."""
        x: Vector = clip(v, self.bound)
        return x


class Regularizer(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """r and the box, public: l1, l2 >= 0, box > 0, in the ranges of the sections and plans they come from."""

    l1: float = 0.0
    l2: float = 0.0
    box: float = inf

    def value(self, x: Vector) -> float:
        """r(x); infinite outside of the box, which a mean of points of it may leave by its rounding."""
        if np.max(np.abs(x), initial=0.0) > self.box * (1 + ROUNDED):
            return inf
        return float(self.l1 * np.sum(np.abs(x)) + self.l2 / 2 * (x @ x))

    def prox(self, v: Vector, t: float) -> Vector:
        """prox_{t r}(v), t >= 0; the network's problem has t = n (or n times a step). Shape (d,)."""
        x: Vector = elastic_net(v, t, self.l1, self.l2, self.box)
        return x
