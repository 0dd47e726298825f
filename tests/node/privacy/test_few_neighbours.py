"""What a device counts, books and refuses of a run in which each masks with few others, by its owner's belief."""

from contextlib import closing

import pytest

from hushgrid.kernels.errors import InputError, Refused
from hushgrid.kernels.privacy.mask_graphs import MaskGraph, fewest_shares
from hushgrid.node.masks.identity import made_up
from hushgrid.node.masks.run_masks import RunMasks
from hushgrid.node.privacy.budget import BudgetCheck
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems.masking import numbers, own_share
from hushgrid.node.schema.sections import Adjacency, Allow, AllowMasked, Budget, ReplaceOneRecord
from hushgrid.node.wire import Mark
from tests.support.scenarios.guarded_plans import DELTA, sum_of

RUN, LATER = b"r" * 16, b"s" * 16
ADJACENCY = Adjacency(replace_one_record=ReplaceOneRecord(clip=1.0))
N, T, K, EXPOSED = 1000, 200, 36, 1e-7


@pytest.fixture(scope="module")
def plan():
    return sum_of(N, T, 0.5, neighbours=K, exposed=EXPOSED)


@pytest.fixture
def ledger(tmp_path):
    with closing(Ledger(tmp_path / "n0.ledger", "n0", durable=False)) as opened:
        opened.join(RUN, b"plan")
        yield opened


def owner(ledger, plan, honest=800, exposed=1e-6, run=RUN):
    masked = AllowMasked(corrupt=1, honest=honest, alone=90.0, ca="ca.pem", exposed=exposed)
    budget = Budget(epsilon=50.0, delta=DELTA, adjacency=ADJACENCY)
    terms = plan.terms_of("n0")
    return BudgetCheck("n0", ledger, run, plan.algorithm, terms, budget, Allow(masked=masked), simulated=False)


def joined(ledger, plan, run):
    """The device takes part in a run: its key is made."""
    if ledger.runs.find(run) is None:
        ledger.join(run, b"plan")
    identities, trust = made_up(["n0"])
    RunMasks("n0", run, ledger, identities["n0"], trust, plan.terms.masked.exposed).introduction()


def test_shares_are_made_for_those_that_every_sum_has(plan):
    m = plan.terms.masked
    assert m.uncorrupted == N - T
    assert m.honest == fewest_shares(MaskGraph(N, N, T, K), EXPOSED) <= N - T
    t = plan.terms_of("n0")
    share = own_share(plan, "n0", owner_of_none())
    assert share.honest == m.honest
    assert share.mu <= t.per_answer * (1 + 1e-12)
    assert (numbers(plan).neighbours, numbers(plan).draws) == (K, 1)


def owner_of_none():
    class AnyNumber:
        honest = honest_at_site = None

    return AnyNumber()


@pytest.mark.parametrize("honest", [790, 700, 500])
def test_an_owner_who_believes_in_fewer_counts_by_the_graph_with_more_corrupt(ledger, plan, honest):
    counted = owner(ledger, plan, honest).terms
    shares = fewest_shares(MaskGraph(N, N, N - honest, K), EXPOSED)
    assert counted.masked.honest == shares <= honest
    assert counted.per_answer == pytest.approx(plan.terms.per_answer * (plan.terms.masked.honest / shares) ** 0.5)
    assert own_share(plan, "n0", owner(ledger, plan, honest)).honest == shares


def test_where_the_graph_promises_nothing_a_share_counts_alone(ledger, plan):
    counted = owner(ledger, plan, 5).terms
    assert fewest_shares(MaskGraph(N, N, N - 5, K), EXPOSED) == 0
    assert counted.masked.honest == 1
    assert counted.epsilon == pytest.approx(plan.terms.alone(), rel=1e-6)


def test_a_ledger_is_read_by_the_shares_that_it_has_counted(ledger, plan):
    shares = fewest_shares(MaskGraph(N, N, N - 700, K), EXPOSED)
    assert plan.terms.counted_at(shares).epsilon == owner(ledger, plan, 700).terms.epsilon
    assert plan.terms.counted_at(None) == plan.terms


def test_an_owner_who_says_nothing_of_it_takes_part_in_no_such_run(ledger, plan):
    with pytest.raises(Refused, match=r"masks with few neighbours, its owner allows none .allow.masked.exposed"):
        owner(ledger, plan, exposed=None).admit(1)
    owner(ledger, plan).admit(1)
    owner(ledger, sum_of(100, 20, 0.5), 80, exposed=None).admit(1)


def test_what_graphs_add_to_delta_is_held_over_the_life_of_the_ledger(ledger, plan):
    owner(ledger, plan, exposed=2e-7).admit(1)
    joined(ledger, plan, RUN)
    owner(ledger, plan, exposed=1e-7).admit(1)  # this run has been booked
    owner(ledger, plan, exposed=2e-7, run=LATER).admit(1)
    joined(ledger, plan, LATER)
    with pytest.raises(Refused, match=r"may add 1e-07 to delta, its owner allows 2e-07 .*so far 2e-07"):
        owner(ledger, plan, exposed=2e-7, run=b"t" * 16).admit(1)


def test_whatever_was_lost_with_a_ledger_may_have_been_graphs_of_masks(ledger, plan):
    """What its owner accepts need not cost anything beside what is counted: another branch may have spent more."""
    ledger.marks.tell(Mark(ledger.id, 3))
    ledger.accept()
    assert ledger.spends.shares("replace-one-record") == (0, 0)
    with pytest.raises(Refused, match="its ledger was lost once"):
        owner(ledger, plan).admit(1)


def test_fewer_contributors_than_nodes_mean_several_draws_and_more_neighbours():
    with pytest.raises(InputError, match=r"privacy.masked.neighbours: found 9, expected at least \d+ .1000 nodes"):
        sum_of(N, T, 0.5, neighbours=9, contributors=900)
    assert sum_of(N, T, 0.5, neighbours=47, contributors=900).terms.masked.graph.draws == 4
