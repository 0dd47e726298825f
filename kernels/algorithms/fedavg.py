"""H. B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Aguera y Arcas, Communication-efficient learning of deep networks
from decentralized data (AISTATS 2017), Algorithm 1: FederatedAveraging.

Problem:   min_x  sum_p f_p(x) + n r(x),  x in a box. Each round the server sends w^t; node p starts there, takes E
local steps x <- x - alpha f_p'(x), and the server goes on from the mean m of what comes back.

Departures from the paper:
 - All nodes take part in every round (C = 1), and a local step uses all rows (B = infinity): a gate answers for all of
   them.
 - The paper's weights n_p/n stand in f_p (`scale: share`), so that the mean is a plain one.
 - With momentum the server takes the step of FedAvgM (T.-M. H. Hsu, H. Qi, M. Brown, Measuring the effects of
   non-identical data distribution for federated visual classification, 2019): v+ = beta v + (w - m), w+ = w - v+. With
   E = 1 that is the heavy ball on the mean gradient.
 - With E = 1 the server takes w+ = prox_{alpha r}(w - v+) over the box, for w - m is alpha times the gradient of the
   mean, and (1/n) (sum_p f_p + n r) = (1/n) sum_p f_p + r. Then v+ = w - w+, how far w has really come (iPiano: P.
   Ochs, Y. Chen, T. Brox, T. Pock, 2014, Algorithm 1): a v that goes on pushing where r or the box holds would have
   another fixed point.
 - With E > 1 there is no r: a mean of models after several steps is not one step of any gradient, and the fixed point
   would be another. Every local step is projected onto the box, and w+ too.
The paper makes no promise of privacy. Guarded, each gradient is an answer of the gate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, sqrt
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from msgspec import UNSET, UnsetType

from hushgrid.kernels.algorithms.base import Constrained, Star
from hushgrid.kernels.machine import Malformed
from hushgrid.kernels.patterns import masked
from hushgrid.kernels.patterns.star import (
    Feasible,
    FinalState,
    NodeContext,
    Prox,
    ServerContext,
    StarCentre,
    StarMember,
    W,
    Z,
)
from hushgrid.kernels.ranges import Count, Momentum, Step, Updates
from hushgrid.kernels.types import Vector


class Params(Star, tag_field="name", tag="fedavg", frozen=True, kw_only=True):
    """The scenario's `algorithm` section, in the paper's symbols."""

    title: ClassVar[str] = "federated averaging"
    paper: ClassVar[str] = (
        "H. B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Aguera y Arcas, Communication-efficient learning of deep "
        "networks from decentralized data, Algorithm 1"
    )
    constrained: ClassVar[Constrained] = "all"
    box_only_with: ClassVar[tuple[str, int] | None] = ("local_updates", 1)
    recorded: ClassVar[tuple[str, ...]] = ("mean",)

    #: whose noise: guarded (the gate's own) or none
    variant: Literal["guarded", "none"] = "guarded"
    rounds: Count  #: T, rounds around the coordinator
    step_size: Step  #: alpha
    local_updates: Updates = 1  #: E, steps of a node between two messages
    #: beta, the share of the coordinator's last step that its next one goes on with; costs nothing [0]
    momentum: Momentum | UnsetType = UNSET

    @property
    def pull(self) -> float:
        """mu of a term mu/2 |x - w^t|^2 in the local problem: there is none."""
        return 0.0

    @property
    def beta(self) -> float:
        return self.momentum or 0.0

    @property
    def per_round(self) -> int:
        return self.local_updates

    def server_holds_iterate(self, constrained: bool) -> bool:
        return self.beta > 0 or (constrained and self.local_updates == 1)

    @property
    def unmasked(self) -> str | None:
        if self.pull:
            return "a model that is pulled back depends on more than the gate's answer: fedavg can be masked"
        if self.local_updates > 1:
            return (
                "a second local step is taken at a point that the others have not seen: local_updates 1 can be masked"
            )
        return None

    def step_ratio(self, L: Sequence[float], degree: int) -> float | None:
        """alpha (L + mu)/(2 (1 + beta)), the heavy ball's bound on quadratics (B. T. Polyak, 1964); with E > 1 alpha (L
        + mu)/2.
        """
        further = self.beta if self.local_updates == 1 else 0.0  # E steps by themselves are no more stable for it
        return self.step_size * (max(L) + self.pull) / (2 * (1 + further))

    def step_of_answer(self, i: int, k: int, L: float, epsilon: float = inf, alpha: float = 0.0) -> float:
        return self.step_size

    def noise_gain(
        self, i: int, answers: int, L: float, neighbours: Sequence[int], epsilon: float = inf, alpha: float = 0.0
    ) -> float:
        """An answer that is followed by j - 1 rounds enters by alpha (1 + beta + ... + beta^{j-1}); their squares, in
        closed form.
        """
        b, T = self.beta, answers // self.per_round
        squares = T - 2 * b * (1 - b**T) / (1 - b) + b * b * (1 - b ** (2 * T)) / (1 - b * b)
        return self.per_round * squares * (self.step_size / (1 - b)) ** 2

    def agent(self, context: NodeContext) -> Client:
        return Client(
            self, context.gate, context.feasible(np.ones(context.start.size)), context.start, context.patience
        )

    def server(self, context: ServerContext) -> Server:
        return (
            Leader(self, context)
            if self.server_holds_iterate(context.prox is not None)
            else Server(context, self.rounds)
        )

    def masked_server(self, context: masked.ServerContext) -> masked.MaskedCentre:
        return MaskedServer(self, context)


def local_step(x: Vector, g: Vector, w: Vector, alpha: float, mu: float) -> Vector:
    """A gradient step on f_p(x) + mu/2 |x - w|^2. g = f_p'(x). Shapes (d,)."""
    return x - alpha * (g + mu * (x - w))


