"""Exact noise on an integer grid: what a gate adds to an answer, safe against the floating-point leak.

A release is g (round(v/g) + n), g a power of two, n an integer drawn **exactly** from one of two laws:
 - Laplace: P(n) proportional to exp(-|n|/t), t an integer (Canonne, Kamath, Steinke, The Discrete Gaussian for
   Differential Privacy, 2020). Rounding sets each moved coordinate at most one step further apart, so two adjacent
   values lie at most (Delta + g moved)/g steps apart in L1: pure epsilon = (Delta + g moved)/(g t).
 - Gaussian: n is the integer nearest to N(0, t^2), t = s/g. round(v/g) + n is then the nearest integer to
   round(v/g) + N(0, t^2), post-processing of the continuous mechanism of L2 sensitivity Delta + g sqrt(moved): exactly
   mu-GDP and mu^2/2-zCDP with mu = (Delta + g sqrt(moved))/(g t). (The discrete Gaussian is zCDP but not mu-GDP.)

Sampling. One 64-bit word a coordinate: a sign, and the 63 leading bits m of a uniform real U, which therefore lies in
[m, m + 1)/2^63. The magnitude k is defined by tail(k + 1) < U <= tail(k), where tail(k) is
 - Laplace: P(X >= k) = exp(-k/t), X = -t ln U; k = floor(X), a geometric variable, and drawing anew where the sign is
   minus and k = 0 leaves the two-sided law above (each k > 0 has twice, k = 0 once, its one-sided weight);
 - Gaussian: P(|N| >= k - 1/2) = erfc((k - 1/2)/(t sqrt 2)), |N| = -t Phi^-1(U/2); k = floor(|N| + 1/2).
So the law is exact once k is right, and k is *certain* or it is decided exactly. Let h(u) = -ln u or -Phi^-1(u/2), and
x = t h(u) + c (c = 0 or 1/2) as computed at the middle u of U's interval. Then |x - (t h(U) + c)| is at most the sum of
 - |h(U) - h(u)|: |dh/d ln u| is 1 (Laplace) or Mills' ratio, at most sqrt(pi/2) < 1.26 (Gaussian), and
   |ln U - ln u| <= 1/(2m): below 1/m. Where m = 0 that is infinite, and the coordinate is never certain;
 - the rounding of u, at most 2^-52 relative, times the same 1.26: below 2^-50;
 - relative errors of log (4 units in the last place at most, 2^-50) and of inv_cdf (Wichura, AS 241, 1988: 1e-16 and
   the roundings of its dozen operations), then of two more operations: below 2^-47 with room to spare.
These are MARGIN. Where the interval x +- margin holds no integer, k = floor(x). Elsewhere (about
t 2^-47 of all coordinates) U is compared with tail(k) in decimal arithmetic, whose exp is correctly rounded, and 64
more bits of U are drawn for as long as its interval still holds tail(k). The bits in are therefore all that the output
depends on: the same on every processor, with every library.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.randomness import Entropy
from hushgrid.kernels.types import Index, Vector

if TYPE_CHECKING:
    from decimal import Decimal

Kind = Literal["laplace", "gaussian"]

EXACT = 2**52  #: integers up to here, and their sums, are exact in float64
_SMALL2 = float(EXACT // 4) ** 2  #: numbers whose squares sum to less are far from EXACT, however the sum was rounded
LARGEST_T = 2**44  #: 64 t stays below EXACT / 4. Past 2^40 many coordinates are decided the slow way
MARGIN = (2.0**-50, 2.0**-47)  #: of h(u) absolute, of x relative
CHUNK = 2**15  #: coordinates drawn at once: 256 kB of words stay in the cache
BLOCK = 2**12  #: of them, of which a guess is made at once: its dozen arrays stay there too
FEW = 200  #: below so many a guess is made a coordinate at a time
FAR = 2**62  #: magnitudes are cut here; `release` refuses the sum all the same


@dataclass(frozen=True)
class Lattice:
    """One noisy release on an integer grid. Build it by `laplace` or `gaussian`, which keep the promise asked for."""

    kind: Kind
    g: float  #: grid step, a power of two, in the unit of the value released
    t: float  #: laplace: the integer scale in grid steps; gaussian: standard deviation s/g
    sensitivity: float  #: of round(v/g) g: Delta + g moved in L1 (laplace), Delta + g sqrt(moved) in L2 (gaussian)

    def __post_init__(self) -> None:
        integer = self.kind == "gaussian" or self.t == math.floor(self.t)
        if math.frexp(self.g)[0] != 0.5 or not integer or not 1 <= self.t <= LARGEST_T:
            raise ValueError(f"found {self}, expected g a power of two, t from 1 to 2^44, an integer for laplace")

    @classmethod
    def laplace(cls, epsilon: float, sensitivity: float, moved: int) -> Lattice:
        """The largest grid that costs little, and the least noise on it, for pure `epsilon`.

        `sensitivity`: L1, of the unrounded value as the machine computes it; `moved`: how many coordinates one record
        can move. Raises InputError if a number is not positive and finite, or the noise passes 2^44 grid steps.
        """
        moved = _checked("epsilon", epsilon, sensitivity, moved)
        g, total = _grid(epsilon, sensitivity, moved, moved)
        t = math.ceil(Fraction(total) / Fraction(g) / Fraction(epsilon))
        return cls("laplace", g, _in_range("epsilon", epsilon, t, moved), total)

    @classmethod
    def gaussian(cls, mu: float, sensitivity: float, moved: int) -> Lattice:
        """The same for `mu`-GDP (so rho = mu^2/2 zCDP); `sensitivity` in L2."""
        moved = _checked("mu", mu, sensitivity, moved)
        g, total = _grid(mu, sensitivity, moved, root_up(moved))
        t = up(Fraction(total) / Fraction(g) / Fraction(mu))
        return cls("gaussian", g, _in_range("mu", mu, t, moved), total)

    @cached_property
    def epsilon(self) -> float:
        """Pure epsilon of one release (laplace), from the integers, rounded up; never above the one asked for."""
        return self._ratio("laplace")

    @cached_property
    def mu(self) -> float:
        """GDP parameter of one release (gaussian), rounded up; never above the one asked for."""
        return self._ratio("gaussian")

    @property
    def scale(self) -> float:
        """g t, in the unit of the value: Laplace's scale or the Gaussian's standard deviation."""
        return self.g * self.t

    @property
    def expected_l1(self) -> float:
        """E|g n| of one coordinate: g/sinh(1/t) for Laplace; g sqrt(2/pi) (t - 1/(24 t)) + O(t^-3) for the Gaussian."""
        if self.kind == "laplace":
            return self.g / math.sinh(1 / self.t)
        return self.g * math.sqrt(2 / math.pi) * (self.t - 1 / (24 * self.t))

    def sample(self, size: int, entropy: Entropy = os.urandom) -> Index:
        """`size` independent integers n. `entropy(k)` gives k uniform bytes; eight a coordinate, seldom more."""
        n = np.empty(size, dtype=np.int64)
        for start in range(0, size, CHUNK):
            part = n[start : start + CHUNK]
            part[:], again = self._draw(part.size, entropy)
            while again.size:
                part[again], rejected = self._draw(again.size, entropy)
                again = again[rejected]
        return n

    def release(self, v: Vector, n: Index) -> Vector:
        """g (round(v/g) + n), every step exact. v: float64 values; n: as many integers from `sample`.

        Raises InputError if v is not finite, or v/g or the sum passes 2^52 and could not be represented.
        """
        if v.shape != n.shape:
            raise ValueError(f"shapes differ: v {v.shape}, n {n.shape}")
        with np.errstate(over="ignore", invalid="ignore"):
            noise = n.astype(np.float64)
            total = v / self.g
            np.rint(total, out=total)
            total += noise
            # As nearly always, and then |steps| < EXACT too. What is told apart here, in time, is told by the sum
            # alone.
            if v.ndim == 1 and total.dot(total) <= _SMALL2 and noise.dot(noise) <= _SMALL2:
                total *= self.g
                return total
            steps = np.rint(v / self.g)
            exact = np.abs(steps) <= EXACT  # false for nan too
        if not exact.all():
            raise InputError(_beyond("value", exact, self.g))
        total_steps = steps.astype(np.int64) + n
        exact = np.abs(total_steps) <= EXACT
        if not exact.all():
            raise InputError(_beyond("noisy value", exact, self.g))
        return total_steps.astype(np.float64) * self.g

    def _ratio(self, kind: Kind) -> float:
        if self.kind != kind:
            raise TypeError(f"a {self.kind} lattice: laplace has epsilon, gaussian has mu")
        return up(Fraction(self.sensitivity) / Fraction(self.g) / Fraction(self.t))

    def _draw(self, size: int, entropy: Entropy) -> tuple[Index, NDArray[np.intp]]:
        """One try a coordinate, and the places where it must be repeated."""
        draws = np.frombuffer(entropy(8 * size), dtype="<u8", count=size)
        n, unsure = np.empty(size, dtype=np.int64), []
        for start in range(0, size, BLOCK):
            part = slice(start, start + BLOCK)
            n[part], doubtful = self._guess(draws[part])
            unsure += [start + i for i in doubtful]
        for i in unsure:
            uniform = _Uniform(int(draws[i]) >> 1, 63, entropy)
            n[i] = min(_decide(uniform, self._tail, int(n[i])), FAR)
        minus = (draws & np.uint64(1)).view(np.int64)
        again = np.flatnonzero((minus > 0) & (n == 0)) if self.kind == "laplace" else np.empty(0, dtype=np.intp)
        n ^= -minus  # with the next line: -n where the sign is minus
        n += minus
        return n, again

    def _guess(self, draws: NDArray[np.uint64]) -> tuple[Vector, list[int]]:
        """The magnitudes of a block of words, and the places of those that are not certain."""
        m = (draws >> np.uint64(1)).view(np.int64).astype(np.float64)  # rounded; decided exactly where it matters
        u = (m + 0.5) * 2.0**-63
        x = np.log(u) * -self.t if self.kind == "laplace" else quantiles(u) * self.t + 0.5
        with np.errstate(divide="ignore"):
            margin = self.t * (MARGIN[0] + 1 / m) + x * MARGIN[1]
        k = np.floor(x)
        certain = (x - margin >= k) & (x + margin < k + 1)
        return k, [] if certain.all() else np.flatnonzero(~certain).tolist()

    def _tail(self, k: int, digits: int) -> Decimal:
        """P(magnitude >= k) within 10^(8 - digits), k > 0."""
        return (_laplace_tail if self.kind == "laplace" else _gaussian_tail)(k, Fraction(self.t), digits)


# --- the first guess ---

#: Numerators and denominators of AS 241 (PPND16; M. Wichura, The percentage points of the normal distribution, 1988),
#: highest power first: for |p - 1/2| <= 0.425, and for r = sqrt(-ln p) up to 5 and beyond.
_MIDDLE = (
    (2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4,
     1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080e0),
    (5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4,
     5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0),
)  # fmt: skip
_TAIL = (
    (7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e0,
     3.64784832476320460504e0, 5.76949722146069140550e0, 4.63033784615654529590e0, 1.42343711074968357734e0),
    (1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
     6.89767334985100004550e-1, 1.67638483018380384940e0, 2.05319162663775882187e0, 1.0),
)  # fmt: skip
_FAR_TAIL = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2,
     2.96560571828504891230e-1, 1.78482653991729133580e0, 5.46378491116411436990e0, 6.65790464350110377720e0),
    (2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
     1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0),
)  # fmt: skip


def quantiles(u: Vector) -> Vector:
    """-Phi^-1(u/2) of u (k,) in (0, 1], each to about 1e-16 relative: what |N(0, 1)| passes with probability u."""
    if u.size < FEW:
        from statistics import NormalDist  # the same formulas, a number at a time; a Laplace process need not load it

        return -np.fromiter(map(NormalDist().inv_cdf, (u * 0.5).tolist()), np.float64, u.size)
    p = u * 0.5
    q = 0.5 - p
    x = _ratio_of(_MIDDLE, 0.180625 - q * q)
    x *= q
    outer = np.flatnonzero(q > 0.425)
    r = np.sqrt(-np.log(p[outer]))
    tail = _ratio_of(_TAIL, r - 1.6)
    if r.size and r.max() > 5.0:
        far = r > 5.0
        tail[far] = _ratio_of(_FAR_TAIL, r[far] - 5.0)
    x[outer] = tail
    return x


def _ratio_of(coefficients: tuple[tuple[float, ...], tuple[float, ...]], r: Vector) -> Vector:
    """The quotient of two polynomials at r (k,), by Horner's rule."""
    above, below = (_polynomial(part, r) for part in coefficients)
    above /= below
    return above


