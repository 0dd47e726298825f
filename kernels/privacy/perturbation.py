"""Objective and output perturbation: a private x~ near argmin_x F(x) = f_i(x) + <v, x> + q/2 |x|^2, and what it costs.

K. Chaudhuri, C. Monteleoni, A. Sarwate, Differentially private empirical risk minimization, JMLR 12 (2011); X. Zhang,
M. Khalili, M. Liu, Recycled ADMM, Algorithm 3. In their letters f_i = C/B sum_n L(b_n a_n.x) + l2/2 |x|^2, |L'| <= 1,
0 <= L'' <= c1, rows |a_n|_2 <= R <= 1, B of them; one is replaced. F is mu-convex, mu = l2 + q of that very call.

Objective: x~ = x^ + xi, |F'(x^) + eps|_2 <= tau, eps of density proportional to exp(-alpha |eps|_2), xi exact discrete
Laplace of scale g t on the grid g. It costs

    epsilon = 2 C R alpha/B + ln(1 + C c1 R^2/(B mu)) + (2 sqrt(d) tau/mu + g d)/(g t).

Let x* be the exact minimiser of F + <eps, .>: eps = -F'(x*) moves by at most 2 C R/B, the first term; |dx*/deps| =
1/det F''(x*), and det(H + s aa') <= det(H)(1 + s |a|^2/mu), det(H + s aa') >= det H for the H of the rows that stay,
the second (at least 2.8 times below the paper's, whose condition on 2 c1 it does not need). Both data sets' x^ lie
within tau/mu of the same x*, so 2 tau/mu apart in L2, the third: x~ given x* is a Laplace mechanism. An inexact x^
without xi is no answer: it tells the data set (Finding 5.2). Split: 2^-10 of epsilon for xi, the rest for alpha.

Output: x~ = x^ + xi, |F'(x^)|_2 <= tau: two x^ are (2 C R/B + 2 tau)/mu apart in L2 (docs/papers/mechanisms.md has the
proof). Under Gaussian noise this is the gate's private minimiser.

tau is public: 4 times a bound of the rounding of F' and of eps wherever x* can be, and at least what makes the grid
hold it. eps is float: |M|_2 N/alpha with M, N of d + 1 and d standard normals, for chi^2_{d+1} is the mixture of
variances that makes N spherically exponential. Each normal is the inverse of 191 uniform bits, whose error is counted
in the residual; bits that begin with 128 zeros, and |M|, |N| as rare, are left to `tail`: a delta of (2 d + 3) 2^-128
an answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, lgamma, log, log1p, pi, sqrt

import numpy as np

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.privacy.noise import Kind, Lattice
from hushgrid.kernels.problems.losses import CURVATURE, Public, U
from hushgrid.kernels.randomness import Entropy
from hushgrid.kernels.types import Matrix, Vector

SHARE = 2.0**-10  #: of epsilon, for the inexact solve
ROOM = 4.0  #: tau over the rounding that bounds what a solver can reach
SLACK = 1 + 2.0**-40  #: more than the rounding of the few operations on public numbers here
BYTES = 24  #: of one normal deviate
TAIL = 2.0**-128


@dataclass(frozen=True)
class Perturbation:
    """One answer: all of it public but the noise itself."""

    change: float  #: 2 C R k/B >= |F'(x) - F'(x) of the other data set|_2
    mu: float
    tau: float  #: the residual that must be certified, the rounding of eps included
    lattice: Lattice  #: of xi
    alpha: float = 0.0  #: of eps; 0: none (output perturbation)

    def expected_l1(self, d: int) -> float:
        """Expected sum of |noise|: of eps, E|M|_2 d sqrt(2/pi)/alpha with E|M|_2 = sqrt 2 Gamma(d/2 + 1)/Gamma((d +
        1)/2).
        """
        if not self.alpha:
            return d * self.lattice.expected_l1
        return 2 * d * exp(lgamma(d / 2 + 1) - lgamma((d + 1) / 2)) / (sqrt(pi) * self.alpha)


def objective(loss: Public, epsilon: float, linear: Vector, quadratic: float, records: int = 1) -> Perturbation:
    """The least noise of which one answer costs at most `epsilon`, pure.

    Raises InputError with the reason where there is none.

    `records`: k are replaced. The first two terms are those of k steps, one record each, and count k times; the third
    compares two certified solutions of one and the same problem, and counts once.
    """
    mu, R, change = _public(loss, quadratic, records)
    o, d = loss.objective, loss.size
    if o.kind != "logistic":
        reason = (
            "two labels' gradients differ without bound"
            if o.kind == "least-squares"
            else "a record's Hessian has rank C - 1"
        )
        raise InputError(f"private minimiser: found {o.kind}, expected logistic ({reason})")
    curvature = records * log1p(o.scale * CURVATURE[o.kind] * R**2 * SLACK / (loss.rows * mu)) * SLACK
    remaining = epsilon * (1 - SHARE) - curvature
    if not remaining > 0:
        raise InputError(
            f"private minimiser: found epsilon {epsilon:.3g} an answer, expected more than {'k ' * (records > 1)}ln(1 "
            f"+ C c1/(B mu)) = {curvature:.3g}: fewer answers, or a larger eta"
        )
    alpha = remaining / (change * SLACK)
    M, N = _largest(d + 1), _largest(d)
    tau = _tau(loss, mu, quadratic, float(np.linalg.norm(linear)), M * N / alpha, _rounded(M, N, d) / alpha)
    return Perturbation(change, mu, tau, Lattice.laplace(epsilon * SHARE, 2 * sqrt(d) * tau / mu * SLACK, d), alpha)


def output(
    loss: Public, kind: Kind, per_answer: float, linear: Vector, quadratic: float, records: int = 1
) -> Perturbation:
    """The same, `per_answer` epsilon (laplace) or mu of GDP (gaussian). Raises InputError with the reason.

    F' of the other data set differs by k times as much at every point, so its minimiser by k times as much.
    """
    mu, _, change = _public(loss, quadratic, records)
    if loss.objective.kind == "least-squares":
        raise InputError("private minimiser: found least-squares, expected logistic or softmax (|L'| must be bounded)")
    tau = _tau(loss, mu, quadratic, float(np.linalg.norm(linear)), 0.0, 0.0)
    distance = (change + 2 * tau) / mu * SLACK
    if kind == "laplace":
        lattice = Lattice.laplace(per_answer, sqrt(loss.size) * distance * SLACK, loss.size)
    else:
        lattice = Lattice.gaussian(per_answer, distance, loss.size)
    return Perturbation(change, mu, tau, lattice)


def spherical(d: int, alpha: float, entropy: Entropy) -> tuple[Vector, float]:
    """eps (d,) of density proportional to exp(-alpha |eps|_2), and a bound of its rounding in L2."""
    M, N = np.linalg.norm(_normals(d + 1, entropy)), _normals(d, entropy)
    return M * N / alpha, _rounded(float(M), float(np.linalg.norm(N)), d) / alpha


def sphericals(number: int, d: int, alpha: float, entropy: Entropy) -> Matrix:
    """`number` of them (number, d), of the same bytes as so many calls of `spherical`."""
    normals = _normals(number * (2 * d + 1), entropy).reshape(number, 2 * d + 1)
    M = np.linalg.norm(normals[:, : d + 1], axis=1)
    vectors: Matrix = M[:, None] * normals[:, d + 1 :] / alpha
    return vectors


def tail(d: int, answers: int) -> float:
    """delta of this many answers: the chance that a deviate is not as near to its ideal as `spherical` says."""
    return answers * (2 * d + 3) * TAIL


# --- inside ---


def _public(loss: Public, quadratic: float, records: int) -> tuple[float, float, float]:
    """mu, R and 2 C R k/B (softmax: |L'| <= sqrt 2), k <= B. Raises InputError unless all are promised."""
    o = loss.objective
    if o.lam:
        raise InputError(f"private minimiser: found a nonconvex term, lambda = {o.lam:g}, expected none")
    if loss.row_bound is None or loss.row_bound > 1:
        raise InputError(
            f"private minimiser: found row_bound {loss.row_bound}, expected R <= 1, R >= |a|_2 of every row"
        )
    mu = quadratic + o.l2
    if not 0 < mu < np.inf:
        raise InputError(f"private minimiser: found mu = rho + l2 = {mu:g}, expected a finite number > 0")
    R = loss.row_bound * (1 + (2 * loss.features + 16) * U)  # a norm is known to its own rounding
    k = min(records, loss.rows)
    return mu, R, 2 * o.scale * (sqrt(2) if o.kind == "softmax" else 1.0) * R * k / loss.rows * SLACK


def _tau(loss: Public, mu: float, quadratic: float, linear: float, eps: float, rounded: float) -> float:
    """ROOM times the rounding of F' (as in losses' bounds, to first order in U) where |v| = `linear`, |eps| <= `eps`,
    |x| <= X.

    |x*| <= |F'(0) + eps|/mu, for F is mu-convex. The last term lets |x*| be held in 2^51 steps of xi's grid.
    """
    o, R, m, q = loss.objective, loss.row_bound, loss.rows, loss.features
    assert R is not None
    slope = sqrt(2) if o.kind == "softmax" else 1.0
    V = linear + eps
    X = (o.scale * slope * R + V) / mu
    units = CURVATURE[o.kind] * (q + 4) * R * X + (loss.classes + 16) * (slope + 1) + (m + 20) * slope
    rounding = U * (o.scale * R * units + 12 * ((o.l2 + quadratic) * X + V))
    return float((ROOM * (rounding + rounded) + 2.0**-40 * mu * sqrt(loss.size) * X) * (1 + 2.0**-10))


def _largest(k: int) -> float:
    """The norm that k standard normals pass with a chance of 2^-128 (B. Laurent, P. Massart, 2000, lemma 1)."""
    x = -log(TAIL)
    return sqrt(k + 2 * sqrt(k * x) + 2 * x) * SLACK


def _normals(k: int, entropy: Entropy) -> Vector:
    """k standard normals: the sign, and -Phi^-1(u/2) at the middle u of [m, m + 1)/2^191.

    As in `noise`: 1/m, 2^-50 and 2^-47 relative bound how far that is from the normal of the uniform in between; below
    2^-47 (|x| + 1) for m >= 2^63.
    """
    from statistics import NormalDist

    inverse, bits = NormalDist().inv_cdf, entropy(BYTES * k)
    integers = [int.from_bytes(bits[j : j + BYTES], "little") for j in range(0, BYTES * k, BYTES)]
    x = np.array([-inverse((w | 1) / 2 ** (8 * BYTES + 1)) for w in integers])
    return np.where(np.array([w & 1 for w in integers]) == 1, -x, x)


def _rounded(M: float, N: float, d: int) -> float:
    """How far |M| N is from its ideal: both deviate by 2^-47 (norm + root of the number), the product by (d + 8) U."""
    return (2.0**-45 + (d + 8) * U) * (M + sqrt(d + 1)) * (N + sqrt(d))
