"""The token pattern: one token walks from node to node, taken once, handed over, never lost and never forked.

Some papers, and the names of its messages on the wire, say "baton".

Activation k happens at node i_k: it takes token k (the vectors before it), steps its own state, and hands token k + 1
to i_{k+1}. It keeps that copy until token k + 2 is known to be taken, so that a lost holder is always preceded by a
node that can issue its token again. Every message is repeated, the same bytes, until an answer proves its receipt.
Whoever repeats a token is told how far it has come; in a walk that moves nobody asks, and a hop is one message: a
node's next token replaces its last one.

Fencing. A token belongs to an epoch. `fences[e - 1]` is the first hop issued in epoch e, so that an epoch is the length
of its token's fences, and a step (e, k) is *superseded* where a later epoch began at a hop <= k: its node restores
the state before it (what it spent stays spent). Only the coordinator raises an epoch, by one: it announces it with the
number k of the activation feared lost, and whoever has stored that takes no token of an earlier epoch at a hop
<= k + 1. Token k + 1 could only go to a neighbour of the lost holder; once all of them have stored the announcement and
none has made activation k + 1, nobody ever will in an old epoch, and one node may issue token k in the new one. Where
the holder answers after all, its word replaces its neighbours': it made no activation k and will not, or it issues
token k + 1 once the one node that this was meant for has answered.
An announcement that comes to nothing leaves its epoch unused: the token goes on in its own, beyond the barrier.
A coordinator's notice holds all it has decided so far, so that a node that was away needs the last one only.

Recount. A node that the walk goes around has left its part in the token's sums for ever, and one that comes back is
missing there. So a leg around other nodes than before begins with a tour of its nodes: the token carries fresh sums
beside the vectors, each node adds what it holds once (`counted`) and asks its gate nothing, and with the last one the
sums replace those of the token, for as many nodes as were counted (`recounted`). A tour's hops are hops: custody is the
same, and an undone one leaves nothing at its node. Only the coordinator begins one, by a leg's version; a newer version
begins anew.

`kernels/patterns/token_monitor.py` is the coordinator's side. A paper supplies `activate`; routes are public functions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from msgspec import UNSET
from msgspec.structs import replace

from hushgrid.kernels.graphs import Graph
from hushgrid.kernels.machine import NOTHING, Malformed, Send, Step
from hushgrid.kernels.patterns.token_messages import Ack as Ack
from hushgrid.kernels.patterns.token_messages import Answer as Answer
from hushgrid.kernels.patterns.token_messages import Held as Held
from hushgrid.kernels.patterns.token_messages import Leg as Leg
from hushgrid.kernels.patterns.token_messages import Notice as Notice
from hushgrid.kernels.patterns.token_messages import Route as Route
from hushgrid.kernels.patterns.token_messages import Token as Token
from hushgrid.kernels.patterns.token_messages import superseded as superseded
from hushgrid.kernels.problems.prox import Regularizer
from hushgrid.kernels.types import Vector


@dataclass(frozen=True, kw_only=True)
class NodeContext:
    """What a node's machine is made from: its gate, and what is public of its place in the plan."""

    gate: Any
    name: str
    neighbours: Sequence[str]
    graph: Graph
    index: int  #: i, the node's number in the graph
    size: int  #: the length of a vector
    L: Sequence[float]  #: of every node
    regularizer: Regularizer
    route: Route
    draws: Callable[[int], Any]  #: the node's own random numbers that are no noise of its gate
    cap: int | None  #: answers of the node at most
    report: int  #: the coordinator is told of every so many tokens
    receipts: bool
    tolerance: float
    patience: int

    @property
    def n(self) -> int:
        return self.graph.n

    @property
    def walk(self) -> dict[str, Any]:
        """What `TokenNode` takes, by keyword."""
        return {
            "cap": self.cap,
            "report": self.report,
            "receipts": self.receipts,
            "tolerance": self.tolerance,
            "patience": self.patience,
        }


