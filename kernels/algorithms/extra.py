"""W. Shi, Q. Ling, G. Wu, W. Yin, EXTRA: an exact first-order algorithm for decentralized consensus optimization
(2015); and by the same authors A proximal gradient algorithm for decentralized composite optimization (2015): PG-EXTRA.

Problem:   min_x  sum_i f_i(x) + n r(x),   f_i private to node i, r public. One message a round, x_i. With W~ = (I +
W)/2:

    x^{1/2}   = W x^0 - alpha f'(x^0)
    x^{k+3/2} = W x^{k+1} + x^{k+1/2} - W~ x^k - alpha (f'(x^{k+1}) - f'(x^k)),   x^{k+1} = prox_{alpha r}(x^{k+1/2})

which is EXTRA where r = 0. Stable for alpha < 2 lambda_min(W~)/L; with Metropolis weights lambda_min(W~) >= 1/(1 +
d_max).

Here its sum over k, in which every gradient stands once, so that the gate's noise does too:
x^{k+1/2} = W x^k - alpha f'(x^k) - q^k,   q^{k+1} = q^k + (I - W) x^k/2,   q^0 = 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hushgrid.kernels.algorithms.mixing import AnsweredState, FirstOrder, Proximal, weights_of
from hushgrid.kernels.patterns.neighbours import NodeContext
from hushgrid.kernels.types import Vector


class Params(FirstOrder, tag_field="name", tag="extra", frozen=True, kw_only=True):
    title: ClassVar[str] = "EXTRA"
    paper: ClassVar[str] = (
        "W. Shi, Q. Ling, G. Wu, W. Yin, EXTRA: an exact first-order algorithm for decentralized consensus "
        "optimization (2015)"
    )
    asks_after: ClassVar[bool] = True

    def step_ratio(self, L: Sequence[float], degree: int) -> float | None:
        """alpha L/(2 lambda_min(W~)), by lambda_min(W~) >= 1/(1 + d_max)."""
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
    q: np.ndarray  #: (d,) q_i, whose sum over the nodes is 0


class Node(Proximal):
    """Message k + 1 is x^k."""

    state: NodeState

    def begin(self) -> NodeState:
        return NodeState(x=np.zeros(self.size), q=np.zeros(self.size))

    def step(self, t: int, message: Vector, others: dict[str, Vector]) -> Vector:
        s, Px = self.state, self.P(message, others)
        half = message - Px - self.alpha * self.gradient(message) - s.q
        s.x, s.q = self.regularizer.prox(half, self.alpha), s.q + Px / 2
        return s.x
