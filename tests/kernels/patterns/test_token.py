"""Custody of the token: longer walks at random, and one rule at a time."""

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import given as drawn
from hypothesis import strategies as st

from hushgrid.kernels.errors import Stopped
from hushgrid.kernels.graphs import Graph
from hushgrid.kernels.machine import Malformed
from hushgrid.kernels.patterns import routes
from hushgrid.kernels.patterns.token_messages import NEVER, Ack, Leg, Notice, Token, superseded
from hushgrid.kernels.patterns.token_monitor import TokenMonitor
from hushgrid.node import wire
from tests.support import examples
from tests.support.agents.counting_walk import (
    ABC,
    RING,
    Network,
    along,
    ask,
    assert_total,
    bits,
    complete,
    counters,
    given,
    suspect,
    watched,
)

# --- longer walks, at random: everything that was lost is found again ---


NEAR = {name: [RING[i - 1], RING[(i + 1) % 8]] for i, name in enumerate(RING)}


@pytest.mark.runs
@examples.of(150)
@drawn(
    st.lists(st.tuples(st.sampled_from("dddtrx"), st.integers(0, 10**6)), min_size=30, max_size=200), st.integers(1, 40)
)
def test_loss_repetition_reordering_and_restarts_leave_the_same_bits(events, rounds):
    quiet = watched(RING, NEAR, along(RING), rounds)
    assert quiet.finish(RING)
    network = watched(RING, NEAR, along(RING), rounds)
    for kind, i in events:
        if kind == "t":
            network.tick(RING[i % 8])
        elif kind == "r":
            network.restart(RING[i % 8])
        elif network.air:
            key = list(network.air)[i % len(network.air)]
            if kind == "d":
                network.deliver(key)
            else:
                del network.air[key]
    assert network.finish(RING)
    assert bits(network) == bits(quiet)
    assert network.takes == quiet.takes == [(0, hop, RING[hop % 8]) for hop in range(rounds)]
    assert network.done["coordinator"] == "rounds"


FOUR = ("a", "b", "c", "d")


