"""A walk small enough to follow by eye, and a network that may lose, repeat and reorder. The machines are the real
ones.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

import numpy as np

from hushgrid.kernels.errors import Stopped
from hushgrid.kernels.machine import Malformed, Step
from hushgrid.kernels.patterns import token as rules
from hushgrid.kernels.patterns.token import Ack, Leg, Notice, Token, TokenNode, TokenState
from hushgrid.kernels.patterns.token_monitor import TokenMonitor
from hushgrid.node import wire


@dataclass(kw_only=True)
class CountState(TokenState):
    y: np.ndarray = field(default_factory=lambda: np.zeros(1))


class Counter(TokenNode):
    """Each activation adds one to the token and to the node's own count, so that x = sum_i y_i."""

    node_vectors = ("y",)

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.state = CountState()
        self.spent = 0

    def activate(self, vectors, live):
        self.spent += 1
        self.state.y = self.state.y + 1.0
        return (vectors[0] + 1.0,)

    def counted(self):
        return (self.state.y,)

    def recounted(self, vectors, sums, live):
        return sums


def along(nodes):
    """The cycle through `nodes`, going around whoever is lost (the graph is complete)."""

    def route(node: str, hop: int, leg: Leg) -> str:
        left = [name for name in nodes if name not in leg.without]
        if not node:
            return nodes[hop % len(nodes)]
        at = nodes.index(node)
        return next(name for name in (*nodes[at + 1 :], *nodes[:at]) if name in left)

    return route


def given(walk):
    """The walk node by node; it cannot go around anybody."""

    def route(node: str, hop: int, leg: Leg) -> str:
        if walk[hop] in leg.without:
            raise Stopped(f"{walk[hop]} is lost, and the walk is given")
        return walk[hop]

    return route


def counters(nodes, neighbours, route, rounds, **over):
    made = {name: Counter(name, neighbours[name], route, rounds, (np.zeros(1),), **over) for name in nodes}
    for machine in made.values():
        machine.n = len(made)
    return made


def complete(nodes):
    return {name: [other for other in nodes if other != name] for name in nodes}


class Network:
    """Every message ever sent may be delivered at any time, again and again, or never. States survive as committed.

    A step is committed before its messages are out; what a node noted without a commit is forgotten by `restart`.
    """

    def __init__(self, nodes, watch=None):
        self.nodes = dict(nodes)
        if watch is not None:
            self.nodes["coordinator"] = watch
        self.air = {}  #: (src, dst, kind, seq, bytes): body
        self.takes = []  #: (epoch, hop, node) of every activation
        self.toured = []  #: whether it was one of a recount
        self.refused = 0
        self.done = {}
        self.stored = {name: copy.copy(machine.state) for name, machine in self.nodes.items()}
        for name in list(self.nodes):
            self.after(name, self.nodes[name].start)

    def after(self, name, call):
        machine = self.nodes[name]
        t = machine.state.t
        try:
            step: Step = call()
        except Malformed:
            self.refused += 1
            step = Step()
        if isinstance(machine, TokenNode) and machine.state.t > t:
            self.takes.append((machine.state.epoch, machine.state.t - 1, name))
            self.toured.append(machine.state.in_recount)
        if step.taken or step.done:
            self.stored[name] = copy.deepcopy(machine.state)
        for dst, seq, body in step.send:
            epoch = len(body.fences) if isinstance(body, Token) else getattr(body, "epoch", 0)
            key = (name, dst, type(body).__name__, epoch, seq)
            if isinstance(body, Token | Notice):  # a repetition repeats the same bytes
                assert wire.encode(self.air.get(key, body)) == wire.encode(body)
            if isinstance(body, Ack) and key in self.air and self.air[key].passed:
                continue  # the stronger receipt stays in the air beside nothing weaker
            self.air[key] = body
        self.done[name] = step.done or self.done.get(name)

    def deliver(self, key):
        src, dst, _, _, seq = key
        if key in self.air and dst in self.nodes:
            body = self.air[key]
            self.after(dst, lambda: self.nodes[dst].receive(src, seq, body))

    def tick(self, name):
        self.after(name, self.nodes[name].tick)

    def restart(self, name):
        self.nodes[name].state = copy.deepcopy(self.stored[name])

    def finish(self, alive, limit=10_000):
        """From here on the network behaves: everything sent arrives, to and from the nodes `alive`."""
        alive = {*alive, "coordinator"} & set(self.nodes)
        for _ in range(limit):
            if self.done["coordinator"]:
                return True
            self.air = {}
            before = [wire.encode(self.nodes[name].state) for name in sorted(alive - {"coordinator"})]
            for name in sorted(alive):
                self.tick(name)
            while self.air:
                keys, waiting = list(self.air), self.air
                self.air = {}
                for key in keys:
                    if key[1] in alive:
                        body = waiting[key]
                        self.after(key[1], lambda k=key, b=body: self.nodes[k[1]].receive(k[0], k[4], b))
            if before == [wire.encode(self.nodes[name].state) for name in sorted(alive - {"coordinator"})]:
                return bool(self.done["coordinator"])  # nothing moves any more
        raise AssertionError("the walk goes on for ever")


def watched(nodes, neighbours, route, rounds, **over):
    return Network(counters(nodes, neighbours, route, rounds), TokenMonitor(neighbours, route, rounds, **over))


def standing(state, fences):
    """What of a node's own count stands: before its last step, where that is superseded."""
    return (state.before[0] if state.t and rules.superseded(state.epoch, state.t - 1, fences) else state.y)[0]


def assert_total(states, holder, fences):
    """The token is the total of what the nodes in it hold, and the sums of a recount that of the nodes counted."""
    s = states[holder]
    value = s.out.vectors[0] if s.out else s.final[0]
    assert value[0] == sum(standing(of, fences) for name, of in states.items() if name not in s.missing), "total"
    if s.out and s.out.sums:
        assert s.out.sums[0][0] == sum(standing(states[name], fences) for name in s.out.counted), "total of a recount"


ABC = ("a", "b", "c")
RING = tuple(f"n{i}" for i in range(8))


def bits(network):
    return {name: wire.encode((m.state.y, m.state.final)) for name, m in network.nodes.items() if name in RING}


def suspect(network, node):
    ask(network, lambda: network.nodes["coordinator"].suspect(node))


def ask(network, what):
    def call():
        try:
            return what()._replace(taken=True)
        except Stopped:
            return rules.NOTHING

    network.after("coordinator", call)
