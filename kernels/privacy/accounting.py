"""What noisy answers cost: events are recorded, their price is computed afterwards (the habit of google/dp_accounting).

Every figure is an upper bound, also in floating point: sums are exact or rounded up, and a conversion adds a bound of
its own rounding. Composition is adaptive throughout: an answer's parameters may depend on earlier answers. Sources:
 - pure epsilon adds up; pure epsilon is epsilon^2/2-zCDP (Bun, Steinke, 2016);
 - zCDP: a Gaussian answer is mu^2/2-zCDP and rho adds up; to (epsilon, delta) by the minimum over alpha of Canonne,
   Kamath, Steinke (The Discrete Gaussian for Differential Privacy, 2020, proposition 12);
 - GDP: mu^2 adds up; delta(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu) (Dong, Roth, Su, 2019;
   Balle, Wang, 2018), adaptively too (Smith, Thakurta, 2022);
 - k answers of pure epsilon each, k fixed beforehand: k-fold randomised response is the worst case (Kairouz, Oh,
   Viswanath, 2015; Murtagh, Vadhan, 2016).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import inf
from typing import Literal

from hushgrid.kernels.errors import InputError

Mechanism = Literal["laplace", "gaussian"]

#: Accountant by name, and the one kind of answer it counts (zcdp counts both).
ACCOUNTANTS: dict[str, tuple[Mechanism, ...]] = {
    "pure-basic": ("laplace",),
    "pure-optimal": ("laplace",),
    "zcdp": ("gaussian", "laplace"),
    "gdp": ("gaussian",),
}

HALF_PI = (355, 226)  #: above pi/2 by 9e-8 of it
MOST_OPTIMAL = 1 << 20  #: answers whose optimal composition is computed: its work grows with their root
MOST_MIXED = 1 << 12  #: pure answers beside Gaussian ones whose exact curve is computed
UNIT = 256  #: sums are integers in units of 2^-256: exact for every float above 2^-203, rounded up below


@dataclass(frozen=True, slots=True)
class Laplace:
    """An answer of pure epsilon."""

    epsilon: float


@dataclass(frozen=True, slots=True)
class Gaussian:
    """An answer of mu-GDP: the noise's standard deviation is sensitivity/mu."""

    mu: float


@dataclass(frozen=True, slots=True)
class NonPrivate:
    """An answer without noise."""


Event = Laplace | Gaussian | NonPrivate


def grouped(event: Event, k: int) -> Event:
    """The event by group privacy of k: k epsilon, k mu, rounded up."""
    if k == 1 or isinstance(event, NonPrivate):
        return event
    value = event.epsilon if isinstance(event, Laplace) else event.mu
    if value == inf:
        return NonPrivate()
    a, b = value.as_integer_ratio()
    return Laplace(rounded_up(k * a, b)) if isinstance(event, Laplace) else Gaussian(rounded_up(k * a, b))


