"""Statistics that are sums over records: the sum of a naive twin, and how far records replaced can move it, in
integers.
"""

from fractions import Fraction
from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.problems.statistics import Gram, Histogram, Mean, Median, Total, _reached, norm
from tests.support import examples

STATISTICS = {
    "histogram of a feature": Histogram(column=1, edges=(-1.0, 0.0, 0.5, 2.0)),
    "histogram of the label": Histogram(column=3, edges=(0.0, 1.0, 2.0)),
    "median, by its histogram": Median(column=1, edges=(-1.0, 0.0, 0.5, 2.0)),
    "total": Total(),
    "total of some, nonnegative": Total(columns=(0, 3), nonnegative=True),
    "mean": Mean(columns=(2,)),
    "gram": Gram(),
    "gram of one column": Gram(columns=(1,)),
}
Q = 3  #: features


def naive(statistic, A, b, c, order):
    """Record by record, in plain Python, without truncation."""
    total = [0.0] * statistic.size(Q)
    for a, label in zip(A.tolist(), b.tolist(), strict=True):
        v = [[*a, label][k] for k in statistic.read(Q)]
        if isinstance(statistic, Histogram):
            e = statistic.edges
            total[max([0, *[k for k in range(len(e) - 1) if e[k] <= v[0]]])] += 1.0
            continue
        if getattr(statistic, "nonnegative", False):
            v = [max(x, 0.0) for x in v]
        long = sum(abs(x) for x in v) if order == 1 else sqrt(sum(x * x for x in v))
        v = [x * min(1.0, c / long) if long else x for x in v]
        if isinstance(statistic, Gram):
            v = [v[i] * v[j] * (1.0 if i == j else sqrt(2)) for i in range(len(v)) for j in range(i, len(v))]
        total = [x + y for x, y in zip(total, v, strict=True)]
    return np.array(total)


def drawn(seed, m=30, far=3.0):
    rng = np.random.default_rng(seed)
    return far * rng.normal(size=(m, Q)), far * rng.normal(size=m)


@pytest.mark.parametrize("name", STATISTICS)
@pytest.mark.parametrize("order", [1, 2])
def test_the_sum_is_that_of_a_naive_twin(name, order):
    """Truncation takes less than a step of each record, and shortening 2^-30 of the clip."""
    statistic, c, (A, b) = STATISTICS[name], 1.0 if "histogram" in name else 2.5, drawn(1)
    step = statistic.step(c, len(b))
    found = statistic.total(A, b, c, order) * step
    assert np.abs(found - naive(statistic, A, b, c, order)).max() <= len(b) * (step + 4 * c * c * 2.0**-30)
    g = 2.0**-12
    assert np.abs(statistic.on_grid(A, b, c, order, g) * g - found).max() <= g / 2
    assert np.array_equal(statistic.on_grid(A, b, c, order, step / 4), 4 * statistic.total(A, b, c, order))


@pytest.mark.parametrize("name", STATISTICS)
def test_without_a_clip_it_is_the_plain_sum(name):
    A, b = drawn(2)
    assert np.allclose(STATISTICS[name].plain(A, b), naive(STATISTICS[name], A, b, 1e9, 2), rtol=1e-12, atol=1e-12)


numbers = st.floats(-1e6, 1e6) | st.sampled_from([0.0, 1.0, -1.0, 1e150, -1e150, 5e-324])


@pytest.mark.parametrize("name", STATISTICS)
@examples.of(60)
@given(st.lists(st.lists(numbers, min_size=4, max_size=4), min_size=2, max_size=6), st.integers(1, 3), st.data())
def test_records_replaced_move_the_integers_by_no_more_than_the_sensitivity(name, rows, k, data):
    statistic, c = STATISTICS[name], 1.0 if "histogram" in name else data.draw(st.sampled_from([0.1, 1.0, 3.7]))
    k = min(k, len(rows))
    others = data.draw(st.lists(st.lists(numbers, min_size=4, max_size=4), min_size=k, max_size=k))
    one, other = np.array(rows), np.array([*others, *rows[k:]])
    for order in statistic.orders:
        a, b = (statistic.total(R[:, :Q], R[:, Q], c, order) for R in (one, other))
        apart = [int(x) - int(y) for x, y in zip(a, b, strict=True)]
        step = Fraction(statistic.step(c, len(rows)))
        most = Fraction(statistic.sensitivity(order, c, Q, len(rows), k)) / step
        if order == 1:
            assert sum(map(abs, apart)) <= most
        else:
            assert sum(x * x for x in apart) <= most**2


@pytest.mark.parametrize(
    ("statistic", "one", "other", "expected"),
    [
        (STATISTICS["histogram of a feature"], (0, -5, 0, 0), (0, 5, 0, 0), sqrt(2)),
        (STATISTICS["total"], (9, 0, 0, 0), (-9, 0, 0, 0), 4.0),
        (STATISTICS["total of some, nonnegative"], (9, 0, 0, 0), (0, 0, 0, 9), 2 * sqrt(2)),
        (STATISTICS["gram"], (9, 0, 0, 0), (0, 0, 0, 9), 4 * sqrt(2)),
    ],
    ids=["histogram", "total", "nonnegative", "gram"],
)
def test_the_sensitivity_is_attained(statistic, one, other, expected):
    """c = 2 (histogram: 1), one record of ten, in L2."""
    c, rest = 1.0 if isinstance(statistic, Histogram) else 2.0, np.zeros((9, 4))
    a, b = (
        statistic.total(R[:, :Q], R[:, Q], c, 2) for R in (np.vstack([v, rest]).astype(float) for v in (one, other))
    )
    assert np.linalg.norm((a - b) * statistic.step(c, 10)) == pytest.approx(expected, rel=1e-8)
    assert statistic.sensitivity(2, c, Q, 10) == pytest.approx(expected, rel=1e-8)
    assert statistic.sensitivity(2, c, Q, 10, k=3) == pytest.approx(3 * expected, rel=1e-8)


