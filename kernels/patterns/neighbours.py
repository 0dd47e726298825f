"""The neighbours pattern: synchronous rounds on a graph, without a centre.

Message t of a node is one vector, the same for all its neighbours. A node that has message t of every neighbour makes
its step t and sends message t + 1. So two neighbours are never more than one message apart: who is ahead waits for who
is behind, and its message is kept until then. Who still lacks a message after a while asks the neighbour it is of,
which keeps its last two and sends that neighbour the one it lacks: an answer is to one, and asks for none, so that
those who wait for a third cannot keep each other busy. Loss, repetition, reordering and restarts change nothing; the
sum over neighbours runs in the order of their names.

After the last round there may be rounds of averaging (`finish`): a node sends the x that it has arrived at, then in
each round x_i becomes sum_j W_ij x_j. They ask no gate: x is a function of answers and messages, and so is every
average.

The coordinator says when to begin, hears now and then how far everybody is, and sees no vector. A paper supplies
`first` and `step`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec import Struct

from hushgrid.kernels.graphs import Graph
from hushgrid.kernels.machine import ALL, NOTHING, Malformed, Send, Step
from hushgrid.kernels.problems.prox import Regularizer
from hushgrid.kernels.types import Vector


@dataclass(frozen=True, kw_only=True)
class NodeContext:
    """What a node's machine is made from: its gate, and what is public of its place in the plan."""

    gate: Any
    name: str
    neighbours: Sequence[str]  #: in the order of the graph's
    graph: Graph
    index: int  #: i, the node's number in the graph
    size: int  #: d, the length of x
    L: Sequence[float]  #: of every node
    regularizer: Regularizer
    report: int  #: the coordinator is told of every so many messages

    @property
    def degree(self) -> int:
        """The largest of a node."""
        return max(map(len, self.graph.neighbours))


class Iterate(Struct, tag="neighbours.share", frozen=True):
    """To all neighbours: message `seq`."""

    vector: np.ndarray


class Lack(Struct, tag="neighbours.lack", frozen=True):
    """To a neighbour: its message `seq` has not arrived here."""


class Begin(Struct, tag="neighbours.begin", frozen=True):
    """Coordinator to a member: all have joined."""


class Reached(Struct, tag="neighbours.reached", frozen=True):
    """To the coordinator: message `seq` is sent; `done`: it was the last, and every step is made."""

    done: bool = False


@dataclass(kw_only=True)
class NeighbourState:
    """A paper adds its own vectors."""

    t: int = 0  #: number of the message sent last; 0: none
    last: np.ndarray = field(default_factory=lambda: np.zeros(0))  #: message t
    before: np.ndarray = field(default_factory=lambda: np.zeros(0))  #: message t - 1
    arrived: dict[str, np.ndarray] = field(default_factory=dict)  #: message t of the neighbours that are as far
    ahead: dict[str, np.ndarray] = field(default_factory=dict)  #: message t + 1 of those that are ahead
    done: str | None = None
    mixed: np.ndarray = field(
        default_factory=lambda: np.zeros(0)
    )  #: x after the last round of averaging, if there was one


