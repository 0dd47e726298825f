"""Masked sums in two levels as pure machines: what is decoded above, and what liars above and at a site get."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgrid.kernels.errors import Stopped
from hushgrid.kernels.machine import Malformed
from hushgrid.kernels.patterns import masked, sites
from hushgrid.node import wire
from tests.support.runs.site_machines import TOP, D, G, TwoLevels

# --- the tests ---


@given(st.integers(0, 10**6))
@settings(max_examples=5, deadline=None)
def test_over_a_network_that_loses_repeats_and_reorders_every_sum_is_that_of_all_devices(seed):
    fleet = TwoLevels(sizes=(3, 2), fewest=2, seed=seed)
    fleet.until(lambda: fleet.over)
    assert fleet.sums == [(fleet.expected(fleet.nodes), tuple(fleet.nodes))] * 2
    assert all(len(gate.asked) == 2 for gate in fleet.gates.values())
    assert all(d.complete and np.array_equal(d.state.mean, fleet.top.state.w) for d in fleet.devices.values())


@pytest.mark.runs
@given(st.integers(0, 10**6))
@settings(max_examples=20, deadline=None)
def test_a_restart_of_any_role_at_any_time_changes_nothing(seed):
    fleet, luck = TwoLevels(seed=seed), np.random.default_rng(seed)
    names = [*fleet.nodes, *fleet.sites, *(f"{site}/" for site in fleet.sites), TOP]
    while not fleet.over:
        for _ in range(luck.integers(1, 60)):
            fleet.step()
        fleet.restart(str(luck.choice(names)))
    assert fleet.sums == [(fleet.expected(fleet.nodes), tuple(fleet.nodes))] * 2
    assert all(len(gate.asked) == 2 for gate in fleet.gates.values())


def test_a_site_shows_its_sum_to_nobody_above():
    """What the fleet's coordinator gets of two sites are their sums under pads, which cancel in the sum of both."""
    fleet = TwoLevels(rounds=1)
    fleet.until(lambda: fleet.over, lossy=False)
    plain = {site: words for site, _, words in fleet.site_sums}
    shown = {
        site: body.share for (site, _), body in fleet.sent.items() if isinstance(body, masked.Masked) and site in plain
    }
    assert all(shown[site] != plain[site] for site in plain)
    assert np.array_equal(masked.decoded(list(shown.values()), G), masked.decoded(list(plain.values()), G))


def test_a_silent_site_costs_its_others_fresh_answers_and_no_sum_is_handed_up_twice():
    fleet = TwoLevels(sizes=(3, 3, 3), least_sites=2, rounds=1)
    fleet.until(lambda: len(fleet.top.state.arrived) == 2 and fleet.top.state.phase == "ask", lossy=False)
    (late,) = fleet.top.missing()
    fleet.dead.add(late)
    fleet.put(TOP, fleet.top.without([late]))
    fleet.until(lambda: fleet.over, lossy=False)
    others = [site for site in fleet.sites if site != late]
    devices = [node for site in others for node in fleet.sites[site]]
    assert fleet.sums == [(fleet.expected(devices), tuple(devices))]
    assert all(len(fleet.gates[node].asked) == 2 for node in devices)
    asked = [question for site, question, _ in fleet.site_sums if site in others]
    assert sorted(asked) == [(1, 1), (1, 1), (1, 2), (1, 2)]
    for node in devices:  # each answer was to a question of its own: a gate draws fresh noise for it
        assert len({about for about, _ in fleet.gates[node].asked}) == 2


def test_a_silent_device_costs_its_own_site_alone_fresh_answers():
    fleet = TwoLevels(fewest=2, rounds=1)
    fleet.until(
        lambda: fleet.below["s1"].state.phase == "ask" and len(fleet.below["s1"].state.arrived) == 2, lossy=False
    )
    (late,) = fleet.below["s1"].missing()
    fleet.dead.add(late)
    fleet.put("s1/", fleet.below["s1"].without([late]))
    fleet.until(lambda: fleet.top.state.done is not None, lossy=False)
    left = [node for node in fleet.nodes if node != late]
    assert fleet.sums == [(fleet.expected(left), tuple(left))]
    assert [len(fleet.gates[node].asked) for node in left] == [2 if node in fleet.sites["s1"] else 1 for node in left]


