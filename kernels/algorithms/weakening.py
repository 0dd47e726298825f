"""Y. Wang, A. Nedic, Tailoring gradient methods for differentially private distributed optimization (2024), the method
with a weakening factor; with constraints in Robust constrained consensus and inequality-constrained distributed
optimization with guaranteed differential privacy and accurate convergence (2024), a rival in the DPP2 paper ([23]).

Reconstructed from the DPP2 paper's Table I (convex, bounded gradients, diminishing steps) and from what is commonly
said of the method: a node listens to its neighbours' noise less and less. Problem: min_x sum_i f_i(x). One message a
round, x~ = x + xi:

    x_i+ = x_i + chi^k sum_j W_ij (x~_j - x_i) - lambda^k f_i'(x_i),   k = 1, 2, ...

chi^k = chi/k^b, lambda^k = step/k^a, noise of scale u k^s: it may even grow. Conditions: sum chi^k = sum lambda^k =
infinity, (lambda^k)^2/chi^k and (chi^k u k^s)^2 summable, hence a < 1, 2 a - b > 1 and 2 (b - s) > 1. `guarded` has the
noise on the gradient, at the gate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, sqrt
from typing import ClassVar, Literal

import numpy as np

from hushgrid.kernels.algorithms.base import Constrained, Published, Rounds
from hushgrid.kernels.algorithms.mixing import Mixing, NodeOracle, bound, check_published, weights_of
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.patterns.neighbours import NeighbourState, NodeContext
from hushgrid.kernels.ranges import Count, Fraction, Noise, Step
from hushgrid.kernels.types import Vector


class Params(Rounds, tag_field="name", tag="weakening", frozen=True, kw_only=True):
    """The scenario's `algorithm` section. Raises InputError if keys contradict each other."""

    title: ClassVar[str] = "gradient method with a weakening factor, reconstructed"
    paper: ClassVar[str] = (
        "Y. Wang, A. Nedic, Tailoring gradient methods for differentially private distributed optimization (2024)"
    )
    published: ClassVar[Published | None] = Published("scales")
    constrained: ClassVar[Constrained] = "no"
    asks_after: ClassVar[bool] = True

    rounds: Count  #: K
    step: Step  #: lambda^1
    a: Fraction  #: lambda^k = step/k^a
    chi: Step  #: chi^1, the first weakening factor
    b: Fraction  #: chi^k = chi/k^b
    weights: Literal["metropolis"] = "metropolis"  #: W, of the mixing
    u: Noise | None = None  #: published: scale of the first noise
    s: Fraction | None = None  #: published: that of round k is u k^s

    def __post_init__(self) -> None:
        check_published(self.variant, u=self.u, s=self.s)
        if 2 * self.a - self.b <= 1:
            raise InputError(f"algorithm.b: found {self.b:g}, expected less than 2 a - 1 = {2 * self.a - 1:g}")
        if self.s is not None and 2 * (self.b - self.s) <= 1:
            raise InputError(f"algorithm.s: found {self.s:g}, expected less than b - 1/2 = {self.b - 0.5:g}")

    def step_ratio(self, L: Sequence[float], degree: int) -> float | None:
        """(chi l + step L)/2, l = 2 d_max/(1 + d_max), of the first round, whose factors are the largest."""
        return (self.chi * bound(degree) + self.step * max(L)) / 2

    def step_of_answer(self, i: int, k: int, L: float, epsilon: float = inf, alpha: float = 0.0) -> float:
        return float(self.step / k**self.a)

    def noise_gain(
        self, i: int, answers: int, L: float, neighbours: Sequence[int], epsilon: float = inf, alpha: float = 0.0
    ) -> float:
        """At most step^2 (1 + integral of k^-2a from 1), for 2 a > 1."""
        return float(self.step**2 * (1 + (1 - answers ** (1 - 2 * self.a)) / (2 * self.a - 1)))

    def scale(self, k: int) -> float:
        """Of the noise of round k = 1, 2, ...; 0 where none is published."""
        return float(self.u * k**self.s) if self.u is not None and self.s is not None else 0.0

    def agent(self, context: NodeContext) -> Node:
        return Node(self, context.gate, weights_of(context), context.size, context.name, report=context.report)


def epsilon(p: Params, delta: float, d: int, weight: float, L: float, bend: float = 0.0) -> float:
    """The total of the published noise over K rounds, for gradients (d,) of one node that differ by at most delta.

    weight: that node's sum_j W_ij. The curvature of its f_i lies in [-bend, L]. What its messages hide is how far its x
    differ: Delta^{k+1} = r Delta^k + lambda^k delta, r = max |1 - chi^k weight - lambda^k h| over h in [-bend, L]. The
    last x is withheld.
    """
    if p.u is None:
        return inf
    total = moved = 0.0
    for k in range(1, p.rounds + 1):
        total += sqrt(d) * moved / p.scale(k)
        step, factor = p.step / k**p.a, 1 - p.chi / k**p.b * weight
        moved = max(abs(factor + step * bend), abs(factor - step * L)) * moved + step * delta
    return total


@dataclass(kw_only=True)
class NodeState(NeighbourState):
    x: np.ndarray  #: (d,) x_i


class Node(Mixing):
    """Message k is x~^k."""

    state: NodeState

    def __init__(
        self, params: Params, gate: NodeOracle, weights: Mapping[str, float], size: int, name: str, report: int = 1
    ) -> None:
        super().__init__(gate, params.variant, weights, params.rounds, size, name, report=report)
        self.params = params
        self.state = NodeState(x=np.zeros(size))

    def first(self) -> Vector:
        return self.perturb(self.state.x, self.params.scale(1))

    def step(self, t: int, message: Vector, others: dict[str, Vector]) -> Vector:
        p, x = self.params, self.state.x
        x = x - p.chi / t**p.b * self.P(x, others) - p.step / t**p.a * self.gradient(x)
        sent = self.perturb(x, p.scale(t + 1)) if t < self.messages else x
        self.state.x = x
        return sent
