"""What a device allows: its owner's consent, and a budget that holds before the first answer and at every step."""

import math
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgrid.kernels.errors import Refused
from hushgrid.kernels.privacy.accounting import claimed_epsilon
from hushgrid.node.schema.sections import Adjacency, Allow, PerRun, ReplaceOneRecord
from hushgrid.node.wire import Mark
from tests.support.devices.gated_device import ADJACENCY, WORDS, Device, budget, plan, spend

DELTA = 1e-5
ACCOUNTANTS = {
    "pure-basic": {},
    "pure-optimal": {"accountant": "pure-optimal", "delta": DELTA},
    "zcdp": {"mechanism": "gaussian", "accountant": "zcdp", "delta": DELTA},
    "gdp": {"mechanism": "gaussian", "accountant": "gdp", "delta": DELTA},
}


def best(accountant, t):
    """The smallest valid bound on the whole plan: the Gaussian's is its own GDP, whatever the plan claims by."""
    return claimed_epsilon("gdp", t.per_answer, t.answers, DELTA) if accountant == "zcdp" else t.epsilon


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
@pytest.mark.parametrize("rounds", [1, 3, 40])
def test_a_budget_exactly_equal_to_the_plans_total_is_enough_to_its_last_answer(tmp_path, accountant, rounds):
    privacy = ACCOUNTANTS[accountant]
    device = Device(tmp_path, budget(2.0, privacy.get("delta")))
    device.answer(device.start(plan(rounds=rounds, **privacy)), rounds)
    assert len(device.ledger.spends()) == rounds


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
@pytest.mark.parametrize("rounds", [1, 40])
def test_any_smaller_budget_is_refused_before_the_first_answer(tmp_path, accountant, rounds):
    privacy = ACCOUNTANTS[accountant]
    device = Device(tmp_path, simulated=True)
    wanted = plan(rounds=rounds, **privacy)
    need = best(accountant, device.budget_check(wanted).terms)
    device.cap = budget(need * (1 - 1e-9), privacy.get("delta"))
    with pytest.raises(Refused, match=rf"n0: spent epsilon 0, asked .* more, budget .* \({WORDS}, delta"):
        device.start(wanted)
    assert device.ledger.spends() == []
    device.cap = budget(need * (1 + 1e-9), privacy.get("delta"))
    device.start(wanted)


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_when_the_budget_is_spent_another_run_is_refused(tmp_path, accountant):
    privacy = ACCOUNTANTS[accountant]
    device = Device(tmp_path, budget(2.0, privacy.get("delta")))
    device.answer(device.start(plan(rounds=5, **privacy)), 5)
    with pytest.raises(Refused):
        device.start(plan(rounds=1, **privacy | {"epsilon": 1.0}))


def test_two_runs_on_one_ledger_add_up(tmp_path):
    device = Device(tmp_path, budget(4.0))
    for _ in range(2):
        device.answer(device.start(plan(rounds=4)), 4)
    with pytest.raises(Refused, match="n0: spent epsilon"):
        device.start(plan(rounds=4))
    assert device.ledger.totals(WORDS).epsilon <= 4.0
    device.cap = budget(5.9)
    with pytest.raises(Refused, match="asked 2 more"):
        device.start(plan(rounds=4))
    assert len(device.ledger.spends()) == 8


def test_two_gaussian_runs_add_up_by_mu_squared(tmp_path):
    privacy = ACCOUNTANTS["gdp"]
    device = Device(tmp_path, simulated=True)
    mu = device.budget_check(plan(rounds=9, **privacy)).terms.per_answer
    need = claimed_epsilon("gdp", mu, 18, DELTA)
    assert need < 4.0
    for cap, runs in ((need * (1 + 1e-9), 2), (need * (1 - 1e-3), 1)):
        (tmp_path / str(runs)).mkdir()
        device = Device(tmp_path / str(runs), budget(cap, DELTA))
        done = 0
        for _ in range(3):
            try:
                device.answer(device.start(plan(rounds=9, **privacy)), 9)
            except Refused:
                break
            done += 1
        assert done == runs


