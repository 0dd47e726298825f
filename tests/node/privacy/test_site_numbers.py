"""The three numbers of a device in two levels: to the fleet above, to its own site's coordinator, to everybody else."""

from contextlib import closing
from math import sqrt

import msgspec
import pytest

from hushgrid.kernels.errors import InputError, Refused
from hushgrid.kernels.privacy.accounting import gdp_epsilon, units
from hushgrid.kernels.privacy.shares import shares
from hushgrid.node.privacy.budget import BudgetCheck, worth_alone
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.ledger_rows import Counted, Spend, alone, at_site, counted_of, honest_of
from hushgrid.node.problems.masking import noise_shares, numbers, own_share
from hushgrid.node.problems.plan import decode_plan, encode_plan
from hushgrid.node.schema.sections import Adjacency, Allow, AllowMasked, AllowSite, Budget, ReplaceOneRecord
from tests.support.scenarios.guarded_plans import DELTA, sum_of

RUN = b"r" * 16
RELATION = "replace-one-record"


def plan_of(number=20, nodes=200, corrupt=2, epsilon=0.5, **sites):
    return sum_of(nodes, corrupt, epsilon, sites={"number": number} | sites)


@pytest.fixture
def ledger(tmp_path):
    with closing(Ledger(tmp_path / "n0.ledger", "n0", durable=False)) as opened:
        opened.join(RUN, b"plan")
        yield opened


def owner(ledger, plan, *, honest=198, epsilon=20.0, of_alone=50.0, site=None):
    allow = Allow(masked=AllowMasked(corrupt=1, honest=honest, alone=of_alone, ca="ca.pem", site=site))
    budget = Budget(epsilon=epsilon, delta=DELTA, adjacency=Adjacency(replace_one_record=ReplaceOneRecord(clip=1.0)))
    return BudgetCheck("n0", ledger, RUN, plan.algorithm, plan.terms_of("n0"), budget, allow, simulated=False)


def pay(ledger, plan, budget_check):
    """One answer, as the gate enters it."""
    share = own_share(plan, "n0", budget_check)
    sizes = share.lattice.sensitivity, share.lattice.scale, share.lattice.g
    counted = counted_of(share.honest, share.site)
    spend = Spend(1, "gaussian", share.mu, *sizes, plan.terms.adjacency, "x", counted)
    budget_check.authorise([spend])
    ledger.commit(RUN, spends=[spend])
    budget_check.committed([spend])
    return share


def test_a_ledger_holds_the_three_numbers_to_ten_digits(ledger):
    """h = 200 - 2, h_s = 10 - 2: mu, mu sqrt(h/h_s) and mu sqrt(h), each composed by itself."""
    plan = plan_of()
    share = pay(ledger, plan, owner(ledger, plan, site=AllowSite(honest=8, epsilon=20.0)))
    assert (share.honest, share.site) == (198, 8)
    mu = plan.terms.per_answer
    budget_check = owner(ledger, plan, site=AllowSite(honest=8, epsilon=20.0))
    seen = {
        "fleet": (budget_check.spent, mu),
        "site": (worth_alone(sum(ledger.spends.shares(RELATION, at_site=True)), DELTA), mu * sqrt(198 / 8)),
        "alone": (worth_alone(sum(ledger.spends.shares(RELATION)), DELTA), mu * sqrt(198)),
    }
    for actual, worth in seen.values():
        assert actual == pytest.approx(gdp_epsilon(worth, DELTA), rel=1e-10)
    t = plan.terms_of("n0")
    assert t.at_site() == pytest.approx(seen["site"][0], rel=1e-10)
    assert t.alone() == pytest.approx(seen["alone"][0], rel=1e-10)


