"""A budget that renews: no closed interval of its window holds more than it, whatever befalls the device."""

from __future__ import annotations

import tempfile
from math import inf
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from hushgrid.kernels.errors import InputError, Refused
from hushgrid.kernels.privacy.limits import Charge
from hushgrid.node.privacy import spend_table
from hushgrid.node.privacy.gate import Exhausted
from hushgrid.node.privacy.ledger_rows import Window
from hushgrid.node.privacy.renewal import budget_status
from hushgrid.node.schema.sections import Adjacency, Allow, Budget, Change, PerRun
from hushgrid.node.wire import Mark
from tests.support import examples
from tests.support.devices.gated_device import ADJACENCY, WORDS, Device, budget, plan
from tests.support.devices.windows import DELTA, HISTORIES, Clock, lived

SPAN = 1000.0
GDP = {"mechanism": "gaussian", "accountant": "gdp", "delta": DELTA}
caps = st.builds(
    budget,
    st.just(2.0),
    st.sampled_from([None, DELTA]),
    window=st.just(SPAN),
    lifetime=st.sampled_from([None, 2.0, 5.0]),
)


# --- the promise ---


@pytest.mark.runs
@given(caps, HISTORIES)
@examples.of(1000)
def test_no_interval_no_version_and_no_life_holds_more_than_its_limit(cap, events):
    with tempfile.TemporaryDirectory() as folder:
        assert lived(Path(folder), cap, events).above() == []


class Calendar(Window):
    """A budget that begins anew at each full period."""

    def charge(self, now):
        since = now // self.span * self.span
        kept = [group.charge for group in self._groups if group.last >= since]
        return sum_of(kept)


class Forgetful(Window):
    """One that forgets with each start what was spent before."""

    def __init__(self, span, adjacency, recent=()):
        super().__init__(span, adjacency)


def sum_of(charges):
    total = Charge()
    for charge in charges:
        total = total.plus(charge)
    return total


@pytest.mark.runs
@pytest.mark.parametrize("broken", [Calendar, Forgetful])
def test_the_same_test_catches_a_budget_that_renews_otherwise(monkeypatch, broken):
    monkeypatch.setattr(spend_table, "Window", broken)

    @given(HISTORIES)
    @settings(max_examples=2000, deadline=None, derandomize=True, database=None, phases=[Phase.generate])
    def promise(events):
        with tempfile.TemporaryDirectory() as folder:
            assert lived(Path(folder), budget(2.0, window=SPAN), events).above() == []

    with pytest.raises(AssertionError, match="the window that ends at"):
        promise()


def ask(epsilon=2.0, mechanism="laplace"):
    return ("ask", mechanism, epsilon, 1, 1, 0.0, True, -1)


def test_twice_epsilon_does_not_pass_across_midnight(tmp_path, monkeypatch):
    night = [("wait", 990.0), ask(), ("new_data",), ("wait", 20.0), ask()]
    history = lived(tmp_path, budget(2.0, window=SPAN), night)
    assert (len(history.seen), history.refused) == (1, ["window"])
    monkeypatch.setattr(spend_table, "Window", Calendar)
    (tmp_path / "calendar").mkdir()
    history = lived(tmp_path / "calendar", budget(2.0, window=SPAN), night)
    assert history.above() == ["the window that ends at 1001010.0 holds epsilon 3.99998"] or len(history.above()) == 1


# --- what renews, and what does not ---


def device(tmp_path, cap, **more):
    clock = Clock()
    return Device(tmp_path, cap, clock=clock, **more), clock


def test_after_a_window_the_budget_is_whole_again(tmp_path):
    node, clock = device(tmp_path, budget(2.0, window=SPAN))
    for _ in range(5):
        node.ledger.new_data()
        node.answer(node.start(plan(rounds=2)), 2)
        with pytest.raises(Refused, match="window"):
            node.start(plan(rounds=1, epsilon=0.1))
        clock.pass_(SPAN * 1.001 + 1e-6)
    assert node.ledger.spends.totals(WORDS).epsilon == pytest.approx(10.0, rel=1e-3)


def test_data_that_stand_still_never_renew(tmp_path):
    node, clock = device(tmp_path, budget(2.0, window=SPAN))
    node.answer(node.start(plan(rounds=2)), 2)
    clock.pass_(1000 * SPAN)
    with pytest.raises(
        Refused,
        match=r"n0: spent epsilon 1.9\d* in the last 16min 40s of running time, asked 0.1 more, budget 2 a window "
        r"\(bounded-change 0.01, delta 0\): never while data version 1 stands, fits with new data$",
    ):
        node.start(plan(rounds=1, epsilon=0.1))
    node.ledger.new_data()
    node.answer(node.start(plan(rounds=2)), 2)


