"""What the first-order methods of the neighbours pattern share: Metropolis weights, and a node that mixes by them.

W_ij = 1/(1 + max(d_i, d_j)) on edges, the rest of each row on its diagonal: graphs.Graph.metropolis, of which a node
needs its own row alone. P = I - W, so that (P v)_i = sum_j W_ij (v_i - v_j) and the spectrum of P lies in
[0, 2 d_max/(1 + d_max)], d_max the largest degree (Gershgorin).
Message 1 is each method's public start, zeros; a run of K rounds ends with a step, and what follows it is not sent.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, Protocol

import numpy as np
from msgspec import Meta, Struct

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.graphs import Graph
from hushgrid.kernels.jit import Matrix, Vector, kernel_or
from hushgrid.kernels.ladmm import Count, Positive
from hushgrid.kernels.neighbours import Neighbour, NeighbourState
from hushgrid.kernels.prox import Regularizer
from hushgrid.kernels.stacked import Index

Variant = Literal["guarded", "published", "none"]
Fraction = Annotated[float, Meta(gt=0, lt=1)]


class FirstOrder(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The scenario's `algorithm` section of EXTRA, NIDS and DGD."""

    variant: Literal["guarded", "none"] = "guarded"
    rounds: Count  #: K
    step_size: Positive  #: alpha
    weights: Literal["metropolis"] = "metropolis"  #: W

    @property
    def answers(self) -> int:
        """Gradients each node asks its gate for over the whole run."""
        return self.rounds


def check_published(variant: Variant, **keys: object) -> None:
    """InputError unless the keys of the paper's noise are all there where it is published, and none elsewhere."""
    for key, found in keys.items():
        if (found is not None) != (variant == "published"):
            expected = "a value (variant: published)" if found is None else f"none (variant: {variant})"
            raise InputError(
                f"algorithm.{key}: {'missing' if found is None else f'found {found}'}, expected {expected}"
            )


def decaying(u: float | None, r: float | None, k: int) -> float:
    """The scale r^k u of a published noise of round k = 0, 1, ...; elsewhere 0."""
    return u * r**k if u is not None and r is not None else 0.0


class Oracle(Protocol):
    """What a node may ask of its gate. `perturb`: x plus a paper's noise (published), of scale `scale` per coordinate."""

    def gradient(self, x: Vector) -> Vector: ...
    def exact_gradient(self, x: Vector) -> Vector: ...
    def perturb(self, x: Vector, scale: float) -> Vector: ...


def metropolis(graph: Graph, i: int) -> list[float]:
    """W_ij for the neighbours j of node i, in their order."""
    degree = [len(near) for near in graph.neighbours]
    return [1.0 / (1 + max(degree[i], degree[j])) for j in graph.neighbours[i]]


def bound(degree: int) -> float:
    """2 d/(1 + d): no eigenvalue of P is larger where no node has more than d neighbours."""
    return 2.0 * degree / (1.0 + degree)


class Mixing(Neighbour):
    """A node that asks its gate for gradients and mixes. `weights`: W_ij by the neighbours' names."""

    def __init__(
        self, gate: Oracle, variant: Variant, weights: Mapping[str, float], messages: int, size: int, name: str,
        **pattern: Any,
    ) -> None:  # fmt: skip
        super().__init__(name, weights, messages, size, **pattern)
        self.gate, self.variant, self.weights = gate, variant, dict(weights)

    def first(self) -> Vector:
        return np.zeros(self.size)

    def P(self, own: Vector, others: Mapping[str, Vector]) -> Vector:
        """(P v)_i of this node, from its own v_i and its neighbours' v_j. Shape (d,)."""
        total = np.zeros_like(own)
        for j, v in others.items():
            total += self.weights[j] * (own - v)
        return total

    def gradient(self, x: Vector) -> Vector:
        """The gate's answer at x: noisy where guarded. Shape (d,)."""
        return self.gate.gradient(x) if self.variant == "guarded" else self.gate.exact_gradient(x)

    def perturb(self, x: Vector, scale: float) -> Vector:
        """x as it is sent: with the paper's noise where published. Shape (d,)."""
        return self.gate.perturb(x, scale) if self.variant == "published" else x


class Proximal(Mixing):
    """A node of EXTRA, NIDS or DGD: steps of `step_size`, and the proximal step of r. A paper supplies its first state."""

    def __init__(
        self, params: FirstOrder, gate: Oracle, regularizer: Regularizer, weights: Mapping[str, float], size: int, name: str,
        **pattern: Any,
    ) -> None:  # fmt: skip
        super().__init__(gate, params.variant, weights, params.rounds, size, name, **pattern)
        self.alpha, self.regularizer = params.step_size, regularizer
        self.state = self.begin()

    @abstractmethod
    def begin(self) -> NeighbourState:
        """The public state before the first round."""


# --- for studies: all nodes in a few arrays ---


class Edges(NamedTuple):
    """Node i's neighbours are near[start_i : start_{i+1}], their W_ij beside them; the Metropolis weights of a graph."""

    start: Index  #: (n + 1,)
    near: Index  #: (2 |E|,)
    weight: Vector  #: (2 |E|,)

    @classmethod
    def of(cls, graph: Graph) -> Edges:
        start = np.cumsum([0, *(len(near) for near in graph.neighbours)], dtype=np.int64)
        near = np.array([j for near in graph.neighbours for j in near], dtype=np.int64)
        return cls(start, near, np.array([w for i in range(graph.n) for w in metropolis(graph, i)]))


def _mix(start: Index, near: Index, weight: Vector, v: Matrix, out: Matrix) -> None:
    of = np.repeat(np.arange(start.size - 1), np.diff(start))
    out[:] = np.add.reduceat(weight[:, None] * (v[of] - v[near]), start[:-1])  # no node is without a neighbour


@kernel_or(_mix)
def mix(start: Index, near: Index, weight: Vector, v: Matrix, out: Matrix) -> None:
    """out (n, d) = P v of all nodes' v (n, d)."""
    n, d = v.shape
    if out.shape != v.shape or start.size != n + 1 or near.size != weight.size or start[n] != near.size:
        raise ValueError("start, near, weight, v, out: shape mismatch")
    for i in range(n):
        for k in range(d):
            out[i, k] = 0.0
        for e in range(start[i], start[i + 1]):
            j, w = near[e], weight[e]
            for k in range(d):
                out[i, k] += w * (v[i, k] - v[j, k])