def test_each_level_is_counted_at_its_owners_belief(ledger):
    """Fewer honest ones above make the fleet's number larger and leave the other two; fewer in the site, the site's."""
    plan = plan_of()
    share = pay(ledger, plan, owner(ledger, plan, honest=50, site=AllowSite(honest=4, epsilon=50.0)))
    mu = plan.terms.per_answer
    assert (share.honest, share.site) == (50, 4)
    assert share.mu == pytest.approx(mu * sqrt(198 / 50), rel=1e-10)
    assert share.of_site == pytest.approx(mu * sqrt(198 / 4), rel=1e-10)
    assert share.alone == pytest.approx(mu * sqrt(198), rel=1e-10)
    counted = plan.terms_of("n0").relying_on(50, 4)
    assert counted.at_site() == pytest.approx(gdp_epsilon(share.of_site, DELTA), rel=1e-10)
    assert counted.alone() == pytest.approx(plan.terms_of("n0").alone(), rel=1e-10)
    assert (ledger.spends.honest(RUN), ledger.spends.honest(RUN, at_site=True)) == (50, 4)


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({}, "masked sums of sites, its owner allows none .allow.masked.site"),
        (
            {"site": AllowSite(honest=9, epsilon=20.0)},
            "8 honest contributors of its site, its owner asks for at least 9",
        ),
        (
            {"site": AllowSite(honest=8, epsilon=1.0)},
            r"against its own site's coordinator, its owner allows 1 \(allow.m",
        ),
        ({"site": AllowSite(honest=8, epsilon=20.0), "of_alone": 2.0}, r"against everybody else, its owner allows 2"),
        ({"site": AllowSite(honest=8, epsilon=20.0), "honest": 199}, "198 honest contributors, its owner asks for"),
    ],
)
def test_an_owner_bounds_each_of_them(ledger, limits, words):
    plan = plan_of()
    with pytest.raises(Refused, match=words):
        owner(ledger, plan, **limits).admit(1)
    assert ledger.spends.rows() == []


def test_the_site_limit_holds_for_the_life_of_the_ledger(ledger):
    plan = plan_of()
    limit = AllowSite(honest=8, epsilon=1.05 * plan.terms_of("n0").at_site())
    pay(ledger, plan, owner(ledger, plan, site=limit))
    second = owner(ledger, plan, site=limit)
    spend = Spend(2, "gaussian", plan.terms.per_answer, 1.0, 1.0, 0.1, RELATION, "x", counted_of(198, 8))
    with pytest.raises(Refused, match=r"allow\.masked\.site"):
        second.authorise([spend])


def test_the_number_of_honest_shares_is_that_of_the_smallest_sites_without_the_corrupt():
    """Sizes 10 and 9; c = 2 coordinators and t = 3 devices corrupt, m = 6 of 7 sites in a round."""
    plan = sum_of(66, 3, 0.5, sites={"number": 7, "corrupt": 2, "contributors": 6})
    masked = plan.terms.masked
    assert masked.sites.sizes == (9, 9, 10, 9, 10, 9, 10)
    assert masked.honest == 4 * 9 - 3
    assert [plan.terms_of(node).masked.site for node in ("n0", "n18")] == [6, 7]
    assert [numbers(plan).contributors, numbers(plan, "s1").contributors, numbers(plan, "s3").contributors] == [
        6,
        9,
        10,
    ]
    fewer = sum_of(66, 3, 0.5, contributors=5, sites={"number": 7})
    assert fewer.terms.masked.honest == 7 * 5 - 3
    assert fewer.terms.answers > 1  # a round can be asked again


def test_the_noise_is_made_for_the_whole_fleet():
    """A share is that of one level over all devices: sites cost no accuracy."""
    plan = plan_of()
    (t, how), p = (plan.terms, plan.terms.masked), plan.problem
    flat = shares(t.per_answer, [p.moved(i, t) for i in range(200)], p.size, 198)
    assert [s.lattice for s in noise_shares(plan)] == [s.lattice for s in flat]
    assert how.honest == 198