def test_a_run_goes_on_with_the_version_it_began_with_though_the_data_are_new(tmp_path):
    """Else its remaining answers would be paid by the new version, and the old data would have told twice."""
    node, clock = device(tmp_path, budget(2.0, window=SPAN))
    node.answer(node.start(plan(rounds=2, epsilon=1.0)), 2)
    clock.pass_(2 * SPAN)
    gate = node.start(plan(rounds=2, epsilon=1.0))
    node.answer(gate, 1)
    node.ledger.new_data()
    clock.pass_(2 * SPAN)
    node.answer(gate, 1)
    clock.pass_(2 * SPAN)
    gate.terms = gate.authority.terms = gate.terms.__class__(
        **{f: getattr(gate.terms, f) for f in gate.terms.__struct_fields__} | {"answers": 9}
    )
    with pytest.raises(Exhausted, match=r"never while data version 1 stands, fits with new data"):
        node.answer(gate, 1)


def test_answers_of_a_run_that_has_begun_stand_in_the_ledger_under_its_version(tmp_path):
    node, _ = device(tmp_path, budget(2.0, window=SPAN))
    gate = node.start(plan(rounds=4, epsilon=2.0))
    node.answer(gate, 1)
    node.ledger.new_data()
    node.answer(gate, 3)
    assert [spend.version for spend in node.ledger.spends.rows()] == [1] * 4
    assert node.ledger.spends.version_totals(WORDS).epsilon == 0.0  # nothing was said about version 2
    node.ledger.close()
    node, _ = device(tmp_path, budget(2.0, window=SPAN))
    assert [spend.version for spend in node.ledger.spends.rows()] == [1] * 4
    assert node.ledger.spends.version_totals(WORDS).epsilon == 0.0
    assert node.ledger.verify() == []


def test_a_run_that_has_asked_nothing_when_the_data_are_declared_new_counts_all_that_was_said_about_its_own(tmp_path):
    node, clock = device(tmp_path, budget(2.0, window=SPAN))
    node.answer(node.start(plan(rounds=2, epsilon=1.6)), 2)
    clock.pass_(2 * SPAN)
    gate = node.gate(plan(rounds=1, epsilon=0.5))  # as at a restart: nothing is consented to
    node.ledger.new_data()
    with pytest.raises(Exhausted, match="never while data version 1 stands"):
        node.answer(gate)


def test_a_budget_that_is_made_smaller_counts_what_was_said_about_the_version_of_the_run_under_way(tmp_path):
    node, clock = device(tmp_path, budget(4.0, window=SPAN))
    node.answer(node.start(plan(rounds=2, epsilon=1.6)), 2)
    clock.pass_(2 * SPAN)
    gate = node.start(plan(rounds=4, epsilon=1.6))
    node.answer(gate, 1)
    node.ledger.new_data()
    gate.authority.tighten(budget(2.5, window=SPAN))
    node.answer(gate, 1)  # 1.6 long ago, and 0.4 each
    with pytest.raises(Exhausted, match="never while data version 1 stands"):
        node.answer(gate, 1)


def test_what_was_said_about_an_earlier_version_is_the_sum_of_its_rows_and_no_less_once_they_are_condensed(tmp_path):
    node, _ = device(tmp_path, budget(9.0, window=SPAN))
    for run in range(3):
        node.answer(node.start(plan(rounds=2, epsilon=1.0)), 2)
        if run == 1:
            node.ledger.new_data()
    exact = node.ledger.spends.totals_about(1, WORDS).epsilon
    assert exact == pytest.approx(4 * node.ledger.spends.rows()[0].value)
    with node.ledger.tables.transaction():
        node.ledger.spends.condense(6, 9)  # of both versions, in one hour
    assert exact <= node.ledger.spends.totals_about(1, WORDS).epsilon <= node.ledger.spends.totals(WORDS).epsilon


