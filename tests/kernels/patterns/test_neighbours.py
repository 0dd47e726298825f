"""Synchronous rounds without a centre: whatever the network does, everybody makes every step once, with the same
bits.
"""

import copy
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.kernels.graphs import Network as Graph
from hushgrid.kernels.machine import ALL, Malformed, Step
from hushgrid.kernels.patterns.neighbours import Begin, Census, Iterate, Lack, Neighbour, NeighbourState, Reached
from hushgrid.node import wire
from tests.support import examples


@dataclass(kw_only=True)
class MeanState(NeighbourState):
    x: np.ndarray = field(default_factory=lambda: np.zeros(1))


class Mean(Neighbour):
    """x+ = the mean of a node's and its neighbours' x; it counts its steps and checks that nobody is out of step."""

    def __init__(self, name, neighbours, messages, start):
        super().__init__(name, neighbours, messages, 1)
        self.state = MeanState(x=np.array([start]))
        self.made = []

    def first(self):
        return self.state.x

    def step(self, t, own, others):
        assert list(others) == sorted(self.neighbours)
        self.made.append(t)
        self.state.x = (own + sum(others.values())) / (1 + len(others))
        return self.state.x


def fleet(graph, messages):
    names = [f"n{i}" for i in range(graph.n)]
    nodes = {
        name: Mean(name, [names[j] for j in near], messages, float(i) ** 1.5)
        for i, (name, near) in enumerate(zip(names, graph.neighbours, strict=True))
    }
    return {**nodes, "coordinator": Census(names)}


class Air:
    """What was sent may be delivered at any time, repeatedly, or never; states survive as committed."""

    def __init__(self, machines):
        self.machines, self.air, self.done = machines, {}, {}
        self.stored = {name: copy.deepcopy(m.state) for name, m in machines.items()}
        self.after("coordinator", machines["coordinator"].start)

    def after(self, name, call):
        step: Step = call()
        if step.more:
            self.one(name, step)
            return self.after(name, self.machines[name].proceed)
        self.one(name, step)

    def one(self, name, step):
        if (step.taken and step.send) or step.done or name == "coordinator":
            self.stored[name] = copy.deepcopy(self.machines[name].state)
        for dst, seq, body in step.send:
            near = self.machines[name].neighbours if dst == ALL else [dst]
            for to in near:
                key = (name, to, type(body).__name__, seq)
                if isinstance(body, Iterate) and key in self.air:
                    assert wire.encode(self.air[key]) == wire.encode(body), "a repetition repeats the same bytes"
                self.air[key] = body
        self.done[name] = step.done or self.done.get(name)

    def deliver(self, key, once=False):
        src, dst, _, seq = key
        body = self.air.pop(key) if once else self.air[key]
        self.after(dst, lambda: self.machines[dst].receive(src, seq, body))

    def restart(self, name):
        self.machines[name].state = copy.deepcopy(self.stored[name])

    def finish(self):
        """From here on the network behaves."""
        for _ in range(10_000):
            if self.done.get("coordinator"):
                return
            self.air = {}
            for name in self.machines:
                self.after(name, self.machines[name].tick)
            while self.air:
                self.deliver(next(iter(self.air)), once=True)
        raise AssertionError("they wait for each other for ever")

    def bits(self):
        return {name: wire.encode(m.state.x) for name, m in self.machines.items() if name != "coordinator"}


GRAPHS = {
    "ring": Graph(kind="ring", nodes=6), "path": Graph(kind="path", nodes=4), "star": Graph(kind="star", nodes=5),
    "complete": Graph(kind="complete", nodes=4), "two": Graph(kind="path", nodes=2),
}  # fmt: skip


@pytest.mark.runs
@examples.of(200)
@given(
    st.sampled_from(sorted(GRAPHS)),
    st.integers(1, 9),
    st.lists(st.tuples(st.sampled_from("ddddtrx"), st.integers(0, 10**6)), max_size=250),
)
def test_loss_repetition_reordering_and_restarts_leave_the_same_bits(kind, messages, events):
    graph = GRAPHS[kind].build()
    quiet = Air(fleet(graph, messages))
    quiet.finish()
    air = Air(fleet(graph, messages))
    names = list(air.machines)
    for what, i in events:
        name = names[i % len(names)]
        if what == "t":
            air.after(name, air.machines[name].tick)
        elif what == "r":
            air.restart(name)
        elif air.air:
            key = list(air.air)[i % len(air.air)]
            if what == "d":
                air.deliver(key)
            else:
                del air.air[key]
        t = [m.state.t for m in air.machines.values() if isinstance(m, Mean)]
        assert all(abs(t[i] - t[j]) <= 1 for i, j in graph.edges), "two neighbours are more than one message apart"
    air.finish()
    assert air.bits() == quiet.bits()
    assert air.done["coordinator"] == "rounds"
    for m in quiet.machines.values():
        assert isinstance(m, Census) or m.made == list(range(1, messages + 1))


