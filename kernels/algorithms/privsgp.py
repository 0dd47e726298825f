"""Z. Zhu, Y. Huang, X. Wang, J. Xu, PrivSGP-VR: differentially private variance-reduced stochastic gradient push with
tight utility bounds (2024), a rival in the DPP2 paper (its reference [20]).

Reconstructed from its abstract and from stochastic gradient push: a gradient with Gaussian noise of constant variance,
then one push-sum over column-stochastic weights. Problem: min_x sum_i f_i(x). Two of its parts have nothing to do here:

  - push-sum: the graph has no directions and W is doubly stochastic, so the weight that corrects x is 1 in every round;
  - VR, which takes the variance of sampled rows away: the gate answers with the gradient of all rows.

What remains is one message a round, v_i:   x = W v,   v+ = x - alpha g(x).   Noise of constant variance on each
gradient is the gate's own; the gate counts its total. Message 1 is the public start 0; K rounds take K - 1 gradients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hushgrid.kernels.algorithms.base import Constrained
from hushgrid.kernels.algorithms.mixing import AnsweredState, FirstOrder, Mixing, NodeOracle, weights_of
from hushgrid.kernels.patterns.neighbours import NodeContext
from hushgrid.kernels.types import Vector


class Params(FirstOrder, tag_field="name", tag="privsgp", frozen=True, kw_only=True):
    title: ClassVar[str] = "PrivSGP-VR, reconstructed"
    paper: ClassVar[str] = (
        "Z. Zhu, Y. Huang, X. Wang, J. Xu, PrivSGP-VR: differentially private variance-reduced stochastic gradient "
        "push with tight utility bounds (2024)"
    )
    constrained: ClassVar[Constrained] = "no"

    @property
    def answers(self) -> int:
        """Message 1 is public, and takes none."""
        return self.rounds - 1

    def step_ratio(self, L: Sequence[float], degree: int) -> float | None:
        """alpha L/2: x+ = W (1 - alpha h) x on a curvature h alike for all nodes."""
        return self.step_size * max(L) / 2

    def agent(self, context: NodeContext) -> Node:
        return Node(self, context.gate, weights_of(context), context.size, context.name, report=context.report)


@dataclass(kw_only=True)
class NodeState(AnsweredState):
    x: np.ndarray  #: (d,) x_i


class Node(Mixing):
    """Message k + 2 is v^k = x^k - alpha g(x^k)."""

    state: NodeState

    def __init__(
        self, params: Params, gate: NodeOracle, weights: Mapping[str, float], size: int, name: str, report: int = 1
    ) -> None:
        super().__init__(gate, params.variant, weights, params.rounds, size, name, report=report)
        self.alpha, self.momentum = params.step_size, params.momentum or 0.0
        self.state = NodeState(x=np.zeros(size))

    def step(self, t: int, message: Vector, others: dict[str, Vector]) -> Vector:
        x = message - self.P(message, others)
        v = x - self.alpha * self.gradient(x) if t < self.messages else x
        self.state.x = x
        return v
