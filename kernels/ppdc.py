"""A. Xie, X. Yi, X. Wang, M. Cao, X. Ren, Differentially private and communication-efficient distributed nonconvex
optimization algorithms (2025): PPDC without its compression, a rival in the DPP2 paper (its reference [27]).

Reconstructed from what the DPP2 paper says of it and from the primal-dual method it perturbs (X. Yi et al., Linear
convergence of first- and zeroth-order primal-dual algorithms for distributed nonconvex optimization, 2021), with Laplace
noise that decays, of scales r^k u_x on the x that is sent and r^k u_v on v. Problem: min_x sum_i f_i(x). One message a
round, x~ = x + xi; with P = I - W and v~ = v + zeta:

    x+ = x - eta (gamma P x~ + omega v~ + f'(x)),   v+ = v~ + eta omega P x~,   v^0 = 0.

So sum_i v_i = Z, the total of zeta, and the limit has sum_i f_i'(x) = -omega Z: exact only without noise. `guarded` has
the noise on the gradient, at the gate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from msgspec import Struct

from hushgrid.kernels.jit import Vector
from hushgrid.kernels.ladmm import Count, Positive
from hushgrid.kernels.mixing import Fraction, Mixing, Oracle, Variant, check_published, decaying
from hushgrid.kernels.neighbours import NeighbourState


class Params(Struct, tag_field="name", tag="ppdc", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The scenario's `algorithm` section. InputError where keys contradict each other."""

    name: ClassVar[str] = "ppdc"
    variant: Variant = "guarded"
    rounds: Count  #: K
    gamma: Positive
    omega: Positive
    eta: Positive
    weights: Literal["metropolis"] = "metropolis"
    decay: Fraction | None = None  #: published: r
    u_x: Positive | None = None
    u_v: Positive | None = None

    @property
    def answers(self) -> int:
        """Gradients each node asks its gate for over the whole run."""
        return self.rounds

    def __post_init__(self) -> None:
        check_published(self.variant, decay=self.decay, u_x=self.u_x, u_v=self.u_v)


@dataclass(kw_only=True)
class NodeState(NeighbourState):
    x: np.ndarray  #: (d,) x_i
    v: np.ndarray  #: (d,) v_i


class Node(Mixing):
    """Message k + 1 is x~^k."""

    state: NodeState

    def __init__(
        self, params: Params, gate: Oracle, weights: Mapping[str, float], size: int, name: str, **pattern: Any
    ) -> None:
        super().__init__(gate, params.variant, weights, params.rounds, size, name, **pattern)
        self.params = params
        self.state = NodeState(x=np.zeros(size), v=np.zeros(size))

    def first(self) -> Vector:
        return self._sent(self.state.x, 0)

    def step(self, t: int, own: Vector, others: dict[str, Vector]) -> Vector:
        s, p, Px = self.state, self.params, self.P(own, others)
        v = self.perturb(s.v, decaying(p.u_v, p.decay, t - 1))
        x = s.x - p.eta * (p.gamma * Px + p.omega * v + self.gradient(s.x))
        sent = self._sent(x, t) if t < self.messages else x
        s.x, s.v = x, v + p.eta * p.omega * Px
        return sent

    def _sent(self, x: Vector, k: int) -> Vector:
        return self.perturb(x, decaying(self.params.u_x, self.params.decay, k))
