"""The star pattern: whatever the network does to the messages, the states are the same, bit for bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.kernels.machine import NOTHING, Step
from hushgrid.kernels.patterns.star import W, Z
from hushgrid.node import wire
from tests.support import examples
from tests.support.agents.quadratic_star import POSITION, converse, fleet, params, server

NOISE = np.random.default_rng(3).laplace(size=(40, 3))


def bits(centre, agents):
    return [wire.encode(m.state) for m in (centre, *agents.values())]


def undisturbed(p, **stop):
    centre, agents = server(p, **stop), fleet(p, noise=NOISE)
    list(converse(centre, agents))
    return bits(centre, agents)


class Network:
    """Every message ever sent may be delivered again, in any order, or never."""

    def __init__(self, centre, agents):
        self.nodes = {"coordinator": centre, **agents}
        self.air = []
        self.bodies = {}
        self.send("coordinator", centre.start())

    def send(self, src, step):
        for dst, seq, body in step.send:
            encoded = wire.encode(body)
            assert self.bodies.setdefault((src, dst, seq), encoded) == encoded  # a repetition repeats the same bytes
            self.air.append((src, dst, seq, body))

    def deliver(self, i):
        src, dst, seq, body = self.air[i % len(self.air)]
        self.send(dst, self.nodes[dst].receive(src, seq, body))

    def tick(self, i):
        name = sorted(self.nodes)[i % len(self.nodes)]
        self.send(name, self.nodes[name].tick())


@examples.of(60)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 10**6)), max_size=150), st.sampled_from([1, 2]))
def test_any_order_duplication_and_loss_of_messages_gives_the_same_states(events, E):
    p = params(rounds=4, local_updates=E)
    network = Network(server(p), fleet(p, noise=NOISE))
    centre, *agents = network.nodes.values()
    for ticks, i in events:
        if ticks:
            network.tick(i)
        elif network.air:
            network.deliver(i)
            if i % 5 == 0:
                network.air.pop(i % len(network.air))  # lost
    while centre.state.done is None:  # from here on the network behaves
        network.air = []
        for i in range(4):
            network.tick(i)
        for i in range(len(network.air)):
            network.deliver(i)
    assert bits(centre, dict(enumerate(agents))) == undisturbed(p)


def test_a_repeated_message_is_answered_with_the_same_bytes_and_computes_nothing():
    a = fleet(params(), noise=NOISE)["n0"]
    first = a.receive("coordinator", 1, W(np.zeros(2)))
    again = a.receive("coordinator", 1, W(np.zeros(2)))
    assert first.taken
    assert not again.taken
    assert wire.encode(first.send[0].body) == wire.encode(again.send[0].body) == wire.encode(a.tick().send[0].body)
    assert len(a.gate.asked) == 1


@pytest.mark.parametrize("seq", [-1, 0, 3, 10**9])
def test_a_member_does_nothing_about_an_old_or_a_future_round(seq):
    a = fleet(params(), noise=NOISE)["n0"]
    a.receive("coordinator", 1, W(np.zeros(2)))
    before = wire.encode(a.state)
    assert a.receive("coordinator", seq, W(np.ones(2))) == NOTHING
    assert wire.encode(a.state) == before


def test_a_member_never_answers_beyond_the_last_round():
    a = fleet(params(rounds=1), noise=NOISE)["n0"]
    assert a.receive("coordinator", 1, W(np.zeros(2))).taken
    assert a.receive("coordinator", 2, W(np.zeros(2))).send == ()
    assert len(a.gate.asked) == 1


def test_the_centre_counts_each_member_once_and_only_in_its_round():
    centre = server(params())
    centre.start()
    assert centre.receive("n0", 1, Z(np.zeros(2))).taken
    assert not centre.receive("n0", 1, Z(np.ones(2))).taken
    assert not centre.receive("n1", 2, Z(np.ones(2))).taken
    assert not centre.receive("n1", 0, Z(np.ones(2))).taken
    assert centre.missing() == ["n1", "n2"]
    assert [s.dst for s in centre.tick().send] == ["n1", "n2"]  # who has answered is not asked again


def test_the_stop_rule_is_decided_before_the_next_w_is_sent():
    p = params(rounds=50)
    centre, agents = server(p, tolerance=1e9, patience=3), fleet(p)
    rounds = list(converse(centre, agents))
    assert rounds == [1, 2, 3]
    assert centre.state.done == "tolerance"
    assert centre.state.t == 3
    assert [a.state.t for a in agents.values()] == [3, 3, 3]
    assert centre.tick() == Step(done="tolerance")  # nothing is sent any more
    assert centre.receive("n0", 3, Z(np.zeros(2))) == NOTHING


def test_only_rounds_in_a_row_count_for_the_patience():
    p = params(rounds=300)
    centre, agents = server(p, tolerance=1e-3, patience=4), fleet(p)
    moves, w = [], [np.zeros(3)]
    for _ in converse(centre, agents):
        moves.append(
            float(np.max(np.abs(centre.next_w(centre.state.t + 1 if centre.state.done else centre.state.t) - w[-1])))
        )
        w.append(centre.state.w.copy())
    assert centre.state.done == "tolerance"
    calm = [m <= 1e-3 for m in moves]
    assert all(calm[-4:])
    assert not any(all(calm[i : i + 4]) for i in range(len(calm) - 4))  # it did not stop later than it could


def test_a_round_that_moves_starts_the_patience_anew():
    centre = server(params(rounds=50), tolerance=1e-9, patience=2)
    step = centre.start()
    for t, leap in enumerate([0.0, 10.0, 0.0, 0.0], start=1):
        assert centre.state.done is None
        for name in POSITION:
            w, lam = centre.round_body(name).w, centre.state.lam[name]
            answer = w + lam / (2 * 2.0) + leap  # without the leap, the next w is this one again
            step = centre.receive(name, t, Z(answer))
    assert step.done == centre.state.done == "tolerance"


def test_without_a_stop_rule_all_rounds_are_run():
    p = params(rounds=7)
    centre, agents = server(p), fleet(p)
    assert list(converse(centre, agents)) == [1, 2, 3, 4, 5, 6, 7]
    assert centre.state.done == "rounds"