class Neighbour(ABC):
    """A node of the graph. `messages`: how many the algorithm's rounds take; the step after the last one ends them."""

    state: Any

    def __init__(
        self,
        name: str,
        neighbours: Iterable[str],
        messages: int,
        size: int,
        *,
        centre: str = "coordinator",
        report: int = 1,
    ) -> None:
        """`size`: entries of a message. The coordinator is told of every `report`-th message."""
        self.name, self.neighbours, self.messages, self.size = name, sorted(neighbours), messages, size
        self.centre, self.report = centre, report
        self.total = messages  #: messages in all
        self.shares: Mapping[str, float] = {}  #: W_ij of the rounds of averaging, by the neighbours' names
        self.width = size  #: entries of a message in these rounds

    def finish(self, rounds: int, shares: Mapping[str, float], width: int) -> None:
        """So many rounds of averaging after the last one. Called before anything is sent."""
        self.total, self.shares, self.width = self.messages + rounds, shares, width

    @abstractmethod
    def first(self) -> Vector:
        """Message 1. Changes nothing."""

    @abstractmethod
    def step(self, t: int, message: Vector, others: dict[str, Vector]) -> Vector:
        """Step t: from message t of this node and of each neighbour, in the order of their names, to message t + 1.

        All of it or (on an error) nothing. What it returns after the last message is not sent.
        """

    # --- the machine ---

    @property
    def steps(self) -> int:
        """Steps made."""
        s = self.state
        return int(s.t if s.done else max(s.t - 1, 0))

    @property
    def started(self) -> bool:
        return bool(self.state.t)

    @property
    def hears(self) -> list[str]:
        return self.neighbours

    @property
    def complete(self) -> bool:
        return self.state.done is not None

    def outcome(self) -> dict[str, Vector]:
        """What the device keeps: its own iterate x (d,), averaged where that was asked for."""
        return self.iterates() | ({"x": self.state.mixed} if self.state.mixed.size else {})

    def iterates(self) -> dict[str, Vector]:
        """What the algorithm's rounds leave: x (d,), and what else it has."""
        return {"x": self.state.x}

    def start(self) -> Step:
        s = self.state
        if s.t:
            return NOTHING
        s.last = self.first()
        s.t, s.arrived, s.ahead = 1, s.ahead, {}
        return Step((Send(ALL, 1, Iterate(s.last)), self._reached()), taken=True, more=self._ready)

    def receive(self, sender: str, seq: int, body: object) -> Step:
        s = self.state
        if sender == self.centre and isinstance(body, Begin):
            return self.start() if not s.t else Step((self._reached(),))
        if sender in self.neighbours and isinstance(body, Lack):
            return self._answer(sender, seq)
        size = self.size if seq <= self.messages else self.width
        if sender not in self.neighbours or not isinstance(body, Iterate) or body.vector.shape != (size,):
            raise Malformed(f"{type(body).__name__} from {sender}, expected a neighbour's vector of {size}")
        if not 1 <= seq <= min(s.t + 1, self.total):
            raise Malformed(f"message {seq} of {sender}, expected one of 1..{min(s.t + 1, self.total)}")
        store = s.ahead if seq == s.t + 1 else s.arrived if seq == s.t else None
        if store is None or sender in store:
            return NOTHING
        store[sender] = body.vector
        return self.proceed() if self._ready else Step(taken=True)

    def tick(self) -> Step:
        """The last message again; what is lacked is asked for; the coordinator is told how far this is."""
        s = self.state
        if not s.t:
            return NOTHING
        lacks = [Send(name, s.t, Lack()) for name in self.neighbours if name not in s.arrived]
        return Step((Send(ALL, s.t, Iterate(s.last)), *lacks, self._reached()), s.done, more=self._ready)

    def proceed(self) -> Step:
        """Step t, where every neighbour's message t has arrived."""
        s = self.state
        others = {name: s.arrived[name] for name in self.neighbours}
        if s.t > self.messages:
            new = s.mixed = mixed(s.last, others, self.shares)
        else:
            new = self.step(s.t, s.last, others)
            if s.t == self.messages < self.total:
                new = self.iterates()["x"]
        if s.t == self.total:
            s.done = "rounds"
            return Step((self._reached(),), s.done, taken=True)
        s.t, s.before, s.last, s.arrived, s.ahead = s.t + 1, s.last, new, s.ahead, {}
        report = (self._reached(),) if s.t % self.report == 0 else ()
        return Step((Send(ALL, s.t, Iterate(new)), *report), taken=True, more=self._ready)

    # --- inside ---

    def _answer(self, sender: str, seq: int) -> Step:
        """To who lacks message `seq` alone; it is the last one or the one before, or not made yet."""
        s = self.state
        messages = {s.t - 1: s.before, s.t: s.last} if s.t else {}
        return Step((Send(sender, seq, Iterate(messages[seq])),)) if seq in messages and seq else NOTHING

    @property
    def _ready(self) -> bool:
        s = self.state
        return bool(s.t) and s.done is None and len(s.arrived) == len(self.neighbours)

    def _reached(self) -> Send:
        return Send(self.centre, self.state.t, Reached(self.state.done is not None))


def mixed(own_x: Vector, others: Mapping[str, Vector], shares: Mapping[str, float]) -> Vector:
    """sum_j W_ij x_j, the rest of the row on the diagonal. Shape (d,)."""
    new = own_x.copy()
    for j, x in others.items():
        new -= shares[j] * (own_x - x)
    return new


@dataclass
class CensusState:
    t: int = 0  #: 1 once started
    reached: dict[str, int] = field(default_factory=dict)  #: member: number of its last message heard of
    over: list[str] = field(default_factory=list)  #: members that have made every step
    done: str | None = None


class Census:
    """The coordinator's side: it begins the rounds, and knows when all are over."""

    def __init__(self, members: Iterable[str]) -> None:
        self.members = sorted(members)
        self.names = frozenset(self.members)
        self.state = CensusState()
        self._lowest = self._ahead = 0  #: so many members, in the order of their names, are beyond that message

    @property
    def started(self) -> bool:
        return bool(self.state.t)

    @property
    def complete(self) -> bool:
        return self.state.done is not None

    def start(self) -> Step:
        self.state.t = 1
        return self.tick()

    def receive(self, sender: str, seq: int, body: object) -> Step:
        if sender not in self.names or not isinstance(body, Reached):
            raise Malformed(f"{type(body).__name__} from {sender}, expected a member's report")
        s = self.state
        if s.done is not None or seq < s.reached.get(sender, 0) or sender in s.over:
            return NOTHING
        s.reached[sender] = seq
        if body.done:
            s.over = sorted([*s.over, sender])
        if len(s.over) == len(self.members):
            s.done = "rounds"
        return Step(done=s.done, taken=True)

    def tick(self) -> Step:
        """Begin, to those that have not been heard of."""
        s = self.state
        if s.done is not None:
            return Step(done=s.done)
        body = Begin()  # one object, so that it is encoded once
        return Step(tuple(Send(m, 0, body) for m in self.members if m not in s.reached))

    @property
    def lowest(self) -> int:
        """The number of the last message of whoever is furthest behind. Reports only rise: each is looked at once."""
        reached, members = self.state.reached, self.members
        while self._ahead < len(members) and reached.get(members[self._ahead], 0) > self._lowest:
            self._ahead += 1
        if self._ahead == len(members):
            self._lowest, self._ahead = min((reached[m] for m in members), default=0), 0
        return self._lowest

    def missing(self) -> list[str]:
        """Who is furthest behind, of those that are not over: for them the others wait."""
        s = self.state
        over = set(s.over)
        reached = {m: s.reached.get(m, 0) for m in self.members if m not in over}
        lowest = min(reached.values(), default=0)
        return [m for m, t in reached.items() if t == lowest]
