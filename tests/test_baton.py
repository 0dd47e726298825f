"""Custody: one baton, taken once, never lost and never forked; shown on every interleaving of a small walk."""

import copy
from itertools import product

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from walkers import Counter, Network, along, complete, counters, given, watched

from hushgrid.kernels import baton as rules
from hushgrid.kernels.baton import NEVER, Ack, Answer, Held, Leg, Notice, Token, superseded
from hushgrid.kernels.errors import Stopped
from hushgrid.kernels.machine import Malformed
from hushgrid.kernels.watch import Watch
from hushgrid.node import wire

ABC = ("a", "b", "c")


# --- every interleaving of three nodes: loss, repetition, reordering, restarts, suspicions right and wrong ---


class Model:
    """All reachable states. What is sent stays in the air for ever, so that loss, repetition and reordering are free.

    Each machine's moves are computed once and remembered: a global state is a few small integers.
    """

    def __init__(self, nodes, watch, suspicions):
        self.machines = {**nodes, "watch": watch}
        self.names, self.suspicions = list(self.machines), suspicions
        self.locals, self.ids = [], {}  #: state objects by number
        self.bits, self.meaning = {}, []  #: of messages and of activations
        self.inbox, self.moves, self.dead = {}, {}, {}

    def local(self, state):
        key = (type(state).__name__, wire.encode(state))
        if key not in self.ids:
            self.ids[key] = len(self.locals)
            self.locals.append(copy.deepcopy(state))
        return self.ids[key]

    def bit(self, meaning):
        """`meaning` is ("take", epoch, hop, node) or (src, dst, seq, body)."""
        key = wire.encode(list(meaning[:3])) + type(meaning[3]).__name__.encode() + wire.encode(meaning[3])
        if key not in self.bits:
            self.bits[key] = 1 << len(self.meaning)
            if meaning[0] != "take":
                self.inbox[meaning[1]] = self.inbox.get(meaning[1], 0) | self.bits[key]
            self.meaning.append(meaning)
        return self.bits[key]

    def move(self, name, local, action):
        """(state after, whether committed, bits of what it sent or took) of one machine's move."""
        key = (name, local, action)
        if key not in self.moves:
            machine = self.machines[name]
            machine.state = copy.deepcopy(self.locals[local])
            before = machine.state.t
            try:
                if action == "start":
                    step = machine.start()
                elif isinstance(action, tuple):
                    step = machine.suspect(action[1])
                else:
                    src, _, seq, body = self.meaning[action]
                    step = machine.receive("coordinator" if src == "watch" else src, seq, body)
                air, kept = 0, bool(step.taken or step.done or isinstance(action, tuple) or action == "start")
                for dst, seq, body in step.send:
                    air |= self.bit((name, "watch" if dst == "coordinator" else dst, seq, body))
                if isinstance(machine, Counter) and machine.state.t > before:
                    air |= self.bit(("take", machine.state.epoch, machine.state.t - 1, name))
                self.moves[key] = self.local(machine.state), kept, air
            except (Malformed, Stopped):
                self.moves[key] = local, False, 0
        return self.moves[key]

    def follow(self, name, local, actions):
        kept, air = False, 0
        for action in actions:
            local, committed, sent = self.move(name, local, action)
            kept, air = kept or committed, air | sent
        return local, kept, air

    def watched(self, local, inbox):
        """The coordinator's moves. What it has received shows only when it suspects or decides: it reads as late as that."""
        s, reports = self.locals[local], [(i, *self.meaning[i]) for i in inbox]
        if s.notice.announced < self.suspicions:
            for i, src, _, _, body in [m for m in reports if isinstance(m[4], Held)] + [(None, s.by, None, None, s)]:
                yield from ([*([] if i is None else [i]), ("suspect", who)] for who in {src, body.to} - {""})
        if s.suspect:
            answers = {}
            for i, src, _, seq, body in reports:
                if isinstance(body, Answer) and seq == s.no:
                    answers.setdefault(src, []).append(i)
            yield from ([i] for variants in answers.values() for i in variants if self.meaning[i][3].t > s.hop + 1)
            for chosen in product(*([None, *answers.get(node, [])] for node in self.names if node != "watch")):
                actions = [i for i in chosen if i is not None]
                if not self.locals[self.follow("watch", local, actions)[0]].suspect:
                    yield actions

    def spent(self, name, local, air):
        """The messages in the air that can never again do anything here: their number is behind what was heard."""
        air &= self.inbox.get(name, 0)
        key = (name, local, air)
        if key not in self.dead:
            s, dead = self.locals[local], 0
            for i in self.of(air):
                _, _, seq, body = self.meaning[i]
                match type(body).__name__:
                    case "Answer":
                        gone = seq < s.no
                    case "Held":
                        gone = (body.epoch, seq) < s.held or (bool(s.by) and (body.epoch, seq) == s.held)
                    case "Notice":
                        gone = seq < s.heard
                    case "Ack":
                        gone = seq < s.t or (s.out is not None and body.epoch < len(s.out.fences))
                    case _:
                        gone = False
                dead |= gone << i
            self.dead[key] = dead
        return self.dead[key]

    @staticmethod
    def of(bits):
        while bits:
            low = bits & -bits
            yield low.bit_length() - 1
            bits ^= low

    def explore(self, check, limit):
        """Call `check(states by name, meanings in the air)` on each reachable state; the number of them."""
        now, air = {}, 0
        for name, machine in self.machines.items():
            now[name], _, sent = self.move(name, self.local(machine.state), "start")
            air |= sent
        first = (tuple(now.values()), air)
        seen, stack = {first}, [first]
        while stack:
            now, air = stack.pop()
            check(self, {name: self.locals[i] for name, i in zip(self.names, now, strict=True)}, air)
            for at, name in enumerate(self.names):
                inbox = list(self.of(air & self.inbox.get(name, 0)))
                moves = self.watched(now[at], inbox) if name == "watch" else [[i] for i in inbox]
                results = [self.follow(name, now[at], actions) for actions in moves]
                # What was not committed may be forgotten by a restart; what was sent is out all the same.
                results += [(now[at], True, sent) for _, kept, sent in results if not kept]
                for after, _, sent in results:
                    flying = air | sent
                    new = (*now[:at], after, *now[at + 1 :]), flying & ~self.spent(name, after, flying)
                    if new not in seen:
                        seen.add(new)
                        stack.append(new)
            assert len(seen) < limit
        return len(seen)