def test_the_steps_are_those_of_the_matrix():
    graph = GRAPHS["ring"].build()
    air = Air(fleet(graph, 5))
    x = np.array([m.state.x[0] for m in air.machines.values() if isinstance(m, Mean)])
    W = np.zeros((6, 6))
    for i, near in enumerate(graph.neighbours):
        W[i, [i, *near]] = 1 / (1 + len(near))
    air.finish()
    found = [m.state.x[0] for m in air.machines.values() if isinstance(m, Mean)]
    np.testing.assert_allclose(found, np.linalg.matrix_power(W, 5) @ x, rtol=1e-14)


def test_who_lacks_a_message_asks_for_it_and_is_given_it_alone():
    nodes = fleet(GRAPHS["two"].build(), 3)
    a, b = nodes["n0"], nodes["n1"]
    a.start()
    b.start()
    step = a.receive("n1", 1, Iterate(b.state.last))
    assert [(s.dst, s.seq) for s in step.send if isinstance(s.body, Iterate)] == [(ALL, 2)]
    asked = [(s.dst, s.seq) for s in b.tick().send if isinstance(s.body, Lack)]
    assert asked == [("n0", 1)]
    answer = a.receive("n1", 1, Lack())
    assert [(s.dst, s.seq, s.body.vector[0]) for s in answer.send] == [("n1", 1, 0.0)]  # it kept its last two
    assert not answer.taken
    assert [s.seq for s in a.receive("n1", 2, Lack()).send] == [2]
    for not_made in (0, 3):
        assert a.receive("n1", not_made, Lack()).send == ()


@pytest.mark.parametrize("kind", ["complete", "ring"])
def test_those_who_wait_for_a_silent_node_do_not_keep_each_other_busy(kind):
    """Whatever they say when time passes has been answered after one exchange."""
    air = Air(fleet(GRAPHS[kind].build(), 9))
    names = [n for n in air.machines if n.startswith("n")]

    def said():
        """Rounds of delivery, and messages in them, until nobody says anything more."""
        rounds = messages = 0
        while air.air:
            waiting, air.air = air.air, {}
            rounds, messages = rounds + 1, messages + len(waiting)
            for (src, dst, _, seq), body in waiting.items():
                if dst in names[1:] and src != "n0":
                    air.after(dst, lambda d=dst, s=src, q=seq, b=body: air.machines[d].receive(s, q, b))
            assert rounds < 50, "they keep each other busy"
        return rounds, messages

    said()  # the first messages: n0 has had Begin and gives nothing
    edges = sum(len(air.machines[n].neighbours) for n in names)
    for _ in range(3):
        for name in names[1:]:
            air.after(name, air.machines[name].tick)
        rounds, messages = said()
        assert rounds <= 2
        assert messages <= 3 * edges + len(names)  # its message and a question on each edge, an answer, a report


@pytest.mark.parametrize(
    ("sender", "seq", "body"),
    [
        ("n2", 1, Iterate(np.zeros(1))),
        ("coordinator", 1, Iterate(np.zeros(1))),
        ("n1", 1, Iterate(np.zeros(2))),
        ("n1", 3, Iterate(np.zeros(1))),
        ("n1", 0, Iterate(np.zeros(1))),
        ("n1", 1, Begin()),
        ("n1", 1, Reached()),
        ("n1", 1, None),
        ("n2", 1, Lack()),
        ("coordinator", 1, Lack()),
    ],
    ids=repr,
)
def test_what_a_node_may_not_be_sent_is_refused_before_it_touches_its_state(sender, seq, body):
    a = fleet(GRAPHS["two"].build(), 5)["n0"]
    a.start()
    before = wire.encode(a.state)
    with pytest.raises(Malformed):
        a.receive(sender, seq, body)
    assert wire.encode(a.state) == before


def test_the_coordinator_knows_for_whom_the_others_wait():
    census = Census(["n0", "n1", "n2"])
    census.start()
    for name, t, done in (("n0", 3, False), ("n1", 2, False), ("n2", 4, True)):
        census.receive(name, t, Reached(done))
    assert census.missing() == ["n1"]
    assert census.receive("n1", 1, Reached()).taken is False  # an old report
    with pytest.raises(Malformed):
        census.receive("n9", 1, Reached())


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 6)), max_size=60))
def test_the_census_knows_the_lowest_report_without_a_look_at_all(reports):
    census = Census([f"n{i}" for i in range(5)])
    census.start()
    for i, seq in reports:
        census.receive(f"n{i}", seq, Reached())
        assert census.lowest == min(census.state.reached.get(m, 0) for m in census.members)
