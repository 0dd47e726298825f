"""Consensus in two levels, machine by machine: one level's steps, and what each half refuses."""

from dataclasses import replace

import numpy as np
import pytest

from hushgrid.kernels.algorithms import registry
from hushgrid.kernels.algorithms.consensus_admm import Params
from hushgrid.kernels.errors import Failed
from hushgrid.kernels.machine import Malformed
from hushgrid.kernels.patterns.levels import CloseAll, Move, Point, ReleasedAll, Summed, Sums
from hushgrid.kernels.patterns.sites import NO_NEWS
from hushgrid.kernels.patterns.star import Concluded, NodeContext, Released, ServerContext, Taken
from tests.support.runs.quadratics import Gate, Quadratic

POSITION = {"a": np.array([0, 1]), "b": np.array([0, 1, 2]), "c": np.array([2, 3]), "d": np.array([3])}
DATA = {p: np.arange(1.0, 1.0 + k.size) * (3 + ord(p) % 5) for p, k in POSITION.items()}
SITES = {"s1": ["a", "b"], "s2": ["c", "d"]}  # entry 2 is above, 0 and 1 in s1, 3 in s2
PARAMS = Params(rounds=60, variant="none", rho0=0.3)
RUN = b"r" * 16


def context(sites=SITES):
    told = {p: Released("done", 0.0, np.zeros(0)) for p in POSITION}
    return ServerContext(
        position=POSITION,
        start={p: np.zeros(k.size) for p, k in POSITION.items()},
        epsilon=np.inf,
        tolerance=1e-6,
        patience=3,
        stiffness=np.full(4, np.nan),
        bounds=True,
        widths={p: (k.size, k.size, 0) for p, k in POSITION.items()},
        conclude=lambda closing, measured: Concluded(told, np.zeros(0), {}),
        sites=sites,
    )


def agents():
    def agent(p):
        m = POSITION[p].size
        place = {"feasible": None, "shared": np.arange(m), "start": np.zeros(m), "L": 1.0, "mode": None}
        stiffness = np.full(m, np.nan)
        return PARAMS.agent(
            NodeContext(gate=Gate(DATA[p]), **place, epsilon=np.inf, patience=3, local=Quadratic, stiffness=stiffness)
        )

    return {p: agent(p) for p in POSITION}


class Levels:
    """All machines of two levels, without a wire."""

    def __init__(self):
        self.above, self.zones = registry.server_of(PARAMS, context()), agents()
        self.members = {site: registry.member_of(PARAMS, context(), site) for site in SITES}
        self.centres = {site: registry.server_of(PARAMS, context(), site) for site in SITES}
        for centre in self.centres.values():
            centre.start()

    def below(self, site, step):
        for send in step.send:
            (answer,) = self.zones[send.dst].receive("coordinator", send.seq, send.body).send
            self.centres[site].receive(send.dst, answer.seq, answer.body)

    def exchange(self, step):
        """One exchange of all; the next step above."""
        for send in step.send:
            member, centre = self.members[send.dst], self.centres[send.dst]
            member.receive("coordinator", send.seq, send.body)
            self.below(send.dst, centre.exchanged(member, RUN).below)
            (answer,) = centre.exchanged(member, RUN).above.send
            following = self.above.receive(send.dst, answer.seq, answer.body)
        return following

    def run(self):
        step = self.above.start()
        while step.done is None:
            step = self.exchange(step)
        return step.done


def one_level():
    server, zones = PARAMS.server(context({})), agents()
    step = server.start()
    while step.done is None:
        for send in step.send:
            (answer,) = zones[send.dst].receive("coordinator", send.seq, send.body).send
            following = server.receive(send.dst, answer.seq, answer.body)
        step = following
    return server, zones, step.done


def test_every_number_of_one_level_comes_out_of_two():
    levels, (server, zones, done) = Levels(), one_level()
    assert levels.run() == done == "tolerance"
    ours, theirs = levels.above.state, server.state
    assert (ours.rounds, ours.bound, ours.factor) == (theirs.rounds, theirs.bound, theirs.factor)
    assert ours.measured.tolist() == theirs.measured.tolist()
    for p, zone in zones.items():
        assert levels.zones[p].state.z.tolist() == zone.state.z.tolist()
        for key in ("s", "z", "lam"):
            assert getattr(ours, key)[p].tolist() == getattr(theirs, key)[p].tolist()
    assert [centre.state.done for centre in levels.centres.values()] == ["tolerance"] * 2
    assert all(member.complete for member in levels.members.values())