def test_two_claims_that_each_take_all_of_delta_are_not_added_up_at_the_same_delta(tmp_path):
    device = Device(tmp_path, budget(4.0 * (1 + 1e-9), DELTA))
    device.answer(device.start(plan(rounds=9, **ACCOUNTANTS["gdp"])), 9)
    second = plan(rounds=2, **ACCOUNTANTS["pure-optimal"])
    with pytest.raises(Refused):
        device.start(second)
    device.cap = budget(10.0, DELTA)  # both kinds are counted as Gaussian answers, which pay with delta once
    device.answer(device.start(second), 2)


def test_an_unfinished_run_has_spent_what_it_answered_and_no_more(tmp_path):
    device = Device(tmp_path, budget(2.0))
    device.answer(device.start(plan(rounds=4)), 1)
    device.answer(device.start(plan(rounds=3, epsilon=1.5)), 3)
    with pytest.raises(Refused):
        device.start(plan(rounds=1, epsilon=0.01))


def test_laplace_and_gaussian_answers_are_counted_together(tmp_path):
    device = Device(tmp_path, budget(3.9, DELTA))  # a Laplace answer beside Gaussian ones counts as one of them
    device.answer(device.start(plan(rounds=2, epsilon=1.0)), 2)
    with pytest.raises(Refused):
        device.start(plan(rounds=2, **ACCOUNTANTS["gdp"]))
    device.answer(device.start(plan(rounds=2, **ACCOUNTANTS["gdp"] | {"epsilon": 0.5})), 2)


def test_the_step_is_refused_where_the_plan_was_not(tmp_path):
    """After a restart the ledger knows of more than it did when the plan was stored."""
    device, wanted = Device(tmp_path, budget(2.0)), plan(rounds=4)
    device.answer(device.start(wanted), 1)
    device.ledger.tell(Mark(device.ledger.id, 3, epsilon=1.2))
    device.ledger.accept()  # 0.7 more than the one answer of 0.5
    gate = device.gate(wanted)
    device.answer(gate, 1)
    with pytest.raises(Refused, match=r"asked 0.5 more"):
        gate.gradient(np.zeros(4))
    assert len(device.ledger.spends()) == 3


def test_the_answers_of_one_step_are_authorised_together(tmp_path):
    """Several local updates note several spends before any of them is committed."""
    device = Device(tmp_path, budget(1.0), simulated=True)
    device.start(plan(rounds=1, epsilon=0.1))
    budget_check = device.budget_check(plan(rounds=9, per_answer={"epsilon": 0.4}))
    one = spend(epsilon=0.4)
    budget_check.authorise([one, one])
    with pytest.raises(Refused):
        budget_check.authorise([one, one, one])


# --- a coordinator that lies in its plan ---


def test_a_plans_generous_delta_buys_nothing_from_a_budget_without_one(tmp_path):
    """Epsilon 0.1 at delta 0.999 is no promise: a device prices the answers at its own delta."""
    device = Device(tmp_path, budget(2.0), allow=Allow(per_run=PerRun(epsilon=1.0)))
    lie = plan(rounds=3, epsilon=0.1, accountant="pure-optimal", delta=0.999)
    price = 3 * device.budget_check(lie).terms.per_answer
    assert price > 2.0
    with pytest.raises(Refused, match=rf"asked epsilon {price:g} for the run, its owner allows 1"):
        device.start(lie)
    device.allow = Allow()
    with pytest.raises(Refused, match=rf"asked {price:g} more, budget 2"):
        device.start(lie)


def test_gaussian_noise_passes_no_budget_without_a_delta(tmp_path):
    with pytest.raises(Refused, match="asked inf more"):
        Device(tmp_path, budget(100.0)).start(plan(**ACCOUNTANTS["gdp"]))


# --- the owner's consent ---


REPLACED = Adjacency(replace_one_record=ReplaceOneRecord(clip=1.0))