@examples.of(200)
@given(st.sets(st.integers(-50, 50), min_size=2, max_size=40), st.lists(st.floats(-60, 60), max_size=30))
def test_a_record_is_in_the_bin_that_a_search_finds(edges, values):
    edges = np.sort(np.array([*edges], dtype=float))
    v = np.array([*values, *edges, -1e150, 1e150])
    assert np.array_equal(_reached(edges, v), np.searchsorted(edges, v, side="right"))


@pytest.mark.parametrize("name", STATISTICS)
def test_the_order_of_records_changes_no_bit(name):
    statistic, (A, b) = STATISTICS[name], drawn(4, m=200)
    c, order = (1.0 if "histogram" in name else 2.0), np.random.default_rng(0).permutation(200)
    assert np.array_equal(statistic.total(A, b, c, 2), statistic.total(A[order], b[order], c, 2))


def test_a_sum_of_ten_million_records_fits_a_word():
    """The largest number of rows that a plan may say: each adds at most |phi| over a step, 2^61 in all."""
    for statistic in STATISTICS.values():
        for c in (1e-12, 0.3, 1.0, 1e6):
            assert 10_000_000 * Fraction(statistic.longest(c)) / Fraction(statistic.step(c, 10_000_000)) <= 2**61


def test_gram_is_shown_as_products_and_makes_the_matrix():
    A, b = drawn(5)
    V = np.column_stack([A, b])
    statistic = Gram()
    shown = statistic.plain(A, b) * statistic.unit(Q, len(b))
    assert np.allclose(statistic.matrix(shown), V.T @ V)
    names = statistic.entries(["a", "b", "c", "label"])
    assert names[:5] == ["a * a", "a * b", "a * c", "a * label", "b * b"]
    assert shown[names.index("b * label")] == pytest.approx(A[:, 1] @ b)


def test_a_mean_is_shown_over_its_records_and_a_bin_by_its_edges():
    assert np.array_equal(Mean().unit(Q, 40), np.full(Q, 1 / 40))
    assert STATISTICS["histogram of a feature"].entries([]) == ["-1 to 0", "0 to 0.5", "0.5 to 2"]


def test_a_median_is_where_half_of_the_records_are_below_it():
    """Of many bins it is numpy's, but for a bin's width; of noisy counts it is off by about the deviation that is
    stated.
    """
    rng, edges = np.random.default_rng(6), tuple(np.linspace(-4.0, 4.0, 81).tolist())
    A, statistic, sd = rng.normal(size=(4000, Q)), Median(column=1, edges=edges), 3.0
    S = statistic.plain(A, np.zeros(4000))
    (median, *counts), _ = statistic.estimates(S, sd, Q, 4000)
    assert abs(median - np.median(A[:, 1])) <= 0.1
    assert counts == S.tolist()
    assert statistic.entries(["a", "b", "c", "label"])[:2] == ["median of b", "-4 to -3.9"]
    noisy = [statistic.estimates(S + sd * rng.normal(size=80), sd, Q, 4000) for _ in range(300)]
    errors = np.array([(values[0] - median) / sds[0] for values, sds in noisy])
    assert 0.5 < np.std(errors) < 1.5
    (nothing, *_), (spread, *_) = statistic.estimates(-np.ones(80), sd, Q, 4000)
    assert np.isnan(nothing)
    assert np.isinf(spread)


@pytest.mark.parametrize(
    ("statistic", "words"),
    [
        (Total(columns=(0, 4)), "column: found 4, expected 0 to 3 .the label is 3"),
        (Histogram(column=0, edges=(0.0, 1.0, 1.0)), "edges: found two that do not ascend"),
        (Gram(columns=(0, 2, 0)), "columns: found 3, some of them twice, expected each once"),
    ],
)
def test_what_is_no_statistic_of_such_records_is_refused(statistic, words):
    with pytest.raises(InputError, match=words):
        statistic.check(Q)


def test_a_matrix_of_too_many_columns_is_refused():
    with pytest.raises(InputError, match="columns: found 8006001 entries of a sum, expected at most 4194304"):
        Gram(columns=tuple(range(4001))).check(5000)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", STATISTICS)
def test_records_that_do_not_count_add_nothing_and_their_number_stays(name, order):
    """One record that counts or not moves the sum by no more than one that is replaced."""
    statistic, c, (A, b) = STATISTICS[name], 1.0 if "histogram" in name else 2.5, drawn(3)
    counted = np.arange(len(b)) % 3 != 0
    some = statistic.total(A, b, c, order, counted)
    step = statistic.step(c, len(b))
    expected = naive(statistic, A[counted], b[counted], c, order)
    assert np.abs(some * step - expected).max() <= len(b) * (step + 4 * c * c * 2.0**-30)
    one_more = statistic.total(A, b, c, order, counted | (np.arange(len(b)) == 0))
    moved = norm((some - one_more)[None, :] * step, order)[0]
    assert moved <= statistic.sensitivity(order, c, Q, len(b)) * (1 + 1e-12)
