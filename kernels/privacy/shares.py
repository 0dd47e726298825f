"""Noise shares: what each of several devices adds to its part of a sum, so that the sum as a whole is protected.

Device i of the honest set H, h = |H|, sends an integer r_i masked, so that nobody has it alone, plus n_i, the integer
nearest to N(0, t^2), independent. What is seen of H is S = sum_H (r_i + n_i), where the noise has the variance h t^2.

**Theorem** (rounded Gaussian shares). The law of S - sum r_i is that of round(N(0, h t^2) + U_1 + ... + U_{h-1}), U_j
uniform on [-1/2, 1/2], but for a factor within 1 +- rho at every point,

    1 + rho = prod_{j=2..h} (1 + 2 sum_{k>=1} e^{-2 pi^2 k^2 v_j}),   v_j = T_{j-1}^2 t_j^2/(T_{j-1}^2 + t_j^2),

T_j^2 = t_1^2 + ... + t_j^2 (equal t_i: v_j = t^2 (j-1)/j).

*Proof.* P(N in j +- 1/2) is exactly the density at j of N_1 + U_1. Suppose p_A(j) = f_A(j) (1 +- rho), f_A the density
of N(0, T^2) + U_1 + ... + U_k, and let G be the density of N(0, t^2) + U. Then P(A + n = l) = sum_j p_A(j) G(l - j),
and by Poisson's summation |sum_j F(j) - int F| <= sum_{k != 0} |F^(2 pi k)| for F(y) = f_A(y) G(l - y). F is a mixture,
over the uniforms, of products of two Gaussians of variances T^2 and t^2: each is a Gaussian in y of variance v = T^2
t^2/(T^2 + t^2), so |F^(2 pi k)| <= e^{-2 pi^2 k^2 v} int F. And int F is the density at l of N(0, T^2 + t^2) and k + 1
uniforms: induction. The density at l of X + U is P(round(X) = l).

The ideal law is post-processing of the Gaussian mechanism. So if one device's r_i moves by at most D in L2, one sum is
mu-GDP with mu = D/(t sqrt h), but for a factor e^{+-rho} on each coordinate's density: with t >= LEAST it is below
e^{-10000}, less than what one rounding of t upwards adds. It composes, and is counted, as any Gaussian answer. With
only h' < h honest devices a sum is mu sqrt(h/h')-GDP; a device alone against all others has mu sqrt h. A device whose
owner believes in h' of them counts its shares so (`Share.relying_on`): whatever h a plan was written with, the budget
holds under what the owner believes.

The discrete Gaussian's sum of shares is no discrete Gaussian (P. Kairouz, Z. Liu, T. Steinke, The Distributed Discrete
Gaussian Mechanism, ICML 2021), and is zCDP, not GDP. Masking is that of K. Bonawitz et al., Practical Secure
Aggregation (CCS 2017), without its recovery of lost masks: docs/masked.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from math import exp, expm1, log1p, nextafter, pi, sqrt
from typing import NamedTuple

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.privacy.noise import LARGEST_T, Lattice, root_up, up

LEAST = 32.0  #: standard deviations of a share, in grid steps, from which rho is nothing: e^{-10105}


class Share(NamedTuple):
    """What one device adds, and what it is worth. All of it follows from public numbers."""

    lattice: Lattice  #: the common grid g and noise t, and this device's own sensitivity on it, D_i g
    honest: int  #: h
    site: int = (
        0  #: h_s of them, in the device's own site, whose coordinator sees the site's sum; 0: there are no sites
    )

    def relying_on(self, honest: int | None, site: int | None = None) -> Share:
        """The same as somebody counts it who believes in so many honest devices at most [as many as are stated].

        site: in the device's own site.
        """
        fewer = self if honest is None or honest >= self.honest else self._replace(honest=honest)
        return fewer if site is None or site >= fewer.site else fewer._replace(site=site)

    @property
    def mu(self) -> float:
        """GDP of one sum of h shares about this device, rounded up."""
        return _mu(self.lattice, self.honest)

    @property
    def of_site(self) -> float:
        """GDP of one sum of its site's h_s shares about this device, rounded up: sqrt(h/h_s) times as much."""
        return self._replace(honest=self.site).mu

    @property
    def alone(self) -> float:
        """GDP of this device's share against all others together, rounded up: sqrt h times as much."""
        return self.lattice.mu


def excess(scales: Sequence[float]) -> float:
    """rho of the theorem, for shares of these standard deviations t_i, in grid steps."""
    total, T2 = 0.0, scales[0] ** 2
    for t in scales[1:]:
        v = T2 * t**2 / (T2 + t**2)
        total += log1p(2 * sum(exp(-2 * pi**2 * k**2 * v) for k in range(1, 40)))
        T2 += t**2
    return expm1(total)


def shares(mu: float, sensitivities: Sequence[float], moved: int, honest: int, g: float | None = None) -> list[Share]:
    """The share of each device of which one sum of `honest` is mu-GDP, or better, about each.

    sensitivities: Delta_i in L2, of the value as the device computes it. moved: d, coordinates that one record can
    move. All have one grid g [the finest that one of them would have by itself]. Raises InputError if no grid holds the
    noise.
    """
    return [*_shares(mu, tuple(sensitivities), moved, honest, g)]


@lru_cache(maxsize=4)  # each of n nodes of one process asks for the shares of all, several times
def _shares(mu: float, sensitivities: tuple[float, ...], moved: int, honest: int, g: float | None) -> tuple[Share, ...]:
    if honest < 1:
        raise InputError(f"masked: found {honest} honest devices, expected at least 1")
    g = g or min(Lattice.gaussian(mu, s, moved).g for s in {*sensitivities})
    root = Fraction(root_up(moved))  # how far the rounding of d coordinates carries
    moves = [up(Fraction(s) + Fraction(g) * root) for s in sensitivities]  # D_i g
    t = up(Fraction(max(moves)) / Fraction(g) / Fraction(mu) / _root_down(honest))
    if not LEAST <= t <= LARGEST_T:
        raise InputError(f"masked: found a share of {t:.3g} grid steps of noise, expected 32 to 2^44")
    return tuple(Share(Lattice("gaussian", g, t, move), honest) for move in moves)


@lru_cache(maxsize=256)  # asked at each answer; of many devices it is the same
def _mu(lattice: Lattice, honest: int) -> float:
    steps = Fraction(lattice.sensitivity) / Fraction(lattice.g)
    return up(steps / Fraction(lattice.t) / _root_down(honest))


def _root_down(n: int) -> Fraction:
    root = sqrt(n)
    return Fraction(root if Fraction(root) ** 2 <= n else nextafter(root, 0.0))
