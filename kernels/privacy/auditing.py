"""What observed guesses prove about a privacy parameter: lower bounds that hold but for a chance `doubt`.

Two data sets, an adversary who tells them apart from an answer. It calls "first" on a share p of the answers about the
first (the hits) and on a share q of those about the other (the false ones). Every test of an (epsilon, delta)-private
answer has p <= e^epsilon q + delta and 1 - q <= e^epsilon (1 - p) + delta; of a mu-GDP one Phi^-1(p) - Phi^-1(q) <= mu
(J. Dong, A. Roth, W. Su, 2019). p and q are known by counting: exact bounds of C. Clopper and E. Pearson (1934), each
at half of `doubt`.

Bounds of one run with many canaries: T. Steinke, M. Nasr, M. Jagielski, Privacy auditing with one (1) training run
(2023), theorem 5.2; S. Mahloujifar, L. Melis, K. Chaudhuri, Auditing f-differential privacy in one run (2024),
algorithm 3.
"""

from __future__ import annotations

from math import exp, inf, log

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtrc, betaincinv, gammaln, ndtr, ndtri

from hushgrid.kernels.types import Vector


def at_least(hits: ArrayLike, games: float, doubt: float) -> Vector:
    """The chance of a hit is at least this, but for `doubt`: the root of P(Bin(games, p) >= hits) = doubt."""
    k = np.asarray(hits, float)
    return np.where(k > 0, betaincinv(np.maximum(k, 1), games - k + 1, doubt), 0.0)


def at_most(hits: ArrayLike, games: float, doubt: float) -> Vector:
    """The chance of a hit is at most this, but for `doubt`."""
    k = np.asarray(hits, float)
    return np.where(k < games, betaincinv(k + 1, np.maximum(games - k, 1), 1 - doubt), 1.0)


