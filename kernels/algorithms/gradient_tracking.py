"""P. Di Lorenzo, G. Scutari, NEXT: in-network nonconvex optimization (2016); A. Nedic, A. Olshevsky, W. Shi, Achieving
geometric convergence for distributed optimization over time-varying graphs (2017), Algorithm 1: DIGing, gradient
tracking.

Problem:   min_x  sum_i f_i(x),   f_i private to node i. One message a round, (x_i, y_i). With W the Metropolis weights:

    x^{k+1} = W x^k - alpha y^k,   y^{k+1} = W y^k + f'(x^{k+1}) - f'(x^k),   y^0 = f'(x^0).

sum_i y_i^k = sum_i f_i'(x_i^k): each node tracks the mean gradient. `guarded`: f' is the gate's answer, asked once at
each x and kept for the next difference, so that the sum of y has the noise of the last answers alone.
Message 1 is the public start x = y = 0; y^0, which a gradient is in, is in message 2. A step of K rounds takes K - 1
gradients. DiaDSP (`diadsp.py`) is the same with noise of its own on x and y.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hushgrid.kernels.algorithms.base import Constrained
from hushgrid.kernels.algorithms.mixing import AnsweredState, FirstOrder, Mixing, NodeOracle, weights_of
from hushgrid.kernels.patterns.neighbours import NodeContext
from hushgrid.kernels.types import Vector


class Params(FirstOrder, tag_field="name", tag="gradient-tracking", frozen=True, kw_only=True):
    title: ClassVar[str] = "gradient tracking (DIGing)"
    paper: ClassVar[str] = (
        "P. Di Lorenzo, G. Scutari, NEXT: in-network nonconvex optimization (2016); A. Nedic, A. Olshevsky, W. Shi, "
        "Achieving geometric convergence for distributed optimization over time-varying graphs (2017), Algorithm 1"
    )
    constrained: ClassVar[Constrained] = "no"
    message_vectors: ClassVar[int] = 2
    recorded: ClassVar[tuple[str, ...]] = ("x", "y")

    @property
    def answers(self) -> int:
        """Message 1 is public, and takes none."""
        return self.rounds - 1

    def step_ratio(self, L: Sequence[float], degree: int) -> float | None:
        """alpha L (1 + d_max)^2/2: on an eigenvector of W, eigenvalue w, and a curvature h alike for all nodes, the
        method is z^2 - (2 w - alpha h) z + w^2 - alpha h = 0, stable (Jury) for alpha h < (1 + w)^2/2; and 1 + w >=
        2/(1 + d_max).
        """
        return self.step_size * max(L) * (1 + degree) ** 2 / 2

    def agent(self, context: NodeContext) -> Node:
        return Node(self, context.gate, weights_of(context), context.size, context.name, report=context.report)


@dataclass(kw_only=True)
class NodeState(AnsweredState):
    x: np.ndarray  #: (d,) x_i
    y: np.ndarray  #: (d,) y_i, which tracks the mean gradient
    g: np.ndarray  #: (d,) the gate's last answer, at x_i


class Node(Mixing):
    """Message k + 2 is x^k and y^k, one behind the other."""

    state: NodeState

    def __init__(
        self, params: Params, gate: NodeOracle, weights: Mapping[str, float], size: int, name: str, **pattern: Any
    ) -> None:
        super().__init__(gate, params.variant, weights, params.rounds, 2 * size, name, **pattern)
        self.alpha, self.momentum = params.step_size, params.momentum or 0.0
        zero = np.zeros(size)
        self.state = NodeState(x=zero, y=zero, g=zero)

    def step(self, t: int, message: Vector, others: dict[str, Vector]) -> Vector:
        s = self.state
        mixed_x, mixed_y = np.split(message - self.P(message, others), 2)
        x, y, g = mixed_x - self.alpha * s.y, s.y, s.g
        if t < self.messages:
            g = self.gradient(x)
            y = mixed_y + (g - s.g)
        s.x, s.y, s.g = x, y, g
        return np.concatenate([x, y])