def _polynomial(coefficients: tuple[float, ...], r: Vector) -> Vector:
    total = r * coefficients[0]
    for c in coefficients[1:-1]:
        total += c
        total *= r
    total += coefficients[-1]
    return total


# --- deciding a coordinate exactly ---


class _Uniform:
    """A uniform real of [0, 1), known to lie in [m, m + 1)/2^bits; more of its bits are drawn when they are needed."""

    def __init__(self, m: int, bits: int, entropy: Entropy) -> None:
        self.m, self.bits, self.entropy = m, bits, entropy

    def at_most(self, bound: Callable[[int], Decimal]) -> bool:
        """U <= bound, where bound(digits) is within 10^(8 - digits) of it."""
        while True:
            digits = self.bits // 3 + 30  # 2^-bits > 10^-(bits/3): the bound is known far better than U
            value, error = Fraction(bound(digits)), Fraction(1, 10 ** (digits - 8))
            if Fraction(self.m + 1, 1 << self.bits) <= value - error:
                return True
            if Fraction(self.m, 1 << self.bits) > value + error:
                return False
            self.m = self.m << 64 | int.from_bytes(self.entropy(8), "little")
            self.bits += 64


def _decide(uniform: _Uniform, tail: Callable[[int, int], Decimal], guess: int) -> int:
    """The largest k >= 0 with U <= tail(k), searched from a guess outwards."""

    def reached(k: int) -> bool:
        return k <= 0 or uniform.at_most(lambda digits: tail(k, digits))

    low, step = guess, 1
    while not reached(low):
        low, step = max(low - step, 0), 2 * step
    step = 1
    while reached(low + step):
        low, step = low + step, 2 * step
    high = low + step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if reached(middle) else (low, middle)
    return low