def one_baton(model, states, air):
    """What must hold in every state, whatever happened."""
    takes = [m for i, m in enumerate(model.meaning) if air >> i & 1 and m[0] == "take"]
    hops = [(epoch, hop) for _, epoch, hop, _ in takes]
    assert len(hops) == len(set(hops)), "two nodes took the same token"
    fences = states["watch"].notice.fences
    for epoch, hop in hops:
        undone = next((first for first in fences[epoch:] if first <= hop), hop)
        assert undone == hop, "an old epoch's baton walks on beside a new one"
    live = [(e, h) for e, h in hops if not superseded(e, h, fences)]
    assert len({h for _, h in live}) == len(live), "an activation counts twice"
    assert sorted(h for _, h in live) == list(range(len(live))), "an activation is missing"
    if live:  # the token's value is the sum of all the nodes' own, the superseded steps restored: u = sum_i lambda_i
        total = 0.0
        for name in set(model.names) - {"watch"}:
            s = states[name]
            undone = s.t and superseded(s.epoch, s.t - 1, fences)
            assert not undone or len(s.known) < len(fences), "a superseded step stands, and its node knows"
            total += (s.before[0] if undone else s.y)[0]
        assert total == len(live), "the token is not the total of what the nodes hold"


def model(rounds, suspicions, node=Counter, watch=Watch):
    near, route = complete(ABC), along(ABC)
    nodes = {name: node(name, near[name], route, rounds, (np.zeros(1),)) for name in ABC}
    return Model(nodes, watch(near, route, rounds), suspicions)


@pytest.mark.parametrize(("rounds", "suspicions"), [(2, 1), (3, 1), pytest.param(2, 2, marks=pytest.mark.long)])
def test_no_interleaving_of_three_nodes_forks_the_baton_or_applies_a_step_twice(rounds, suspicions):
    assert model(rounds, suspicions).explore(one_baton, 10**6) > 1000


class NoBarrier(Counter):
    """Answers the coordinator, but goes on taking old tokens."""

    def receive(self, sender, seq, body):
        step = super().receive(sender, seq, body)
        self.state.barrier = -1
        return step