def square(v: Vector) -> float:
    """|v|^2; it overwrites v."""
    v *= v
    return float(np.add.reduce(v))


class ClientOracle(Protocol):
    """What a client may ask of its gate."""

    def gradient(self, x: Vector) -> Vector: ...
    def exact_gradient(self, x: Vector) -> Vector: ...


@dataclass
class ClientState:
    t: int  #: rounds answered
    mean: np.ndarray  #: (d,) its own model after the round
    common: np.ndarray  #: (d,) w^t, the mean of all nodes' models before it


class Client(StarMember):
    """ClientUpdate(p, w)."""

    def __init__(
        self, params: Params, gate: ClientOracle, feasible: Feasible, start: Vector, patience: int = 0
    ) -> None:
        super().__init__("coordinator", params.rounds, patience)
        self.params, self.feasible = params, feasible
        self.answer = gate.gradient if params.variant == "guarded" else gate.exact_gradient
        self.state = ClientState(0, start.copy(), start.copy())

    def check(self, body: object) -> None:
        if not isinstance(body, W) or body.w.shape != self.state.mean.shape:
            raise Malformed(f"{type(body).__name__}, expected w of {self.state.mean.size} entries")

    def update(self, t: int, body: W) -> None:
        p, x = self.params, body.w
        for _ in range(p.local_updates):
            x = local_step(x, self.answer(x), body.w, p.step_size, p.pull)
            if p.local_updates > 1:
                x = self.feasible.project(x, np.ones(x.size))
        self.state.mean, self.state.common = x, body.w

    def answer_body(self) -> Z:
        return Z(self.state.mean)

    def outcome(self) -> dict[str, Vector]:
        return {"z": self.state.mean, "x": self.state.common}


@dataclass
class ServerState:
    encoded_names: ClassVar[Mapping[str, str]] = {"stable_rounds": "calm"}

    t: int  #: round under way
    w: np.ndarray  #: (d,) w^t
    z: dict[str, np.ndarray]  #: (d,) each: the models that came last; none while a round is under way
    arrived: dict[str, Z] = field(default_factory=dict)
    stable_rounds: int = 0  #: rounds in a row with max |w^{t+1} - w^t| within the tolerance
    residual: float = inf  #: sqrt(sum_p |w^t - x_p|^2) of the last complete round; of a `Leader` w^{t+1}
    done: str | None = None