def _laplace_tail(k: int, t: Fraction, digits: int) -> Decimal:
    """exp(-k/t). The quotient's rounding costs k/t 10^-digits relative, and k/t stays far below 10^6."""
    from decimal import Context

    context = Context(prec=digits)
    return context.exp(context.divide(-k, int(t)))


def _gaussian_tail(k: int, t: Fraction, digits: int) -> Decimal:
    """erfc(b/sqrt 2), b = (k - 1/2)/t, as 1 - sqrt(2/pi) exp(-b^2/2) sum_j b^(2j+1)/(2j+1)!!

    (Abramowitz and Stegun 26.2.11.) All terms are positive, so nothing cancels in the sum: j terms cost about
    3j 10^-digits relative, the error of b another 3 b^2 10^-digits, and what is left out once the ratio of the terms is
    below 1/2 is less than the last of them.
    """
    from decimal import Context

    context = Context(prec=digits)
    b_fraction = Fraction(2 * k - 1, 2) / t
    b = context.divide(b_fraction.numerator, b_fraction.denominator)
    b2 = context.multiply(b, b)
    term = total = b
    j, negligible = 1, context.power(10, -digits)
    while term > negligible or 2 * b2 > 2 * j + 1:
        term = context.divide(context.multiply(term, b2), 2 * j + 1)
        total = context.add(total, term)
        j += 1
    density = context.multiply(_root_two_over_pi(digits), context.exp(context.divide(b2, -2)))
    return context.subtract(1, context.multiply(density, total))


