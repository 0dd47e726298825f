"""The proximal operators solve their problems: shown by the optimality conditions, coordinate by coordinate."""

from math import inf

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from hushgrid.kernels.problems.prox import Regularizer

numbers = st.floats(-1e6, 1e6)
weights = st.floats(0, 100)


@given(
    v=st.lists(numbers, min_size=1, max_size=6).map(np.array),
    t=st.floats(0, 100), l1=weights, l2=weights, box=st.one_of(st.just(inf), st.floats(1e-3, 1e3)),
)  # fmt: skip
@example(v=np.array([2.0**-1023]), t=8.0, l1=0.0, l2=2.0, box=inf)
@example(v=np.array([1.11253693e-308]), t=6.0, l1=0.0, l2=2.0, box=inf)
def test_the_prox_is_where_zero_is_a_subgradient(v, t, l1, l2, box):
    x = Regularizer(l1=l1, l2=l2, box=box).prox(v, t)
    assert np.all(np.abs(x) <= box)
    smooth = x - v + t * l2 * x  # derivative of the smooth part; the rest of a coordinate's subgradients is an interval
    low = np.where(x > 0, t * l1, -t * l1)
    high = np.where(x < 0, -t * l1, t * l1)
    low = np.where(x == -box, -inf, low)  # the box's normal cone
    high = np.where(x == box, inf, high)
    # x carries the roundings of v - t l1 and of one division: 4 units in the last place of v, times 1 + t l2 in
    # `smooth`; of subnormal numbers half the smallest one each, times the same
    rounding = 4 * 2.0**-52 * (np.abs(v) + t * l1 + (1 + t * l2) * np.abs(x)) + 4 * 2.0**-1074 * (1 + t * l2)
    assert np.all(smooth + low <= rounding)
    assert np.all(smooth + high >= -rounding)


@given(v=st.lists(numbers, min_size=1, max_size=6).map(np.array), t=st.floats(0, 100), l1=weights, l2=weights)
def test_elastic_net_is_soft_over_one_plus_n_l2(v, t, l1, l2):
    soft = np.sign(v) * np.maximum(np.abs(v) - t * l1, 0)
    np.testing.assert_allclose(Regularizer(l1=l1, l2=l2).prox(v, t), soft / (1 + t * l2), rtol=1e-14, atol=1e-300)


def test_what_is_within_the_threshold_becomes_zero_exactly():
    x = Regularizer(l1=0.5).prox(np.array([-1.0, -0.999, 0.3, 1.0, 1.5]), 2.0)
    assert x.tolist() == [0.0, 0.0, 0.0, 0.0, 0.5]


def test_without_a_regulariser_the_prox_is_the_identity():
    v = np.array([-1e300, -0.0, 3.0])
    assert Regularizer().prox(v, 7.0).tolist() == v.tolist()


def test_the_value_is_r_inside_of_the_box_and_infinite_outside():
    r = Regularizer(l1=2.0, l2=4.0, box=3.0)
    assert r.value(np.array([1.0, -3.0])) == 2 * 4 + 2 * 10
    assert r.value(np.array([1.0, -3.01])) == inf
