"""The game of an adversary that knows both of two neighbouring data sets and sees answers of one: what it proves about mu."""

from math import inf
from statistics import NormalDist

import numpy as np
from scipy.stats import beta

GAMES = 40  #: of guarded mechanisms, at most: together they accuse an honest gate with a chance of 1e-3
DOUBT = 1e-3 / GAMES


def proved(answers, values, doubt):
    """A lower bound of mu-GDP, but for a chance `doubt` (C. Clopper, E. Pearson, 1934).

    answers: two arrays (N, d), what a gate has answered about either data set. values: (d,) of either, without noise: the
    test is on which side of the middle between them an answer lies, which is chosen before anything is seen.
    """
    one, other = values
    middle, way = (one + other) / 2, one - other
    N = len(answers[0])
    hits, misses = (int(np.sum((np.round(a, 9) - middle) @ way > 0)) for a in answers)
    power = beta.ppf(doubt / 2, hits, N - hits + 1) if hits else 0.0
    level = beta.ppf(1 - doubt / 2, misses + 1, N - misses) if misses < N else 1.0
    if not 0 < power < 1 or not 0 < level < 1:
        return -inf
    return NormalDist().inv_cdf(float(power)) - NormalDist().inv_cdf(float(level))


def proved_pure(answers, values, doubt):
    """The same of epsilon, against Laplace noise of one scale in every coordinate: the test is whether an answer is nearer in L1
    to the first value by nine tenths of their distance, where the likelihoods differ by nearly all that they may."""
    one, other = values
    N, apart = len(answers[0]), np.sum(np.abs(one - other))
    nearer = [np.sum(np.abs(a - other), axis=1) - np.sum(np.abs(a - one), axis=1) for a in map(np.asarray, answers)]
    hits, misses = (int(np.sum(gain >= 0.9 * apart)) for gain in nearer)
    power = beta.ppf(doubt / 2, hits, N - hits + 1) if hits else 0.0
    level = beta.ppf(1 - doubt / 2, misses + 1, N - misses) if misses < N else 1.0
    return float(np.log(power / level)) if power > 0 else -inf