def test_a_site_answers_each_question_once_and_refuses_too_few_sites():
    fleet = TwoLevels()
    fleet.until(lambda: fleet.above["s1"].state.share != b"", lossy=False)
    site, seq = fleet.above["s1"], fleet.above["s1"].state.t
    before = site.tick().send
    both = ("s1", "s2")
    for round, attempt, among in ((1, 1, both), (1, 2, ("s1",)), (0, 1, both), (3, 1, both), (1, 2, ("s1", "s9"))):
        with pytest.raises(Malformed):
            site.receive(TOP, seq + 1, masked.Ask(round, attempt, among, np.ones(D)))
    assert site.receive(TOP, seq, masked.Ask(1, 1, both, np.ones(D))).send == before  # repeated, never renewed


@pytest.mark.parametrize("asked", [("s1", "s3"), ("s1", "s2", "s3")])
def test_a_site_whose_upper_half_was_set_back_shows_a_sum_under_no_second_set_of_sites(asked):
    """The same round and attempt under another set: its devices answer afresh. Under the same set nothing is new."""
    fleet = TwoLevels(sizes=(3, 3, 3), least_sites=2, rounds=1)
    fleet.until(lambda: fleet.above["s1"].state.introductions and not fleet.above["s1"].state.waits, lossy=False)
    old = wire.encode(fleet.above["s1"].state)
    fleet.until(lambda: fleet.above["s1"].state.share != b"", lossy=False)
    before, sums = fleet.above["s1"].state.share, len(fleet.site_sums)
    fleet.above["s1"] = fleet.upper("s1")
    fleet.above["s1"].state = wire.decode_state(sites.SiteState, old)
    fleet.masks["s1"].used.clear()
    fleet.above["s1"].receive(TOP, fleet.top.state.t, masked.Ask(1, 1, asked, fleet.top.state.w))
    steps = sites.passed(fleet.above["s1"], fleet.below["s1"])
    assert len(fleet.site_sums) == sums
    if asked == ("s1", "s2", "s3"):
        assert fleet.above["s1"].state.share == before
        return
    assert not steps.above.send
    assert {(send.dst, send.body.attempt) for send in steps.below.send} == {("n0", 2), ("n1", 2), ("n2", 2)}


def test_a_site_that_may_ask_its_devices_no_more_stops():
    fleet = TwoLevels(answers=1, rounds=1)
    fleet.until(lambda: fleet.below["s1"].state.phase == "ask", lossy=False)
    with pytest.raises(Stopped, match="have been asked 1 times"):
        fleet.below["s1"].ask(sites.Question(1, 2, np.zeros(D)))
    fleet.below["s2"].state.absent = ["n3"]
    with pytest.raises(Stopped, match="2 devices are left, expected at least 3"):
        fleet.below["s2"].ask(sites.Question(1, 2, np.zeros(D)))


@pytest.mark.parametrize("among", [(), ("n0", "n1"), ("n0", "n1", "n3"), ("n2", "n1", "n0"), ("n0", "n0", "n1", "n2")])
def test_the_coordinator_above_takes_no_sum_of_other_devices_or_too_few(among):
    fleet = TwoLevels()
    fleet.until(lambda: fleet.top.state.phase == "ask", lossy=False)
    with pytest.raises(Malformed):
        fleet.top.receive("s1", fleet.top.state.t, masked.Masked(bytes(8 * D), among))


# --- every set that can be told to two sites of three devices ---

PLACES = {"s1": (0, 1, 2), "s2": (3, 4, 5)}


def sets_of(things, least):
    return [frozenset(S) for r in range(least, len(things) + 1) for S in itertools.combinations(things, r)]


def left_over(K, named) -> bool:
    """Whether pads stay in the sum of the messages K of ends that were told these sets, and that are all honest."""
    return any(j in named and not (j in K and i in named[j]) for i in K for j in named[i] if j != i)


def decodable(honest, told) -> list[frozenset[int]]:
    """The sets of messages of honest ends in which no pad between honest ends is left. told: the set of each."""
    named = {i: told[i] & honest for i in honest}
    return [K for K in sets_of(sorted(honest), 1) if not left_over(K, named)]


