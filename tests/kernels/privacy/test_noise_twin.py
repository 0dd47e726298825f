"""The samplers and their exact twin: the same words, read by arbitrary-precision inversion."""

from __future__ import annotations

import math
from statistics import NormalDist

import mpmath
import numpy as np
import pytest

from hushgrid.kernels.privacy.noise import Lattice
from tests.support.agents.exact_inversion import Stream

BITS = 63


def word(m: int, negative: bool = False) -> int:
    return m << 1 | negative


# --- the exact twin: the same words, read by arbitrary-precision inversion ---


def twin(lattice: Lattice, size: int, entropy: Stream) -> list[int]:
    """The definition, with nothing vectorised and every logarithm and quantile to 80 digits."""
    found: list[int] = [0] * size
    pending = list(range(size))
    while pending:
        words = np.frombuffer(entropy(8 * len(pending)), dtype="<u8").tolist()
        again = []
        for i, w in zip(pending, words, strict=True):
            k = magnitude(lattice, w >> 1, entropy)
            found[i] = -k if w & 1 else k
            if lattice.kind == "laplace" and k == 0 and w & 1:
                again.append(i)
        pending = again
    return found


def magnitude(lattice: Lattice, m: int, entropy: Stream) -> int:
    bits = BITS
    while True:
        with mpmath.workdps(80):
            largest = quantile(lattice, mpmath.ldexp(mpmath.mpf(m), -bits)) if m else mpmath.inf
            smallest = quantile(lattice, mpmath.ldexp(mpmath.mpf(m + 1), -bits))
            if largest != mpmath.inf and mpmath.floor(largest) == mpmath.floor(smallest):
                return int(mpmath.floor(largest))
        m, bits = m << 64 | int.from_bytes(entropy(8), "little"), bits + 64


def quantile(lattice: Lattice, u: mpmath.mpf) -> mpmath.mpf:
    """The real number whose integer part is the magnitude."""
    if lattice.kind == "laplace":
        return -lattice.t * mpmath.log(u)
    if u == 1:
        return mpmath.mpf(0.5)
    start = -NormalDist().inv_cdf(float(u) / 2)
    z = mpmath.findroot(lambda z: mpmath.log(mpmath.erfc(z / mpmath.sqrt(2))) - mpmath.log(u), start)
    return lattice.t * z + mpmath.mpf(0.5)


LATTICES = [
    Lattice("laplace", 1.0, 1, 1.0),
    Lattice("laplace", 1.0, 3, 1.0),
    Lattice.laplace(1.0, 1.0, 1),
    Lattice("laplace", 1.0, 2**30 + 7, 1.0),
    Lattice("laplace", 1.0, 2**44, 1.0),
    Lattice("gaussian", 1.0, 1.5, 1.0),
    Lattice.gaussian(1.0, 1.0, 1),
    Lattice("gaussian", 1.0, 2.0**30 + 0.7, 1.0),
    Lattice("gaussian", 1.0, 2.0**44, 1.0),
]
by_name = pytest.mark.parametrize("lattice", LATTICES, ids=lambda x: f"{x.kind}-{x.t:g}")


@pytest.mark.runs
@by_name
def test_every_coordinate_is_the_one_exact_arithmetic_draws_from_the_same_bits(lattice: Lattice) -> None:
    size = 1500 if lattice.kind == "laplace" else 150
    fast, exact = Stream(5), Stream(5)
    assert lattice.sample(size, fast).tolist() == twin(lattice, size, exact)
    assert fast.words == exact.words


@pytest.mark.runs
@by_name
def test_extreme_words_are_drawn_exactly_too(lattice: Lattice) -> None:
    ends = [0, 1, 2, 3, 2**20, 2**52 + 1, 2**62 - 1, 2**62, 2**63 - 2**12, 2**63 - 2, 2**63 - 1]
    words = [word(m, negative) for m in ends for negative in (False, True)]
    fast, exact = Stream(6, words), Stream(6, words)
    assert lattice.sample(len(words), fast).tolist() == twin(lattice, len(words), exact)
    assert fast.words == exact.words


@by_name
@pytest.mark.parametrize("times", [0.01, 1, 6])
def test_a_uniform_on_a_boundary_is_decided_by_further_bits(lattice: Lattice, times: float) -> None:
    k = math.ceil(times * lattice.t)
    with mpmath.workdps(80):
        if lattice.kind == "laplace":
            boundary = mpmath.exp(-mpmath.mpf(k) / lattice.t)
        else:
            boundary = mpmath.erfc((mpmath.mpf(k) - 0.5) / lattice.t / mpmath.sqrt(2))
        m = int(mpmath.floor(boundary * 2**BITS))
        rest = int(mpmath.floor((boundary * 2**BITS - m) * 2**64))
    cases = [([0], k), ([rest - 1], k), ([rest + 1], k - 1), ([2**64 - 1], k - 1)]
    if lattice.t < 2**40:  # else the interval, a 63rd bit wide, holds the next boundaries as well
        for more, expected in cases:
            stream = Stream(0, [word(m)], more)
            assert lattice.sample(1, stream).tolist() == [expected]
            assert stream.words == 2
    stream = Stream(0, [word(m)], [rest, 0])  # still undecided after 127 bits
    assert lattice.sample(1, stream).tolist() == [k]
    assert stream.words == 3


def test_a_uniform_that_stays_zero_is_followed_into_the_far_tail() -> None:
    lattice = Lattice("laplace", 1.0, 2**30, 1.0)
    drawn = lattice.sample(1, Stream(0, [0], [0, 0, 1 << 63]))
    # U lies in [2^63, 2^63 + 1) 2^-(63 + 3 64): exactly 2^-192, up to one part in 2^63
    assert drawn.tolist() == [math.floor(192 * math.log(2) * 2**30)]


@pytest.mark.runs
def test_the_logarithm_and_the_quantile_err_far_less_than_the_margin_allows() -> None:
    u = np.concatenate([np.exp(-np.linspace(1e-9, 44, 1500)), 1 - np.exp2(-np.linspace(1, 52, 300))])
    logs = np.log(u)
    with mpmath.workdps(40):
        for x, y in zip(u.tolist(), logs.tolist(), strict=True):
            assert abs(mpmath.log(mpmath.mpf(x)) - y) <= 2.0**-50 * abs(y)
        for x in u[::6].tolist():
            z = NormalDist().inv_cdf(x / 2)
            exact = mpmath.findroot(lambda z, x=x: mpmath.log(mpmath.erfc(-z / mpmath.sqrt(2))) - mpmath.log(x), z)
            assert abs(exact - z) <= 2.0**-49 * abs(exact)


def test_too_little_entropy_is_an_error_and_not_less_noise() -> None:
    with pytest.raises(ValueError, match="buffer"):
        Lattice.laplace(1.0, 1.0, 1).sample(10, entropy=lambda size: bytes(size - 1))
