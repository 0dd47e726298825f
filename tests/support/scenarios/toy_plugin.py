"""An algorithm in a file of one's own."""

#: A complete plugin: decentralised gradient descent with half of each step.
TOY = """
import numpy as np

from hushgrid.kernels.algorithms.dgd import NodeState
from hushgrid.kernels.algorithms.mixing import FirstOrder, Proximal, weights_of


class Params(FirstOrder, tag_field="name", tag="toy", frozen=True, kw_only=True):
    title = "half a step"
    paper = "nobody, nothing (2026)"
    asks_after = True

    def step_ratio(self, L, degree):
        return self.step_size * max(L) * (1 + degree) / 4

    def agent(self, at):
        return Node(self, at.gate, at.regularizer, weights_of(at), at.size, at.name, report=at.report)


class Node(Proximal):
    def begin(self):
        return NodeState(x=np.zeros(self.size))

    def step(self, t, own, others):
        self.state.x = own - self.P(own, others) - self.alpha / 2 * self.gradient(own)
        return self.state.x
"""
