"""What all shares of masked sums in a ledger are worth to everybody else together, and that an owner's limit holds for
its life.
"""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.broker.simulation.setup import prepare
from hushgrid.kernels.errors import Refused
from hushgrid.kernels.privacy.accounting import UNIT, gdp_epsilon, units
from hushgrid.kernels.ranges import NODES
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.privacy.budget import BudgetCheck, worth_alone
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.ledger_rows import Spend, steps
from hushgrid.node.schema.sections import Adjacency, Allow, AllowMasked, Budget, ReplaceOneRecord
from hushgrid.node.wire import Mark
from tests.support import examples
from tests.support.devices.ledgers import copied
from tests.support.runs.masked_runs import masked

UNITS = ["replace-one-record", "replace-one-record 3", "bounded-change 0.01"]
DELTA = 1e-5

# --- the sums ---

answers = st.tuples(st.sampled_from(["gaussian", "laplace", "nonprivate"]), st.floats(1e-9, 10.0), st.integers(0, 6))
happenings = st.lists(
    st.one_of(
        st.tuples(st.just("run"), st.sampled_from(UNITS), st.lists(answers, min_size=1, max_size=5)),
        st.tuples(st.just("new data"), st.none(), st.none()),
        st.tuples(st.just("restart"), st.booleans(), st.none()),
        st.tuples(st.just("gap"), st.floats(1e-3, 1.0), st.none()),
    ),
    max_size=10,
)


class Recount:
    """A ledger through a history, and every spend of it in a list."""

    def __init__(self, path, durable):
        self.path, self.durable, self.seen, self.lost, self.runs = path, durable, [], 0.0, 0
        self.ledger = self.open()

    def open(self):
        return Ledger(self.path, "n0", durable=self.durable, keep=1)

    def happen(self, what, how, rows):
        match what:
            case "run":
                self.runs += 1
                run = b"%16d" % self.runs
                self.ledger.join(run, b"plan")
                for k, (kind, value, honest) in enumerate(rows):
                    value, honest = inf if kind == "nonprivate" else value, honest if kind == "gaussian" else 0
                    one = Spend(k + 1, kind, value, 0.01, 0.02, 0.1, how, "x", honest)
                    self.ledger.commit(run, spends=[one], state=b"s")
                    self.seen.append(one)
                self.ledger.commit(run, status="done", last=b"l")
            case "new data":
                self.ledger.new_data()
            case "restart":
                if how:  # in the middle of it: what is on the disk goes on
                    self.path = copied(self.ledger, self.path.parent / "again", log=True)
                self.ledger.close()
                self.ledger = self.open()
            case "gap":
                mark = self.ledger.mark
                self.ledger.marks.tell(Mark(self.ledger.id, mark.no + 1, epsilon=mark.epsilon, mu2=mark.mu2 + how))
                self.ledger.accept()
                self.lost += how

    def naive(self, adjacency):
        """From the list: sum of h (k mu)^2 over the shares of this relation."""
        return sum(
            s.honest * steps(s.adjacency, adjacency) ** 2 * units(s.value, 2)
            for s in self.seen
            if s.honest and s.adjacency.split()[0] == adjacency.split()[0]
        )


@pytest.mark.runs
@examples.of(60)
@given(history=happenings, durable=st.booleans(), small=st.booleans())
def test_after_any_history_of_runs_compaction_and_restarts_the_sums_are_those_of_a_naive_recount(
    tmp_path_factory, history, durable, small
):
    made = Recount(tmp_path_factory.mktemp("ledger") / "n0.ledger", durable)
    for event in [*history, ("restart", small, None)]:
        made.happen(*event)
        for adjacency in UNITS:
            own, lost = made.ledger.spends.shares(adjacency)
            assert own == made.naive(adjacency)
            # what a gap lacks is a difference of rounded sums
            assert lost / 2**UNIT == pytest.approx(NODES * made.lost, rel=1e-9)
    assert made.ledger.verify() == []
    made.ledger.close()


def test_old_runs_are_condensed_and_their_shares_still_count(tmp_path):
    made = Recount(tmp_path / "n0.ledger", False)
    for _ in range(6):
        made.happen("run", UNITS[0], [("gaussian", 0.1, 4)] * 5)
    assert len(made.ledger.spends.rows()) < 30  # the rest are sums
    assert made.ledger.spends.shares(UNITS[0]) == (30 * 4 * units(0.1, 2), 0)
    made.ledger.tables.db.execute("UPDATE spend SET honest = 3")
    assert made.ledger.verify() == ["the sums of its spends are not those of its rows"]
    made.ledger.close()


# --- the owner's limit ---


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    """Of four nodes, of which one may be corrupt: h = 3."""
    return prepare(scenario_from(masked(tmp_path_factory.mktemp("rows")), "s")).plan


