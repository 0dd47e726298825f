"""Whether a run's answer is one, in a word: a function of the plan and of what was released.

`broker/report/quality.py` says what the words mean, and why.
"""

from __future__ import annotations

from math import isfinite, sqrt
from typing import Literal

from hushgrid.kernels.problems.optimality import Optimality

Verdict = Literal["solved", "agreed", "noise-limited", "not-converged", "diverged"]

AGREED = 0.05  #: of the answer's size
PROVEN = 0.01  #: of the cost; a proven gap of no more is a solution
SPREAD = 2.0  #: root mean squares that are still called noise


def verdict_of(
    residual: float | None,
    size: float,
    copies: int = 1,
    noise: float = 0.0,
    largest: float = float("inf"),
    *,
    met: bool,
    agreed: float = AGREED,
    optimality: Optimality | None = None,
    alike: bool = True,
    gap: float | None = None,
    distance: float | None = None,
) -> Verdict:
    """The verdict on an answer of this size, whose copies lie `residual` apart; None: no round was made.

    The arguments are those of `quality.judged`.
    """
    if residual is None:
        return "not-converged"
    length = sqrt(copies) * size
    apart = residual > max(sqrt(copies) * largest, SPREAD * noise)
    if not isfinite(residual) or not isfinite(size) or size > largest or apart:
        return "diverged"
    if optimality is not None:
        agreeing = residual <= agreed * length or not alike
        if optimality.solved and agreeing:
            return "solved"
        explained = agreeing or residual <= SPREAD * noise
        still = explained and noise > 0 and optimality.moving <= optimality.wanted
        return "noise-limited" if still else "not-converged"
    if met or residual <= agreed * length:
        if gap is not None and gap <= PROVEN:
            return "solved"
        return "agreed" if distance is None or distance <= PROVEN else "not-converged"
    return "noise-limited" if residual <= SPREAD * noise else "not-converged"


def verdict_of_sum(size: float | None, noise: float) -> Verdict:
    """The verdict on a sum of this L2 size, which has no copies: by its noise alone; None: there is no sum."""
    if size is None:
        return "not-converged"
    return "solved" if noise <= AGREED * size else "noise-limited"
