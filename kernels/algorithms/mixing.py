"""What the first-order methods of the neighbours pattern share: Metropolis weights, and a node that mixes by them.

W_ij = 1/(1 + max(d_i, d_j)) on edges, the rest of each row on its diagonal: graphs.Graph.metropolis, of which a node
needs its own row alone. P = I - W, so that (P v)_i = sum_j W_ij (v_i - v_j) and the spectrum of P lies in
[0, 2 d_max/(1 + d_max)], d_max the largest degree (Gershgorin).
Message 1 is each method's public start, zeros; a run of K rounds ends with a step, and what follows it is not sent.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Literal, Protocol

import numpy as np
from msgspec import UNSET, UnsetType

from hushgrid.kernels.algorithms.base import Rounds, Variant
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.graphs import Graph
from hushgrid.kernels.patterns.neighbours import Neighbour, NeighbourState, NodeContext
from hushgrid.kernels.problems.prox import Regularizer
from hushgrid.kernels.ranges import Count, Momentum, Step
from hushgrid.kernels.types import Vector


class FirstOrder(Rounds, frozen=True, kw_only=True):
    """The scenario's `algorithm` section of EXTRA, NIDS and DGD."""

    #: whose noise: guarded (the gate's own), published (the paper's, for study) or none
    variant: Literal["guarded", "none"] = "guarded"
    rounds: Count  #: K
    step_size: Step  #: alpha
    weights: Literal["metropolis"] = "metropolis"  #: W, of the mixing
    #: the weight of the past in the running mean of answers that takes a gradient's place; costs nothing [0: the answer
    #: itself]
    momentum: Momentum | UnsetType = UNSET

    def step_of_answer(self, i: int, k: int, L: float, epsilon: float = inf, alpha: float = 0.0) -> float:
        return self.step_size


def check_published(variant: Variant, **keys: object) -> None:
    """Raises InputError unless the keys of the paper's noise are all there where it is published, and none
    elsewhere.
    """
    for key, value in keys.items():
        if (value is not None) != (variant == "published"):
            expected = "a value (variant: published)" if value is None else f"none (variant: {variant})"
            raise InputError(
                f"algorithm.{key}: {'missing' if value is None else f'found {value}'}, expected {expected}"
            )


def decaying(u: float | None, r: float | None, k: int) -> float:
    """The scale r^k u of a published noise of round k = 0, 1, ...; elsewhere 0."""
    return u * r**k if u is not None and r is not None else 0.0


@dataclass(kw_only=True)
class AnsweredState(NeighbourState):
    """Of a node that may go by the running mean of its answers."""

    m: np.ndarray = field(default_factory=lambda: np.zeros(0))  #: (d,) that mean; empty: no answer yet, or no momentum


class NodeOracle(Protocol):
    """What a node may ask of its gate.

    `perturb`: x plus a paper's noise (published), of scale `scale` per coordinate.
    """

    def gradient(self, x: Vector) -> Vector: ...
    def exact_gradient(self, x: Vector) -> Vector: ...
    def perturb(self, x: Vector, scale: float) -> Vector: ...


def metropolis(graph: Graph, i: int) -> list[float]:
    """W_ij for the neighbours j of node i, in their order."""
    degree = [len(neighbours) for neighbours in graph.neighbours]
    return [1.0 / (1 + max(degree[i], degree[j])) for j in graph.neighbours[i]]


def weights_of(context: NodeContext) -> dict[str, float]:
    """W_ij of a node by its neighbours' names."""
    return dict(zip(context.neighbours, metropolis(context.graph, context.index), strict=True))


def bound(degree: int) -> float:
    """2 d/(1 + d): no eigenvalue of P is larger where no node has more than d neighbours."""
    return 2.0 * degree / (1.0 + degree)


class Mixing(Neighbour):
    """A node that asks its gate for gradients and mixes. `weights`: W_ij by the neighbours' names."""

    momentum: float = 0.0

    def __init__(
        self,
        gate: NodeOracle,
        variant: Variant,
        weights: Mapping[str, float],
        messages: int,
        size: int,
        name: str,
        **pattern: Any,
    ) -> None:
        super().__init__(name, weights, messages, size, **pattern)
        self.gate, self.variant, self.weights = gate, variant, dict(weights)

    def first(self) -> Vector:
        return np.zeros(self.size)

    def P(self, vector: Vector, others: Mapping[str, Vector]) -> Vector:
        """(P v)_i of this node, from its own v_i and its neighbours' v_j. Shape (d,)."""
        total = np.zeros_like(vector)
        for j, v in others.items():
            total += self.weights[j] * (vector - v)
        return total

    def gradient(self, x: Vector) -> Vector:
        """The gate's answer at x: noisy where guarded; with momentum b the mean m+ = b m + (1 - b) answer.

        Shape (d,).
        """
        g = self.gate.gradient(x) if self.variant == "guarded" else self.gate.exact_gradient(x)
        if not self.momentum:
            return g
        s, b = self.state, self.momentum
        m: Vector = b * s.m + (1 - b) * g if s.m.size else g
        s.m = m
        return m

    def perturb(self, x: Vector, scale: float) -> Vector:
        """x as it is sent: with the paper's noise where published. Shape (d,)."""
        return self.gate.perturb(x, scale) if self.variant == "published" else x


class Proximal(Mixing):
    """A node of EXTRA, NIDS or DGD: steps of `step_size`, and the proximal step of r. A paper supplies its
    first state.
    """

    def __init__(
        self,
        params: FirstOrder,
        gate: NodeOracle,
        regularizer: Regularizer,
        weights: Mapping[str, float],
        size: int,
        name: str,
        **pattern: Any,
    ) -> None:
        super().__init__(gate, params.variant, weights, params.rounds, size, name, **pattern)
        self.alpha, self.momentum, self.regularizer = params.step_size, params.momentum or 0.0, regularizer
        self.state = self.begin()

    @abstractmethod
    def begin(self) -> NeighbourState:
        """The public state before the first round."""