@pytest.mark.parametrize(
    ("masking", "words"),
    [
        ({"sites": {"sizes": (100, 99)}}, "privacy.masked.sites: found sites of 199 nodes, expected of 200"),
        ({"sites": {"number": 1}}, "privacy.masked.sites: found 1 sites, expected 2 to 500"),
        ({"sites": {"number": 201}}, "privacy.masked.sites: found 201 sites of 200 nodes, expected 2 nodes of each"),
        ({"sites": {"number": 10_000_000}}, "privacy.masked.sites.number: found 10000000, expected int <= 10000"),
        ({"sites": {"number": 150}}, "privacy.masked.contributors: found 1 of a site of 1 nodes"),
        ({"sites": {"number": 20, "contributors": 21}}, "privacy.masked.sites.contributors: found 21 of 20 sites"),
        ({"sites": {"number": 20, "corrupt": 20}}, "privacy.masked.sites.corrupt: found 20 of 20 sites"),
        ({"contributors": 2, "sites": {"number": 20}}, "privacy.masked.corrupt: found 2 of a site's 2 contributors"),
        ({"sites": {"number": 2, "sizes": (100, 100)}}, "expected one of number and sizes"),
    ],
)
def test_a_plan_whose_levels_do_not_fit_is_refused(masking, words):
    with pytest.raises(InputError, match=words):
        sum_of(200, 2, 0.5, **masking)


def test_a_plan_travels_with_its_sites_and_one_without_has_the_bytes_it_had():
    plan = plan_of()
    assert decode_plan(encode_plan(plan)).sites == plan.sites
    assert plan.sites["s1"] == [f"n{i}" for i in range(10)]
    assert plan.site_of["n199"] == "s20"
    assert b"sites" not in encode_plan(sum_of(5, 1, 0.5))


def test_a_ledgers_rows_and_sums_hold_both_numbers_of_honest_ones(tmp_path):
    """In the rows, in the sums of condensed ones, and after a restart."""
    path = tmp_path / "n0.ledger"
    counted = counted_of(198, 8)
    assert honest_of(counted) == (198, 8)
    one = Spend(1, "gaussian", 0.1, 1.0, 1.0, 0.1, RELATION, "x", counted)
    with closing(Ledger(path, "n0", durable=False, keep=1)) as made:
        for number in range(4):
            made.join(b"%16d" % number, b"plan")
            made.commit(b"%16d" % number, spends=[one, one], state=b"s")
            made.commit(b"%16d" % number, status="done", last=b"l")
    with closing(Ledger(path, "n0", durable=False, keep=1)) as again:
        assert len(again.spends.rows()) < 8  # the rest are sums
        assert again.spends.shares(RELATION) == (8 * alone(0.1, counted), 0)
        assert again.spends.shares(RELATION, at_site=True) == (8 * at_site(0.1, counted), 0)
        assert again.verify() == []
    assert alone(0.1, counted) == 198 * units(0.1, 2)
    assert at_site(0.1, counted) == -(-198 * units(0.1, 2) // 8)
    flat = Counted()
    flat.add("gaussian", 0.1, 0.01, honest=5)
    assert flat.at_site == 0
    assert len(flat.packed()) < len(flat.plus("gaussian", 0.1, 0.01, honest=counted).packed())


def test_a_program_that_knows_no_sites_counts_more_and_loses_nothing():
    """It takes the field of a sum for that of one level, adds to it, and writes it again."""
    one = Counted().plus("gaussian", 0.1, 0.01, honest=counted_of(198, 8))
    fields = msgspec.msgpack.decode(one.packed())
    before = int.from_bytes(fields[-1], "little")
    assert (len(fields), before > one.shares) == (9, True)
    after = before + alone(0.1, 5)
    blob = msgspec.msgpack.encode([*fields[:-1], after.to_bytes((after.bit_length() + 7) // 8, "little")])
    both = Counted.unpacked(blob)
    assert (both.shares, both.at_site) == (one.shares + alone(0.1, 5), at_site(0.1, counted_of(198, 8)))