class Owner:
    """A device with a budget that is never the reason, whose owner allows `alone`."""

    def __init__(self, path, plan, alone, records=1, delta=DELTA):
        counts = Adjacency(replace_one_record=ReplaceOneRecord(clip=1.0, records=records))
        self.budget = Budget(epsilon=1e3, delta=delta, adjacency=counts)
        self.allow = Allow(masked=AllowMasked(corrupt=1, honest=3, alone=alone, ca="ca.pem"))
        self.path, self.plan, self.runs = path, plan, 0
        self.terms = plan.terms_of("n0")
        self.ledger = Ledger(path, "n0", durable=False, keep=1)

    def budget_check(self):
        self.runs += 1
        self.run = b"%16d" % self.runs
        algorithm, given = self.plan.algorithm, (self.budget, self.allow)
        return BudgetCheck("n0", self.ledger, self.run, algorithm, self.terms, *given, simulated=False)

    def spend(self, k):
        t = self.terms
        return Spend(k, "gaussian", t.per_answer, 1.0, 1.0, 0.1, t.adjacency, "x", t.masked.honest)

    def lives(self, answers=None):
        """A whole run, or its first answers."""
        budget_check = self.budget_check()
        budget_check.admit(self.terms.answers)
        self.ledger.join(self.run, b"plan")
        for k in range(answers or self.terms.answers):
            budget_check.authorise([self.spend(k + 1)])
            self.ledger.commit(self.run, spends=[self.spend(k + 1)])
            budget_check.committed([self.spend(k + 1)])
        self.ledger.commit(self.run, status="done", last=b"l")


def worth(plan, runs, k=1):
    """Epsilon of so many runs' shares, by the definition: mu^2 of each is h mu^2."""
    t = plan.terms_of("n0")
    return gdp_epsilon(k * t.per_answer * (t.masked.honest * t.answers * runs) ** 0.5 * (1 + 1e-12), DELTA)


@pytest.mark.parametrize("runs", [1, 2, 5])
@pytest.mark.parametrize("records", [1, 2])
def test_a_run_is_refused_whose_shares_would_take_all_beyond_the_limit_and_none_before(tmp_path, plan, runs, records):
    owner = Owner(tmp_path / "n0.ledger", plan, worth(plan, runs, records) * (1 + 1e-9), records)
    for _ in range(runs):
        owner.lives()
    with pytest.raises(Refused, match=r"in all against everybody else, its owner allows .*allow.masked.alone; so far"):
        owner.lives()
    owner.ledger.close()
    owner.ledger = Ledger(owner.path, "n0", durable=False, keep=1)
    with pytest.raises(Refused, match="in all against everybody else"):
        owner.lives()
    assert owner.ledger.spends.answers() == runs * owner.terms.answers
    assert worth_alone(sum(owner.ledger.spends.shares(str(owner.budget.adjacency))), DELTA) <= owner.allow.masked.alone


def test_a_limit_just_below_one_run_refuses_it_before_the_first_answer(tmp_path, plan):
    owner = Owner(tmp_path / "n0.ledger", plan, worth(plan, 1) * (1 - 1e-9))
    with pytest.raises(Refused, match="its owner allows"):
        owner.lives()
    assert owner.ledger.spends.answers() == 0


def test_a_run_that_goes_on_is_asked_for_its_rest_and_one_that_only_repeats_for_nothing(tmp_path, plan):
    owner = Owner(tmp_path / "n0.ledger", plan, worth(plan, 1) * (1 + 1e-9))
    owner.lives(answers=2)
    given = plan.algorithm, owner.terms, owner.budget, owner.allow
    again = BudgetCheck("n0", owner.ledger, owner.run, *given, simulated=False)
    again.admit(owner.terms.answers)
    with pytest.raises(Refused):
        again.admit(owner.terms.answers + 1)
    again.admit(2)
    with pytest.raises(Refused):
        owner.lives()  # another run has no room for its whole


def test_no_answer_passes_the_limit_even_if_more_was_spent_since_the_run_was_joined(tmp_path, plan):
    owner = Owner(tmp_path / "n0.ledger", plan, worth(plan, 1) * (1 + 1e-9))
    budget_check = owner.budget_check()
    budget_check.admit(owner.terms.answers)
    owner.ledger.join(b"other" * 3, b"plan")
    owner.ledger.commit(b"other" * 3, spends=[owner.spend(k + 1) for k in range(owner.terms.answers)])
    with pytest.raises(Refused, match="in all against everybody else"):
        budget_check.authorise([owner.spend(1)])


def test_answers_that_are_not_masked_neither_count_nor_are_refused(tmp_path, plan):
    owner = Owner(tmp_path / "n0.ledger", plan, worth(plan, 1) * (1 + 1e-9))
    owner.ledger.join(b"plain" * 3, b"plan")
    plain = [Spend(k, "gaussian", 0.5, 1.0, 1.0, 0.1, owner.terms.adjacency, "x") for k in range(1, 9)]
    owner.ledger.commit(b"plain" * 3, spends=plain)
    owner.lives()
    owner.budget_check().authorise(plain)
    with pytest.raises(Refused):
        owner.lives()


def test_a_gap_counts_as_if_it_had_been_shares_of_the_largest_sums(tmp_path, plan):
    owner = Owner(tmp_path / "n0.ledger", plan, 3.0)
    owner.ledger.marks.tell(Mark(owner.ledger.id, 3, mu2=0.01))
    owner.ledger.accept()
    assert worth_alone(sum(owner.ledger.spends.shares("replace-one-record")), DELTA) == pytest.approx(
        gdp_epsilon((NODES * 0.01) ** 0.5, DELTA), rel=1e-9
    )
    with pytest.raises(Refused, match="its owner allows 3"):
        owner.lives()


def test_without_a_delta_of_the_budget_no_share_has_a_bound(tmp_path, plan):
    owner = Owner(tmp_path / "n0.ledger", plan, 1e9, delta=None)
    with pytest.raises(Refused, match="shares worth epsilon inf in all against everybody else"):
        owner.lives()