@dataclass(kw_only=True)
class TokenState:
    """A paper adds its own vectors, and names them in `TokenNode.node_vectors`."""

    encoded_names: ClassVar[Mapping[str, str]] = {"last_notice": "heard", "in_recount": "toured", "answers": "asked"}

    t: int = 0  #: hop of the token sent last: activation t - 1 was made here; 0: none
    epoch: int = 0  #: in which activation t - 1 was made
    source: str = ""  #: who gave token t - 1
    out: Token | None = None  #: token t, kept until it is passed on
    to: str = ""
    taken: bool = False  #: `to` has token t
    before: tuple[np.ndarray, ...] = ()  #: the own vectors before activation t - 1
    before_t: int = 0
    before_epoch: int = 0
    known: tuple[int, ...] = ()  #: fences, of the longest history heard of
    last_notice: int = 0  #: number of the coordinator's last notice
    announced: int = 0
    barrier: int = -1
    issued: int = 0  #: the last epoch this node issued a token in
    version: int = 0
    without: tuple[str, ...] = ()
    recounts: bool = False  #: that version begins with a recount
    in_recount: bool = False  #: activation t - 1 was one of a recount
    answers: int = 0  #: activations that asked the gate, superseded ones included
    done: str | None = None
    missing: tuple[str, ...] = ()  #: of the token sent last
    final: tuple[np.ndarray, ...] = ()  #: the token after the last activation, where that was made


