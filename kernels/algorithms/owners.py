"""Entries that several members own: means over the owners, their multipliers, and the acceleration of an iteration on
them.

`position[p]` (m_p,) places member p's entries among all N of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum, isfinite

import numpy as np

from hushgrid.kernels.errors import Failed
from hushgrid.kernels.types import Index, Vector

SAME = (
    1e-9  #: relative; a member's multipliers and the coordinator's of it differ by rounding, or its weights are others
)
RIDGE = 1e-8  #: of the acceleration's least squares, relative to tr(dR'dR)


def mean(values: Sequence[Vector], position: Sequence[Index], size: int) -> Vector:
    """The mean of each entry (size,) over its owners. Sums in the order given."""
    total, owners = np.zeros(size), np.zeros(size)
    for value, k in zip(values, position, strict=True):
        total[k] += value
        owners[k] += 1.0
    return total / owners


def centred(lam: Sequence[Vector], position: Sequence[Index], held: Vector) -> list[Vector]:
    """lam (m_p,) each, less the mean of each entry over its owners, so that it sums to zero.

    Of an entry that is held (`held` (N,) is its value, nan: it is free; (0,): none is) it stays: a constant has any
    price.
    """
    size = max((int(k.max(initial=-1)) + 1 for k in position), default=0)
    middle = mean(lam, position, size)
    if held.size:
        middle = np.where(np.isnan(held), middle, 0.0)
    return [multipliers - middle[k] for multipliers, k in zip(lam, position, strict=True)]


def price_of_constants(lam: Sequence[Vector], position: Sequence[Index], held: Vector) -> float:
    """sum_p <lam_p, held> over the entries that are held: what a bound at lam is above that of the problem
    around them.
    """
    if not held.size:
        return 0.0
    value = np.where(np.isnan(held), 0.0, held)
    return fsum(float(multipliers @ value[k]) for multipliers, k in zip(lam, position, strict=True))


def same_weights(pulls: Mapping[str, float], lam: Sequence[Vector]) -> None:
    """Raises Failed unless |lambda_p| as each member says it (nan: it does not) is that of lam, (m_p,) each.

    Then sum_p lambda_p = n rho (zbar - w) on each entry, which is zero at the end: an entry has one weight.
    """
    for (p, pull), multipliers in zip(pulls.items(), lam, strict=True):
        expected = float(np.linalg.norm(multipliers))
        if abs(pull - expected) > SAME * expected:
            raise Failed(
                f"{p}: found multipliers of norm {pull:.12g}, expected {expected:.12g}: it has other weights, with "
                "which the zones would agree on a point that is not the optimum"
            )


Exact = tuple[float, ...]  #: a sum of numbers, without rounding: the numbers add up to it


def exact(values: Sequence[float]) -> Exact:
    """Their sum as few numbers that add up to it exactly: the rounded sum, what that leaves, and so on until nothing.

    A sum of such parts, rounded once, is the rounded sum of all values, however they were dealt to parts and in
    whatever order.
    """
    parts: list[float] = []
    while rest := fsum([*values, *(-part for part in parts)]):
        parts.append(rest)
        if not isfinite(rest):  # nothing would ever be left of it
            break
    return tuple(parts)


def coefficients(normal: Vector, steps: Vector) -> Vector:
    """gamma (k,) of the acceleration, from <dR_i, dR_j> (k, k) and <dR_j, R> (k,)."""
    gamma: Vector = np.linalg.solve(normal + RIDGE * np.trace(normal) * np.eye(len(steps)), steps)
    return gamma


def accelerated(ys: Sequence[Vector], Rs: Sequence[Vector], gamma: Vector) -> Vector:
    """The next y from the last pairs (y, R), R the step that the plain iteration takes from y: Anderson, type II.

    Entry by entry, in the order of the pairs: entries can be dealt to places.
    """
    following: Vector = ys[-1] + Rs[-1]
    for j, share in enumerate(gamma.tolist()):
        following = following - ((ys[j + 1] - ys[j]) + (Rs[j + 1] - Rs[j])) * share
    return following