def test_another_relation_than_the_budgets_is_refused(tmp_path):
    with pytest.raises(Refused, match=r"n0: adjacency replace-one-record, its budget counts bounded-change 0.01"):
        Device(tmp_path, budget(9.0)).budget_check(plan(adjacency=REPLACED)).admit(4)
    with pytest.raises(Refused, match=r"n0: adjacency bounded-change 0.01, its budget counts replace-one-record"):
        Device(tmp_path / "b", budget(9.0, adjacency=REPLACED)).start(plan())


def test_another_relation_than_the_owner_allows_is_refused(tmp_path):
    device = Device(tmp_path, budget(9.0), allow=Allow(adjacency=REPLACED))
    with pytest.raises(Refused, match=r"n0: adjacency bounded-change 0.01, its allow counts replace-one-record"):
        device.start(plan())
    Device(tmp_path / "b", budget(9.0), allow=Allow(adjacency=ADJACENCY)).start(plan())


# --- one unit: the budget's ---


def test_a_plan_at_a_smaller_unit_costs_as_many_times_as_it_takes_to_make_up_the_budgets(tmp_path):
    """Epsilon 2 that a change of 0.005 is hidden with is epsilon 4 for one of 0.01."""
    device, finer = Device(tmp_path, budget(4.0)), plan(adjacency=Adjacency(bounded_change=0.005))
    device.answer(device.start(finer), 4)
    assert device.budget_check(finer).spent == pytest.approx(4.0, rel=1e-3)  # the grid's answers are a little cheaper
    assert device.ledger.totals(WORDS).epsilon <= 4.0
    with pytest.raises(Refused, match=r"asked 0.1 more, budget 4 \(bounded-change 0.01"):
        device.start(plan(epsilon=0.1))
    other = Device(tmp_path / "b", budget(3.9))
    with pytest.raises(Refused, match=r"spent epsilon 0, asked 4 more, budget 3.9"):
        other.start(finer)


def test_a_plan_at_a_larger_unit_hides_the_budgets_too(tmp_path):
    device = Device(tmp_path, budget(2.0))
    device.answer(device.start(plan(adjacency=Adjacency(bounded_change=0.02))), 4)
    assert device.ledger.totals(WORDS).epsilon <= 2.0
    with pytest.raises(Refused):
        device.start(plan(epsilon=0.1))


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_every_accountant_prices_a_smaller_unit_by_group_privacy(tmp_path, accountant):
    privacy = ACCOUNTANTS[accountant] | {"adjacency": Adjacency(bounded_change=0.005)}
    device = Device(tmp_path, simulated=True)
    t = device.budget_check(plan(rounds=9, **privacy)).terms
    need = claimed_epsilon(
        "gdp" if accountant == "zcdp" else accountant, 2 * t.per_answer, 9, DELTA if t.delta else 0.0
    )
    assert need > t.epsilon
    device = Device(tmp_path / "b", budget(need * (1 - 1e-9), privacy.get("delta")))
    with pytest.raises(Refused):
        device.start(plan(rounds=9, **privacy))
    device.cap = budget(need * (1 + 1e-9), privacy.get("delta"))
    device.answer(device.start(plan(rounds=9, **privacy)), 9)


def test_what_the_owner_allows_a_run_is_counted_at_its_own_unit(tmp_path):
    finer = plan(epsilon=1.0, adjacency=Adjacency(bounded_change=0.005))
    device = Device(tmp_path, budget(9.0), allow=Allow(per_run=PerRun(epsilon=1.5)))
    with pytest.raises(Refused, match=r"asked epsilon 2 for the run, its owner allows 1.5"):
        device.start(finer)
    device.allow = Allow(per_run=PerRun(epsilon=1.5), adjacency=Adjacency(bounded_change=0.005))
    device.start(finer)


def test_a_budget_is_one_number_whatever_the_clips(tmp_path):
    """Three runs at clips 1.0, 1.001, 1.002 under a budget of 1 used to spend 1 each."""
    device = Device(tmp_path, budget(1.0, adjacency=REPLACED))
    other = Adjacency(replace_one_record=ReplaceOneRecord(clip=1.001))
    device.ledger.join(b"run", b"plan")
    device.ledger.commit(b"run", spends=[spend(epsilon=0.8, adjacency=str(REPLACED))])
    with pytest.raises(Refused, match=r"spent epsilon 0.8, asked 0.5 more, budget 1 \(replace-one-record"):
        device.budget_check(plan(epsilon=0.5, adjacency=other)).admit(4)