def test_a_refusal_says_when_it_would_fit_in_running_time(tmp_path):
    node, clock = device(tmp_path, budget(2.0, window="24h"))
    node.answer(node.start(plan(rounds=1, epsilon=2.0)), 1)
    node.ledger.new_data()
    clock.pass_(3600.0)
    with pytest.raises(Refused, match=r"asked 1 more, budget 2 a window .*: fits in 23h of running time$") as caught:
        node.start(plan(rounds=1, epsilon=1.0))
    assert caught.value.refused_by == "window"
    with pytest.raises(Refused, match=r"asked 3 more, budget 2 a window .*: more than a whole window$"):
        node.start(plan(rounds=1, epsilon=3.0))
    clock.pass_(23 * 3600.0 + 90)
    node.start(plan(rounds=1, epsilon=1.0))


def test_the_life_is_a_limit_of_its_own_that_no_time_brings_back(tmp_path):
    node, clock = device(tmp_path, budget(2.0, window=SPAN, lifetime=5.0))
    for _ in range(2):
        node.ledger.new_data()
        node.answer(node.start(plan(rounds=2)), 2)
        clock.pass_(2 * SPAN)
    node.ledger.new_data()
    with pytest.raises(
        Refused,
        match=r"n0: spent epsilon (3.99\d*|4) over the life of the ledger, asked 2 more, lifetime 5 \(bounded-change "
        r"0.01, "
        r"delta 0\): no time brings it back$",
    ) as caught:
        node.start(plan(rounds=2))
    assert caught.value.refused_by == "lifetime"
    node.start(plan(rounds=2, epsilon=1.0))


@pytest.mark.parametrize(
    ("by", "answers", "cap"),
    [("window", 2, budget(1.0, window=SPAN)), ("lifetime", 3, budget(1.0, window=1.0, lifetime=1.5))],
)
def test_the_gate_asks_both_limits_before_each_answer(tmp_path, by, answers, cap):
    """A coordinator that was never asked for consent, as after a restart of the device."""
    node, clock = device(tmp_path, cap)
    node.run = b"r" * 16
    node.ledger.join(node.run, b"plan")
    for k in range(answers + 1):
        gate = node.gate(plan(rounds=4, epsilon=2.0))
        if k == answers:
            with pytest.raises(Exhausted) as caught:
                node.answer(gate, 1)
            assert caught.value.refused_by == by
        else:
            node.answer(gate, 1)
        clock.pass_(5.0)
        if by == "lifetime":
            node.ledger.new_data()
    assert len(node.ledger.spends.rows()) == answers


def test_a_whole_window_by_gaussian_noise_is_enough_to_its_last_answer(tmp_path):
    node, clock = device(tmp_path, budget(5.0, DELTA, window=SPAN))
    for _ in range(2):
        node.ledger.new_data()
        node.answer(node.start(plan(rounds=24, epsilon=5.0, **GDP)), 24)
        with pytest.raises(Refused):
            node.start(plan(rounds=1, epsilon=0.5, **GDP))
        clock.pass_(1.01 * SPAN)


@pytest.mark.runs
def test_96_gaussian_answers_a_day_fit_and_one_more_does_not(tmp_path):
    node, clock = device(tmp_path, budget(5.0, DELTA, window="24h"))
    node.simulated = False
    mu = node.budget_check(plan(rounds=96, epsilon=5.0, **GDP)).terms.per_answer
    each = plan(rounds=1, epsilon=one_answer(mu), **GDP)
    for k in range(100):
        node.ledger.new_data()
        node.answer(node.start(each), 1)
        if k == 95:
            clock.pass_(880.0)
            with pytest.raises(Refused, match=r"fits in 20s of running time"):
                node.start(each)
            clock.pass_(21.0)
        clock.pass_(900.0)


def test_whether_a_fresh_answer_is_affordable_is_asked_of_the_window_alone_and_of_no_version(tmp_path):
    whole = plan(rounds=1, epsilon=1.0)
    node, clock = device(tmp_path, budget(1.0, window=SPAN, lifetime=2.0))
    assert node.budget_check(whole).affordable
    assert not node.budget_check(plan(rounds=1, epsilon=1.1)).affordable
    node.answer(node.start(whole), 1)
    assert not node.budget_check(whole).affordable
    clock.pass_(1.01 * SPAN)
    assert node.budget_check(whole).affordable  # about new data; about those that stand still nothing fits
    with pytest.raises(Refused, match="never while data version 1 stands"):
        node.start(whole)
    node.ledger.new_data()
    node.answer(node.start(whole), 1)
    clock.pass_(1.01 * SPAN)
    node.ledger.new_data()
    assert node.budget_check(whole).affordable  # its life is over: that is refused, not repeated for ever
    with pytest.raises(Refused, match="no time brings it back"):
        node.start(whole)


