"""Masked sums among few neighbours, as a pure machine: what is decoded, drawn anew, refused, and given to a liar."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgrid.kernels.machine import Malformed
from hushgrid.kernels.patterns import masked
from hushgrid.kernels.privacy.mask_graphs import MaskGraph, exposure
from tests.support.runs.masked_machines import D, MaskedFleet

N, K = 7, 2


@given(st.integers(0, 10**6))
@settings(max_examples=15, deadline=None)
def test_over_a_network_that_loses_repeats_and_reorders_every_sum_is_that_of_all(seed):
    fleet = MaskedFleet(n=N, neighbours=K, seed=seed)
    fleet.run()
    assert fleet.sums == [(fleet.expected(fleet.names), tuple(fleet.names))] * 3
    assert all(len(gate.asked) == 3 for gate in fleet.gates.values())
    assert all(m.complete and m.state.draws == 1 for m in fleet.members.values())


def test_a_device_is_shown_its_neighbours_alone():
    fleet = MaskedFleet(n=12, neighbours=2)
    fleet.until(lambda: fleet.centre.state.phase == "ask", lossy=False)
    for name, member in fleet.members.items():
        picked_by = {m for m, other in fleet.members.items() if name in other.state.picks}
        assert {*member.state.introductions} == {name, *member.state.picks} | picked_by
        assert {*member.state.digests} == {*member.state.introductions} - {name}
        assert len(member.state.picks) == 2
    assert sum(len(m.state.digests) for m in fleet.members.values()) <= 2 * 2 * 12


@pytest.mark.parametrize("phase", ["draw", "introduce", "ask"])
def test_without_a_silent_device_all_draw_anew_and_answer_afresh(phase):
    fleet = MaskedFleet(n=N, contributors=5, neighbours=K)
    fleet.until(lambda: fleet.centre.state.phase == phase, lossy=False)
    fleet.dead.add("n3")
    fleet.until(lambda: len(fleet.centre.state.arrived) == N - 1, lossy=False)
    before = {name: member.state.picks for name, member in fleet.members.items()}
    fleet.without("n3")
    fleet.run()
    rest = tuple(name for name in fleet.names if name != "n3")
    assert fleet.sums == [(fleet.expected(rest), rest)] * 3
    assert all(fleet.members[name].state.draws == 2 for name in rest)
    assert any(fleet.members[name].state.picks != before[name] for name in rest)
    assert all("n3" not in fleet.members[name].state.introductions for name in rest)
    answered = {len(fleet.gates[name].asked) for name in rest}
    assert answered == {4 if phase == "ask" else 3}


def test_a_device_that_is_back_is_in_the_next_set_that_is_drawn_for_and_told_the_end():
    fleet = MaskedFleet(n=N, contributors=5, neighbours=K, rounds=4)
    fleet.until(lambda: fleet.centre.state.phase == "ask", lossy=False)
    fleet.dead.add("n2")
    fleet.without("n2")
    fleet.until(lambda: fleet.centre.state.round == 1, lossy=False)
    fleet.dead.clear()
    fleet.until(lambda: "n2" not in fleet.centre.state.absent, lossy=False)
    fleet.dead.add("n5")
    fleet.without("n5")
    fleet.run(lossy=False)
    assert "n2" not in fleet.sums[0][1]
    assert fleet.sums[-1] == (
        fleet.expected(["n0", "n1", "n2", "n3", "n4", "n6"]),
        ("n0", "n1", "n2", "n3", "n4", "n6"),
    )
    assert fleet.members["n2"].state.ended


def test_when_the_draws_are_used_up_the_run_stops():
    fleet = MaskedFleet(n=N, contributors=3, neighbours=K, draws=2)
    fleet.until(lambda: fleet.centre.state.phase == "ask", lossy=False)
    fleet.without("n0")
    assert fleet.centre.without(["n1"]) is None


# --- what a device refuses ---


def drawn(**more) -> tuple[MaskedFleet, masked.MaskedMember]:
    """A device that has picked, and its fleet."""
    fleet = MaskedFleet(n=N, contributors=5, neighbours=K, **more)
    member = fleet.members["n0"]
    member.receive("coordinator", 1, masked.KeyRequest())
    member.receive("coordinator", 2, masked.Draw(()))
    return fleet, member


def edges(fleet: MaskedFleet, names) -> masked.Edges:
    return masked.Edges(
        {name: fleet.masks[name].introduction() for name in names}, {name: bytes(16) for name in names if name != "n0"}
    )


@pytest.mark.parametrize("absent", [("n0",), ("n2", "n1"), ("n1", "n1"), ("n9",), ("n1", "n2", "n3")])
def test_a_device_draws_for_no_set_without_it_nor_for_one_that_is_too_small_or_not_in_order(absent):
    _, member = drawn()
    with pytest.raises(Malformed):
        member.receive("coordinator", 3, masked.Draw(absent))
    assert member.state.draws == 1


def test_a_device_draws_no_oftener_than_the_plan_says():
    _, member = drawn()
    for t, absent in enumerate((("n1",), ("n2",)), 3):
        member.receive("coordinator", t, masked.Draw(absent))
    with pytest.raises(Malformed, match="a draw after 3, expected 3 at most"):
        member.receive("coordinator", 5, masked.Draw(()))


def test_a_device_answers_nobody_without_all_that_it_has_picked():
    fleet, member = drawn()
    picks, others = member.state.picks, [n for n in fleet.names if n != "n0"]
    strangers = [n for n in others if n not in picks]
    for wrong in (("n0", picks[0]), picks, ("n0", *strangers)):
        with pytest.raises(Malformed, match="neighbours without one that was picked"):
            member.receive("coordinator", 3, edges(fleet, wrong))
    for ask in (masked.Ask(1, 1, (), np.zeros(D)), masked.Introduced({})):
        with pytest.raises(Malformed):
            member.receive("coordinator", 3, ask)
    member.receive("coordinator", 3, edges(fleet, ("n0", *picks, strangers[0])))  # who can but spoil the sum
    with pytest.raises(Malformed, match="expected the one that was drawn for"):
        member.receive("coordinator", 4, masked.Ask(1, 1, tuple(fleet.names), np.zeros(D)))
    assert member.receive("coordinator", 4, masked.Ask(1, 1, (), np.zeros(D))).taken


def test_a_set_that_was_drawn_for_before_is_not_answered_under_the_picks_of_another():
    fleet, member = drawn()
    member.receive("coordinator", 3, edges(fleet, fleet.names))
    member.receive("coordinator", 4, masked.Draw(("n6",)))
    for late in (edges(fleet, fleet.names), masked.Ask(1, 1, (), np.zeros(D))):
        with pytest.raises(Malformed):
            member.receive("coordinator", 5, late)


@pytest.mark.parametrize("names", [("n1",), ("n1", "n1"), ("n0", "n1"), ("n1", "n9"), ("n1", "n2", "n3")])
def test_the_coordinator_refuses_picks_that_are_none(names):
    fleet = MaskedFleet(n=N, neighbours=K)
    fleet.until(lambda: fleet.centre.state.phase == "draw", lossy=False)
    with pytest.raises(Malformed, match="expected 2 other members"):
        fleet.centre.receive("n0", fleet.centre.state.t, masked.Picks(names))


# --- every lie about a small graph ---


@pytest.mark.parametrize(("n", "corrupt", "k"), [(4, 0, 1), (4, 1, 1), (4, 1, 2), (5, 2, 2)])
def test_whatever_picks_are_withheld_or_made_up_only_closed_sets_are_decoded_and_small_ones_as_seldom_as_claimed(
    n, corrupt, k
):
    """Every graph of picks, and for each every assignment of neighbours by the coordinator.

    An honest device masks with all that it has picked and with whomever else the coordinator names. A corrupt device
    shows its pads. So of a set of honest messages a pad is left wherever only one end has it.
    """
    honest = range(n - corrupt)
    others = {i: [j for j in range(n) if j != i] for i in honest}
    small, graphs = np.zeros(len(honest) + 1), 0
    for picks in itertools.product(*([frozenset(c) for c in itertools.combinations(others[i], k)] for i in honest)):
        extras = [
            [picks[i] | {*e} for r in range(n) for e in itertools.combinations([*{*honest} - picks[i] - {i}], r)]
            for i in honest
        ]
        fewest = len(honest)
        for near in itertools.product(*extras):
            for size in range(1, fewest):
                for K_ in itertools.combinations(honest, size):
                    if all(j in K_ and i in near[j] for i in K_ for j in near[i] if j in honest):
                        assert all(j in K_ for i in K_ for j in picks[i] if j in honest)  # it is closed
                        fewest = min(fewest, size)
        small[fewest + 1 :] += 1
        graphs += 1
    for shares in range(1, len(honest) + 1):
        assert small[shares] / graphs <= exposure(MaskGraph(n, n, corrupt, k), shares) + 1e-12
    assert small[-1] or k > 1  # with one pick each some graphs do fall apart
