"""H. B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Aguera y Arcas, Communication-efficient learning of deep networks from
decentralized data (AISTATS 2017), Algorithm 1: FederatedAveraging.

Problem:   min_x  sum_p f_p(x),  x in a box. Each round the server sends w^t; node p starts there, takes E local steps
x <- x - alpha f_p'(x), and the server averages what comes back.

Departures from the paper:
 - All nodes take part in every round (C = 1), and a local step uses all rows (B = infinity): a gate answers for all of them.
 - The paper's weights n_p/n stand in f_p (`scale: share`), so that the mean is a plain one.
 - Every local step is projected onto the box, if there is one.
The paper makes no promise of privacy. Guarded, each gradient is an answer of the gate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, sqrt
from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from hushgrid.kernels.algorithms.base import Keys, Star, Variant
from hushgrid.kernels.machine import Malformed
from hushgrid.kernels.patterns import masked
from hushgrid.kernels.patterns.star import Centre, Feasible, Left, Place, StarCentre, StarMember, W, Z
from hushgrid.kernels.ranges import Count, Step, Updates
from hushgrid.kernels.types import Vector


class Params(Star, tag_field="name", tag="fedavg", frozen=True, kw_only=True):
    """The scenario's `algorithm` section, in the paper's symbols."""

    title: ClassVar[str] = "federated averaging"
    paper: ClassVar[str] = (
        "H. B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Aguera y Arcas, Communication-efficient learning of deep networks "
        "from decentralized data, Algorithm 1"
    )
    claim: ClassVar[str] = "none is made"
    constrained: ClassVar[Literal["no", "box", "all"]] = "box"
    own: ClassVar[tuple[str, ...]] = ("mean",)
    examples: ClassVar[Mapping[Variant, Sequence[Keys]]] = {
        "guarded": [{"step_size": 1.0}],
        "none": [{"step_size": 1.0, "local_updates": 2}],
    }

    #: whose noise: guarded (the gate's own) or none
    variant: Literal["guarded", "none"] = "guarded"
    rounds: Count  #: T, rounds around the coordinator
    step_size: Step  #: alpha
    local_updates: Updates = 1  #: E, steps of a node between two messages

    @property
    def pull(self) -> float:
        """mu of a term mu/2 |x - w^t|^2 in the local problem: there is none."""
        return 0.0

    @property
    def per_round(self) -> int:
        return self.local_updates

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
        """alpha (L + mu)/2."""
        return self.step_size * (max(L) + self.pull) / 2

    def gain(self, t: int, L: float, epsilon: float, alpha: float = 0.0) -> float:
        return self.step_size

    def agent(self, at: Place) -> Client:
        return Client(self, at.gate, at.feasible(np.ones(at.start.size)), at.start, at.patience)

    def server(self, at: Centre) -> Server:
        return Server(at, self.rounds)

    def masked_server(self, at: masked.Centre) -> masked.MaskedCentre:
        return MaskedServer(self, at)


def local_step(x: Vector, g: Vector, w: Vector, alpha: float, mu: float) -> Vector:
    """A gradient step on f_p(x) + mu/2 |x - w|^2. g = f_p'(x). Shapes (d,)."""
    return x - alpha * (g + mu * (x - w))


class Oracle(Protocol):
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

    def __init__(self, params: Params, gate: Oracle, feasible: Feasible, start: Vector, patience: int = 0) -> None:
        super().__init__("coordinator", params.rounds, patience)
        self.params, self.feasible = params, feasible
        self.answer = gate.gradient if params.variant == "guarded" else gate.exact_gradient
        self.state = ClientState(0, start.copy(), start.copy())

    def check(self, body: Any) -> None:
        if not isinstance(body, W) or body.w.shape != self.state.mean.shape:
            raise Malformed(f"{type(body).__name__}, expected w of {self.state.mean.size} entries")

    def update(self, t: int, body: W) -> None:
        p, x, weights = self.params, body.w, np.ones(body.w.size)
        for _ in range(p.local_updates):
            x = self.feasible.project(local_step(x, self.answer(x), body.w, p.step_size, p.pull), weights)
        self.state.mean, self.state.common = x, body.w

    def answer_body(self) -> Z:
        return Z(self.state.mean)

    def outcome(self) -> dict[str, Vector]:
        return {"z": self.state.mean, "x": self.state.common}


@dataclass
class ServerState:
    t: int  #: round under way
    w: np.ndarray  #: (d,) w^t
    z: dict[str, np.ndarray]  #: (d,) each: the models that came last
    arrived: dict[str, Z] = field(default_factory=dict)
    calm: int = 0  #: rounds in a row with max |w^{t+1} - w^t| within the tolerance
    residual: float = inf  #: sqrt(sum_p |w^t - x_p|^2) of the last complete round
    done: str | None = None


class Server(StarCentre):
    """Server executes: w^{t+1} is the mean of what the clients have sent. Sums in the order of their names."""

    def __init__(self, at: Centre, rounds: int) -> None:
        super().__init__(list(at.position), rounds)
        self.tolerance, self.patience = at.tolerance, at.patience
        z = {p: (at.warm or at.start)[p].copy() for p in self.members}
        self.state = ServerState(0, self.mean(z), z)

    def mean(self, z: Mapping[str, Vector]) -> Vector:
        total = np.zeros_like(z[self.members[0]])
        for p in self.members:
            total = total + z[p]
        return total / len(self.members)

    def check(self, member: str, body: Any) -> None:
        if not isinstance(body, Z) or body.z.shape != self.state.w.shape:
            raise Malformed(f"{type(body).__name__}, expected z of {self.state.w.size} entries")

    def begin(self) -> None:
        self.state.w = self.mean(self.state.z)

    def combine(self) -> bool:
        s = self.state
        s.z = {p: s.arrived[p].z for p in self.members}
        s.residual = sqrt(sum(float(np.sum((s.w - z) ** 2)) for z in s.z.values()))
        calm = float(np.max(np.abs(self.mean(s.z) - s.w))) <= self.tolerance
        s.calm = s.calm + 1 if calm else 0
        return bool(self.patience and s.calm >= self.patience)

    def left(self) -> Left:
        return Left(warm=self.state.z, z=self.state.z)

    def round_body(self, member: str) -> W:
        return W(self.state.w)


class MaskedServer(masked.MaskedCentre):
    """The same with one local step, where the server sees only the sum of the gates' answers: it takes the step itself."""

    def __init__(self, params: Params, at: masked.Centre) -> None:
        super().__init__(at, params.rounds)
        self.alpha, self.public, self.feasible = params.step_size, at.public, at.feasible

    def advance(self, total: Vector, among: Sequence[str]) -> Vector:
        x = self.state.w
        return self.feasible(local_step(x, total / len(among) + self.public(x), x, self.alpha, 0.0))
