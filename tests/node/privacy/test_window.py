"""A window of running time: what it holds, when it lets go, and how little of the past it keeps."""

from __future__ import annotations

import tracemalloc
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.kernels.privacy.accounting import UNIT, Totals
from hushgrid.kernels.privacy.limits import Charge
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.ledger_rows import Counted, Recent
from hushgrid.node.privacy.window import GROUPS, Window
from hushgrid.node.wire import Mark
from tests.support import examples
from tests.support.devices.gated_device import WORDS, spend
from tests.support.devices.windows import Clock

DAY = 86400.0


def epsilon(charge):
    return charge.epsilon / (1 << UNIT)


def filled(*spends, span=100.0):
    window = Window(span, WORDS)
    for ran, value in spends:
        window.add(ran, WORDS, "laplace", value, 0.0)
    return window


def test_the_interval_is_closed():
    window = filled((10.0, 1.0))
    assert epsilon(window.charge(110.0)) == 1.0
    assert epsilon(window.charge(110.0000001)) == 0.0


times = st.lists(st.tuples(st.floats(0, 50), st.floats(0.001, 1)), min_size=1, max_size=60)


@given(times, st.floats(1, 60))
@examples.of(100)
def test_at_no_time_it_holds_less_than_the_interval_and_never_more_than_a_thousandth_longer(steps, span):
    window, now, made = Window(span, WORDS), 0.0, []
    for pause, value in steps:
        now += pause
        window.add(now, WORDS, "laplace", value, 0.0)
        made.append((now, Fraction(value)))
        held = Fraction(window.charge(now).epsilon, 1 << UNIT)
        assert held >= sum((v for ran, v in made if ran >= now - span), Fraction())
        longest = span * (1 + 1 / GROUPS) * (1 + 1e-12)
        assert held <= sum((v for ran, v in made if ran >= now - longest), Fraction()) + Fraction(len(made), 2**256)


@given(times, st.floats(1, 60))
@examples.of(50)
def test_what_is_read_from_a_ledger_holds_no_less_than_what_was_told(steps, span):
    """Read the last first, as a ledger gives them."""
    now, rows = 0.0, []
    for pause, value in steps:
        now += pause
        rows.append((now, value))
    read = Window(
        span, WORDS, [Recent(ran, 1, WORDS, Counted().plus("laplace", v, 0.0).totals) for ran, v in reversed(rows)]
    )
    assert read.charge(now).epsilon >= sum(int(Fraction(v) * 2**UNIT) for ran, v in rows if ran >= now - span)


@pytest.mark.runs
def test_a_million_answers_are_held_in_a_thousand_groups():
    window = Window(DAY, WORDS)
    for k in range(20_000):
        window.add(k * 4.0, WORDS, "laplace", 1e-4, 0.0)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for k in range(20_000, 60_000):
        window.add(k * 4.0, WORDS, "laplace", 1e-4, 0.0)
        window.charge(k * 4.0)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert window.groups <= GROUPS + 2
    assert grown < 1 << 20
    assert epsilon(window.charge(60_000 * 4.0)) == pytest.approx(DAY / 4 * 1e-4, rel=2 / GROUPS)


@pytest.mark.parametrize(
    ("stored", "value", "counts"),
    [
        (WORDS, 1.0, 1.0),
        ("bounded-change 0.005", 1.0, 2.0),
        ("bounded-change 0.02", 1.0, 1.0),
        ("", 1.0, 1.0),
        ("replace-one-record", 1.0, 0.0),
        ("pair-change:0.01:0.95", 1.0, 0.0),
    ],
)
def test_spends_count_at_the_unit_of_the_budget_and_gaps_everywhere(stored, value, counts):
    kind = "laplace" if stored else "gap"
    told, read = Window(10.0, WORDS), Window(10.0, WORDS, [Recent(0.0, 1, stored, one(kind, value))])
    told.add(0.0, stored, kind, value, 0.0)
    assert epsilon(told.charge(1.0)) == epsilon(read.charge(1.0)) == counts


def one(kind: str, value: float) -> Totals:
    return Counted().plus(kind, value, 0.0).totals


def test_how_long_to_wait_is_until_enough_has_left():
    window = filled((0.0, 1.0), (30.0, 2.0), (60.0, 1.0))

    def within(most):
        return lambda charge: epsilon(charge) <= most

    assert window.wait(70.0, within(4.0)) == 0.0
    assert window.wait(70.0, within(3.5)) == 30.0
    assert window.wait(70.0, within(1.0)) == 60.0
    assert window.wait(70.0, within(0.5)) == 90.0
    assert window.wait(70.0, lambda charge: charge == Charge(epsilon=-1)) is None


# --- as a ledger keeps it ---


def test_a_ledger_tells_its_window_and_a_new_start_reads_the_same(tmp_path):
    clock = Clock()
    ledger = Ledger(tmp_path / "n0.ledger", "n0", clock=clock, durable=False)
    window = ledger.window(DAY, WORDS)
    ledger.join(b"r" * 16, b"plan")
    for k in range(30):
        clock.pass_(3600.0)
        ledger.commit(b"r" * 16, spends=[spend(k, epsilon=0.5)])
    assert epsilon(window.charge(ledger.running)) == 12.5  # 25 hours' ends lie in 24 hours, both ends counted
    ledger.close()
    again = Ledger(tmp_path / "n0.ledger", "n0", clock=clock, durable=False)
    assert again.window(DAY, WORDS).charge(again.running).epsilon == window.charge(again.running).epsilon
    again.close()


def test_a_gap_counts_as_made_now_in_the_version_of_now(tmp_path):
    clock = Clock()
    ledger = Ledger(tmp_path / "n0.ledger", "n0", clock=clock, durable=False)
    window = ledger.window(DAY, WORDS)
    clock.pass_(10 * DAY)
    ledger.new_data()
    ledger.tell(Mark(b"the lost ledger.", 40, epsilon=1.5, mu2=0.25))
    ledger.accept()
    charge = window.charge(ledger.running)
    assert (epsilon(charge), charge.gaussian, charge.mu2 / (1 << UNIT)) == (1.5, 1, 0.25)
    assert ledger.version_totals(WORDS).epsilon == 1.5
    clock.pass_(DAY + 1)
    assert window.charge(ledger.running) == Charge()
    ledger.close()