def one_answer(mu):
    from hushgrid.kernels.privacy.accounting import claimed_epsilon

    return claimed_epsilon("gdp", mu, 1, DELTA) * (1 - 1e-9)


def test_the_most_running_time_is_counted_after_a_crash_never_too_much(tmp_path):
    history = lived(
        tmp_path,
        budget(2.0, window=SPAN),
        [ask(), ("new_data",), ("wait", 5000.0), ("crash",), ask(), ("wait", 900.0), ask()],
    )
    assert history.refused == ["window", "window"]


def test_spends_of_a_window_survive_an_old_copy_and_count_as_made_when_they_were_accepted(tmp_path):
    events = [("back_up",), ask(), ("new_data",), ("wait", 800.0), ("replace",), ("new_data",), ("wait", 800.0), ask()]
    history = lived(tmp_path, budget(2.0, window=SPAN), events)
    assert history.refused == ["window"]
    assert len(history.seen) == 1


# --- what the owner writes ---


def test_a_plan_that_composes_optimally_is_wrong_input_for_a_window(tmp_path):
    node, _ = device(tmp_path, budget(2.0, DELTA, window=SPAN))
    with pytest.raises(InputError, match=r"found accountant pure-optimal in the plan, expected another: .* beforehand"):
        node.start(plan(accountant="pure-optimal", delta=DELTA))


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"lifetime": 9.0}, "no lifetime without a window"),
        ({"window": "0s"}, "a window above 0s"),
        ({"window": "24h", "lifetime": 1.0}, "a lifetime of at least the epsilon"),
    ],
)
def test_a_budget_that_contradicts_itself_is_refused(more, expected):
    with pytest.raises(ValueError, match=expected):
        Budget(epsilon=2.0, adjacency=ADJACENCY, **more)


@pytest.mark.parametrize(
    ("by", "changes"),
    [
        ("algorithm", {"allow": Allow(algorithms=["recal"])}),
        ("per-run", {"allow": Allow(per_run=PerRun(epsilon=1.0))}),
        ("adjacency", {"allow": Allow(adjacency=Adjacency(bounded_change=Change(pair=0.1, power_factor=0.9)))}),
        ("budget", {"cap": budget(1.0)}),
        ("window", {"cap": budget(1.0, window=SPAN)}),
        ("mark", {}),
    ],
)
def test_a_refusal_names_its_rule_by_one_word(tmp_path, by, changes):
    node = Device(tmp_path, changes.get("cap", budget(9.0)), allow=changes.get("allow"))
    if by == "mark":
        node.ledger.marks.tell(Mark(node.ledger.id, 3, epsilon=1.5))
    with pytest.raises(Refused) as caught:
        node.start(plan())
    assert caught.value.refused_by == by


# --- what is left ---


def test_what_stands_is_what_the_window_and_the_life_have_left(tmp_path):
    cap = budget(2.0, window=SPAN, lifetime=10.0)
    node, clock = device(tmp_path, cap)
    assert budget_status(node.ledger, cap) == (SPAN, 2.0, 10.0, None, None)
    node.ledger.new_data()
    node.answer(node.start(plan(rounds=2, epsilon=1.0)), 2)
    clock.pass_(400.0)
    node.ledger.new_data()
    now = budget_status(node.ledger, cap)
    assert now.left_window == pytest.approx(1.0, rel=1e-2)
    assert now.left_life == pytest.approx(9.0, rel=1e-2)
    assert now.left == now.left_window
    assert now.renews_s == pytest.approx(600.0)
    assert now.runs_out_s == pytest.approx(9 * SPAN, rel=1e-2)
    clock.pass_(601.0)
    later = budget_status(node.ledger, cap)
    assert (later.left_window, later.renews_s, later.runs_out_s) == (2.0, None, None)


def test_a_budget_without_a_window_stands_as_it_did(tmp_path):
    node = Device(tmp_path, budget(2.0))
    node.answer(node.start(plan(rounds=4)), 1)
    assert budget_status(node.ledger, node.cap)[:2] == (None, None)
    assert budget_status(node.ledger, node.cap).left == pytest.approx(1.5, rel=1e-3)


def test_without_a_limit_over_its_life_a_window_says_none(tmp_path):
    node = Device(tmp_path, budget(2.0, window=SPAN))
    assert budget_status(node.ledger, node.cap).left_life is None
    assert node.budget_check(plan()).left == 2.0 < inf
