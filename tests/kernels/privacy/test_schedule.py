"""An uneven public schedule of answers: reference values, and totals that are never above those of even answers."""

import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.privacy import schedule
from hushgrid.kernels.privacy.accounting import Gaussian, Totals, gdp_epsilon
from tests.support import examples

#: (mu, g, T): mu_k, from fifty digits.
REFERENCE = {
    (1.0, 2.0, 4): (0.5163977794943222, 0.7302967433402215, 1.0327955589886445, 1.460593486680443),
    (0.25, 0.9, 5): (0.276243937134, 0.262068009346, 0.24861954342, 0.235861208412, 0.223757589078),
    (3.0, 1.03, 3): (2.95555744484, 2.99956320221, 3.04422416819),
}


@pytest.mark.parametrize("of", REFERENCE)
def test_each_answer_costs_its_reference_value(of):
    assert schedule.prices(*of) == pytest.approx(REFERENCE[of], rel=1e-10)


@st.composite
def schedules(draw):
    """mu, g and T that pass `check`."""
    answers = draw(st.integers(1, 400))
    ends = draw(st.floats(-1, 1)) * 6 / max(answers - 1, 1)
    return 10.0 ** draw(st.floats(-6, 3)), 10.0 ** (ends * (1 - 1e-9)), answers


@examples.of(150)
@given(of=schedules())
def test_the_squares_add_up_to_no_more_than_those_of_even_answers_and_hardly_less(of):
    mu, growth, answers = of
    schedule.check(growth, answers)
    found, even = sum(Fraction(p) ** 2 for p in schedule.prices(*of)), answers * Fraction(mu) ** 2
    assert even * (1 - Fraction(1, 2**38)) <= found <= even
    one, total = Totals(), schedule.totals(mu, growth, answers, 0, answers)
    one.add(Gaussian(mu), answers)
    assert total.mu <= one.mu
    assert total.mu == pytest.approx(one.mu, rel=1e-11)


@examples.of(60)
@given(of=schedules(), data=st.data())
def test_a_part_of_the_answers_costs_what_they_cost_one_by_one(of, data):
    answers = of[-1]
    last = data.draw(st.integers(0, answers))
    first = data.draw(st.integers(0, last))
    one = Totals()
    for price in schedule.prices(*of)[first:last]:
        one.add(Gaussian(price))
    assert one == schedule.totals(*of, first, last)


def test_answers_beyond_the_last_cost_as_much_as_the_dearest():
    one, (dearest, *_) = Totals(), schedule.prices(0.25, 0.9, 5)
    for price in (*schedule.prices(0.25, 0.9, 5), dearest, dearest):
        one.add(Gaussian(price))
    assert one == schedule.totals(0.25, 0.9, 5, 0, 7)


def test_the_total_of_a_run_to_ten_digits():
    """mu 1.2 over 9 answers, whatever g: 3.6-GDP; an early end after three costs what these have."""
    for growth in (0.5, 1.1, 2.0):
        assert gdp_epsilon(schedule.totals(1.2, growth, 9, 0, 9).mu, 1e-5) == pytest.approx(21.176775284477, rel=1e-10)
    assert gdp_epsilon(schedule.totals(1.2, 2.0, 9, 0, 3).mu, 1e-5) == pytest.approx(1.647307619163, rel=1e-10)


@pytest.mark.parametrize(
    ("growth", "answers"), [(1.2, 80), (0.8, 80), (2.0, 2000), (1e-12, 2), (1e6, 5), (1.0000001, 200_000)]
)
def test_a_schedule_whose_answers_are_too_unequal_or_too_many_is_refused_in_one_line(growth, answers):
    with pytest.raises(
        InputError,
        match=rf"^privacy\.schedule\.growth: found {re.escape(f'{growth:g}')} over {answers} answers, expected",
    ):
        schedule.check(growth, answers)
