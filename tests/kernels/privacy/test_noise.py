"""The noise is exactly what it claims to be: law, privacy parameters, arithmetic, and nothing else in its low bits."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from statistics import NormalDist

import mpmath
import numpy as np
import opendp.prelude as dp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.privacy.noise import EXACT, FAR, Lattice, simulated
from hushgrid.kernels.randomness import counter_generator, counter_word
from tests.support import examples
from tests.support.agents.agents_without_gate import Stream

positive = st.floats(1e-6, 1e6)


# --- the law, by its statistics; every threshold is missed by chance once in 10^9 ---


RARE = 1e-9


def chi_square_passes(n: np.ndarray, probability: dict[int, float]) -> bool:
    """Pearson's test of counts against cells of known probability, the rest of the line being one more cell."""
    counts = Counter(n.tolist())
    expected = np.array([*probability.values(), 1 - sum(probability.values())]) * n.size
    seen = np.array([counts[k] for k in probability])
    seen = np.append(seen, n.size - seen.sum())
    assert expected.min() > 10  # where the chi-square limit is good
    return float(((seen - expected) ** 2 / expected).sum()) < stats.chi2.isf(RARE, len(expected) - 1)


def laplace_law(t: int, width: int) -> dict[int, float]:
    return {k: math.tanh(0.5 / t) * math.exp(-abs(k) / t) for k in range(-width, width + 1)}


def gaussian_law(t: float, width: int) -> dict[int, float]:
    normal = NormalDist(0, t)
    return {k: normal.cdf(k + 0.5) - normal.cdf(k - 0.5) for k in range(-width, width + 1)}


def test_laplace_noise_follows_the_discrete_law_and_the_test_knows_others_apart() -> None:
    size, t = 400_000, 3
    drawn = Lattice("laplace", 1.0, t, 1.0).sample(size, Stream(1))
    assert chi_square_passes(drawn, laplace_law(t, 20))
    floats = np.rint(np.random.default_rng(1).laplace(0, t, size)).astype(int)
    assert not chi_square_passes(floats, laplace_law(t, 20))  # rounded, not discrete: another law
    assert not chi_square_passes(Lattice("laplace", 1.0, t + 1, 1.0).sample(size, Stream(1)), laplace_law(t, 20))
    twice_zero = np.where(np.random.default_rng(1).random(size) < 0.5, drawn, np.abs(drawn))
    assert not chi_square_passes(twice_zero, laplace_law(t, 20))  # not symmetric


@pytest.mark.runs
def test_gaussian_noise_follows_the_rounded_law_and_the_test_knows_others_apart() -> None:
    size, t = 400_000, 1.5
    drawn = Lattice("gaussian", 1.0, t, 1.0).sample(size, Stream(2))
    assert chi_square_passes(drawn, gaussian_law(t, 5))
    weights = {k: math.exp(-(k**2) / (2 * t**2)) for k in range(-30, 31)}
    discrete = {k: weights[k] / sum(weights.values()) for k in range(-5, 6)}
    assert not chi_square_passes(drawn, discrete)  # the discrete Gaussian is another law
    assert not chi_square_passes(Lattice("gaussian", 1.0, 1.02 * t, 1.0).sample(size, Stream(2)), gaussian_law(t, 5))


@pytest.mark.runs
@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_wide_noise_follows_the_continuous_law_up_to_a_grid_step(kind: str) -> None:
    size, t = 400_000, 2**30

    def distance(scale: float) -> float:
        n = np.sort(Lattice(kind, 1.0, t, 1.0).sample(size, Stream(3))) / scale  # type: ignore[arg-type]
        law = (stats.laplace if kind == "laplace" else stats.norm).cdf(n)
        steps = np.arange(size + 1) / size
        return float(max(np.abs(law - steps[1:]).max(), np.abs(law - steps[:-1]).max()))

    bound = math.sqrt(math.log(2 / RARE) / (2 * size)) + 1 / t  # Dvoretzky, Kiefer, Wolfowitz; Massart's constant
    assert distance(t) < bound
    assert distance(1.05 * t) > bound


