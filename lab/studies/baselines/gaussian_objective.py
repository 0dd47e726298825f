"""Gaussian objective perturbation of a private minimiser of logistic regression: a rival in a study, not at the gate.

x* = argmin F(x) + <b, x>, b ~ N(0, sigma^2 I), F = C/B sum_j log(1 + exp(-b_j a_j.x)) + <v, x> + q/2 |x|^2 + l2/2 |x|^2,
|a_j| <= R <= 1, mu = q + l2, one of B records replaced; nu = 2 (C/B) R/sigma, eta = ln(1 + C R^2/(4 B mu)). Then x* is
nu'-GDP (`gdp_of`), whatever v and q are, and P(S) <= e^eps Q(S) + h(eps) (`profile`). The proof in short: a record moves
b by at most 2 (C/B) R along a parallelogram of two steps of half that length, and the determinant of the Hessian by at
most e^eta; D. Kifer, A. Smith, A. Thakurta, Private convex empirical risk minimization (2012), treat another adjacency.
The noise is in floating point and the solver's error is not covered: nothing is promised here.
"""

from __future__ import annotations

from functools import lru_cache
from math import erfc, exp, log1p, sqrt
from statistics import NormalDist

import numpy as np

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.problems.losses import CURVATURE, Loss
from hushgrid.kernels.problems.minimizer import Minimizer
from hushgrid.kernels.types import Vector
from hushgrid.node.privacy.noise_source import NoiseSource

NORMAL = NormalDist()


def Phi(x: float) -> float:
    """The normal distribution function."""
    return erfc(-x / sqrt(2)) / 2


def delta(mu: float, epsilon: float) -> float:
    """delta of mu-GDP at epsilon."""
    return Phi(mu / 2 - epsilon / mu) - exp(epsilon) * Phi(-mu / 2 - epsilon / mu)


def step(y: float, nu: float) -> float:
    """K(y): the power of the best test at level y after one of the two half steps."""
    if y <= Phi(-nu / 4):
        return Phi(NORMAL.inv_cdf(y) + nu / 2)
    return 2 * Phi(nu / 4) - 1 + y


def power(y: float, nu: float) -> float:
    """E(y), after both."""
    return step(step(y, nu), nu) if y <= Phi(-nu / 4) else 2 * (2 * Phi(nu / 4) - 1) + y


def gdp_of(nu: float, eta: float) -> float:
    """nu': x* is nu'-GDP. nu, eta >= 0."""
    low, high = 0.0, 0.5
    while low < (a := (low + high) / 2) < high:
        y = exp(eta) * a
        low, high = (a, high) if y < 1 and power(y, nu) < 1 - a else (low, a)
    return -2 * NORMAL.inv_cdf(low)


def closed(nu: float, eta: float) -> float:
    """A bound of nu' in closed form, a little above."""
    return -2 * NORMAL.inv_cdf((3 - 4 * Phi(nu / 4)) / (1 + exp(eta)))


def profile(epsilon: float, nu: float, eta: float) -> float:
    """h: x* is (epsilon, h)-differentially private; epsilon >= eta."""
    if epsilon - eta >= nu**2 / 4:
        return delta(nu, epsilon - eta)
    return 2 * Phi(nu / 4) - 1 + delta(nu / 2, epsilon - eta)


@lru_cache(maxsize=256)  # a run asks the same of every answer
def nu_of(mu_answer: float, eta: float) -> float:
    """The nu of which x* is mu_answer-GDP, rounded down; InputError where the curvature alone costs more."""
    if gdp_of(0.0, eta) >= mu_answer:
        raise InputError(
            f"private minimiser: found mu {mu_answer:.3g} an answer, expected more than {gdp_of(0.0, eta):.3g}: fewer "
            "answers, or a larger eta"
        )
    low, high = 0.0, mu_answer
    while high - low > 1e-15 * high and low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if gdp_of(middle, eta) <= mu_answer else (low, middle)
    return low


class Perturbed:
    """The oracle of one node: minimisers of its loss with Gaussian noise in the objective, `mu_answer`-GDP each."""

    def __init__(self, loss: Loss, mu_answer: float, noise: NoiseSource) -> None:
        self.loss, self.mu_answer, self.noise, self.answers = loss, mu_answer, noise, 0
        self.minimize = Minimizer(loss)

    def minimizer(self, linear: Vector, quadratic: float) -> Vector:
        o, R = self.loss.objective, self.loss.R
        change = o.scale * R / self.loss.rows
        eta = log1p(CURVATURE["logistic"] * change * R / (quadratic + o.l2))
        sigma = 2 * change / nu_of(self.mu_answer, eta)
        self.answers += 1
        b = self.noise.generator("answer", self.answers).normal(0.0, sigma, self.loss.size)
        x: Vector = self.minimize(linear + b, quadratic).x
        return np.array(x)