class NoHistory(Counter):
    """Never restores a superseded step."""

    def _undone(self, fences):
        return False


class Forgetful(Counter):
    """Takes whatever comes, again and again."""

    def _token(self, sender, hop, token):
        return self._take(sender, hop, token)


class Impatient(Watch):
    """Issues the token again when the first has answered."""

    def missing(self):
        return super().missing()[1:] if len(super().missing()) < 2 else super().missing()


class Deaf(Watch):
    """Does not mind that the token was handed on."""

    def _decide(self):
        self.state.answers = {
            name: type(a)(min(a.t, self.state.hop + 1), a.kept) for name, a in self.state.answers.items()
        }
        return super()._decide()


@pytest.mark.parametrize(
    ("node", "watch"),
    [(NoBarrier, Watch), (NoHistory, Watch), (Forgetful, Watch), (Counter, Impatient), (Counter, Deaf)],
    ids=lambda kind: kind.__name__,
)
def test_each_rule_is_needed_and_its_loss_is_found(node, watch):
    with pytest.raises(AssertionError, match=r"two nodes|walks on|counts twice|is missing|total|stands"):
        model(3, 1, node, watch).explore(one_baton, 10**6)


# --- longer walks, at random: everything that was lost is found again ---

RING = tuple(f"n{i}" for i in range(8))
NEAR = {name: [RING[i - 1], RING[(i + 1) % 8]] for i, name in enumerate(RING)}


def bits(network):
    return {name: wire.encode((m.state.y, m.state.final)) for name, m in network.nodes.items() if name in RING}


@settings(deadline=None, max_examples=150)
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


@settings(deadline=None, max_examples=300)
@drawn(
    st.lists(st.tuples(st.sampled_from("ddddtrsxw"), st.integers(0, 10**6)), min_size=20, max_size=150),
    st.integers(2, 12),
    st.sampled_from((None, *FOUR)),
)
def test_whatever_was_suspected_the_walk_of_those_that_are_left_ends_with_every_step_counted_once(events, rounds, dead):
    """Suspicions right and wrong; then one node may stay away for good, and the coordinator suspects until it is done."""
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
    left = [network.nodes[name].state for name in FOUR]
    fences = max((s.known for s in left), key=len)
    holder = next(s for s in left if s.done and not superseded(s.epoch, s.t - 1, fences))
    assert holder.final[0] == rounds
    total = sum(s.before[0][0] if s.t and superseded(s.epoch, s.t - 1, fences) else s.y[0] for s in left)
    assert total == rounds
    assert len({(e, h) for e, h, _ in network.takes}) == len(network.takes)


def suspect(network, node):
    ask(network, lambda: network.nodes["coordinator"].suspect(node))


def ask(network, what):
    def call():
        try:
            return what()._replace(taken=True)
        except Stopped:
            return rules.NOTHING

    network.after("coordinator", call)


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
    assert sum(net.nodes[name].state.y[0] for name in FOUR) == 30.0


def test_a_node_lost_for_good_is_walked_around_and_its_last_contribution_stays():
    net = watched(FOUR, complete(FOUR), along(FOUR), 30)
    handed(net, 6)
    net.restart("b")
    assert not net.finish({"a", "c", "d"})
    suspect(net, "b")
    assert net.finish({"a", "c", "d"})
    left = {name: net.nodes[name].state.y[0] for name in ("a", "c", "d")}
    assert sum(left.values()) == 30.0 - 1.0  # b's first activation counts, its second was undone
    assert {node for epoch, _, node in net.takes if epoch == 1} == {"a", "c", "d"}


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
    net = Network(nodes, Watch(complete(ABC), along(ABC), 12))
    assert net.finish(ABC)
    assert [nodes[name].spent for name in ABC] == [2, 2, 2]
    assert next(n.state.final for n in nodes.values() if n.state.done)[0] == 6.0
    assert len(net.takes) == 12


def test_the_walk_stops_after_enough_calm_hops_and_only_hops_in_a_row_count():
    for patience, tolerance, hops in ((4, 1.0, 4), (4, 0.5, 20)):
        nodes = counters(ABC, complete(ABC), along(ABC), 20, tolerance=tolerance, patience=patience)
        net = Network(nodes, Watch(complete(ABC), along(ABC), 20))
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