def test_coordinates_are_uncorrelated_with_their_neighbours() -> None:
    n = np.sign(Lattice.laplace(1.0, 1.0, 1).sample(400_000, Stream(4))).astype(float)
    limit = stats.norm.isf(RARE / 2) / math.sqrt(n.size)
    for lag in (1, 2, 7):
        assert abs(float(np.mean(n[lag:] * n[:-lag]))) < limit


@pytest.mark.runs
def test_opendp_draws_the_same_law_and_reckons_the_same_epsilon() -> None:
    dp.enable_features("contrib")
    lattice, size = Lattice("laplace", 1.0, 4, 9.0), 50_000
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    measurement = dp.m.make_laplace(*space, scale=float(lattice.t))
    assert measurement.map(int(lattice.sensitivity)) == pytest.approx(lattice.epsilon, rel=1e-12)
    theirs, ours = np.array(measurement([0] * size)), lattice.sample(size)
    cells = np.array([[np.sum(np.clip(n, -20, 20) == k) for k in range(-20, 21)] for n in (theirs, ours)])
    assert stats.chi2_contingency(cells).pvalue > RARE
    assert chi_square_passes(theirs, laplace_law(4, 15))
    assert chi_square_passes(ours, laplace_law(4, 15))


@pytest.mark.parametrize("t", [1, 5, 1025])
def test_expected_noise_of_laplace_is_the_sum_over_its_law(t: int) -> None:
    exact = math.fsum(abs(k) * p for k, p in laplace_law(t, 60 * t).items())
    assert Lattice("laplace", 0.25, t, 1.0).expected_l1 == pytest.approx(exact / 4, rel=1e-12)


def test_expected_noise_of_the_gaussian_is_the_sum_over_its_tails() -> None:
    t = 1024.5
    exact = math.fsum(math.erfc((k - 0.5) / t / math.sqrt(2)) for k in range(1, 12 * 1024))
    assert Lattice("gaussian", 0.25, t, 1.0).expected_l1 == pytest.approx(exact / 4, rel=1e-12)


# --- the privacy parameters ---


@given(epsilon=positive, sensitivity=positive, moved=st.integers(1, 1000))
def test_laplace_never_costs_more_than_was_asked_and_wastes_at_most_one_part_in_1024(
    epsilon: float, sensitivity: float, moved: int
) -> None:
    lattice = Lattice.laplace(epsilon, sensitivity, moved)
    g, t = Fraction(lattice.g), Fraction(lattice.t)
    steps = math.floor(Fraction(sensitivity) / g + moved)  # how far apart two adjacent rounded values can be
    assert steps / t <= Fraction(lattice.epsilon) <= Fraction(epsilon)
    assert t.denominator == 1
    assert lattice.epsilon >= epsilon / (1 + 1 / 1024) * (1 - 1e-15)
    assert lattice.sensitivity <= sensitivity * (1 + 1 / 1024)
    limit = min(Fraction(sensitivity) / moved, Fraction(sensitivity) / Fraction(epsilon)) / 1024
    assert math.frexp(lattice.g)[0] == 0.5
    assert g <= limit < 2 * g


@given(mu=positive, sensitivity=positive, moved=st.integers(1, 1000))
def test_gaussian_never_costs_more_than_was_asked(mu: float, sensitivity: float, moved: int) -> None:
    lattice = Lattice.gaussian(mu, sensitivity, moved)
    g, t, delta = Fraction(lattice.g), Fraction(lattice.t), Fraction(sensitivity)
    assert (Fraction(lattice.sensitivity) - delta) ** 2 >= moved * g**2
    assert Fraction(lattice.sensitivity) / (g * t) <= Fraction(lattice.mu) <= Fraction(mu)
    assert lattice.mu >= mu * (1 - 1e-15)


