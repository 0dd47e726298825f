"""Z. Huang, S. Mitra, N. Vaidya, Differentially private distributed optimization (2015): DMSP, a rival in the DPP2
paper (its reference [24]).

Reconstructed from the DPP2 paper's Table I (bounded gradients; step and noise diminish) and from what is commonly said
of the method: steps c q^k and Laplace noise of scale b p^k on the state, q < p < 1. Problem: min_x sum_i f_i(x) over
a box. One message a round, x~ = x + xi:

    z = W x~,   x+ = clip(z - c q^k f'(z)),   k = 0, 1, ...

z is public, so gradients at most delta apart move x+ by c q^k delta: epsilon = sqrt(d) delta c/(b (p - q)) at most,
however many rounds. The price is in the steps: their sum is c/(1 - q), and the optimum may be farther away.
`guarded` has the noise on the gradient, at the gate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import ClassVar, Literal

import numpy as np

from hushgrid.kernels.algorithms.base import Constrained, Published, Rounds
from hushgrid.kernels.algorithms.mixing import Mixing, NodeOracle, check_published, decaying, weights_of
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.patterns.neighbours import NeighbourState, NodeContext
from hushgrid.kernels.problems.prox import Regularizer
from hushgrid.kernels.ranges import Count, Fraction, Noise, Step
from hushgrid.kernels.types import Vector


class Params(Rounds, tag_field="name", tag="dmsp", frozen=True, kw_only=True):
    """The scenario's `algorithm` section. Raises InputError if keys contradict each other."""

    title: ClassVar[str] = "DMSP, reconstructed"
    paper: ClassVar[str] = "Z. Huang, S. Mitra, N. Vaidya, Differentially private distributed optimization (2015)"
    published: ClassVar[Published | None] = Published("scales")
    constrained: ClassVar[Constrained] = "box"
    asks_after: ClassVar[bool] = True

    rounds: Count  #: K
    c: Step  #: the first step
    q: Fraction  #: the next step over this one
    weights: Literal["metropolis"] = "metropolis"  #: W, of the mixing
    b: Noise | None = None  #: published: scale of the first noise
    p: Fraction | None = None  #: published: the next scale over this one

    def __post_init__(self) -> None:
        check_published(self.variant, b=self.b, p=self.p)
        if self.p is not None and self.p <= self.q:
            raise InputError(f"algorithm.p: found {self.p:g}, expected more than q = {self.q:g}")

    def step_ratio(self, L: Sequence[float], degree: int) -> float | None:
        """c L/2, of the first step, the largest: x+ = (1 - c h) W x on a curvature h alike for all nodes."""
        return self.c * max(L) / 2

    def step_of_answer(self, i: int, k: int, L: float, epsilon: float = inf, alpha: float = 0.0) -> float:
        return float(self.c * self.q ** (k - 1))

    def noise_gain(
        self, i: int, answers: int, L: float, neighbours: Sequence[int], epsilon: float = inf, alpha: float = 0.0
    ) -> float:
        """sum_k (c q^k)^2 in closed form."""
        return float(self.c**2 * (1 - self.q ** (2 * answers)) / (1 - self.q**2))

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


def epsilon(p: Params, delta: float, d: int) -> float:
    """The total of the published noise over K rounds, for gradients (d,) of one node that differ by at most delta.

    x^0 is public; x^{k+1} moves by at most c q^k delta, sqrt(d) times that in the 1-norm, under noise b p^{k+1}. The
    last x is withheld.
    """
    if p.b is None or p.p is None:
        return inf
    ratios = (p.q / p.p) ** np.arange(p.rounds - 1)
    return float(np.sqrt(d) * delta * p.c / (p.b * p.p) * np.sum(ratios))


@dataclass(kw_only=True)
class NodeState(NeighbourState):
    x: np.ndarray  #: (d,) x_i


class Node(Mixing):
    """Message k + 1 is x~^k."""

    state: NodeState

    def __init__(
        self,
        params: Params,
        gate: NodeOracle,
        regularizer: Regularizer,
        weights: Mapping[str, float],
        size: int,
        name: str,
        report: int = 1,
    ) -> None:
        super().__init__(gate, params.variant, weights, params.rounds, size, name, report=report)
        self.params, self.box = params, Regularizer(box=regularizer.box)
        self.state = NodeState(x=np.zeros(size))

    def first(self) -> Vector:
        return self._sent(self.state.x, 0)

    def step(self, t: int, message: Vector, others: dict[str, Vector]) -> Vector:
        step = self.params.c * self.params.q ** (t - 1)
        z = message - self.P(message, others)
        x = self.box.prox(z - step * self.gradient(z), step)
        sent = self._sent(x, t) if t < self.messages else x
        self.state.x = x
        return sent

    def _sent(self, x: Vector, k: int) -> Vector:
        return self.perturb(x, decaying(self.params.b, self.params.p, k))
