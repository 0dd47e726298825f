"""An uneven public schedule of Gaussian answers: what each costs, beside T even ones of mu each, at the same total.

    mu_k^2 = T mu^2 g^k/(g + g^2 + ... + g^T),   k = 1..T,   sum_k mu_k^2 = T mu^2

g, mu and T are fixed before the first answer and public, so each answer is mu_k-GDP whatever was heard before, and the
squares add up (docs/papers/mechanisms.md). Figures are rounded down by 2^-40: a power, a quotient and a root err by
less than 2^-50 together, so the sum of squares is never above that of the even answers.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate
from math import fsum, log, sqrt

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.privacy.accounting import Totals, units

MOST = 100_000  #: answers: each has a price of its own
FARTHEST = 1e6  #: the largest mu_k^2 over the smallest


def check(growth: float, answers: int) -> None:
    """Raises InputError where the schedule has too many answers, or some that tell next to nothing."""
    if answers > MOST or abs(log(growth)) * (answers - 1) > log(FARTHEST):
        raise InputError(
            f"privacy.schedule.growth: found {growth:g} over {answers} answers, expected growth^(answers - 1) from "
            f"{1 / FARTHEST:g} to {FARTHEST:g}, and at most {MOST} answers"
        )


@lru_cache(maxsize=64)
def prices(mu: float, growth: float, answers: int) -> tuple[float, ...]:
    """mu_k of each answer."""
    last = answers - 1 if growth > 1 else 0  # no power is above 1
    weights = [growth ** (k - last) for k in range(answers)]
    mean = fsum(weights) / answers
    return tuple(mu * sqrt(w / mean) * (1 - 2.0**-40) for w in weights)


@lru_cache(maxsize=64)
def _sums(mu: float, growth: float, answers: int) -> tuple[int, ...]:
    return tuple(accumulate((units(price, 2) for price in prices(mu, growth, answers)), initial=0))


def totals(mu: float, growth: float, answers: int, first: int, last: int) -> Totals:
    """What the answers first + 1 to last cost, of so many in all; beyond these each as much as the dearest."""
    sums = _sums(mu, growth, answers)
    beyond = max(last, answers) - max(first, answers)
    more = beyond * units(max(prices(mu, growth, answers)), 2) if beyond else 0
    return Totals(gaussian=last - first, _mu2=sums[min(last, answers)] - sums[min(first, answers)] + more)