@given(
    st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(-1, 1)), min_size=1, max_size=8),
    st.floats(1e-3, 10),
    st.sampled_from(["laplace", "gaussian"]),
)
def test_rounded_values_are_no_further_apart_than_the_sensitivity_says(
    pairs: list[tuple[float, float]], epsilon: float, kind: str
) -> None:
    v = np.array([a for a, _ in pairs])
    w = v + np.array([b for _, b in pairs])
    exact = [abs(Fraction(a) - Fraction(b)) for a, b in zip(v.tolist(), w.tolist(), strict=True)]
    order = 1 if kind == "laplace" else 2
    size = sum(d**order for d in exact)
    moved = sum(d > 0 for d in exact)
    if not moved or float(size) < 1e-12:
        return
    norm = math.nextafter(float(size) if order == 1 else math.nextafter(math.sqrt(size), math.inf), math.inf)
    lattice = (Lattice.laplace if kind == "laplace" else Lattice.gaussian)(epsilon, norm, moved)
    if max(np.abs(v).max(), np.abs(w).max()) > EXACT * lattice.g:
        return  # refused, because such values have no place on so fine a grid
    none = np.zeros(v.size, dtype=np.int64)
    apart = [Fraction(a) - Fraction(b) for a, b in zip(lattice.release(v, none), lattice.release(w, none), strict=True)]
    assert sum(abs(d) ** order for d in apart) <= Fraction(lattice.sensitivity) ** order


@pytest.mark.parametrize("make", [Lattice.laplace, Lattice.gaussian])
@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ((0.0, 1.0, 1), "found 0.0"),
        ((math.nan, 1.0, 1), "found nan"),
        ((math.inf, 1.0, 1), "found inf"),
        ((1.0, -1.0, 1), "sensitivity: found -1.0"),
        ((1.0, 1.0, 0), "moved coordinates: found 0"),
        ((1e-9, 1.0, 10**6), "grid steps of noise"),
    ],
)
def test_parameters_no_grid_can_keep_are_refused_in_one_line(make: object, arguments: object, found: str) -> None:
    with pytest.raises(InputError, match=found):
        make(*arguments)  # type: ignore[operator, misc]


@pytest.mark.parametrize(
    "wrong",
    [("laplace", 0.3, 5, 1.0), ("laplace", 1.0, 5.5, 1.0), ("gaussian", 1.0, 0.5, 1.0), ("laplace", 1, 2**50, 1)],
)
def test_a_lattice_that_is_none_cannot_be_built(wrong: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match="power of two"):
        Lattice(*wrong)  # type: ignore[arg-type]


def test_numpy_numbers_give_the_same_lattice() -> None:
    for make in (Lattice.laplace, Lattice.gaussian):
        assert make(0.5, np.float64(2.0), np.int64(7)) == make(0.5, 2.0, 7)  # type: ignore[arg-type]


def test_each_kind_has_its_own_parameter_only() -> None:
    with pytest.raises(TypeError):
        _ = Lattice.laplace(1.0, 1.0, 1).mu
    with pytest.raises(TypeError):
        _ = Lattice.gaussian(1.0, 1.0, 1).epsilon


# --- the release ---


@given(
    st.lists(st.tuples(st.floats(-1e9, 1e9), st.integers(-(2**40), 2**40)), max_size=8),
    st.sampled_from([2.0**-20, 1.0, 2.0**13]),
)
def test_a_release_is_exactly_grid_times_integer(pairs: list[tuple[float, int]], g: float) -> None:
    v, n = np.array([a for a, _ in pairs], dtype=float), np.array([b for _, b in pairs], dtype=np.int64)
    released = Lattice("laplace", g, 1, 1.0).release(v, n)
    expected = [Fraction(g) * (round(Fraction(a) / Fraction(g)) + b) for a, b in pairs]
    assert [Fraction(x) for x in released.tolist()] == expected


def test_values_that_cannot_be_represented_are_refused_before_and_after_the_noise() -> None:
    lattice = Lattice("laplace", 2.0**-10, 5, 1.0)
    edge = EXACT * lattice.g
    none, one = np.zeros(2, dtype=np.int64), np.array([0, 1])
    assert lattice.release(np.array([0.0, edge]), none).tolist() == [0.0, edge]
    for bad in (math.nan, math.inf, -math.inf, 1e308, np.nextafter(edge, math.inf)):
        with pytest.raises(InputError, match="coordinate 1"):
            lattice.release(np.array([0.0, bad]), none)
    with pytest.raises(InputError, match="noisy value of coordinate 1"):
        lattice.release(np.array([0.0, edge]), one)
    for far in (FAR, -FAR):  # where magnitudes are cut: refused whatever the value
        for value in (-edge, edge):
            with pytest.raises(InputError, match="noisy value"):
                lattice.release(np.array([value]), np.array([far]))
    with pytest.raises(ValueError, match="shapes"):
        lattice.release(np.zeros(3), none)