def test_no_gate_is_asked_more_often_than_in_one_level():
    levels, (_, zones, _) = Levels(), one_level()
    levels.run()
    asked = {p: zone.gate.answers for p, zone in levels.zones.items()}
    assert asked == {p: zone.gate.answers for p, zone in zones.items()}


def test_a_site_says_above_only_what_its_zones_share_with_others_and_sums():
    levels = Levels()
    for send in levels.above.start().send:
        levels.members[send.dst].receive("coordinator", send.seq, send.body)
        levels.below(send.dst, levels.centres[send.dst].exchanged(levels.members[send.dst], RUN).below)
    said = {site: levels.centres[site].exchanged(levels.members[site], RUN).above.send[0].body for site in SITES}
    assert {p: z.size for body in said.values() for p, z in body.z.items()} == {"a": 0, "b": 1, "c": 1, "d": 0}


def test_a_zone_with_another_weight_ends_the_run_at_its_site():
    levels = Levels()
    levels.zones["d"].weight = levels.zones["d"].weight * 1.5
    with pytest.raises(Failed, match=r"^d: found multipliers of norm .*: it has other weights"):
        levels.exchange(levels.above.start())


SUMS = Sums(*[0.0, *[(0.0,)] * 9, (), ()])
WRONG_UP = {
    "another zone": Summed({"a": np.zeros(0), "c": np.zeros(1)}, SUMS),
    "another size": Summed({"a": np.zeros(1), "b": np.zeros(1)}, SUMS),
    "no number": Summed({"a": np.zeros(0), "b": np.zeros(1)}, Sums(*[0.0, (np.nan,), *[(0.0,)] * 8, (), ()])),
    "too many products": Summed(
        {"a": np.zeros(0), "b": np.zeros(1)}, Sums(*[0.0, *[(0.0,)] * 9, ((1.0,),), ((1.0,),)])
    ),
    "not its turn": Taken(),
    "another message": CloseAll({}, Move("plain", 1.0, np.zeros(0))),
}


@pytest.mark.parametrize("body", WRONG_UP.values(), ids=WRONG_UP)
def test_the_coordinator_above_refuses_what_a_site_may_not_say(body):
    above = Levels().above
    above.start()
    with pytest.raises(Malformed, match="expected"):
        above.receive("s1", 1, body)


ASKED = Point({"a": np.zeros(0), "b": np.zeros(1)}, Move("begin", 1.0, np.zeros(0)))
WRONG_DOWN = {
    "another zone": Point({"a": np.zeros(0)}, ASKED.move),
    "another size": Point({"a": np.zeros(2), "b": np.zeros(1)}, ASKED.move),
    "a later round": Point(ASKED.v, Move("plain", 1.0, np.zeros(0))),
    "a beginning of another size": Point(ASKED.v, ASKED.move, {"a": np.zeros(1), "b": np.zeros(2)}),
    "nothing to close yet": CloseAll({}, ASKED.move),
    "nothing to release yet": ReleasedAll({}, "rounds", 1, 0.0),
}


@pytest.mark.parametrize("body", WRONG_DOWN.values(), ids=WRONG_DOWN)
def test_a_site_refuses_what_the_coordinator_above_may_not_ask(body):
    member = Levels().members["s1"]
    with pytest.raises(Malformed, match="expected"):
        member.receive("coordinator", 1, body)
    assert member.receive("coordinator", 1, ASKED).taken
    assert not member.tick().send


def test_a_question_that_is_repeated_is_answered_with_the_same_words_and_asked_once_below():
    levels = Levels()
    (first, _) = levels.above.start().send
    member, centre = levels.members["s1"], levels.centres["s1"]
    for _ in range(2):
        member.receive("coordinator", first.seq, first.body)
    levels.below("s1", centre.exchanged(member, RUN).below)
    sent = centre.exchanged(member, RUN).above.send
    assert member.receive("coordinator", first.seq, first.body).send == sent
    assert centre.exchanged(member, RUN) == NO_NEWS


def test_the_sizes_of_a_stored_state_of_before_are_no_reason_to_fail():
    """A run of an earlier version has no products of differences in its state: its acceleration begins anew."""
    server, zones = PARAMS.server(context({})), agents()
    step = server.start()
    for _ in range(8):
        for send in step.send:
            (answer,) = zones[send.dst].receive("coordinator", send.seq, send.body).send
            following = server.receive(send.dst, answer.seq, answer.body)
        step = following
    assert server.state.normal.size > 1
    server.state = replace(server.state, normal=np.zeros(0))
    while step.done is None:
        for send in step.send:
            (answer,) = zones[send.dst].receive("coordinator", send.seq, send.body).send
            following = server.receive(send.dst, answer.seq, answer.body)
        step = following
    assert step.done == "tolerance"
