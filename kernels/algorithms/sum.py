"""A sum over nodes, in one answer of each: histograms, totals, means, Gram matrices.

Problem:   S = sum_p S_p,  S_p (d,) a declared statistic of node p's records (kernels/problems/statistics.py). Nothing
is iterated: every node answers once, and the server adds.

That is the mechanism of C. Dwork, F. McSherry, K. Nissim, A. Smith, Calibrating noise to sensitivity in private data
analysis (TCC 2006), at each node by itself. Masked (kernels/patterns/masked.py) the server sees the sum alone, and the
noise is one mechanism's, not n.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import ClassVar, Literal, Protocol

import numpy as np

from hushgrid.kernels.algorithms.base import Question, Sharing, Star
from hushgrid.kernels.machine import Malformed
from hushgrid.kernels.patterns import masked
from hushgrid.kernels.patterns.star import FinalState, NodeContext, ServerContext, StarCentre, StarMember, W, Z
from hushgrid.kernels.types import Vector


class Params(Star, tag_field="name", tag="sum", frozen=True, kw_only=True):
    """The scenario's `algorithm` section: it has no symbols."""

    title: ClassVar[str] = "sum of a declared statistic"
    paper: ClassVar[str] = (
        "C. Dwork, F. McSherry, K. Nissim, A. Smith, Calibrating noise to sensitivity in private data analysis, TCC "
        "2006"
    )
    sharing: ClassVar[tuple[Sharing, ...]] = ("addends",)
    recorded: ClassVar[tuple[str, ...]] = ("mean",)

    #: whose noise: guarded (the gate's own) or none
    variant: Literal["guarded", "none"] = "guarded"
    rounds: Literal[1] = 1  #: one answer says it all

    @property
    def unmasked(self) -> str | None:
        return None

    def asks(self, mode: str = "") -> Question:
        return "statistic"

    def step_ratio(self, L: Sequence[float], degree: int) -> float | None:
        """Nothing is iterated."""
        return None

    def step_of_answer(self, i: int, k: int, L: float, epsilon: float = inf, alpha: float = 0.0) -> float:
        return 1.0

    def agent(self, context: NodeContext) -> Addend:
        return Addend(self, context.gate, context.start)

    def server(self, context: ServerContext) -> Server:
        return Server(context)

    def masked_server(self, context: masked.ServerContext) -> masked.MaskedCentre:
        return MaskedServer(context, self.rounds)


class StatisticOracle(Protocol):
    """What a node may ask of its gate."""

    def statistic(self) -> Vector: ...
    def exact_statistic(self) -> Vector: ...


@dataclass
class AddendState:
    t: int  #: 1 once it has answered
    mean: np.ndarray  #: (d,) what it has said


class Addend(StarMember):
    """A node that answers once."""

    def __init__(self, params: Params, gate: StatisticOracle, start: Vector) -> None:
        super().__init__("coordinator", params.rounds)
        self.answer = gate.statistic if params.variant == "guarded" else gate.exact_statistic
        self.state = AddendState(0, start.copy())

    def check(self, body: object) -> None:
        if not isinstance(body, W) or body.w.shape != self.state.mean.shape:
            raise Malformed(f"{type(body).__name__}, expected w of {self.state.mean.size} entries")

    def update(self, t: int, body: W) -> None:
        self.state.mean = self.answer()

    def answer_body(self) -> Z:
        return Z(self.state.mean)

    def outcome(self) -> dict[str, Vector]:
        return {"z": self.state.mean}


@dataclass
class ServerState:
    t: int  #: round under way
    w: np.ndarray  #: (d,) zero, and then the sum
    summed: list[str] = field(default_factory=list)  #: whose answers are in it
    arrived: dict[str, Z] = field(default_factory=dict)
    residual: float = 0.0  #: there are no copies that could differ
    done: str | None = None


class Server(StarCentre):
    """It adds up, in the order of the names."""

    state: ServerState

    def __init__(self, context: ServerContext) -> None:
        super().__init__(list(context.position), 1)
        self.state = ServerState(0, np.zeros_like(context.start[self.members[0]]))

    def check(self, member: str, body: object) -> None:
        if not isinstance(body, Z) or body.z.shape != self.state.w.shape:
            raise Malformed(f"{type(body).__name__}, expected z of {self.state.w.size} entries")

    def begin(self) -> None:
        return None

    def combine(self) -> bool:
        s = self.state
        total = np.zeros_like(s.w)
        for p in self.members:
            total = total + s.arrived[p].z
        s.w, s.summed = total, list(self.members)
        return False

    def final_state(self) -> FinalState:
        return FinalState(warm={}, z=dict.fromkeys(self.members, self.state.w))

    def round_body(self, member: str) -> W:
        return W(np.zeros_like(self.state.w))


class MaskedServer(masked.MaskedCentre):
    """The same, where it sees the sum alone; every node is told what it is."""

    def advance(self, total: Vector, among: Sequence[str]) -> Vector:
        return total
