"""Distinguishing games: an adversary knows both of two neighbouring data sets, sees all answers about one, and says
which.

N games about either data set choose the attack and its threshold, N others certify it: what is chosen is not what is
counted. Three attacks are tried, each by a number a game, which is rounded to 1e-9 before it meets a threshold:

 - likelihood: the sum of the answers' log-likelihood ratios, under the noise that the gate claims;
 - digits: how many coordinates are no sum of one value and any number (noise in floating point, I. Mironov, On
   significance of the least significant bits for differential privacy, 2012), less those of the other;
 - repeats: how many pairs of answers differ by exactly what the values differ by (the same noise twice), less the
   other's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

from hushgrid.kernels.privacy import auditing
from hushgrid.kernels.privacy.accounting import gdp_epsilon
from hushgrid.kernels.randomness import Entropy
from hushgrid.kernels.types import AnyArray, Matrix, Vector
from hushgrid.lab.audit.answers import Answer, Likely

DIGITS = 9  #: of a statistic
CHUNK = 1 << 20  #: coordinates that are drawn at once
WIDEST = 1 << 21  #: coordinates that the attacks on the noise itself look at, in all
THRESHOLDS = 256  #: that are tried
CAUTION = 20  #: a threshold is chosen by bounds of so much less doubt: few counts in a tail are best by chance
BETTER = 1.2  #: times as much must another way than the middle prove of Gaussian answers, to be chosen


class Bound(NamedTuple):
    """What games prove, but for the chance that was allowed."""

    epsilon: float  #: at the claim's delta
    mu: float | None  #: None unless the answers are Gaussian


@dataclass(frozen=True)
class Claim:
    """What is promised of all answers together."""

    epsilon: float
    delta: float
    gaussian: bool

    def of_mu(self, mu: float) -> Bound:
        epsilon = float(gdp_epsilon(mu, self.delta)) if mu > 1e-9 and self.delta else 0.0
        return Bound(epsilon, mu)


class Attack(NamedTuple):
    """How guesses are made, chosen on the first half of the games."""

    name: str
    threshold: float
    bound: str  #: which bound is taken of the counts: epsilon, mu or pooled


A = TypeVar("A", bound=Likely)
Statistics = Callable[[int, int], Vector]  #: (about, games) -> a number a game


# --- the statistics ---


def likelihood(answers: Sequence[Likely], entropy: Entropy) -> Statistics:
    """The sum of log-likelihood ratios."""

    def ratios(world: int, games: int) -> Vector:
        total = np.zeros(games)
        for answer, where, chunk, y in _drawn(answers, world, games, entropy):
            total[chunk] += answer.ratio(y, where)
        return np.round(total, DIGITS)

    return ratios


def digits(answers: Sequence[Answer], entropy: Entropy) -> Statistics:
    """Coordinates that are no sum of the second value and any number, less those that are none of the first."""

    def ratios(world: int, games: int) -> Vector:
        total = np.zeros(games)
        for answer, where, chunk, y in _drawn(answers, world, games, entropy):
            for sign, other in ((1, 1), (-1, 0)):
                total[chunk] += sign * impossible(y, answer.on_grid(other)[where]).sum(axis=1)
        return total

    return ratios


def impossible(y: Matrix, v: Vector) -> Matrix:
    """Where y is no floating-point sum v + x: far below |v| a sum has lost the digits beneath those of v."""
    spacing = np.spacing(np.abs(v) * (15 / 16)) * (v != 0)
    with np.errstate(invalid="ignore"):
        off = np.where(spacing > 0, np.remainder(y, np.where(spacing > 0, spacing, 1.0)), 0.0)
    seen: Matrix = (np.abs(y) < np.abs(v) / 16) & (off != 0)
    return seen


def repeats(answers: Sequence[Answer], entropy: Entropy) -> Statistics:
    """Pairs of neighbouring coordinates, and of the same coordinate in two answers, with equal noise under the first
    value.
    """

    def ratios(world: int, games: int) -> Vector:
        total, width = np.zeros(games), answers[0].values[0].size
        every = np.arange(width)
        for chunk in _chunks(games, width * len(answers)):
            size = chunk.stop - chunk.start
            y = np.stack([a.drawn(size, world, every, entropy) for a in answers], axis=1)  # (size, answers, width)
            for sign, k in ((1, 0), (-1, 1)):
                v = np.stack([a.on_grid(k) for a in answers])
                noise = y - v
                same = [noise[:, :, 1:] == noise[:, :, :-1], noise[:, 1:] == noise[:, :-1]]
                total[chunk] += sign * sum(np.sum(pair, axis=(1, 2)) for pair in same)
        return total

    return ratios


def _drawn(
    answers: Sequence[A], world: int, games: int, entropy: Entropy
) -> Iterator[tuple[A, AnyArray, slice, Matrix]]:
    """(answer, the coordinates in which its values differ, some games, what was answered there in each), until all
    are.
    """
    for answer in answers:
        where = answer.apart
        for chunk in _chunks(games, where.size):
            yield answer, where, chunk, answer.drawn(chunk.stop - chunk.start, world, where, entropy)


def _chunks(games: int, width: int) -> Iterator[slice]:
    step = max(1, CHUNK // max(width, 1))
    for start in range(0, games, step):
        yield slice(start, min(start + step, games))


# --- choosing and certifying ---


def bound_of(kind: str, hits: Vector, false: Vector, games: int, claim: Claim, doubt: float) -> Vector:
    """Epsilon (kind epsilon) or mu (mu, pooled) of counts."""
    if kind == "epsilon":
        return np.asarray(auditing.epsilon_lower(hits, false, games, claim.delta, doubt))
    bound = auditing.mu_lower if kind == "mu" else auditing.mu_lower_pooled
    return np.asarray(bound(hits, false, games, doubt))


def counts(first: Vector, other: Vector, thresholds: Vector) -> tuple[Vector, Vector]:
    """How many numbers about either data set reach each threshold."""

    def reached(v: Vector) -> Any:
        return v.size - np.searchsorted(np.sort(v), thresholds, "left")

    return reached(first), reached(other)


def chosen(name: str, first: Vector, other: Vector, claim: Claim, doubt: float) -> tuple[float, Attack]:
    """The threshold and the bound that prove most on these games: (epsilon, attack)."""
    pooled = np.concatenate([first, other])
    tails = np.concatenate([np.linspace(0, 1, THRESHOLDS), np.logspace(-4, -2, 32), 1 - np.logspace(-4, -2, 32)])
    thresholds = np.unique(np.concatenate([np.quantile(pooled, tails, method="higher"), [0.0]]))
    hits, false = counts(first, other, thresholds)
    best = (0.0, Attack(name, 0.0, "pooled" if claim.gaussian else "epsilon"))
    if claim.gaussian:  # the middle is best of a Gaussian answer: another way must be so by more than chance
        middle = float(bound_of("pooled", hits, false, first.size, claim, doubt)[np.searchsorted(thresholds, 0.0)])
        best = BETTER * claim.of_mu(middle).epsilon, best[1]
    for kind in ("epsilon", "mu", "pooled") if claim.gaussian else ("epsilon",):
        bounds = bound_of(kind, hits, false, first.size, claim, doubt)
        k = int(np.argmax(bounds))
        value = float(bounds[k]) if kind == "epsilon" else claim.of_mu(float(bounds[k])).epsilon
        if value > best[0]:
            best = value, Attack(name, float(thresholds[k]), kind)
    return best


def certified(attack: Attack, first: Vector, other: Vector, claim: Claim, doubt: float) -> Bound:
    """What other games prove by the attack that was chosen."""
    hits, false = counts(first, other, np.array([attack.threshold]))
    proved = float(bound_of(attack.bound, hits, false, first.size, claim, doubt)[0])
    if attack.bound == "epsilon":
        return Bound(proved, None)
    return claim.of_mu(proved)


class Played(NamedTuple):
    """The games of one pair of data sets."""

    attack: Attack
    bounds: dict[float, Bound]  #: by confidence
    counted: int  #: games about either data set that were counted


def play(
    answers: Sequence[Likely],
    aside: Sequence[Answer],
    claim: Claim,
    games: int,
    confidences: Sequence[float],
    entropy: Entropy = os.urandom,
) -> Played:
    """Plays and certifies. `aside`: answers for the attacks on the noise itself, at most two, to different questions;
    or none.
    """
    tried = {"likelihood": (likelihood(answers, entropy), games)}
    if aside:
        fewer = min(games, max(1000, WIDEST // (aside[0].values[0].size * len(aside))))
        tried |= {"digits": (digits(aside, entropy), fewer), "repeats": (repeats(aside, entropy), fewer)}
    doubt = (1 - confidences[0]) / CAUTION
    best: tuple[float, Attack] | None = None
    for name, (statistic, size) in tried.items():
        candidate = chosen(name, statistic(0, size), statistic(1, size), claim, doubt)
        if best is None or candidate[0] > best[0]:
            best = candidate
    assert best is not None
    attack = best[1]
    statistic, size = tried[attack.name]
    first, other = statistic(0, size), statistic(1, size)
    return Played(attack, {c: certified(attack, first, other, claim, 1 - c) for c in confidences}, size)


# --- what could have been shown ---


class Power(NamedTuple):
    """Epsilon that a perfect attack on exactly the claimed noise shows with so many games; never more than is
    claimed.
    """

    most: float  #: but for the chance that was allowed
    middle: float  #: at the counts to expect


def power(kind: str, per_answer: float, answers: int, claim: Claim, games: int, doubt: float) -> Power:
    """The largest bound of all thresholds, at the counts to expect, and at counts that are passed with a chance of
    `doubt`/2.
    """
    if kind == "gaussian":
        p, q = auditing.gaussian_rates(per_answer * answers**0.5)
    else:
        p, q = auditing.laplace_rates(per_answer, answers)
    p, q = np.clip(p, 0, 1), np.clip(q, 0, 1)
    hits = auditing.highest(p, games, doubt / 2)
    false = games - auditing.highest(1 - q, games, doubt / 2)
    powers = []
    for some, others in ((hits, false), (np.rint(p * games), np.rint(q * games))):
        best = 0.0
        for bound in ("epsilon", "mu", "pooled") if claim.gaussian else ("epsilon",):
            value = float(np.max(bound_of(bound, some, others, games, claim, doubt)))
            best = max(best, value if bound == "epsilon" else claim.of_mu(value).epsilon)
        powers.append(min(best, claim.epsilon))
    return Power(*powers)
