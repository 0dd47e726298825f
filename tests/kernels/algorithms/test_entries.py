"""Entries that are averaged at several places: sums without rounding, who averages what, and the memory of products."""

from fractions import Fraction
from math import inf, isfinite, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.kernels.algorithms.entries import widened
from hushgrid.kernels.algorithms.owners import exact
from hushgrid.kernels.patterns.levels import ABOVE, places

NUMBERS = st.lists(st.floats(-1e12, 1e12), max_size=30)


@given(NUMBERS)
def test_a_sum_without_rounding_is_the_sum_of_its_parts(values):
    parts = exact(values)
    assert sum(map(Fraction, parts)) == sum(map(Fraction, values))
    assert list(parts) == sorted(parts, key=abs, reverse=True)


@given(NUMBERS, st.lists(st.integers(0, 3), min_size=30, max_size=30))
def test_however_numbers_are_dealt_their_sum_rounded_once_is_the_same(values, dealt):
    each = [exact([v for v, at in zip(values, dealt, strict=False) if at == k]) for k in range(4)]
    whole = exact(values)
    assert exact([part for one in each for part in one])[:1] == whole[:1]


POSITION = {"a": np.array([0, 1, 2]), "b": np.array([1, 2, 3]), "c": np.array([2, 3])}


def test_an_entry_is_averaged_in_a_site_if_all_its_owners_are_there():
    found = places(POSITION, 4, {"s1": ["a", "b"], "s2": ["c"]})
    assert {name: place.entries.tolist() for name, place in found.items()} == {ABOVE: [2, 3], "s1": [0, 1], "s2": []}
    assert {p: k.tolist() for p, k in found["s1"].position.items()} == {"a": [0, 1], "b": [1]}
    assert {p: k.tolist() for p, k in found[ABOVE].inside.items()} == {"a": [2], "b": [1, 2], "c": [0, 1]}


def test_what_a_zone_shares_is_put_together_of_its_places():
    w = np.array([10.0, 11.0, 12.0, 13.0])
    found = places(POSITION, 4, {"s1": ["a", "b"], "s2": ["c"]})
    for p in ("a", "b"):
        here, above = (w[found[name].entries][found[name].position[p]] for name in ("s1", ABOVE))
        assert found["s1"].joined(p, here, above).tolist() == w[POSITION[p]].tolist()
        assert found[ABOVE].joined(p, above, here).tolist() == w[POSITION[p]].tolist()


def test_in_one_level_all_entries_are_at_one_place():
    (place,) = places(POSITION, 4, {}).values()
    assert place.entries.tolist() == [0, 1, 2, 3]
    assert {p: k.tolist() for p, k in place.position.items()} == {p: k.tolist() for p, k in POSITION.items()}


def test_the_products_of_differences_are_those_of_the_last_ones():
    differences = np.random.default_rng(5).normal(size=(7, 4))
    normal = np.zeros(0)
    for k in range(1, 8):
        kept = differences[max(k - 3, 0) : k]
        normal = widened(normal, kept @ kept[-1])
        assert np.allclose(normal.reshape(len(kept), -1), kept @ kept.T, rtol=1e-12)


@pytest.mark.parametrize("value", [inf, nan])
def test_a_sum_that_is_not_finite_has_an_end(value):
    parts = exact([1.0, value])
    assert len(parts) == 1
    assert not isfinite(parts[0])
