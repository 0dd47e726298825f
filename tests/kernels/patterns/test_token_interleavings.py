"""One token, taken once, never lost and never forked: shown on every interleaving of a small walk."""

import copy
from itertools import product

import numpy as np
import pytest

from hushgrid.kernels.errors import Stopped
from hushgrid.kernels.machine import Malformed
from hushgrid.kernels.patterns.token import Answer, Held, superseded
from hushgrid.kernels.patterns.token_monitor import TokenMonitor
from hushgrid.node import wire
from tests.support import examples
from tests.support.agents.counting_walk import ABC, Counter, along, assert_total, complete

pytestmark = pytest.mark.runs


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
        """The coordinator's moves. What it has received shows only when it suspects or decides: it reads as late as
        that.
        """
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
                        gone = seq < s.last_notice
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


def one_token(model, states, air):
    """What must hold in every state, whatever happened."""
    takes = [m for i, m in enumerate(model.meaning) if air >> i & 1 and m[0] == "take"]
    hops = [(epoch, hop) for _, epoch, hop, _ in takes]
    assert len(hops) == len(set(hops)), "two nodes took the same token"
    fences = states["watch"].notice.fences
    for epoch, hop in hops:
        undone = next((first for first in fences[epoch:] if first <= hop), hop)
        assert undone == hop, "an old epoch's token walks on beside a new one"
    live = [(e, h) for e, h in hops if not superseded(e, h, fences)]
    assert len({h for _, h in live}) == len(live), "an activation counts twice"
    assert sorted(h for _, h in live) == list(range(len(live))), "an activation is missing"
    nodes = {name: states[name] for name in set(model.names) - {"watch"}}
    for s in nodes.values():
        undone = s.t and superseded(s.epoch, s.t - 1, fences)
        assert not undone or len(s.known) < len(fences), "a superseded step stands, and its node knows"
    if live:  # the token's value is the sum of its nodes' own, the superseded steps restored: u = sum_i lambda_i
        assert_total(nodes, next(n for _, e, h, n in takes if (e, h) == max(live, key=lambda at: at[1])), fences)


def model(rounds, suspicions, node=Counter, watch=TokenMonitor, recounts=True):
    near, route = complete(ABC), along(ABC)
    nodes = {name: node(name, near[name], route, rounds, (np.zeros(1),)) for name in ABC}
    for machine in nodes.values():
        machine.n = len(ABC)
    return Model(nodes, watch(near, route, rounds, recounts=recounts), suspicions)


@pytest.mark.parametrize(
    ("rounds", "suspicions", "recounts"),
    examples.few([(2, 1, True), (3, 1, True), (2, 2, True), (3, 1, False)], [(2, 1, True)]),
)
def test_no_interleaving_of_three_nodes_forks_the_token_or_applies_a_step_twice(rounds, suspicions, recounts):
    """With recounts too: what a token counts is counted once, whatever was undone."""
    assert model(rounds, suspicions, recounts=recounts).explore(one_token, 10**6) > 1000


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


class Eager(Counter):
    """Makes its own step too when it is counted."""

    def _counted(self, token, hop):
        self.activate(token.vectors, self.n)
        return super()._counted(token, hop)


class Forgetful(Counter):
    """Takes whatever comes, again and again."""

    def _token(self, sender, hop, token):
        return self._take(sender, hop, token)


class Impatient(TokenMonitor):
    """Issues the token again when the first has answered."""

    def missing(self):
        return super().missing()[1:] if len(super().missing()) < 2 else super().missing()


class Deaf(TokenMonitor):
    """Does not mind that the token was handed on."""

    def _decide(self):
        self.state.answers = {
            name: type(a)(min(a.t, self.state.hop + 1), a.holds) for name, a in self.state.answers.items()
        }
        return super()._decide()


@pytest.mark.parametrize(
    ("node", "watch"),
    [
        (NoBarrier, TokenMonitor),
        (NoHistory, TokenMonitor),
        (Eager, TokenMonitor),
        (Forgetful, TokenMonitor),
        (Counter, Impatient),
        (Counter, Deaf),
    ],
    ids=lambda kind: kind.__name__,
)
def test_each_rule_is_needed_and_its_loss_is_found(node, watch):
    with pytest.raises(AssertionError, match=r"two nodes|walks on|counts twice|is missing|total|stands"):
        model(3, 1, node, watch).explore(one_token, 10**6)
