"""Z. Li, W. Shi, M. Yan, A decentralized proximal-gradient method with network independent step-sizes and separated
convergence rates (2019): NIDS, with one step size alpha and c = 1/(2 alpha).

Problem:   min_x  sum_i f_i(x) + n r(x),   f_i private to node i, r public. With W~ = (I + W)/2 and x^k = prox_{alpha
r}(z^k):

    z^{k+1} = z^k - x^k + W~ (2 x^k - x^{k-1} - alpha (f'(x^k) - f'(x^{k-1})))

Stable for alpha < 2/L, whatever the network. One message a round, v^k. Here its sum over k, in which every gradient
stands once, so that the gate's noise does too; q^k is alpha d^k of the paper's primal-dual form:

    v^k = 2 x^k - z^k - alpha f'(x^k) - q^k,   q^{k+1} = q^k + (I - W) v^k/2,   z^{k+1} = v^k - (x^k - z^k) - (I - W)
    v^k/2.

The paper starts from any z^1 with q^1 = 0 and takes z^1 = x^0 - alpha f'(x^0). Here z^1 = 0, and message 1 is the
public start: v^1, which a gradient is in, is message 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hushgrid.kernels.algorithms.mixing import AnsweredState, FirstOrder, Proximal, weights_of
from hushgrid.kernels.patterns.neighbours import NodeContext
from hushgrid.kernels.types import Vector


class Params(FirstOrder, tag_field="name", tag="nids", frozen=True, kw_only=True):
    title: ClassVar[str] = "NIDS"
    paper: ClassVar[str] = (
        "Z. Li, W. Shi, M. Yan, A decentralized proximal-gradient method with network independent step-sizes (2019)"
    )

    @property
    def answers(self) -> int:
        """Message 1 is public, and takes none."""
        return self.rounds - 1

    def step_ratio(self, L: Sequence[float], degree: int) -> float | None:
        """alpha L/2, whatever the network."""
        return self.step_size * max(L) / 2

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
    z: np.ndarray  #: (d,) z_i, x = prox(z)
    q: np.ndarray  #: (d,) q_i, whose sum over the nodes is 0


class Node(Proximal):
    """Message 1 is 0, message k + 1 is v^k: K rounds take K - 1 gradients."""

    state: NodeState

    def begin(self) -> NodeState:
        return NodeState(x=np.zeros(self.size), z=np.zeros(self.size), q=np.zeros(self.size))

    def step(self, t: int, message: Vector, others: dict[str, Vector]) -> Vector:
        s, half = self.state, self.P(message, others) / 2
        q, z = s.q + half, message - (s.x - s.z) - half
        x = self.regularizer.prox(z, self.alpha)
        v = 2 * x - z - self.alpha * self.gradient(x) - q if t < self.messages else x
        s.x, s.z, s.q = x, z, q
        return v