@lru_cache(maxsize=8)
def _root_two_over_pi(digits: int) -> Decimal:
    """sqrt(2/pi), pi by Machin's formula in integers with ten guard digits."""
    from decimal import Context

    one = 10 ** (digits + 10)

    def arccot(x: int) -> int:
        term, total, k, sign = one // x, 0, 1, 1
        while term:
            total += sign * (term // k)
            term, k, sign = term // (x * x), k + 2, -sign
        return total

    context = Context(prec=digits + 5)
    return context.sqrt(context.divide(2 * one, 4 * (4 * arccot(5) - arccot(239))))


# --- choosing the grid ---


def _checked(name: str, value: float, sensitivity: float, moved: int) -> int:
    """`moved` as a Python integer; all are positive, in a range where g, g t and v/g neither overflow nor lose bits."""
    for what, number in ((name, value), ("sensitivity", sensitivity), ("moved coordinates", moved)):
        if not 1e-90 <= number <= 1e90:
            raise InputError(f"noise: {what}: found {number}, expected a number from 1e-90 to 1e90")
    return int(moved)


def _grid(value: float, sensitivity: float, moved: int, rounding: float) -> tuple[float, float]:
    """g, the largest power of two <= min(Delta/moved, scale)/1024 (scale Delta/value), and Delta + g rounding."""
    limit = Fraction(sensitivity) / max(Fraction(moved), Fraction(value)) / 1024
    exponent = limit.numerator.bit_length() - limit.denominator.bit_length()
    if Fraction(2) ** exponent > limit:
        exponent -= 1
    g = 2.0**exponent
    return g, up(Fraction(sensitivity) + Fraction(g) * Fraction(rounding))


def _in_range(name: str, value: float, t: float, moved: int) -> float:
    if t > LARGEST_T:
        size = f"{name} {value} an answer, {moved} moved coordinates: {t:.3g} grid steps of noise"
        raise InputError(f"noise: {size}, expected at most 2^44: a larger {name} or fewer coordinates")
    return t


def up(x: Fraction) -> float:
    """The least float >= x."""
    y = float(x)
    return y if y >= x else math.nextafter(y, math.inf)


def root_up(n: int) -> float:
    """A float that is at least the root of n, by a rounding at most."""
    root = math.sqrt(n)
    return root if Fraction(root) ** 2 >= n else math.nextafter(root, math.inf)


def _beyond(what: str, held: NDArray[np.bool_], g: float) -> str:
    where = int(np.flatnonzero(~held.ravel())[0])
    return f"noise: {what} of coordinate {where}: not finite or too large, expected at most 2^52 grid steps of {g:g}"


# --- simulation ---


def simulated(kind: str, scale: float, size: int, generator: np.random.Generator) -> Vector:
    """Plain numpy noise, as in the papers, for simulation only: its low bits leak. `scale`: Laplace's b, or sigma."""
    draw: Any = generator.laplace if kind == "laplace" else generator.normal
    noise: Vector = draw(0.0, scale, size)
    return noise
