"""A. Nedic, A. Ozdaglar, Distributed subgradient methods for multi-agent optimization (2009): DGD, with a constant step;
with the proximal step of J. Zeng, W. Yin, On nonconvex decentralized gradient descent (2018): Prox-DGD.

Problem:   min_x  sum_i f_i(x) + n r(x).  One message a round:   x_i+ = prox_{alpha r}(sum_j W_ij x_j - alpha f_i'(x_i)).

It ends at a distance of the optimum that follows alpha: nothing but a smaller alpha makes it exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hushgrid.kernels.jit import Vector
from hushgrid.kernels.mixing import FirstOrder, Proximal
from hushgrid.kernels.neighbours import NeighbourState


class Params(FirstOrder, tag_field="name", tag="dgd", frozen=True, kw_only=True):
    name: ClassVar[str] = "dgd"


@dataclass(kw_only=True)
class NodeState(NeighbourState):
    x: np.ndarray  #: (d,) x_i


class Node(Proximal):
    """Message k + 1 is x^k."""

    state: NodeState

    def begin(self) -> NodeState:
        return NodeState(x=np.zeros(self.size))

    def step(self, t: int, own: Vector, others: dict[str, Vector]) -> Vector:
        v = own - self.P(own, others) - self.alpha * self.gradient(own)
        self.state.x = self.regularizer.prox(v, self.alpha)
        return self.state.x