@pytest.mark.parametrize(("corrupt", "fewest"), [(0, 3), (1, 3), (0, 2), (1, 2)])
def test_every_set_that_can_be_told_to_two_sites_of_three_devices(corrupt, fewest):
    """A liar's whole choice: which devices are corrupt, the set that each honest device is told, the set of sites that
    each honest site's coordinator is told, and which site's coordinator is corrupt, or neither.

    An honest coordinator tells its devices one set. With both honest, whatever is decoded above holds h = 2s - t honest
    shares. With one corrupt (c = 1, which this plan does not reckon with for the other site), devices of its site are
    left with h_s = s - t, and so is the other site, whose sum nothing hides: the second number is then the worst.
    """
    h, h_s = 2 * fewest - corrupt, fewest - corrupt
    above = {"s1": sets_of(PLACES, 2), "s2": sets_of(PLACES, 2)}  # a site takes part in no smaller set
    cases, least_above, least_below = 0, [], []
    for bad in itertools.chain.from_iterable(itertools.combinations(range(6), r) for r in range(corrupt + 1)):
        good = {site: frozenset(places) - {*bad} for site, places in PLACES.items()}
        # Both coordinators honest: one set a site.
        for first, second in itertools.product(*(sets_of(places, fewest) for places in PLACES.values())):
            for told in itertools.product(*above.values()):
                for K in decodable(frozenset(PLACES), dict(zip(PLACES, told, strict=True))):
                    cases += 1
                    held = sum(len(S & good[s]) for s, S in zip(PLACES, (first, second), strict=True) if s in K)
                    least_above.append(held)
        # The coordinator of a site corrupt: it tells its devices any sets, and sees their messages.
        for site, places in PLACES.items():
            choices = {i: [S for S in sets_of(places, fewest) if i in S] for i in good[site]}
            for told in itertools.product(*choices.values()):
                for K in decodable(good[site], dict(zip(choices, told, strict=True))):
                    cases += 1
                    least_below.append(len(K))
    assert cases
    assert min(least_above) == h
    assert min(least_below) == h_s


def test_with_pads_between_sites_left_out_the_fleets_coordinator_would_see_a_sites_sum():
    """The mutation: a site that takes part alone shows Y_s, at the site's price."""
    assert frozenset({"s1"}) in decodable(frozenset(PLACES), {"s1": frozenset({"s1"}), "s2": frozenset({"s2"})})
    both = frozenset(PLACES)
    assert decodable(both, {"s1": both, "s2": both}) == [both]


@pytest.mark.parametrize("mutated", [True, False])
def test_a_sum_handed_up_again_under_fewer_sites_gives_the_late_site_away_and_a_fresh_one_does_not(mutated):
    """The fleet's coordinator gives s3 up and asks again; then s3's message turns up after all."""
    fleet = TwoLevels(sizes=(3, 3, 3), least_sites=2, rounds=1)
    rng = np.random.default_rng(3)
    for gate in fleet.gates.values():
        gate.share = lambda x, about: rng.integers(-(10**6), 10**6, D)
    kept: dict[str, bytes] = {}

    def again(site):
        """The classical mistake: the sum of the attempt before."""
        lower = fleet.below[site]
        ask = lower.ask

        def asks(question):
            if question.attempt == 1 or not mutated:
                return ask(question)
            lower.state.question, lower.state.sum = (question.round, question.attempt), kept[site]
            lower.state.of_sites = question.among
            return sites.NOTHING

        lower.ask = asks

    for site in fleet.sites:
        again(site)
    fleet.until(lambda: len(fleet.site_sums) == 3, lossy=False)
    kept |= {site: words for site, _, words in fleet.site_sums}
    first = {site: fleet.above[site].state.share for site in fleet.sites}
    fleet.dead.add("s3")
    fleet.top.state.arrived.pop("s3", None)
    fleet.put(TOP, fleet.top.without(["s3"]))
    fleet.until(lambda: len(fleet.site_sums) == 5, lossy=False)
    second = [fleet.above[site].state.share for site in ("s1", "s2")]
    difference = masked.decoded(list(first.values()), G) - masked.decoded(second, G)
    assert np.array_equal(difference, masked.decoded([kept["s3"]], G)) is mutated
