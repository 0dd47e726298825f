"""T. Ding, S. Zhu, J. He, C. Chen, X. Guan, Differentially private distributed optimization via state and direction
perturbation in multiagent systems (2022): DiaDSP, a rival in the DPP2 paper (its reference [25]).

Reconstructed from what the DPP2 paper says of it: gradient tracking, and Laplace noise that decays, of scales r^k u_x on
the state x and r^k u_y on the direction y. Problem: min_x sum_i f_i(x). One message a round, (x~, y~) = (x + xi, y + zeta):

    x+ = W x~ - alpha y~,   y+ = W y~ + f'(x+) - f'(x).

So sum_i y_i = sum_i f_i'(x_i) + Z, Z the total of zeta, and the limit has sum_i f_i'(x) = -Z: exact only without noise.
Message 1 is x = y = 0, the first gradient enters with message 2. `guarded` has the noise on the gradient, at the gate.
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


class Params(Struct, tag_field="name", tag="diadsp", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The scenario's `algorithm` section. InputError where keys contradict each other."""

    name: ClassVar[str] = "diadsp"
    variant: Variant = "guarded"
    rounds: Count  #: K
    alpha: Positive
    weights: Literal["metropolis"] = "metropolis"
    decay: Fraction | None = None  #: published: r
    u_x: Positive | None = None
    u_y: Positive | None = None

    @property
    def answers(self) -> int:
        """Gradients each node asks its gate for over the whole run."""
        return self.rounds - 1

    def __post_init__(self) -> None:
        check_published(self.variant, decay=self.decay, u_x=self.u_x, u_y=self.u_y)


@dataclass(kw_only=True)
class NodeState(NeighbourState):
    x: np.ndarray  #: (d,) x_i
    g: np.ndarray  #: (d,) the gate's last answer


class Node(Mixing):
    """Message k + 1 is x~^k and y~^k, one behind the other: K rounds take K - 1 gradients."""

    state: NodeState

    def __init__(
        self, params: Params, gate: Oracle, weights: Mapping[str, float], size: int, name: str, **pattern: Any
    ) -> None:
        super().__init__(gate, params.variant, weights, params.rounds, 2 * size, name, **pattern)
        self.params = params
        self.state = NodeState(x=np.zeros(size), g=np.zeros(size))

    def first(self) -> Vector:
        zero = np.zeros_like(self.state.x)
        return self._message(zero, zero, 0)

    def step(self, t: int, own: Vector, others: dict[str, Vector]) -> Vector:
        s, (mixed_x, mixed_y) = self.state, np.split(own - self.P(own, others), 2)
        x = mixed_x - self.params.alpha * own[s.x.size :]
        if t == self.messages:
            s.x = x
            return own
        g = self.gradient(x)
        sent = self._message(x, mixed_y + (g - s.g), t)
        s.x, s.g = x, g
        return sent

    def _message(self, x: Vector, y: Vector, k: int) -> Vector:
        p = self.params
        return np.concatenate([
            self.perturb(x, decaying(p.u_x, p.decay, k)), self.perturb(y, decaying(p.u_y, p.decay, k))
        ])  # fmt: skip
