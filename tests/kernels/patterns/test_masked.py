"""Masked sums as a pure machine: what is decoded, what each message shows, and what a lying coordinator gets."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgrid.kernels.errors import Stopped
from hushgrid.kernels.machine import Malformed
from hushgrid.kernels.patterns import masked
from tests.support.runs.masked_machines import D, G, MaskedFleet, SeededMasks

# --- the tests ---


@given(st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_over_a_network_that_loses_repeats_and_reorders_every_sum_is_that_of_all(seed):
    fleet = MaskedFleet(seed=seed)
    fleet.run()
    assert fleet.sums == [(fleet.expected(fleet.names), tuple(fleet.names))] * 3
    assert all(len(gate.asked) == 3 for gate in fleet.gates.values())
    assert all(m.complete and np.array_equal(m.state.mean, fleet.centre.state.w) for m in fleet.members.values())


@pytest.mark.runs
@pytest.mark.parametrize("masks", [{}, {"n": 7, "neighbours": 2}], ids=["all with all", "among few"])
@given(st.integers(0, 10**6), st.data())
@settings(max_examples=25, deadline=None)
def test_a_restart_of_any_role_at_any_time_changes_nothing(masks, seed, data):
    fleet = MaskedFleet(seed=seed, **masks)
    names = [*fleet.names, "coordinator"]
    while fleet.centre.state.done is None:
        for _ in range(data.draw(st.integers(1, 40))):
            fleet.step()
        fleet.restart(data.draw(st.sampled_from(names)))
    assert fleet.sums == [(fleet.expected(fleet.names), tuple(fleet.names))] * 3
    assert all(len(gate.asked) == 3 for gate in fleet.gates.values())


@pytest.mark.runs
@given(st.integers(0, 10**6), st.data())
@settings(max_examples=10, deadline=None)
def test_a_coordinator_that_restarts_goes_on_with_its_velocity_bit_for_bit(seed, data):
    fleet, calm = (
        MaskedFleet(seed=s, rounds=4, momentum=0.9, prox=lambda v, t: np.clip(v, -9.0, 9.0)) for s in (seed, 0)
    )
    calm.run()
    while fleet.centre.state.done is None:
        for _ in range(data.draw(st.integers(1, 40))):
            fleet.step()
        fleet.restart("coordinator")
    assert fleet.centre.state.w.tobytes() == calm.centre.state.w.tobytes()
    assert fleet.centre.state.v.tobytes() == calm.centre.state.v.tobytes()
    assert np.any(fleet.centre.state.v)


@pytest.mark.parametrize("phase", ["meet", "introduce", "ask", "tell"])
@pytest.mark.parametrize("heard", [0, 3])
def test_without_a_silent_device_the_exchange_goes_on_with_the_others(phase, heard):
    fleet = MaskedFleet(contributors=3)
    fleet.until(lambda: fleet.centre.state.phase == phase, lossy=False)
    fleet.dead.add("n3")
    fleet.until(lambda: len(fleet.centre.state.arrived) >= heard, lossy=False)
    fleet.without("n3")
    fleet.run()
    assert fleet.centre.state.done == "rounds"
    for total, among in fleet.sums:
        assert total == fleet.expected(among)
    if phase == "ask":
        assert fleet.sums[0] == (fleet.expected(fleet.names[:3]), ("n0", "n1", "n2"))


def test_a_round_is_asked_again_with_fresh_answers_and_pads_and_no_pad_is_revealed():
    fleet = MaskedFleet(contributors=3)
    fleet.until(lambda: len(fleet.centre.state.arrived) == 3 and fleet.centre.state.phase == "ask", lossy=False)
    (late,) = fleet.centre.missing()
    fleet.dead.add(late)
    before = list(fleet.centre.state.arrived)
    fleet.without(late)
    fleet.until(lambda: fleet.centre.state.round == 1, lossy=False)
    assert all(len(fleet.gates[m].asked) >= 2 for m in before)
    (about, _), (again, _) = fleet.gates[next(iter(before))].asked[:2]
    assert about != again  # another question: a gate never uses its noise again for it
    assert fleet.sums[0] == (fleet.expected(sorted(before)), tuple(sorted(before)))


def test_a_device_that_comes_back_is_asked_in_the_next_round():
    fleet = MaskedFleet(contributors=3, rounds=5)
    fleet.until(lambda: fleet.centre.state.phase == "ask" and fleet.centre.state.round == 1, lossy=False)
    fleet.dead.add("n2")
    fleet.without("n2")
    fleet.until(lambda: fleet.centre.state.round == 2, lossy=False)
    fleet.dead.clear()
    fleet.run(lossy=False)
    assert fleet.sums[1][1] == ("n0", "n1", "n3")
    assert fleet.sums[-1] == (fleet.expected(fleet.names), tuple(fleet.names))


def test_who_goes_away_after_its_answer_counts_in_that_round_and_is_not_asked_in_the_next():
    fleet = MaskedFleet(contributors=3)
    fleet.until(lambda: fleet.centre.state.phase == "ask" and len(fleet.centre.state.arrived) == 1, lossy=False)
    (gone,) = fleet.centre.state.arrived
    fleet.without(gone)
    others = tuple(name for name in ALL if name != gone)
    assert fleet.centre.without([others[0]]) is None  # two would be left
    fleet.dead.add(gone)
    fleet.run(lossy=False)
    assert [among for _, among in fleet.sums] == [ALL, others, others]
    assert len(fleet.gates[gone].asked) == 1


def test_with_too_few_left_or_answers_used_up_the_run_stops():
    fleet = MaskedFleet(contributors=4)
    fleet.until(lambda: fleet.centre.state.phase == "ask", lossy=False)
    assert fleet.centre.without(["n0"]) is None
    fleet = MaskedFleet(contributors=2, answers=1, rounds=1)
    fleet.until(lambda: fleet.centre.state.phase == "ask", lossy=False)
    assert fleet.centre.without(["n0"]) is None


def ready(contributors: int = 3, n: int = 4) -> MaskedFleet:
    """A fleet whose members know each other, none was asked."""
    fleet = MaskedFleet(n=n, contributors=contributors)
    fleet.until(lambda: fleet.centre.state.phase == "ask", lossy=False)
    return fleet


ALL = ("n0", "n1", "n2", "n3")


@pytest.mark.parametrize(
    ("round", "attempt", "among"),
    [
        (1, 1, ("n0", "n1")),  # too few
        (1, 1, ("n1", "n2", "n3")),  # without itself
        (1, 1, ("n0", "n1", "n1", "n2")),  # one twice
        (1, 1, ("n2", "n1", "n0")),  # not sorted
        (1, 1, ("n0", "n1", "n9")),  # a stranger
        (0, 1, ALL),
        (4, 1, ALL),
        (1, 0, ALL),
        (1, 10, ALL),
    ],
)
def test_a_device_refuses_other_sets_rounds_and_attempts(round, attempt, among):
    member = ready().members["n0"]
    with pytest.raises(Malformed):
        member.receive("coordinator", 3, masked.Ask(round, attempt, among, np.zeros(D)))
    assert member.state.t == 2


def test_a_pad_is_used_once_whatever_is_asked():
    member = ready().members["n0"]
    member.receive("coordinator", 3, masked.Ask(1, 2, ALL, np.zeros(D)))
    for again in ((1, 1), (1, 2)):
        with pytest.raises(Malformed):
            member.receive("coordinator", 4, masked.Ask(*again, ALL, np.ones(D)))
    assert member.receive("coordinator", 3, masked.Ask(1, 1, ALL, np.ones(D))).send == member.tick().send  # repeated
    with pytest.raises(Malformed):
        member.receive("coordinator", 4, masked.Introduced({}))
    with pytest.raises(Malformed):
        member.receive("n1", 4, masked.Ask(2, 1, ALL, np.zeros(D)))


def test_each_message_alone_is_uniform_and_the_sum_decodes():
    """Words of 4 devices over many rounds: bytes of each are uniform by chi-square, those of the sum are not."""
    masks, rounds = [SeededMasks(name) for name in ALL], 200
    for m in masks:
        m.meet({n: SeededMasks(n).introduction() for n in ALL})
    values = np.arange(1, 5, dtype=np.int64)[:, None] * np.ones(D, dtype=np.int64)
    seen = [[] for _ in ALL]
    for k in range(1, rounds + 1):
        words = [values[i].view(np.uint64) + m.pad(k, 1, ALL, np.zeros(D), D) for i, m in enumerate(masks)]
        assert masked.decoded([w.astype("<u8").tobytes() for w in words], G).tolist() == [10 * G] * D
        for i, w in enumerate(words):
            seen[i].append(w.astype("<u8").tobytes())
    for words in seen:
        counts = np.bincount(np.frombuffer(b"".join(words), np.uint8), minlength=256)
        expected = counts.sum() / 256
        chi2 = float(np.sum((counts - expected) ** 2 / expected))
        assert abs(chi2 - 255) < 5 * np.sqrt(2 * 255)  # five standard deviations of chi-square with 255 degrees


@pytest.mark.parametrize(("corrupt", "contributors"), [(1, 4), (0, 4), (1, 3), (2, 4), (0, 3)])
def test_a_coordinator_that_tells_different_sets_decodes_nothing_or_at_least_h_honest_shares(corrupt, contributors):
    """Every assignment of sets to 4 devices, and every set of messages that is added up: all cases.

    A corrupt device shows all its pads, so the coordinator takes these off. What is left of the honest messages' pads
    is a sum over edges that only one end has named: decoded is a set K of messages if none is left.
    """
    honest_needed, found = contributors - corrupt, 0
    for bad in itertools.combinations(range(4), corrupt):
        honest = [i for i in range(4) if i not in bad]
        sets = {
            i: [set(S) for r in range(contributors, 5) for S in itertools.combinations(range(4), r) if i in S]
            for i in honest
        }
        for told in itertools.product(*(sets[i] for i in honest)):
            named = dict(zip(honest, told, strict=True))
            for r in range(1, len(honest) + 1):
                for K in itertools.combinations(honest, r):
                    # pads between honest devices that stay in the sum over K: edges named by one end in K alone
                    left = any((j in named[i] and not (j in K and i in named[j])) for i in K for j in honest if j != i)
                    if not left:
                        found += 1
                        assert len(K) >= honest_needed
    assert found


def test_a_sum_that_no_honest_devices_have_ends_the_run_and_moves_nothing():
    fleet = ready(contributors=4)
    fleet.until(lambda: len(fleet.centre.state.arrived) == 3, lossy=False)
    (last,) = fleet.centre.missing()
    fleet.centre.terms = replace(fleet.centre.terms, largest=1e-3)
    with pytest.raises(Stopped, match="a sum was decoded that no honest devices have"):
        fleet.centre.receive(last, fleet.centre.state.t, masked.Masked(bytes(8 * D)))
    assert np.array_equal(fleet.centre.state.w, np.zeros(D))


class Noisy:
    """Shares with noise: fresh for each question, or (the mutation) one for each point."""

    def __init__(self, seed: int, mutated: bool) -> None:
        self.rng, self.mutated, self.given = np.random.default_rng(seed), mutated, {}

    def share(self, x, about):
        key = x.tobytes() if self.mutated else about + x.tobytes()
        return self.given.setdefault(key, self.rng.integers(-(10**6), 10**6, D))


@pytest.mark.parametrize("mutated", [True, False])
def test_an_answer_sent_again_under_a_smaller_set_gives_the_late_device_away_and_a_fresh_one_does_not(mutated):
    """The coordinator gives n3 up and asks the others again; then n3's message turns up after all."""
    fleet = MaskedFleet(contributors=3)
    for i, member in enumerate(fleet.members.values()):
        member.gate = Noisy(i, mutated)
    fleet.until(lambda: fleet.centre.state.phase == "ask", lossy=False)
    first = fleet.centre.state.t
    fleet.until(lambda: len(fleet.centre.state.arrived) == 3, lossy=False)
    (late,) = fleet.centre.missing()
    answers = {m: fleet.sent[m, first].share for m in fleet.names if m != late}
    (send,) = fleet.members[late].receive("coordinator", first, masked.Ask(1, 1, ALL, np.zeros(D))).send
    answers[late] = send.body.share
    fleet.dead.add(late)
    fleet.without(late)
    fleet.until(lambda: fleet.centre.state.round == 1, lossy=False)
    again = [fleet.sent[m, first + 1].share for m in fleet.names if m != late]
    difference = (masked.decoded(list(answers.values()), G) - masked.decoded(again, G)) / G
    (alone,) = fleet.members[late].gate.given.values()
    assert np.array_equal(difference, alone) is mutated
