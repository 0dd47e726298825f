"""A. Xie, X. Yi, X. Wang, M. Cao, X. Ren, Differentially private and communication-efficient distributed nonconvex
optimization algorithms (2025): PPDC without its compression, a rival in the DPP2 paper (its reference [27]).

Reconstructed from what the DPP2 paper says of it and from the primal-dual method it perturbs (X. Yi et al., Linear
convergence of first- and zeroth-order primal-dual algorithms for distributed nonconvex optimization, 2021), with
Laplace noise that decays, of scales r^k u_x on the x that is sent and r^k u_v on v. Problem: min_x sum_i f_i(x). One
message a round, x~ = x + xi; with P = I - W and v~ = v + zeta:

    x+ = x - eta (gamma P x~ + omega v~ + f'(x)),   v+ = v~ + eta omega P x~,   v^0 = 0.

So sum_i v_i = Z, the total of zeta, and the limit has sum_i f_i'(x) = -omega Z: exact only without noise. `guarded` has
the noise on the gradient, at the gate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar, Literal

import numpy as np

from hushgrid.kernels.algorithms.base import Constrained, Published, Rounds
from hushgrid.kernels.algorithms.mixing import Mixing, NodeOracle, bound, check_published, decaying, weights_of
from hushgrid.kernels.patterns.neighbours import NeighbourState, NodeContext
from hushgrid.kernels.ranges import FAR_DUAL, Count, Fraction, Noise, Step
from hushgrid.kernels.types import Vector


class Params(Rounds, tag_field="name", tag="ppdc", frozen=True, kw_only=True):
    """The scenario's `algorithm` section. Raises InputError if keys contradict each other."""

    title: ClassVar[str] = "PPDC, reconstructed"
    paper: ClassVar[str] = (
        "A. Xie, X. Yi, X. Wang, M. Cao, X. Ren, Differentially private and communication-efficient distributed "
        "nonconvex optimization algorithms (2025)"
    )
    published: ClassVar[Published | None] = Published("scales")
    constrained: ClassVar[Constrained] = "no"
    max_step_ratio: ClassVar[float] = FAR_DUAL
    asks_after: ClassVar[bool] = True

    rounds: Count  #: K
    gamma: Step  #: the penalty on disagreement
    omega: Step  #: the weight of the dual variable v
    eta: Step  #: the step
    weights: Literal["metropolis"] = "metropolis"  #: W, of the mixing
    decay: Fraction | None = None  #: published: r
    u_x: Noise | None = None  #: published: scale of the noise on x
    u_v: Noise | None = None  #: published: scale of the noise on v

    def __post_init__(self) -> None:
        check_published(self.variant, decay=self.decay, u_x=self.u_x, u_v=self.u_v)

    def step_ratio(self, L: Sequence[float], degree: int) -> float | None:
        """The larger of eta (gamma l + L)/2, l = 2 d_max/(1 + d_max), and eta omega^2/gamma: on an eigenvector of P,
        eigenvalue l, and a curvature h alike for all nodes, the method is z^2 - (2 - eta (gamma l + h)) z + 1 - eta
        (gamma l + h) + eta^2 omega^2 l = 0, stable (Jury) for eta (gamma l + h) < 2 and eta omega^2 l < gamma l + h.
        """
        return max(self.eta * (self.gamma * bound(degree) + max(L)) / 2, self.eta * self.omega**2 / self.gamma)

    def step_of_answer(self, i: int, k: int, L: float, epsilon: float = inf, alpha: float = 0.0) -> float:
        return self.eta

    def agent(self, context: NodeContext) -> Node:
        return Node(self, context.gate, weights_of(context), context.size, context.name, report=context.report)


@dataclass(kw_only=True)
class NodeState(NeighbourState):
    x: np.ndarray  #: (d,) x_i
    v: np.ndarray  #: (d,) v_i


class Node(Mixing):
    """Message k + 1 is x~^k."""

    state: NodeState

    def __init__(
        self, params: Params, gate: NodeOracle, weights: Mapping[str, float], size: int, name: str, **pattern: Any
    ) -> None:
        super().__init__(gate, params.variant, weights, params.rounds, size, name, **pattern)
        self.params = params
        self.state = NodeState(x=np.zeros(size), v=np.zeros(size))

    def first(self) -> Vector:
        return self._sent(self.state.x, 0)

    def step(self, t: int, message: Vector, others: dict[str, Vector]) -> Vector:
        s, p, Px = self.state, self.params, self.P(message, others)
        v = self.perturb(s.v, decaying(p.u_v, p.decay, t - 1))
        x = s.x - p.eta * (p.gamma * Px + p.omega * v + self.gradient(s.x))
        sent = self._sent(x, t) if t < self.messages else x
        s.x, s.v = x, v + p.eta * p.omega * Px
        return sent

    def _sent(self, x: Vector, k: int) -> Vector:
        return self.perturb(x, decaying(self.params.u_x, self.params.decay, k))