# --- what else the owner says ---


@pytest.mark.parametrize(("algorithms", "words"), [([], "none"), (["recal", "dpp2"], "recal, dpp2")])
def test_an_algorithm_the_owner_does_not_allow_is_refused(tmp_path, algorithms, words):
    device = Device(tmp_path, budget(9.0), allow=Allow(algorithms=algorithms))
    with pytest.raises(Refused, match=f"n0: algorithm ladmm, its owner allows {words}"):
        device.start(plan())


def test_more_than_the_owner_allows_a_run_is_refused(tmp_path):
    device = Device(tmp_path, budget(9.0), allow=Allow(algorithms=["ladmm"], per_run=PerRun(epsilon=2.0)))
    device.start(plan(epsilon=2.0))
    with pytest.raises(Refused, match=r"asked epsilon 2.1 for the run, its owner allows 2"):
        device.start(plan(epsilon=2.1))


@pytest.mark.parametrize("variant", ["published", "none"])
def test_a_device_runs_neither_published_nor_none_whatever_its_budget(tmp_path, variant):
    for cap in (None, budget(1e9)):
        with pytest.raises(Refused, match=f"n0: variant {variant} runs in simulation only"):
            Device(tmp_path / str(cap is None), cap).start(plan(variant=variant))


def test_a_ledger_behind_its_mark_answers_nothing_until_the_owner_accepts(tmp_path):
    device = Device(tmp_path, budget(9.0))
    device.ledger.tell(Mark(device.ledger.id, 3, epsilon=1.5))
    with pytest.raises(Refused, match=r"n0: its ledger is behind its mark: spend 0, the mark says 3; .* ledger accept"):
        device.start(plan())
    device.ledger.accept()
    gate = device.start(plan())
    assert gate.authority.spent == 1.5


def test_a_gap_counts_under_the_budgets_adjacency_though_nobody_knows_its_own(tmp_path):
    """A new card: the ledger is empty, the peers remember another one."""
    device = Device(tmp_path, budget(2.0))
    device.ledger.tell(Mark(b"the lost ledger.", 40, epsilon=1.5))
    device.ledger.accept()
    with pytest.raises(Refused, match=r"n0: spent epsilon 1.5, asked 2 more, budget 2"):
        device.start(plan())
    device.start(plan(epsilon=0.5))


def test_without_a_budget_nothing_is_capped_and_everything_is_counted(tmp_path):
    device = Device(tmp_path, simulated=True)
    gate = device.start(plan(rounds=3, epsilon=1e3))
    assert gate.authority.left == math.inf
    device.answer(gate, 3)
    assert gate.authority.spent == pytest.approx(1e3, rel=1e-3)


def test_what_is_left_is_the_budget_less_what_was_spent(tmp_path):
    device = Device(tmp_path, budget(2.0))
    gate = device.start(plan(rounds=4))
    device.answer(gate, 1)
    assert gate.authority.left == pytest.approx(1.5, rel=1e-3)


@pytest.mark.runs
@settings(deadline=None)
@given(st.integers(0, 7), st.floats(0.1, 8.0), st.floats(0.1, 8.0))
def test_a_budget_that_the_owner_makes_smaller_in_a_run_holds_from_the_next_answer_on(given_before, second, third):
    """A larger one changes nothing in the run: whatever the order, the smallest of all holds."""
    with TemporaryDirectory() as place:
        device = Device(Path(place), budget(4.0))
        run = device.start(plan(rounds=8))
        device.answer(run, given_before)
        for epsilon in (second, third):
            run.authority.tighten(budget(epsilon))
        least, answers = min(4.0, second, third), given_before
        with suppress(Refused):
            while answers < 8:
                device.answer(run, 1)
                answers += 1
        costs = device.ledger.totals(WORDS).epsilon  # on their grid answers cost a little less than was asked for them
        assert costs <= least or answers == given_before
        assert answers == 8 or costs + run.terms.per_answer > least
        device.ledger.close()
