"""A. Nedic, A. Ozdaglar, Distributed subgradient methods for multi-agent optimization (2009): DGD, with a constant
step; with the proximal step of J. Zeng, W. Yin, On nonconvex decentralized gradient descent (2018): Prox-DGD.

Problem:   min_x  sum_i f_i(x) + n r(x).  One message a round:   x_i+ = prox_{alpha r}(sum_j W_ij x_j - alpha
f_i'(x_i)).

It ends at a distance of the optimum that follows alpha: nothing but a smaller alpha makes it exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hushgrid.kernels.algorithms.mixing import AnsweredState, FirstOrder, Proximal, weights_of
from hushgrid.kernels.patterns.neighbours import NodeContext
from hushgrid.kernels.types import Vector


class Params(FirstOrder, tag_field="name", tag="dgd", frozen=True, kw_only=True):
    title: ClassVar[str] = "decentralised gradient descent"
    paper: ClassVar[str] = "A. Nedic, A. Ozdaglar, Distributed subgradient methods for multi-agent optimization (2009)"
    asks_after: ClassVar[bool] = True

    def step_ratio(self, L: Sequence[float], degree: int) -> float | None:
        """alpha L/(1 + lambda_min(W)), by lambda_min(W) >= (1 - d_max)/(1 + d_max)."""
        return self.step_size * max(L) * (1 + degree) / 2

    def agent(self, context: NodeContext) -> Node:
        return Node(
            self,
            context.gate,
            context.regularizer,
            weights_of(context),
            context.size,
            context.name,
            report=context.report,
        )


@dataclass(kw_only=True)
class NodeState(AnsweredState):
    x: np.ndarray  #: (d,) x_i


class Node(Proximal):
    """Message k + 1 is x^k."""

    state: NodeState

    def begin(self) -> NodeState:
        return NodeState(x=np.zeros(self.size))

    def step(self, t: int, message: Vector, others: dict[str, Vector]) -> Vector:
        v = message - self.P(message, others) - self.alpha * self.gradient(message)
        self.state.x = self.regularizer.prox(v, self.alpha)
        return self.state.x
