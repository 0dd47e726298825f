"""T. Ding, S. Zhu, J. He, C. Chen, X. Guan, Differentially private distributed optimization via state and direction
perturbation in multiagent systems (2022): DiaDSP, a rival in the DPP2 paper (its reference [25]).

Reconstructed from what the DPP2 paper says of it: gradient tracking, and Laplace noise that decays, of scales r^k u_x
on the state x and r^k u_y on the direction y. Problem: min_x sum_i f_i(x). One message a round, (x~, y~) = (x + xi, y +
zeta):

    x+ = W x~ - alpha y~,   y+ = W y~ + f'(x+) - f'(x).

So sum_i y_i = sum_i f_i'(x_i) + Z, Z the total of zeta, and the limit has sum_i f_i'(x) = -Z: exact only without noise.
Message 1 is x = y = 0, the first gradient enters with message 2. `guarded` has the noise on the gradient, at the gate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar, Literal

import numpy as np

from hushgrid.kernels.algorithms.base import Constrained, Published, Rounds
from hushgrid.kernels.algorithms.mixing import Mixing, NodeOracle, check_published, decaying, weights_of
from hushgrid.kernels.patterns.neighbours import NeighbourState, NodeContext
from hushgrid.kernels.ranges import Count, Fraction, Noise, Step
from hushgrid.kernels.types import Vector


class Params(Rounds, tag_field="name", tag="diadsp", frozen=True, kw_only=True):
    """The scenario's `algorithm` section. Raises InputError if keys contradict each other."""

    title: ClassVar[str] = "DiaDSP, reconstructed"
    paper: ClassVar[str] = (
        "T. Ding, S. Zhu, J. He, C. Chen, X. Guan, Differentially private distributed optimization via state and "
        "direction perturbation in multiagent systems (2022)"
    )
    published: ClassVar[Published | None] = Published("scales")
    constrained: ClassVar[Constrained] = "no"
    message_vectors: ClassVar[int] = 2

    rounds: Count  #: K
    alpha: Step  #: the step
    weights: Literal["metropolis"] = "metropolis"  #: W, of the mixing
    decay: Fraction | None = None  #: published: r
    u_x: Noise | None = None  #: published: scale of the noise on x
    u_y: Noise | None = None  #: published: scale of the noise on y

    @property
    def answers(self) -> int:
        """Message 1 is public, and takes none."""
        return self.rounds - 1

    def __post_init__(self) -> None:
        check_published(self.variant, decay=self.decay, u_x=self.u_x, u_y=self.u_y)

    def step_ratio(self, L: Sequence[float], degree: int) -> float | None:
        """alpha L (1 + d_max)^2/2: on an eigenvector of W, eigenvalue w, and a curvature h alike for all nodes, the
        method is (z - w)^2 + alpha h (z - 1) = 0, stable for alpha h < (1 + w)^2/2; and 1 + w >= 2/(1 + d_max).
        """
        return self.alpha * max(L) * (1 + degree) ** 2 / 2

    def step_of_answer(self, i: int, k: int, L: float, epsilon: float = inf, alpha: float = 0.0) -> float:
        return self.alpha

    def agent(self, context: NodeContext) -> Node:
        return Node(self, context.gate, weights_of(context), context.size, context.name, report=context.report)


@dataclass(kw_only=True)
class NodeState(NeighbourState):
    x: np.ndarray  #: (d,) x_i
    g: np.ndarray  #: (d,) the gate's last answer


class Node(Mixing):
    """Message k + 1 is x~^k and y~^k, one behind the other: K rounds take K - 1 gradients."""

    state: NodeState

    def __init__(
        self, params: Params, gate: NodeOracle, weights: Mapping[str, float], size: int, name: str, **pattern: Any
    ) -> None:
        super().__init__(gate, params.variant, weights, params.rounds, 2 * size, name, **pattern)
        self.params = params
        self.state = NodeState(x=np.zeros(size), g=np.zeros(size))

    def first(self) -> Vector:
        zero = np.zeros_like(self.state.x)
        return self._message(zero, zero, 0)

    def step(self, t: int, message: Vector, others: dict[str, Vector]) -> Vector:
        s, (mixed_x, mixed_y) = self.state, np.split(message - self.P(message, others), 2)
        x = mixed_x - self.params.alpha * message[s.x.size :]
        if t == self.messages:
            s.x = x
            return message
        g = self.gradient(x)
        sent = self._message(x, mixed_y + (g - s.g), t)
        s.x, s.g = x, g
        return sent

    def _message(self, x: Vector, y: Vector, k: int) -> Vector:
        p = self.params
        return np.concatenate(
            [self.perturb(x, decaying(p.u_x, p.decay, k)), self.perturb(y, decaying(p.u_y, p.decay, k))]
        )