class TokenNode(ABC):
    """A node of the walk. `node_vectors` names the state's vectors that an activation changes, all of them."""

    node_vectors: ClassVar[tuple[str, ...]]
    state: Any
    n: int  #: nodes of the walk, the lost ones included

    def __init__(
        self,
        name: str,
        neighbours: Iterable[str],
        route: Route,
        rounds: int,
        start: tuple[Vector, ...],
        *,
        centre: str = "coordinator",
        cap: int | None = None,
        tolerance: float = 0.0,
        patience: int = 0,
        report: int = 1,
        receipts: bool = False,
    ) -> None:
        """`start` is token 0; `cap` the answers allowed; the walk stops when `patience` hops moved <= `tolerance`.

        The coordinator is told of every `report`-th token as it is sent, and of all that wait. `receipts`: they are
        sent unasked, which spares repetitions where a node waits long for its next token.
        """
        self.name, self.neighbours, self.route, self.rounds, self.first = name, set(neighbours), route, rounds, start
        self.centre, self.cap, self.tolerance, self.patience = centre, cap, tolerance, patience
        self.report, self.receipts = report, receipts

    @abstractmethod
    def activate(self, vectors: tuple[Vector, ...], live: int) -> tuple[Vector, ...]:
        """One activation: new token from token, and the own vectors, all of it or (on an error) nothing.

        `live`: the number of nodes that are in the token's sums.
        """

    @abstractmethod
    def counted(self) -> tuple[Vector, ...]:
        """What this node adds to the sums of a recount: a function of its own vectors, so that it costs nothing."""

    @abstractmethod
    def recounted(self, vectors: tuple[Vector, ...], sums: tuple[Vector, ...], live: int) -> tuple[Vector, ...]:
        """The token's vectors whose sums are those of the `live` nodes that were counted."""

    def check(self, body: Any) -> None:
        """Raise Malformed unless the token's vectors are of this problem's shape, and somebody is in its sums."""
        if [v.shape for v in body.vectors] != [v.shape for v in self.first]:
            raise Malformed(f"a token of {[v.size for v in body.vectors]}, expected {[v.size for v in self.first]}")
        widths = [v.shape for v in self.counted()] if body.leg.recount is True else []
        if body.sums and [v.shape for v in body.sums] != widths:
            raise Malformed(f"a recount of {[v.size for v in body.sums]}, expected sums of {widths}")
        if self.n <= max(len(set(body.missing)), len(set(body.leg.without))):
            raise Malformed(f"a token without all of {self.n} nodes, expected one at least")

    # --- the machine ---

    @property
    def started(self) -> bool:
        return bool(self.state.last_notice or self.state.t)

    @property
    def hears(self) -> tuple[str, ...]:
        return ()  # a token is for one

    @property
    def complete(self) -> bool:
        """An activation was made here. Where the walk ends, only the node that ends it sees: none can check more."""
        return bool(self.state.t)

    def outcome(self) -> dict[str, Vector]:
        """What the device keeps: its own vectors, and the token's where it still has a copy."""
        s = self.state
        token = s.final or (s.out.vectors if s.out else ())
        return {name: getattr(s, name) for name in self.node_vectors} | {f"token_{k}": v for k, v in enumerate(token)}

    def start(self) -> Step:
        if self.state.t or self.route("", 0, Leg()) != self.name:
            return NOTHING
        return self._take("", 0, Token((), Leg(), 0, self.first))

    def receive(self, sender: str, seq: int, body: Any) -> Step:
        if sender == self.centre and isinstance(body, Notice):
            return self._notice(seq, body)
        if sender in self.neighbours and isinstance(body, Token):
            return self._token(sender, seq, body)
        if sender in self.neighbours and isinstance(body, Ack):
            return self._ack(sender, seq, body)
        raise Malformed(f"{type(body).__name__} from {sender}, expected a neighbour's token or a notice")

    def tick(self) -> Step:
        """The token until it is passed on; the coordinator is told again who has it."""
        s = self.state
        held = Send(self.centre, s.t, Held(len(s.out.fences) if s.out else s.epoch, s.to, s.done, s.missing or UNSET))
        if s.out is not None:
            return Step((Send(s.to, s.t, s.out), held))
        return Step((held,), done=s.done) if s.done is not None else NOTHING

    def _fresh(self) -> Step:
        """The token as it is sent first; the coordinator is told now and then."""
        step = self.tick()
        return step if self.state.out is None or self.state.t % self.report == 0 else step._replace(send=step.send[:1])

    # --- the token ---

    def _token(self, sender: str, hop: int, token: Token) -> Step:
        self.check(token)
        s, epoch = self.state, len(token.fences)
        if hop < (s.before_t if self._undone(token.fences) else s.t):  # taken here before
            new = self._learn(token.fences)
            passed = hop < s.t - 1 or s.taken
            return Step((Send(sender, hop, Ack(epoch, passed)),), taken=new)
        if not 0 <= hop < self.rounds:
            raise Malformed(f"token {hop}, expected one of 0..{self.rounds - 1}")
        if (epoch < s.announced and hop <= s.barrier) or superseded(epoch, hop, s.known):
            raise Malformed(f"token {hop} of epoch {epoch}, expected one of epoch {max(s.announced, len(s.known))}")
        self._learn(token.fences)
        return self._take(sender, hop, token)

    def _take(self, sender: str, hop: int, token: Token) -> Step:
        """Activation `hop`. What can fail, the route and the paper's step, comes before every change."""
        s, vectors_before = self.state, tuple(getattr(self.state, name) for name in self.node_vectors)
        if s.version > token.leg.version and self.name not in s.without:
            token = self._begun(token, Leg(s.version, hop + 1, self.name, s.without, s.recounts or UNSET))
        in_recount = token.leg.recount is True
        out = self._counted(token, hop) if in_recount else token
        to = self.route(self.name, hop + 1, out.leg) if hop + 1 < self.rounds else ""
        if not in_recount:
            vectors = token.vectors
            if self.cap is None or s.answers < self.cap:  # beyond its cap a node hands the token on unchanged
                vectors = self.activate(vectors, self.n - len(token.missing))
                s.answers += 1
            stable = (
                token.stable_rounds + 1
                if self.patience and self._moved(vectors, token.vectors) <= self.tolerance
                else 0
            )
            out = replace(token, stable_rounds=stable, vectors=vectors)
        s.before, s.before_t, s.before_epoch, s.in_recount = vectors_before, s.t, s.epoch, in_recount
        s.t, s.epoch, s.source, s.taken = hop + 1, len(token.fences), sender, False
        s.out, s.to, s.done, s.final, s.missing, stable = out, to, None, (), out.missing, out.stable_rounds
        if not to or (self.patience and stable >= self.patience):
            s.done, s.final, s.out, s.to = "tolerance" if to else "rounds", out.vectors, None, ""
        step = self._fresh()
        receipt = (Send(sender, hop, Ack(s.epoch, passed=False)),) if sender and self.receipts else ()
        return Step((*step.send, *receipt), step.done, taken=True)  # the token first: somebody waits for it

    def _ack(self, sender: str, hop: int, body: Ack) -> Step:
        """Token `hop` is taken: who gave the one before may forget its copy, and where it is passed on, so may this
        node.

        Both are told when they ask, by a repetition, if not before. A node that forgets a receipt, uncommitted, asks
        again.
        """
        s = self.state
        if s.out is None or sender != s.to or hop != s.t or body.epoch != len(s.out.fences):
            return NOTHING
        if s.announced > len(s.known) and hop <= s.barrier:
            return NOTHING  # the coordinator may count on this copy until it has decided
        first, s.taken = not s.taken, True
        if body.passed:
            s.out = None
        tell = first and s.source and self.receipts
        return Step((Send(s.source, hop - 1, Ack(s.epoch, True)),)) if tell else NOTHING

    # --- the coordinator ---

    def _notice(self, no: int, body: Notice) -> Step:
        s = self.state
        if no < s.last_notice:
            return NOTHING
        begin = not s.last_notice and not body.announced
        new, s.last_notice = no > s.last_notice, no
        s.announced, s.barrier = max(s.announced, body.announced), max(s.barrier, body.barrier)
        self._learn(body.fences)
        if body.version > s.version:
            s.version, s.without, s.recounts = body.version, body.without, body.recount is True
        issue = body.by == self.name and s.issued < len(body.fences) and self._issue(body)
        step = self.tick() if issue else self.start() if begin else NOTHING
        answer = Send(self.centre, no, Answer(s.t, s.out is not None or s.done is not None, s.to))
        return step._replace(send=(answer, *step.send), taken=new or issue)

    def _issue(self, body: Notice) -> bool:
        """This node's copy of token `hop` begins the epoch; token 0 is everybody's. Whether there is one."""
        s = self.state
        if s.out is not None and s.t == body.hop:
            out, leg = replace(s.out, fences=body.fences), body.leg
            if leg.recount is not True:
                out = replace(out, leg=leg)
            elif leg.version > out.leg.version:
                out = self._counted(self._begun(out, leg), body.hop - 1)
            to = self.route(self.name, body.hop, out.leg)
            s.out, s.to, s.taken = out, to, False
        elif s.t == body.hop == 0:
            self._take("", 0, Token(body.fences, body.leg, 0, self.first))
        else:
            return False
        s.issued = len(body.fences)
        return True

    # --- inside ---

    @staticmethod
    def _begun(token: Token, leg: Leg) -> Token:
        """The token on a new leg. Where that is the tour of a recount, its sums are fresh."""
        return replace(
            token, leg=leg, counted=(), sums=(), stable_rounds=0 if leg.recount is True else token.stable_rounds
        )

    def _counted(self, token: Token, hop: int) -> Token:
        """The token of a recount with this node in its sums.

        With the last node the tour ends, after activation `hop`.
        """
        if self.name in token.counted:
            return token
        addends, counted = self.counted(), tuple(sorted({*token.counted, self.name}))
        sums = tuple(a + b for a, b in zip(token.sums, addends, strict=True)) if token.sums else addends
        live = self.n - len(token.leg.without)
        if len(counted) < live:
            return replace(token, counted=counted, sums=sums)
        leg = Leg(token.leg.version, hop + 1, self.name, token.leg.without)
        vectors = self.recounted(token.vectors, sums, live)
        return replace(token, leg=leg, vectors=vectors, missing=leg.without, counted=(), sums=())

    @staticmethod
    def _moved(after: tuple[Vector, ...], before: tuple[Vector, ...]) -> float:
        return max(float(np.max(np.abs(a - b), initial=0.0)) for a, b in zip(after, before, strict=True))

    def _undone(self, fences: tuple[int, ...]) -> bool:
        s = self.state
        return bool(s.t) and len(fences) > len(s.known) and superseded(s.epoch, s.t - 1, fences)

    def _learn(self, fences: tuple[int, ...]) -> bool:
        """Store a longer history, and restore the state before the last step where it is superseded. Whether longer."""
        s, undone = self.state, self._undone(fences)
        if undone:
            for name, value in zip(self.node_vectors, s.before, strict=True):
                setattr(s, name, value)
            s.t, s.epoch = s.before_t, s.before_epoch  # that earlier token was passed on long ago
            s.out, s.to, s.source, s.taken, s.done, s.final, s.missing = None, "", "", True, None, (), ()
        if longer := len(fences) > len(s.known):
            s.known = fences
        return longer