def epsilon_lower(hits: ArrayLike, false: ArrayLike, games: float, delta: float, doubt: float) -> Vector:
    """Epsilon at delta is at least this: 0 where nothing is shown. hits, false: of `games` each."""
    p, q = at_least(hits, games, doubt / 2), at_most(false, games, doubt / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        one = np.log(np.maximum(p - delta, 0) / q)
        other = np.log(np.maximum(1 - q - delta, 0) / (1 - p))
    return np.maximum(np.fmax(one, other), 0.0)


def mu_lower(hits: ArrayLike, false: ArrayLike, games: float, doubt: float) -> Vector:
    """mu is at least this, of (false positives, false negatives)."""
    p, q = at_least(hits, games, doubt / 2), at_most(false, games, doubt / 2)
    return np.maximum(_difference(p, q), 0.0)


def mu_lower_pooled(hits: ArrayLike, false: ArrayLike, games: float, doubt: float) -> Vector:
    """The same of right calls among all 2 games, whose chance is (p + 1 - q)/2 <= Phi(mu/2): one count, one bound.

    The two chances differ; a sum of such trials lies no farther above its mean than a binomial with the mean chance
    (W. Hoeffding, 1956, theorem 4), so the bound holds.
    """
    right = np.asarray(hits, float) + games - np.asarray(false, float)
    mu: Vector = np.maximum(2 * ndtri(at_least(right, 2 * games, doubt)), 0.0)
    return mu


def _difference(p: Vector, q: Vector) -> Vector:
    """Phi^-1(p) - Phi^-1(q); minus infinity where nothing is shown."""
    finite = (p > 0) & (q < 1) & (p < 1) & (q > 0)
    return np.where(finite, ndtri(np.where(finite, p, 0.5)) - ndtri(np.where(finite, q, 0.5)), -inf)


# --- what a perfect attack would see ---


def laplace_ratios(epsilon: float, answers: int, steps: int = 2000) -> tuple[Vector, Vector]:
    """The log-likelihood ratio of so many Laplace answers of `epsilon` each, all moved by their whole sensitivity.

    Its values, rising, and its chances (about the first data set) on a grid of epsilon/steps: half of an answer's
    weight lies at +epsilon, half of e^-epsilon at -epsilon, and between them the density is e^((l - epsilon)/2)/4.
    About the other data set the chances are those of the negative values.
    """
    steps = max(2, min(steps, (1 << 20) // answers)) // 2 * 2
    values = np.linspace(-epsilon, epsilon, steps + 1)
    edges = np.concatenate([[-epsilon], (values[1:] + values[:-1]) / 2, [epsilon]])
    within = np.diff(np.exp((edges - epsilon) / 2)) / 2
    within[0] += exp(-epsilon) / 2
    within[-1] += 0.5
    size = steps * answers + 1
    n = 1 << (size - 1).bit_length()
    chances = np.maximum(np.fft.irfft(np.fft.rfft(within, n) ** answers, n)[:size], 0.0)
    return np.linspace(-epsilon * answers, epsilon * answers, size), chances / chances.sum()


def gaussian_rates(mu: float, thresholds: int = 400) -> tuple[Vector, Vector]:
    """(p, q) of the tests N(mu, 1) > t against N(0, 1) > t, at thresholds from one end to the other."""
    t = np.linspace(-6, mu + 6, thresholds)
    return ndtr(mu - t), ndtr(-t)


def laplace_rates(epsilon: float, answers: int) -> tuple[Vector, Vector]:
    """(p, q) of the same tests of `laplace_ratios`: P(l >= t), and that of the other data set, P(l <= -t)."""
    _, chances = laplace_ratios(epsilon, answers)
    return np.cumsum(chances[::-1])[::-1], np.cumsum(chances)[::-1]


def highest(chance: ArrayLike, games: float, doubt: float) -> Vector:
    """More hits than this have a chance of at most `doubt`."""
    from scipy.stats import binom

    most: Vector = binom.ppf(1 - doubt, games, chance)
    return most


# --- one run with many canaries ---


def one_run_chance(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """The chance of at least so many right ones among `guesses` is at most this, if the run is (epsilon,
    delta)-private.

    Each of `canaries` is in or out by a fair coin, and the number of guesses is fixed beforehand (Steinke, Nasr,
    Jagielski, theorem 5.2): P(B >= v) + 2 m delta max_i P(v > B >= v - i)/i with B binomial of p = e^epsilon/(1 +
    e^epsilon). The binomial's weights are summed from logarithms, so that none underflows into an optimistic zero.
    Raises ValueError unless right <= guesses <= canaries.
    """
    m, r, v = canaries, guesses, right
    if not 0 <= v <= r <= m:
        raise ValueError(f"found {v} of {r} guesses about {m} canaries")
    if v == 0:
        return 1.0
    p = 1 / (1 + exp(-epsilon))
    beta = float(bdtrc(v - 1, r, p))
    if delta == 0:
        return beta
    k = np.arange(v - 1, -1, -1.0)
    weights = np.exp(gammaln(r + 1) - gammaln(k + 1) - gammaln(r - k + 1) + k * log(p) + (r - k) * log(1 - p))
    alpha = float(np.max(np.cumsum(weights) / np.arange(1, v + 1)))
    return min(1.0, beta + 2 * m * delta * alpha)


def one_run_epsilon(canaries: int, guesses: int, right: int, delta: float, doubt: float) -> float:
    """Epsilon at delta is at least this, but for `doubt`: where the chance of `one_run_chance` passes it."""
    if one_run_chance(canaries, guesses, right, 0.0, delta) >= doubt:
        return 0.0
    low, high = 0.0, 1.0
    while high < 64 and one_run_chance(canaries, guesses, right, high, delta) < doubt:
        low, high = high, 2 * high
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if one_run_chance(canaries, guesses, right, middle, delta) < doubt else (low, middle)
    return low


def one_run_refutes(canaries: int, guesses: int, right: int, mu: float, doubt: float) -> bool:
    """Whether so many right guesses have a chance below `doubt` under mu-GDP (Mahloujifar, Melis, Chaudhuri, algorithm
    3).

    With c right of c' guesses about m canaries, G(a) = Phi(Phi^-1(a) + mu) the largest chance of an event that has a
    under a neighbouring run: start at r = doubt c/m, h = doubt (c' - c)/m, go down i = c - 1, ..., 0 by h_i =
    max(h_{i+1}, G^-1(r_{i+1})), r_i = r_{i+1} + i/(c' - i) (h_i - h_{i+1}); refuted where r + h at 0 reaches c'/m.
    """
    m, c_all, c = canaries, guesses, right
    r, h = doubt * c / m, doubt * (c_all - c) / m
    for i in range(c - 1, -1, -1):
        below = float(ndtr(ndtri(min(r, 1.0)) - mu)) if r > 0 else 0.0
        new = max(h, below)
        r, h = r + i / (c_all - i) * (new - h), new
        if r + h >= c_all / m:
            return True
    return r + h >= c_all / m


def one_run_mu(canaries: int, guesses: int, right: int, doubt: float) -> float:
    """mu is at least this, but for `doubt`, by `one_run_refutes`."""
    if not one_run_refutes(canaries, guesses, right, 1e-6, doubt):
        return 0.0
    low, high = 0.0, 16.0
    for _ in range(24):
        middle = (low + high) / 2
        low, high = (middle, high) if one_run_refutes(canaries, guesses, right, middle, doubt) else (low, middle)
    return low