@dataclass
class Totals:
    """Sums over events, never below the truth whatever their number. `add` costs the same for the millionth event."""

    laplace: int = 0  #: answers
    gaussian: int = 0
    largest_epsilon: float = 0.0  #: of one Laplace answer
    nonprivate: bool = False
    _epsilon: int = 0  #: sum of epsilon, in units of 2^-256; so are the next two
    _epsilon2: int = 0
    _mu2: int = 0

    def add(self, event: Event, times: int = 1) -> None:
        """Count `times` equal events. Raises ValueError if `times` is negative."""
        if times < 0:
            raise ValueError(f"found {times} events, expected at least 0")
        if times == 0:
            return
        if isinstance(event, NonPrivate):
            self.nonprivate = True
            return
        value = event.epsilon if isinstance(event, Laplace) else event.mu
        if not value >= 0:
            raise ValueError(f"found {event}, expected a number >= 0")
        if value == inf:
            self.nonprivate = True
        elif isinstance(event, Laplace):
            self.laplace += times
            self.largest_epsilon = max(self.largest_epsilon, value)
            self._epsilon += times * units(value, 1)
            self._epsilon2 += times * units(value, 2)
        else:
            self.gaussian += times
            self._mu2 += times * units(value, 2)

    def include(self, other: Totals, k: int = 1) -> None:
        """Count all that another has counted, by group privacy of k: each answer's epsilon and mu k times as large."""
        a, b = other.largest_epsilon.as_integer_ratio()
        self.laplace += other.laplace
        self.gaussian += other.gaussian
        self.largest_epsilon = max(self.largest_epsilon, rounded_up(k * a, b))
        self.nonprivate = self.nonprivate or other.nonprivate
        self._epsilon += k * other._epsilon
        self._epsilon2 += k * k * other._epsilon2
        self._mu2 += k * k * other._mu2

    def shared(self, n: int) -> Totals:
        """The same answers for a change that moves each of them by an n-th of what its noise is made for."""
        a, b = self.largest_epsilon.as_integer_ratio()
        return Totals(
            self.laplace,
            self.gaussian,
            rounded_up(a, b * n),
            self.nonprivate,
            -(-self._epsilon // n),
            -(-self._epsilon2 // n**2),
            -(-self._mu2 // n**2),
        )

    @property
    def epsilon(self) -> float:
        """Sum of the Laplace answers' epsilon."""
        return rounded_up(self._epsilon, 1 << UNIT)

    @property
    def rho(self) -> float:
        """zCDP of all answers: sum of mu^2/2 and of epsilon^2/2."""
        return rounded_up(self._mu2 + self._epsilon2, 2 << UNIT)

    @property
    def mu(self) -> float:
        """GDP of the Gaussian answers: root of the sum of mu^2."""
        return root_up(self._mu2)

    @property
    def gdp(self) -> float:
        """GDP of all answers: root of the sum of mu^2 and of (pi/2) epsilon^2."""
        a, b = HALF_PI
        return root_up(self._mu2 - (-a * self._epsilon2 // b))

    @property
    def sums(self) -> tuple[int, int, int]:
        """Of epsilon, of epsilon^2 and of mu^2, in units of 2^-256."""
        return self._epsilon, self._epsilon2, self._mu2


def claimed_epsilon(accountant: str, per_answer: float, answers: int, delta: float) -> float:
    """Epsilon of `answers` answers of `per_answer` each (epsilon for Laplace, mu for Gaussian), at this delta.

    Laplace answers where the accountant counts them only, else Gaussian ones. Raises InputError if the accountant is
    unknown, delta is not in (0, 1) though the accountant needs it, or there are too many answers for it.
    """
    _check_answers(accountant, answers)
    totals = Totals()
    totals.add(_event(accountant, per_answer), answers)
    return spent_epsilon(accountant, totals, delta)


def spent_epsilon(accountant: str, totals: Totals, delta: float) -> float:
    """Epsilon of what was counted, by one accountant. Raises InputError if it cannot count this kind of answer."""
    _check(accountant, delta)
    counted = {"laplace": totals.laplace, "gaussian": totals.gaussian}
    for kind, answers in counted.items():
        if answers and kind not in ACCOUNTANTS[accountant]:
            expected = " and ".join(ACCOUNTANTS[accountant])
            raise InputError(f"accountant {accountant}: found {answers} {kind} answers, expected only {expected}")
    if totals.nonprivate:
        return inf
    if accountant == "pure-basic":
        return totals.epsilon
    if accountant == "pure-optimal":
        return _optimal_epsilon(totals, delta)
    return zcdp_epsilon(totals.rho, delta) if accountant == "zcdp" else gdp_epsilon(totals.mu, delta)


@lru_cache(maxsize=256)  # every node of a simulated run asks the same, several times
def calibrate(accountant: str, epsilon: float, delta: float, answers: int) -> float:
    """The largest per-answer epsilon (Laplace) or mu (Gaussian) of which `answers` answers cost at most `epsilon`.

    Never more than `epsilon` when computed back, also for the slightly smaller answers a grid really gives; short of it
    by `_aim`'s few parts in 10^12. Raises InputError as above, and if epsilon is not a number from 1e-12 to 1e12 or
    answers is not positive.
    """
    _check(accountant, delta)
    if not 1e-12 <= epsilon <= 1e12:  # beyond the range of a plan's; the bisections below would take long
        raise InputError(f"epsilon: found {epsilon}, expected a number from 1e-12 to 1e12")
    if answers < 1:
        raise InputError(f"answers: found {answers}, expected at least 1")
    _check_answers(accountant, answers)
    share = Fraction(epsilon) / answers
    if accountant == "pure-basic":
        exact = float(share)
        return exact if Fraction(exact) <= share else math.nextafter(exact, 0.0)
    aim = _aim(epsilon, answers)
    if accountant == "pure-optimal":
        return largest(lambda p: _optimal_delta(aim, p, answers) <= delta, aim / answers)
    return largest(lambda p: claimed_epsilon(accountant, p, answers, delta) <= aim)


def total_epsilon(totals: Totals, delta: float) -> float:
    """A valid bound on everything counted, whoever chose each answer and when to stop, at this delta (0: pure).

    The sum of pure epsilons where every answer has one, or GDP with a pure answer as (pi/2) epsilon^2, whichever is
    less; delta is taken once (`limits.py` has the proof). The sum of the two, each at half of delta, would be less for
    some mixtures, and does not hold against whoever chooses the next answer's kind after what was seen. Raises
    InputError if delta is not in [0, 1).
    """
    if not 0 <= delta < 1:
        raise InputError(f"delta: found {delta}, expected a number in [0, 1)")
    if totals.nonprivate or (totals.mu and not delta):
        return inf
    if not delta:
        return totals.epsilon
    together = gdp_epsilon(totals.gdp, delta)
    return together if totals.mu else min(totals.epsilon, together)


def fixed_epsilon(totals: Totals, delta: float) -> float:
    """The same if the number, kinds and prices of the answers were fixed before the first: never more, and often less.

    Worst case of pure answers is randomised response, of Gaussian ones the shift of a Gaussian, and so is that of all
    together: with k answers of epsilon e, of which j lie, delta(eps) = sum_j P(j) delta_mu(eps - (k - 2j) e). Pure
    answers of different epsilon count as if each had the largest. It does not hold for an answer that was chosen by
    earlier ones.
    """
    bound, k, e, mu = total_epsilon(totals, delta), totals.laplace, totals.largest_epsilon, totals.mu
    if bound in (0.0, inf) or not (mu and e) or k > MOST_MIXED:
        return bound
    lies = math.exp(-e)
    log_total = math.lgamma(k + 1) - k * math.log1p(lies)
    chance = [math.exp(log_total - math.lgamma(j + 1) - math.lgamma(k - j + 1) - j * e) for j in range(k + 1)]
    slack = 1 + 2.0**-44 * (k + 10) * (math.log(k + 2) + e)  # of lgamma and the logarithms

    def holds(epsilon: float) -> bool:
        return (
            slack * math.fsum(P * _signed_delta(epsilon - (k - 2 * j) * e, mu) for j, P in enumerate(chance)) <= delta
        )

    return min(bound, _smallest(holds))


def _signed_delta(epsilon: float, mu: float) -> float:
    """delta(epsilon) of mu-GDP for any epsilon: delta(-e) = 1 - e^-e + e^-e delta(e)."""
    if epsilon >= 0:
        return min(gdp_delta(epsilon, mu), 1.0)
    return -math.expm1(epsilon) + math.exp(epsilon) * min(gdp_delta(-epsilon, mu), 1.0)


def per_answer_paper(mechanism: str, epsilon: float, delta: float | None, sensitivity: float) -> float:
    """The papers' noise scale of one answer (lemmas 2.2 and 2.3): Laplace's Delta/epsilon, or the Gaussian's

    sigma = sqrt(2 ln(1.25/delta)) Delta/epsilon, which is proven for epsilon <= 1 only. Raises InputError if the
    Gaussian's delta is not in (0, 1).
    """
    if mechanism == "laplace":
        return sensitivity / epsilon
    if delta is None or not 0 < delta < 1:
        raise InputError(f"delta: found {delta}, expected a number in (0, 1) for the papers' Gaussian noise")
    return math.sqrt(2 * math.log(1.25 / delta)) * sensitivity / epsilon


# --- the conversions ---


@lru_cache(maxsize=1024)  # the nodes of a run are alike
def zcdp_epsilon(rho: float, delta: float) -> float:
    """min over alpha > 1 of alpha rho + ln(1 - 1/alpha) + (ln(1/delta) - ln alpha)/(alpha - 1); any alpha is valid.

    With a = alpha - 1 the derivative is rho - (ln(1/delta) - ln alpha)/a^2; its one root solves rho a^2 + ln(1 + a) =
    ln(1/delta).
    """
    if rho == 0:
        return 0.0
    if rho == inf:
        return inf
    known = -math.log(delta)
    low, high = 0.0, min(math.sqrt(known / rho), 1 / delta)
    while low < (a := (low + high) / 2) < high:
        low, high = (a, high) if rho * a * a + math.log1p(a) < known else (low, a)
    parts = (high * rho, rho, -math.log1p(1 / high), known / high, -math.log1p(high) / high)
    return max(math.fsum(parts) + 2.0**-50 * math.fsum(map(abs, parts)), 0.0)


def gdp_delta(epsilon: float, mu: float) -> float:
    """delta(epsilon) of mu-GDP: with x, y = epsilon/mu -+ mu/2 and e^epsilon = phi(x)/phi(y), phi(x) (M(x) - M(y)).

    M = (1 - Phi)/phi. x and y are off by 2^-52 y at most, which moves phi(x) by x times that, relative: the slack.
    """
    x, y = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    upper, density = math.erfc(x / math.sqrt(2)) / 2, math.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    difference = upper - density * _mills(y)
    return max(difference, 0.0) + 2.0**-48 * (1 + abs(x)) * (1 + y) * upper


def _mills(y: float) -> float:
    """(1 - Phi(y))/phi(y), y >= 0: directly, and by Laplace's continued fraction where that would underflow."""
    if y < 12:
        return math.sqrt(math.pi / 2) * math.erfc(y / math.sqrt(2)) * math.exp(y * y / 2)
    value = y
    for k in range(40, 0, -1):
        value = y + k / value
    return 1 / value


@lru_cache(maxsize=4096)  # nodes of one plan have the same sums after each answer
def gdp_epsilon(mu: float, delta: float) -> float:
    return 0.0 if mu == 0 else _smallest(lambda epsilon: gdp_delta(epsilon, mu) <= delta)


def _optimal_delta(target: float, epsilon: float, k: int) -> float:
    """delta of `target` for k answers of pure epsilon: sum over j of P(j) max(0, 1 - e^(target - (k - 2j) epsilon)).

    P(j) = C(k, j) e^((k - j) epsilon)/(1 + e^epsilon)^k is the chance that j of k randomised responses lie. Summed
    from the likeliest j with a positive term downwards, then upwards, and left once the rest, at most a geometric
    series, cannot change it. The slack covers the rounding of lgamma and of the logarithms.
    """
    target -= 2.0**-50 * k * epsilon  # target - (k - 2j) epsilon cancels near the plain sum: more than its rounding
    last = min(k, math.ceil((k - target / epsilon) / 2) - 1)
    if last < 0:
        return 0.0
    lies = math.exp(-epsilon)
    first = min(last, int((k + 1) * (lies / (1 + lies))))  # where P is largest; 0 long before e^epsilon overflows
    log_weight = math.lgamma(k + 1) - math.lgamma(first + 1) - math.lgamma(k - first + 1)
    log_weight -= first * epsilon + k * math.log1p(lies)
    total = 0.0
    for way, until in ((-1, -1), (1, last + 1)):
        weight = 1.0  # relative to that of `first`
        for j in range(first, until, way):
            if j != first or way < 0:
                total -= weight * min(math.expm1(target - (k - 2 * j) * epsilon), 0.0)
            ratio = (j and j / (k - j + 1) * math.exp(epsilon)) if way < 0 else (k - j) / (j + 1) * lies
            if ratio < 1 and weight * ratio / (1 - ratio) < 2.0**-60 * total:
                break
            weight *= ratio
    slack = 2.0**-48 * (k + 10) * (math.log(k + 2) + epsilon)
    return math.exp(min(log_weight + math.log(total) + slack, 0.0)) if total > 0 else 0.0


def _optimal_epsilon(totals: Totals, delta: float) -> float:
    """Of answers of different epsilon: as if each had the largest, which bounds it. Never above the plain sum."""
    if totals.largest_epsilon == 0:
        return 0.0
    epsilon = _smallest(lambda e: _optimal_delta(e, totals.largest_epsilon, totals.laplace) <= delta)
    return min(epsilon, totals.epsilon)


# --- inside ---


def _event(accountant: str, per_answer: float) -> Event:
    _known(accountant)
    return Laplace(per_answer) if ACCOUNTANTS[accountant][0] == "laplace" else Gaussian(per_answer)


def _known(accountant: str) -> None:
    if accountant not in ACCOUNTANTS:
        raise InputError(f"accountant: found {accountant!r}, expected one of {', '.join(ACCOUNTANTS)}")


def _check(accountant: str, delta: float) -> None:
    _known(accountant)
    if accountant == "pure-basic":
        if not 0 <= delta < 1:
            raise InputError(f"delta: found {delta}, expected a number in [0, 1)")
    elif not 0 < delta < 1:
        raise InputError(f"delta: found {delta}, expected a number in (0, 1) for the accountant {accountant}")


def _check_answers(accountant: str, answers: int) -> None:
    if accountant == "pure-optimal" and answers > MOST_OPTIMAL:
        raise InputError(f"answers: found {answers}, expected at most {MOST_OPTIMAL} for the accountant {accountant}")


def _aim(epsilon: float, answers: int) -> float:
    """A little below `epsilon`, by more than the conversions' rounding can wobble: they are monotone only up to that.

    Absolute, where mu is small and delta(epsilon) a small difference: 2^-50 (1 + |x|)(1 + y) M(x)/M(y), the last factor
    near 1, so below 2^-42 while x and y are below 12. Relative otherwise, growing with the number of answers for
    lgamma.
    """
    relative = min(2.0**-40 * (1 + answers / 64), 2.0**-10)
    return epsilon - relative * epsilon - min(2.0**-42, epsilon * 2.0**-10)


def largest(holds: Callable[[float], bool], start: float = 1.0) -> float:
    """The largest p > 0 with holds(p), to the last bit but for the rounding of holds; holds is true near 0."""
    while not holds(start):
        start /= 2
    high = start * 2
    while holds(high):
        start, high = high, high * 2
    return _bisect(holds, start, high)[0]


def _smallest(holds: Callable[[float], bool]) -> float:
    """The smallest e >= 0 with holds(e), the side that holds; holds is true for large e. Infinite where no
    float holds.
    """
    if holds(0.0):
        return 0.0
    high = 1.0
    while not holds(high):
        high *= 2
        if high == inf:
            return inf
    low = high / 2 if high > 1 else 0.0
    return _bisect(lambda e: not holds(e), low, high)[1]


def _bisect(below: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    """Neighbouring floats (up to 2^-52 relative) between which `below` turns false."""
    while high - low > 2.0**-52 * high and low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if below(middle) else (low, middle)
    return low, high


@lru_cache(maxsize=256)  # a run repeats one event
def units(value: float, power: Literal[1, 2]) -> int:
    """value^power in units of 2^-256, rounded up."""
    exact = Fraction(value) ** power
    return -(-(exact.numerator << UNIT) // exact.denominator)


def root_up(square: int) -> float:
    """The root of a number in units of 2^-256, never too small."""
    root = math.isqrt(square << UNIT)
    return rounded_up(root + (root * root < square << UNIT), 1 << UNIT)


def rounded_up(numerator: int, denominator: int) -> float:
    """The least float >= numerator/denominator; infinity where there is none."""
    try:
        value = numerator / denominator
    except OverflowError:
        return inf
    a, b = value.as_integer_ratio()
    return value if a * denominator >= numerator * b else math.nextafter(value, inf)
