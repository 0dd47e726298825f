"""T. Murata, T. Suzuki, DIFF2: differential private optimization via gradient differences for nonconvex distributed
learning (2023): DIFF2 with full gradients, a rival in the DPP2 paper (its reference [21]). In simulation only: a
device's gate answers no question about two points at once.

Reconstructed from its abstract: a server steps along an estimate v of the gradient, which gradient differences keep up
to date. A difference moves with the distance of its two points, and so does its noise. Problem: min_x sum_i f_i(x),
f_i a mean over m records. Every `restart` rounds, otherwise:

    v = mean_i ( mean_j clip_C(l_j'(x)) + N(0, s_1^2) ),
    v += mean_i ( mean_j clip_{S |x - x-|}(l_j'(x) - l_j'(x-)) + N(0, s_2^2 |x - x-|^2) ),

then x+ = x - step (v + p'(x)), p public. x is public, so one record replaced moves an answer by 2 C/m, or by
2 S |x - x-|/m; each has the same share of the total, mu/sqrt(rounds) in Gaussian differential privacy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from hushgrid.kernels.problems.losses import Loss
from hushgrid.kernels.ranges import Count, Magnitude, Step
from hushgrid.kernels.types import Matrix, Vector


class Params(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The method's symbols."""

    rounds: Count  #: answers of each node
    step: Step
    clip: Magnitude  #: C, of a record's gradient
    smooth: Magnitude  #: S, of a record's difference of gradients, over the distance of the two points
    mu: Magnitude  #: of all answers
    restart: Count = 20  #: rounds from one gradient to the next


def clipped_mean(rows: Matrix, bound: float) -> Vector:
    """The mean of rows (m, d), each clipped to norm `bound`."""
    long = np.maximum(np.linalg.norm(rows, axis=1), bound) if bound else np.ones(len(rows))
    mean: Vector = (rows * (bound / long)[:, None]).mean(axis=0)
    return mean


def run(params: Params, fs: Sequence[Loss], generator: np.random.Generator) -> Iterator[Vector]:
    """x after each round, from 0. fs: logistic losses, or least squares."""
    x = before = v = np.zeros(fs[0].size)
    for t in range(params.rounds):
        fresh = t % params.restart == 0
        bound = params.clip if fresh else params.smooth * float(np.linalg.norm(x - before))
        answers = []
        for f in fs:
            slopes = f.slope(x) if fresh else f.slope(x) - f.slope(before)
            sd = 2 * bound / f.rows * params.rounds**0.5 / params.mu
            answers.append(clipped_mean(slopes[:, None] * f.A, bound) + sd * generator.normal(size=x.size))
        v = np.mean(answers, axis=0) + (0.0 if fresh else v)
        before, x = x, x - params.step * (v + fs[0].public_gradient(x))
        yield x
