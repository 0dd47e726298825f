"""The game of an adversary that knows both of two neighbouring data sets and sees answers of one: what it proves about
mu.
"""

import numpy as np

from hushgrid.kernels.privacy import auditing

GAMES = 40  #: of guarded mechanisms, at most: together they accuse an honest gate with a chance of 1e-3
DOUBT = 1e-3 / GAMES


def proved(answers, values, doubt):
    """A lower bound of mu-GDP, but for a chance `doubt`.

    answers: two arrays (N, d), what a gate has answered about either data set. values: (d,) of either, without noise:
    the test is on which side of the middle between them an answer lies, which is chosen before anything is seen.
    """
    one, other = values
    middle, way = (one + other) / 2, one - other
    hits, false = (int(np.sum((np.round(a, 9) - middle) @ way > 0)) for a in answers)
    return float(auditing.mu_lower(hits, false, len(answers[0]), doubt))


def proved_pure(answers, values, doubt):
    """The same of epsilon, against Laplace noise of one scale in every coordinate: the test is whether an answer is
    nearer in L1 to the first value by nine tenths of their distance, where the likelihoods differ by nearly all that
    they may.
    """
    one, other = values
    apart = np.sum(np.abs(one - other))
    nearer = [np.sum(np.abs(a - other), axis=1) - np.sum(np.abs(a - one), axis=1) for a in map(np.asarray, answers)]
    hits, false = (int(np.sum(gain >= 0.9 * apart)) for gain in nearer)
    return float(auditing.epsilon_lower(hits, false, len(answers[0]), 0.0, doubt))
