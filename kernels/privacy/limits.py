"""What a budget lets answers cost in all, in three currencies, as integers that are compared exactly.

A budget (epsilon, delta) is a filter: answers go on, each chosen after the earlier ones, for as long as their summed
cost stays within a limit that was fixed beforehand. The limits, of what is summed:

    pure    epsilon_k                         epsilon
    zCDP    (mu_k^2 + epsilon_k^2)/2          rho_max: the largest rho whose conversion gives epsilon at delta
    GDP     mu_k^2, of pure ones              mu_max^2: delta_{mu_max}(epsilon) = delta
            (pi/2) epsilon_k^2

Each of the three is a valid filter by itself: ratios multiply; Feldman and Zrnic (2021), Whitehouse et al. (2023);
Smith and Thakurta (2022). A pure answer is m(epsilon)-GDP with m = -2 Phi^-1(1/(1 + e^epsilon)) (Dong, Roth, Su, 2019:
the curve of pure epsilon lies above G_m, because it is two chords of the convex G_m), and m is concave with slope
sqrt(pi/2) at 0, so m^2 <= (pi/2) epsilon^2.

`Limit.holds` is pure *or* GDP, and delta is taken once. Split the outcomes into those whose answers pass the pure test
and the rest. On the first part the answers are those of a mechanism that stops before the pure limit is passed: P(S) <=
e^epsilon Q(S), without a delta. On the rest they are those of one that stops before the GDP limit is passed: P(S) <=
e^epsilon Q(S) + delta. Both tests only get harder as answers are added, so an outcome that passes at its end has passed
all along. zCDP would need a delta of its own beside GDP's, and is not asked; for Gaussian answers GDP is tighter.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from math import inf
from typing import NamedTuple

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.privacy.accounting import (
    HALF_PI,
    UNIT,
    Event,
    Gaussian,
    Laplace,
    Totals,
    gdp_delta,
    gdp_epsilon,
    largest,
    root_up,
    rounded_up,
    units,
    zcdp_epsilon,
)


class Charge(NamedTuple):
    """What answers cost, summed. Exact integers, so that what is added can be taken away again.

    The first three are in units of 2^-256; the last two count answers.
    """

    epsilon: int = 0  #: sum of pure epsilons
    epsilon2: int = 0  #: sum of their squares
    mu2: int = 0  #: sum of mu^2 of Gaussian answers
    gaussian: int = 0
    nonprivate: int = 0

    def plus(self, other: Charge, times: int = 1) -> Charge:
        """The sum; `times` may be negative."""
        a, b = self, other
        return Charge(
            a.epsilon + times * b.epsilon,
            a.epsilon2 + times * b.epsilon2,
            a.mu2 + times * b.mu2,
            a.gaussian + times * b.gaussian,
            a.nonprivate + times * b.nonprivate,
        )

    def shared(self, n: int) -> Charge:
        """Of a change that moves each answer by an n-th of what its noise is made for."""
        each = -(-self.epsilon // n), -(-self.epsilon2 // n**2), -(-self.mu2 // n**2)
        return Charge(*each, self.gaussian, self.nonprivate)

    def or_more(self, other: Charge) -> Charge:
        """The larger of each component."""
        return Charge(*map(max, self, other))

    @property
    def pure(self) -> bool:
        """Whether every answer has a pure epsilon."""
        return not (self.gaussian or self.nonprivate)

    @property
    def gdp(self) -> int:
        """Sum of mu^2 with pure answers as GDP, rounded up; in units of 2^-256."""
        a, b = HALF_PI
        return self.mu2 - (-a * self.epsilon2 // b)


@lru_cache(maxsize=256)  # a run repeats one event
def charge_of(event: Event) -> Charge:
    """Of one answer."""
    if isinstance(event, Laplace) and event.epsilon < inf:
        return Charge(units(event.epsilon, 1), units(event.epsilon, 2))
    if isinstance(event, Gaussian) and event.mu < inf:
        return Charge(mu2=units(event.mu, 2), gaussian=1)
    return Charge(nonprivate=1)


def charge_of_totals(totals: Totals) -> Charge:
    """Of all that was counted. Answers without privacy count as one."""
    return Charge(*totals.sums, totals.gaussian, int(totals.nonprivate))


class Limit(NamedTuple):
    """The limits of a budget (epsilon, delta) in units of 2^-256, rounded down. With delta 0 only the pure one is."""

    epsilon: float
    delta: float
    pure: int  #: of the sum of epsilon
    rho: int  #: rho_max
    mu2: int  #: mu_max^2

    def holds(self, charge: Charge) -> bool:
        """Whether answers of this charge in all are (epsilon, delta)-differentially private, whoever chose them."""
        if charge.nonprivate:
            return False
        return (charge.pure and charge.epsilon <= self.pure) or charge.gdp <= self.mu2

    def share(self, charge: Charge) -> float:
        """How much of the limit this charge is: 1 is all of it; infinity where an answer had no privacy."""
        if charge.nonprivate:
            return inf
        shares = [charge.epsilon / self.pure] if charge.pure else []
        if self.mu2:
            shares.append(charge.gdp / self.mu2)
        return min(shares, default=inf)

    def spent(self, charge: Charge) -> float:
        """The smallest epsilon whose limit, at this delta, holds for the charge; infinity where none does."""
        if charge.nonprivate or not (charge.pure or self.delta):
            return inf
        pure = rounded_up(charge.epsilon, 1 << UNIT) if charge.pure else inf
        return min(pure, gdp_epsilon(root_up(charge.gdp), self.delta)) if self.delta else pure


@lru_cache(maxsize=64)
def limit(epsilon: float, delta: float = 0.0) -> Limit:
    """The limits of a budget. Raises InputError if delta is not in [0, 1) or epsilon not from 1e-12 to 1e12."""
    if not 0 <= delta < 1:
        raise InputError(f"delta: found {delta}, expected a number in [0, 1)")
    if not 1e-12 <= epsilon <= 1e12:
        raise InputError(f"epsilon: found {epsilon}, expected a number from 1e-12 to 1e12")
    if not delta:
        return Limit(epsilon, delta, _down(epsilon), 0, 0)
    rho = largest(lambda rho: zcdp_epsilon(rho, delta) <= epsilon)
    return Limit(epsilon, delta, _down(epsilon), _down(rho), _down(mu_max(epsilon, delta), 2))


@lru_cache(maxsize=64)
def mu_max(epsilon: float, delta: float) -> float:
    """The largest mu of which mu-GDP is (epsilon, delta)-differentially private, never too large."""
    return largest(lambda mu: gdp_delta(epsilon, mu) <= delta)


def gdp_of_pure(epsilon: float) -> float:
    """m(epsilon), in floating point: the smallest mu of which every pure epsilon is mu-GDP."""
    from statistics import NormalDist

    return -2 * NormalDist().inv_cdf(1 / (1 + math.exp(epsilon)))


def _down(value: float, power: int = 1) -> int:
    exact = Fraction(value) ** power
    return (exact.numerator << UNIT) // exact.denominator
