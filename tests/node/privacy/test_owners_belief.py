"""A share of a masked sum counts as its owner believes in the others, whatever number of honest devices a plan was
written with.
"""

from contextlib import closing
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgrid.kernels.errors import Refused
from hushgrid.kernels.privacy.accounting import gdp_epsilon
from hushgrid.kernels.privacy.shares import shares
from hushgrid.lab.audit.ledgers import compare
from hushgrid.node.privacy.budget import BudgetCheck, spent_in, worth_alone
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.ledger_rows import Spend
from hushgrid.node.problems.masking import own_share
from hushgrid.node.schema.sections import Adjacency, Allow, AllowMasked, Budget, PerRun, ReplaceOneRecord
from tests.support.scenarios.guarded_plans import DELTA, sum_of

RUN = b"r" * 16
CLAIM, BELIEVED, ALONE = 0.0961, 1.19, 2.92  #: epsilon of one sum of 498 shares, of 5 of them, of one by itself
ADJACENCY = Adjacency(replace_one_record=ReplaceOneRecord(clip=1.0))


@pytest.fixture(scope="module")
def plan():
    """Of 500 devices, of which 499 may be invented: it relies on 498 honest ones."""
    return sum_of(500, 2, CLAIM)


def owner(ledger, plan, honest=5, *, epsilon=20.0, corrupt=1, alone=9.0, per_run=None):
    allow = Allow(
        masked=AllowMasked(corrupt=corrupt, honest=honest, alone=alone, ca="ca.pem"),
        per_run=per_run and PerRun(epsilon=per_run),
    )
    budget = Budget(epsilon=epsilon, delta=DELTA, adjacency=ADJACENCY)
    terms = plan.terms_of("n0")
    return BudgetCheck("n0", ledger, RUN, plan.algorithm, terms, budget, allow, simulated=False)


@pytest.fixture
def ledger(tmp_path):
    with closing(Ledger(tmp_path / "n0.ledger", "n0", durable=False)) as opened:
        opened.join(RUN, b"plan")
        yield opened


def pay(ledger, plan, budget_check):
    """One answer, as the gate enters it."""
    share = own_share(plan, "n0", budget_check)
    assert share is not None
    sizes = share.lattice.sensitivity, share.lattice.scale, share.lattice.g
    spend = Spend(1, "gaussian", share.mu, *sizes, plan.terms.adjacency, "x", share.honest)
    budget_check.authorise([spend])
    ledger.commit(RUN, spends=[spend])
    budget_check.committed([spend])
    return share


def test_a_plan_that_relies_on_498_honest_devices_is_paid_at_the_owners_five(ledger, plan):
    """Before: .096, of a share that is worth 1.19 if five are honest, and 2.9 if all others are invented."""
    budget_check = owner(ledger, plan)
    budget_check.admit(1)
    share = pay(ledger, plan, budget_check)
    assert gdp_epsilon(share.alone, DELTA) == pytest.approx(ALONE, rel=5e-3)
    assert budget_check.spent == pytest.approx(BELIEVED, rel=5e-3)
    assert budget_check.spent >= gdp_epsilon(share.alone / 5**0.5, DELTA) * (1 - 1e-12)
    assert [s.honest for s in ledger.spends.rows()] == [5]
    assert ledger.spends.honest(RUN) == 5
    t = plan.terms_of("n0")
    assert spent_in(ledger, RUN, t) == pytest.approx(BELIEVED, rel=5e-3)
    assert worth_alone(sum(ledger.spends.shares("replace-one-record")), DELTA) == pytest.approx(ALONE, rel=5e-3)
    again = owner(ledger, plan)  # after a restart
    assert again.spent == pytest.approx(budget_check.spent)


def test_an_audit_of_the_ledger_knows_at_how_many_honest_shares_it_was_counted(ledger, plan):
    pay(ledger, plan, owner(ledger, plan))
    line = compare(ledger, plan, RUN, 1)
    assert line.wrong == ()
    assert line.epsilon == pytest.approx(BELIEVED, rel=5e-3)
    cheap = Spend(2, "gaussian", plan.terms.per_answer, 1.0, 1.0, 0.1, plan.terms.adjacency, "x", 5)
    ledger.commit(RUN, spends=[cheap])  # at the plan's price, although it is counted as one of five
    assert any("spend 2: 0.03" in words for words in compare(ledger, plan, RUN, 1).wrong)


def test_noise_stays_as_the_plan_says(ledger, plan):
    ours, plans = (own_share(plan, "n0", owner(ledger, plan, honest)) for honest in (5, 498))
    assert ours.lattice == plans.lattice
    assert plans.mu <= plan.terms.per_answer * (1 + 1e-12)


def test_a_plan_that_breaks_the_budget_under_the_owners_belief_is_refused_before_its_first_answer(ledger, plan):
    owner(ledger, plan, 498, epsilon=0.1).admit(1)
    owner(ledger, plan, 5, epsilon=1.2).admit(1)
    for limits, words in (
        ({"epsilon": 1.1}, r"n0: spent epsilon 0, asked 1\.18\d* more, budget 1\.1"),
        ({"per_run": 1.0}, r"n0: asked epsilon 1\.18\d* for the run, its owner allows 1"),
        ({"alone": 2.8}, r"n0: shares worth epsilon 2\.9\d* in all against everybody else, its owner allows 2\.8"),
    ):
        with pytest.raises(Refused, match=words):
            owner(ledger, plan, 5, **limits).admit(1)
    assert ledger.spends.rows() == []


def test_corrupt_may_be_a_share_of_the_contributors(ledger, plan):
    """A fifth of 500: a plan that reckons with two is refused, one that reckons with 100 is not."""
    with pytest.raises(Refused, match="2 corrupt contributors, its owner asks for at least 100"):
        owner(ledger, plan, corrupt=0.2).admit(1)
    owner(ledger, sum_of(500, 100, CLAIM), corrupt=0.2).admit(1)
    for share, contributors, least in (
        (0.2, 5, 1),
        (0.07, 100, 7),
        (0.2, 6, 2),
        (0.001, 500, 1),
        (3, 500, 3),
        (0, 4, 0),
    ):
        assert AllowMasked(corrupt=share, honest=1, alone=1.0, ca="c").least_corrupt(contributors) == least


@pytest.mark.runs
@given(
    mu=st.floats(1e-3, 3.0),
    moves=st.lists(st.floats(0.1, 10.0), min_size=1, max_size=4),
    d=st.integers(1, 500),
    honest=st.integers(1, 500),
    believed=st.integers(1, 600),
)
@settings(max_examples=200, deadline=None)
def test_what_is_booked_is_never_below_what_the_share_is_worth_and_never_above_what_was_consented_to(
    mu, moves, d, honest, believed
):
    terms = sum_of(8, 2, CLAIM).terms_of("n0")
    masked = type(terms.masked)(corrupt=2, contributors=honest + 2)
    terms = type(terms)(
        **{name: getattr(terms, name) for name in terms.__struct_fields__} | {"per_answer": mu, "masked": masked}
    )
    counted, h = terms.relying_on(believed), min(honest, believed)
    assert counted.masked.honest == h
    for share in shares(mu, moves, d, honest):
        booked = share.relying_on(believed)
        assert (booked.honest, booked.lattice) == (h, share.lattice)
        worth = Fraction(share.lattice.sensitivity) / Fraction(share.lattice.g) / Fraction(share.lattice.t)
        assert Fraction(booked.mu) ** 2 * h >= worth**2
        assert booked.mu <= counted.per_answer
    assert counted.per_answer == pytest.approx(mu * (honest / h) ** 0.5, rel=1e-12)