def test_most_outputs_of_float_noise_tell_two_values_apart_and_none_of_the_grids() -> None:
    def impossible(y: np.ndarray) -> float:
        """Share of outputs y that numpy's Laplace cannot give for f = 1, by trying all uniforms k 2^-53 nearby."""
        x = y - 1.0
        u = np.where(x < 0, np.exp(x) / 2, 1 - np.exp(-x) / 2)
        near = np.clip(np.rint(u * 2.0**53)[:, None] + np.arange(-8, 9), 1, 2.0**53 - 1) * 2.0**-53
        tried = 1.0 + np.where(near < 0.5, np.log(near + near), -np.log(2 - near - near))
        return float(np.mean(~np.any(tried == y[:, None], axis=1)))

    size = 20_000
    of_zero, of_one = (simulated("laplace", 1.0, size, counter_generator(1, "n0", f)) + f for f in (0, 1))
    assert impossible(of_one) < 0.001  # the control: what f = 1 did give
    assert impossible(of_zero) > 0.75  # the leak

    lattice = Lattice.laplace(1.0, 1.0, 1)
    zero, one = (lattice.release(np.full(size, f), lattice.sample(size)) for f in (0.0, 1.0))
    steps = np.concatenate([zero, one]) / lattice.g  # every integer has a positive probability under both
    assert np.array_equal(steps, np.rint(steps))
    assert (1.0 / lattice.g).is_integer()


# --- simulation ---


@pytest.mark.parametrize("answer", [0, 1, 977, 2**64 - 1, 2**64, 2**100 + 3])
@pytest.mark.parametrize("seed", [0, 7, 2**63])
def test_the_word_of_a_counter_is_what_its_generator_gives_first(seed, answer):
    for node in ("walk", "n0"):
        assert counter_word(seed, node, answer).to_bytes(8, "little") == counter_generator(seed, node, answer).bytes(8)


def test_streams_of_two_answers_do_not_overlap() -> None:
    first = counter_generator(7, "n0", 0).bytes(80_000)
    second = counter_generator(7, "n0", 1).bytes(80_000)
    assert not set(np.frombuffer(first, "u8").tolist()) & set(np.frombuffer(second, "u8").tolist())


def test_seeded_entropy_repeats_a_sample_and_the_systems_does_not() -> None:
    lattice = Lattice.gaussian(1.0, 1.0, 1)
    a, b = (lattice.sample(50, counter_generator(1, "n0", 2).bytes) for _ in range(2))
    assert a.tolist() == b.tolist()
    assert lattice.sample(50).tolist() != lattice.sample(50).tolist()


@given(size=st.integers(0, 40), kind=st.sampled_from(["laplace", "gaussian"]))
@examples.of(20)
def test_any_number_of_coordinates_can_be_drawn(size: int, kind: str) -> None:
    drawn = Lattice(kind, 1.0, 5, 1.0).sample(size)  # type: ignore[arg-type]
    assert (drawn.shape, drawn.dtype) == ((size,), np.int64)


def test_simulated_noise_has_the_papers_scale() -> None:
    size = 200_000
    laplace = simulated("laplace", 2.0, size, counter_generator(1, "n0", 0))
    normal = simulated("gaussian", 2.0, size, counter_generator(1, "n0", 0))
    bound = math.sqrt(math.log(2 / RARE) / (2 * size))
    assert stats.kstest(laplace / 2, "laplace").statistic < bound
    assert stats.kstest(normal / 2, "norm").statistic < bound


# --- The samplers and their exact twin: the same words, read by arbitrary-precision inversion ---

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