@pytest.mark.runs
@examples.of(300)
@drawn(
    st.lists(st.tuples(st.sampled_from("ddddtrsxw"), st.integers(0, 10**6)), min_size=20, max_size=150),
    st.integers(2, 12),
    st.sampled_from((None, *FOUR)),
)
def test_whatever_was_suspected_the_walk_of_those_that_are_left_ends_with_every_step_counted_once(events, rounds, dead):
    """Suspicions right and wrong; then one node may stay away for good, and the coordinator suspects until it is
    done.
    """
    network = watched(FOUR, complete(FOUR), along(FOUR), rounds)
    watch = network.nodes["coordinator"]
    for kind, i in events:
        suspects = sorted({watch.state.by, watch.state.to} - {""})
        if kind == "t":
            network.tick([*FOUR, "coordinator"][i % 5])
        elif kind == "r":
            network.restart(FOUR[i % 4])
        elif kind == "s" and suspects and watch.state.notice.announced < 4:
            suspect(network, suspects[i % len(suspects)])
        elif kind == "w":
            ask(network, lambda node=FOUR[i % 4], gone=i // 4 % 2: watch.around([node] * gone))
        elif network.air:
            key = list(network.air)[i % len(network.air)]
            if kind == "x":
                del network.air[key]
            else:
                network.deliver(key)
    alive = set(FOUR) - {dead}
    try:
        for _ in range(20):
            ask(
                network, lambda: watch.around({dead} & set(watch.state.notice.without))
            )  # those that are there are walked to
            if network.finish(alive):
                break
            for node in sorted({watch.state.by, watch.state.to} - {""}, key=lambda n: n in alive):
                suspect(network, node)
                if network.finish(alive):
                    break
    except Stopped:  # too many were walked around: the coordinator ends the run, and says so
        assume(False)
    left = [network.nodes[name].state for name in FOUR]
    fences = max((s.known for s in left), key=len)
    holder = next(s for s in left if s.done and not superseded(s.epoch, s.t - 1, fences))
    assert_total(dict(zip(FOUR, left, strict=True)), FOUR[left.index(holder)], fences)
    tours = sum(
        toured and not superseded(e, h, fences) for (e, h, _), toured in zip(network.takes, network.toured, strict=True)
    )
    if not holder.missing:
        assert holder.final[0] == rounds - tours
    assert len({(e, h) for e, h, _ in network.takes}) == len(network.takes)


# --- one rule at a time ---


def handed(network, until):
    """Deliver what there is, oldest hop first, until token `until` is sent; the node that sent it."""
    while not any(kind == "Token" and seq == until for _, _, kind, _, seq in network.air):
        for key in [k for k in network.air if k[2] == "Token"]:
            network.deliver(key)
    return next(src for src, _, kind, _, seq in network.air if kind == "Token" and seq == until)


def test_a_copy_is_kept_until_the_hop_after_its_own_is_acknowledged():
    net = watched(ABC, complete(ABC), along(ABC), 9)
    a, b, c = (net.nodes[name] for name in ABC)
    (token, _) = a.tick().send

    def asked(asking, holder, body, hop):
        """What `holder` answers to a repetition of its token; told to who asked."""
        (receipt,) = holder.receive(asking.name, hop, body).send
        assert receipt.dst == asking.name
        asking.receive(holder.name, hop, receipt.body)
        return receipt.body

    to_c, _ = b.receive("a", 1, token.body).send  # the token alone is handed on, and a report
    assert asked(a, b, token.body, 1) == Ack(0, passed=False)
    assert a.state.out is token.body  # taken, and still kept
    c.receive("b", 2, to_c.body)
    assert asked(b, c, to_c.body, 2) == Ack(0, passed=False)
    assert asked(a, b, token.body, 1) == Ack(0, passed=True)
    assert a.state.out is None
    assert b.state.out is not None


def test_in_a_walk_that_moves_a_hop_is_one_message_and_a_nodes_next_token_replaces_its_last():
    nodes = counters(ABC, complete(ABC), along(ABC), 30, report=1000)
    at, step = "a", nodes["a"].start()
    for hop in range(1, 21):
        (token,) = step.send
        assert (token.seq, type(token.body)) == (hop, Token)
        assert nodes[at].state.out is token.body
        step, at = nodes[token.dst].receive(at, hop, token.body), token.dst


def test_a_holder_that_was_cut_off_comes_back_restores_its_step_and_is_walked_through_again():
    net = watched(FOUR, complete(FOUR), along(FOUR), 30)
    watch, b = net.nodes["coordinator"], net.nodes["b"]
    handed(net, 6)  # b has made activation 5
    net.deliver(("a", "coordinator", "Held", 0, 5))
    assert b.spent == 2
    suspect(net, "b")
    for _ in range(3):  # b is cut off: nothing reaches it, nothing leaves it
        for name in ("a", "c", "d", "coordinator"):
            net.tick(name)
        for key in [k for k in net.air if "b" not in k[:2]]:
            net.deliver(key)
    assert watch.state.notice.fences == (5,)
    assert watch.state.notice.without == ("b",)
    assert net.nodes["a"].state.out.fences == (5,)
    assert (b.state.t, b.state.y[0]) == (6, 2.0)
    net.tick("coordinator")
    net.deliver(("coordinator", "b", "Notice", watch.state.notice.epoch, watch.state.no))  # back again, it hears of it
    assert (b.state.t, b.state.y[0], b.spent) == (2, 1.0, 2)  # restored; what was spent stays spent
    net.after("coordinator", lambda: watch.around([])._replace(taken=True))
    assert net.finish(FOUR)
    assert b.state.y[0] > 2.0
    states = {name: net.nodes[name].state for name in FOUR}
    assert_total(states, next(name for name, s in states.items() if s.done), watch.state.notice.fences)


@pytest.mark.parametrize("recounts", [True, False])
def test_a_node_lost_for_good_is_walked_around_and_a_recount_takes_its_last_contribution_out(recounts):
    net = watched(FOUR, complete(FOUR), along(FOUR), 30, recounts=recounts)
    handed(net, 6)
    net.restart("b")
    assert not net.finish({"a", "c", "d"})
    suspect(net, "b")
    assert net.finish({"a", "c", "d"})
    left = {name: net.nodes[name].state.y[0] for name in ("a", "c", "d")}
    # b's first activation counts, its second was undone; a, who issues the token, c and d count themselves once
    tour = 2 if recounts else 0
    assert sum(left.values()) == 30.0 - 1.0 - tour
    (final,) = (s.final[0][0] for s in (net.nodes[name].state for name in left) if s.done)
    assert final == (sum(left.values()) if recounts else 30.0)
    assert net.nodes["coordinator"].state.missing == (("b",) if recounts else ())
    assert {node for epoch, _, node in net.takes if epoch == 1} == {"a", "c", "d"}


def test_a_walk_that_begins_without_its_first_node_goes_along_edges():
    """On a ring: token 0 is issued by a neighbour of the lost first node, and goes on to that one's neighbour."""
    graph = Graph.from_edges(5, [(i, (i + 1) % 5) for i in range(5)])
    near = {f"n{i}": [f"n{j}" for j in graph.neighbours[i]] for i in range(5)}
    for route in (routes.cyclic(graph, range(5)), routes.random(graph, 1)):
        net = watched(list(near), near, route, 40)
        left = set(near) - {"n0"}
        net.nodes.pop("n0")
        net.takes.clear()
        suspect(net, "n0")
        assert net.finish(left)
        assert net.refused == 0
        assert {node for _, _, node in net.takes} == left
        assert net.nodes["coordinator"].state.missing == ("n0",)


def test_who_comes_back_is_counted_again():
    net = watched(FOUR, complete(FOUR), along(FOUR), 60)
    handed(net, 6)
    net.deliver(("a", "coordinator", "Held", 0, 5))
    suspect(net, "b")
    watch = net.nodes["coordinator"]
    for _ in range(40):
        for name in ("a", "c", "d", "coordinator"):
            net.tick(name)
        for key in [k for k in net.air if "b" not in k[:2]]:
            net.deliver(key)
        if watch.state.missing:
            break
    assert watch.state.missing == ("b",)
    net.after("coordinator", lambda: watch.around([])._replace(taken=True))
    assert net.finish(FOUR)
    states = {name: net.nodes[name].state for name in FOUR}
    end = next(name for name, s in states.items() if s.done)
    assert (states[end].missing, watch.state.missing) == ((), ())
    assert_total(states, end, states[end].known)
    assert states["b"].y[0] > 2.0


def test_where_what_remains_falls_apart_or_the_walk_is_given_the_run_stops():
    path = {"a": ["b"], "b": ["a", "c"], "c": ["b"]}
    walk = ["a", "b", "c", "b", "a"]
    net = watched(ABC, path, given(walk), 5)
    for name in ABC:
        net.tick(name)
    handed(net, 2)
    watch = net.nodes["coordinator"]
    watch.receive("a", 1, net.air[("a", "coordinator", "Held", 0, 1)])
    watch.suspect("b")
    answer = net.nodes["a"].receive("coordinator", watch.state.no, watch.state.notice).send[0]
    watch.receive("a", answer.seq, answer.body)
    assert watch.missing() == ["c"]
    answer = net.nodes["c"].receive("coordinator", watch.state.no, watch.state.notice).send[0]
    with pytest.raises(Stopped, match="without b the network falls apart"):
        watch.receive("c", answer.seq, answer.body)
    with pytest.raises(Stopped, match="c is lost"):
        given(walk)("b", 2, Leg(without=("c",)))


def test_beyond_its_cap_a_node_hands_the_token_on_unchanged():
    nodes = counters(ABC, complete(ABC), along(ABC), 12, cap=2)
    net = Network(nodes, TokenMonitor(complete(ABC), along(ABC), 12))
    assert net.finish(ABC)
    assert [nodes[name].spent for name in ABC] == [2, 2, 2]
    assert next(n.state.final for n in nodes.values() if n.state.done)[0] == 6.0
    assert len(net.takes) == 12


def test_the_walk_stops_after_enough_calm_hops_and_only_hops_in_a_row_count():
    for patience, tolerance, hops in ((4, 1.0, 4), (4, 0.5, 20)):
        nodes = counters(ABC, complete(ABC), along(ABC), 20, tolerance=tolerance, patience=patience)
        net = Network(nodes, TokenMonitor(complete(ABC), along(ABC), 20))
        assert net.finish(ABC)
        assert len(net.takes) == hops
        assert net.done["coordinator"] == ("tolerance" if hops < 20 else "rounds")


VECTOR = (np.zeros(1),)


@pytest.mark.parametrize(
    ("sender", "seq", "body"),
    [
        ("x", 1, Token((), Leg(), 0, VECTOR)),
        ("coordinator", 1, Token((), Leg(), 0, VECTOR)),
        ("a", 1, Token((), Leg(), 0, (np.zeros(2),))),
        ("a", 1, Token((), Leg(), 0, VECTOR * 2)),
        ("a", 9, Token((), Leg(), 0, VECTOR)),
        ("a", 1, Notice()),
        ("a", 1, None),
    ],
    ids=repr,
)
def test_what_a_node_may_not_be_sent_is_refused_before_it_touches_its_state(sender, seq, body):
    node = counters(ABC, {name: ["a"] for name in ABC}, along(ABC), 9)["b"]
    before = wire.encode(node.state)
    with pytest.raises(Malformed):
        node.receive(sender, seq, body)
    assert wire.encode(node.state) == before


def test_a_node_that_stored_an_announcement_takes_a_token_of_an_earlier_epoch_beyond_its_barrier_alone():
    node = counters(ABC, complete(ABC), along(ABC), 9)["b"]
    node.receive("coordinator", 1, Notice(announced=1, barrier=4))
    before = wire.encode(node.state)
    with pytest.raises(Malformed, match="token 4 of epoch 0"):
        node.receive("a", 4, Token((), Leg(), 0, VECTOR))
    assert wire.encode(node.state) == before
    assert node.receive("a", 5, Token((), Leg(), 0, VECTOR)).taken


def test_every_state_of_a_walk_with_a_loss_in_it_is_stored_and_read_back_as_it_was():
    net = watched(FOUR, complete(FOUR), along(FOUR), 30)
    handed(net, 6)
    net.deliver(("a", "coordinator", "Held", 0, 5))
    suspect(net, "b")
    for _ in range(3):
        for key in list(net.air):
            net.deliver(key)
            for machine in net.nodes.values():
                stored = wire.encode(machine.state)
                read = wire.decode_state(type(machine.state), stored)
                assert wire.encode(read) == stored
                assert vars(read).keys() == vars(machine.state).keys()


def test_an_epoch_that_began_at_or_before_a_step_undoes_it_and_an_unused_one_does_not():
    assert superseded(0, 5, (5,))
    assert superseded(1, 5, (9, 4))
    assert not superseded(0, 5, (6,))
    assert not superseded(0, 5, (NEVER, NEVER))
    assert not superseded(1, 5, (5,))