class Server(StarCentre):
    """Server executes: w^{t+1} is the mean of what the clients have sent. Sums in the order of their names."""

    alike = True

    def __init__(self, context: ServerContext, rounds: int) -> None:
        super().__init__(list(context.position), rounds)
        self.tolerance, self.patience = context.tolerance, context.patience
        z = {p: (context.warm or context.start)[p] for p in self.members}
        self.state = ServerState(0, self.mean(z), z)

    def mean(self, z: Mapping[str, Vector]) -> Vector:
        total = np.zeros_like(z[self.members[0]])
        for p in self.members:
            total += z[p]
        return total / len(self.members)

    def check(self, member: str, body: object) -> None:
        if not isinstance(body, Z) or body.z.shape != self.state.w.shape:
            raise Malformed(f"{type(body).__name__}, expected z of {self.state.w.size} entries")

    def begin(self) -> None:
        self.state.w = self.mean(self.state.z)
        self.state.z = {}

    def combine(self) -> bool:
        s = self.state
        s.z = {p: s.arrived[p].z for p in self.members}
        return self.settled(self.mean(s.z) - s.w)

    def settled(self, step: Vector) -> bool:
        """Whether the run may end, now that w has moved, or will move, by this step."""
        s = self.state
        s.residual = sqrt(sum(square(s.w - z) for z in s.z.values()))
        s.stable_rounds = s.stable_rounds + 1 if float(np.maximum.reduce(np.abs(step))) <= self.tolerance else 0
        return bool(self.patience and s.stable_rounds >= self.patience)

    def final_state(self) -> FinalState:
        return FinalState(warm=self.state.z, z=self.state.z)

    def round_body(self, member: str) -> W:
        return W(self.state.w)


class Moving:
    """The step of a coordinator that knows the members' mean m, and its last step v where there is momentum."""

    state: Any
    params: Params
    prox: Prox | None

    def moved(self, m: Vector) -> Vector:
        """w+ = prox_{alpha r}(w - v+), v+ = beta v + (w - m). m: (d,)."""
        s, p = self.state, self.params
        to = m - p.beta * s.v if p.beta else m
        after = to if self.prox is None else self.prox(to, p.step_size)
        if p.beta:
            s.v = s.w - after
        return after


@dataclass
class LeaderState(ServerState):
    v: np.ndarray = field(default_factory=lambda: np.zeros(0))  #: (d,) w^{t-1} - w^t


class Leader(Moving, Server):
    """The server that steps on from the mean.

    The w of its state is that of the round under way, at the end the answer.
    """

    def __init__(self, params: Params, context: ServerContext) -> None:
        super().__init__(context, params.rounds)
        self.params, self.prox = params, context.prox
        if params.beta:
            self.state = LeaderState(0, self.state.w, self.state.z, v=np.zeros_like(self.state.w))

    @property
    def row(self) -> int:
        return self.completed(self.state)

    def begin(self) -> None:
        self.state.z = {}  # `combine` has made w already

    def combine(self) -> bool:
        s, w = self.state, self.state.w
        s.z = {p: s.arrived[p].z for p in self.members}
        s.w = self.moved(self.mean(s.z))
        return self.settled(s.w - w)

    def final_state(self) -> FinalState:
        return FinalState(warm=dict.fromkeys(self.members, self.state.w), z=self.state.z)


@dataclass
class MovingState(masked.CentreState):
    v: np.ndarray = field(default_factory=lambda: np.zeros(0))  #: (d,) as in `LeaderState`


class MaskedServer(Moving, masked.MaskedCentre):
    """The same with one local step, where the server sees only the sum of the gates' answers: it takes the
    step itself.
    """

    def __init__(self, params: Params, context: masked.ServerContext) -> None:
        super().__init__(context, params.rounds)
        self.params, self.public, self.prox = params, context.public, context.prox
        self.decoded: tuple[Vector, Vector, int] | None = (
            None  #: w and the mean answer there of so many, of the last sum
        )
        if params.beta:
            self.state = MovingState(0, self.state.w, among=self.members, v=np.zeros_like(self.state.w))

    def advance(self, total: Vector, among: Sequence[str]) -> Vector:
        w = self.state.w
        answer = total / len(among) + self.public(w)
        self.decoded = w, answer, len(among)
        return self.moved(local_step(w, answer, w, self.params.step_size, 0.0))
