"""L. Wang, L. Guo, S. Yang, X. Shi, Differentially private decentralized optimization with relay communication,
Algorithm 1 and (7): RECAL and DP-RECAL (a token walks at random).

Problem (1):   min_x  sum_i f_i(x) + n r(x),   f_i private to agent i and L_i-smooth, r and the box public.
The token is (x, u), u = sum_i lambda_i; agent i keeps (y_i, lambda_i). Stepsizes: beta = 1/(2(n + 1)) and
alpha_i in (0, 2/(L_i + 1)), whatever the network.

Departures from the paper (docs/papers/dp-recal.md):
 - (7a) and (7d) together say lambda+ = lambda + beta (x+ - y+). The start is x = y = lambda = u = 0.
 - `guarded`: the noise stands behind the gate, on the gradient; the token is exact (Finding 1.1: x+ puts y_i on the
   wire one visit late, so that noise on u protects nothing).
 - `published`: agents only ever receive the noisy u~, which the algorithm box does not say how to go on from. Reading B
   (shipped): u~+ = u~ + lambda+ - lambda - eps + the agent's own last eps; the noise does not add up. Reading A lets it
   add up, and tends to argmin sum f + n r - <E, x>, E the total noise.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from msgspec import Meta

from hushgrid.kernels.algorithms.base import Published, Walk, Way
from hushgrid.kernels.algorithms.ladmm import Oracle
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.jit import kernel
from hushgrid.kernels.patterns.token import NodeContext, Route, TokenNode, TokenState
from hushgrid.kernels.problems.prox import Regularizer, elastic_net
from hushgrid.kernels.ranges import NODES, Count, Step
from hushgrid.kernels.types import Vector

AROUND = 15.0  #: beta n^2 that converged around every cycle and with every curvature that was tried (Finding 1.4)


class RelayedNoise(Published):
    def step_and_ratio(self, algorithm: Params, i: int, L: float, nodes: int) -> tuple[float, float]:
        """Lemma 5: alpha_i beta, and `decay`."""
        return algorithm.alpha_i(i, L) * algorithm.beta_n(nodes), algorithm.decay or 1.0


class Params(Walk, tag_field="name", tag="recal", frozen=True, kw_only=True):
    """The scenario's `algorithm` section, in the paper's symbols."""

    title: ClassVar[str] = "RECAL"
    paper: ClassVar[str] = (
        "L. Wang, L. Guo, S. Yang, X. Shi, Differentially private decentralized optimization with relay communication"
    )
    published: ClassVar[Published | None] = RelayedNoise("paper", ("gaussian",))
    max_step_ratio: ClassVar[float] = 1.0
    token: ClassVar[tuple[str, ...]] = ("x", "u")
    recorded: ClassVar[tuple[str, ...]] = ("y", "lam")

    rounds: Count  #: K, activations
    #: the step, a number or one a node, below 2/(L_i + 1) [1/(L_i + 1)]
    alpha: Step | Annotated[tuple[Step, ...], Meta(max_length=NODES)] | None = None
    beta: Step | None = None  #: the dual step [1/(2(n + 1))]
    walk: Way = "random"  #: at random (metropolis: evenly), around a cycle, or the active node of each activation
    decay: Annotated[float, Meta(ge=1, le=1e9)] | None = None  #: published: R, sigma_k^2 = R sigma_{k+1}^2 [1]

    def __post_init__(self) -> None:
        if self.decay is not None and self.variant != "published":
            raise InputError(f"algorithm.variant: found {self.variant}, expected published with decay")

    def alpha_i(self, i: int, L: float) -> float:
        """alpha_i of agent i, whose public smoothness constant is L. Raises InputError if the list is too short."""
        if isinstance(self.alpha, tuple):
            if i >= len(self.alpha):
                raise InputError(f"algorithm.alpha: found {len(self.alpha)} numbers, expected one for each agent")
            return self.alpha[i]
        return self.alpha if self.alpha is not None else 1.0 / (L + 1.0)

    def step_ratio(self, L: Sequence[float], degree: int) -> float | None:
        """The largest alpha_i (L_i + 1)/2: the paper's stepsizes are alpha_i in (0, 2/(L_i + 1)), whatever
        the network.
        """
        return max(self.alpha_i(i, L_i) * (L_i + 1) / 2 for i, L_i in enumerate(L))

    def check(self, L: Sequence[float], degree: int, convexity: float = 0.0) -> None:
        """Raises InputError unless alpha_i is in (0, 2/(L_i + 1)); where nothing is private, L_i may be known better
        than that.
        """
        if isinstance(self.alpha, tuple) and len(self.alpha) != len(L):
            raise InputError(
                f"algorithm.alpha: found {len(self.alpha)} numbers, expected one for each of {len(L)} nodes"
            )
        for i, L_i in enumerate(L):
            if (alpha := self.alpha_i(i, L_i)) >= (bound := 2 / (L_i + 1)) and self.variant != "none":
                raise InputError(
                    f"algorithm.alpha: found {alpha:g} for n{i}, expected less than 2/(L_i + 1) = {bound:g}"
                )

    def warning(self, n: int) -> str | None:
        """Theorem 2 is of the walk at random: around a long cycle its steps diverge (Finding 1.4)."""
        beta = self.beta_n(n)
        if self.walk != "hamiltonian" or beta * n**2 <= AROUND:
            return None
        return (
            f"algorithm.beta: found {beta:.3g} around a cycle of {n} nodes, where recal may diverge, expected at most "
            f"{AROUND / n**2:.3g}"
        )

    def beta_n(self, n: int) -> float:
        """beta for n agents."""
        return self.beta if self.beta is not None else 1.0 / (2.0 * (n + 1))

    def step_of_answer(self, i: int, k: int, L: float, epsilon: float = inf, alpha: float = 0.0) -> float:
        return self.alpha_i(i, L)

    def agent(self, context: NodeContext) -> Agent:
        return Agent(
            self,
            context.gate,
            context.regularizer,
            context.index,
            context.n,
            context.L[context.index],
            context.size,
            context.name,
            context.neighbours,
            context.route,
            **context.walk,
        )


@kernel
def activation(
    x: Vector,
    u: Vector,
    y: Vector,
    lam: Vector,
    g: Vector,
    alpha: float,
    beta: float,
    n: float,
    l1: float,
    l2: float,
    box: float,
) -> tuple[Vector, Vector, Vector]:
    """(7a)-(7d): x+, y_i+, lambda_i+ from the token (x, u), the agent's (y_i, lambda_i) and g, its gradient at y_i."""
    half = lam + beta * (x - y)  # (7a)
    x_new = elastic_net(x - (u + half - lam), n, l1, l2, box)  # (7b)
    y_new = y - alpha * (g - half)  # (7c)
    return x_new, y_new, half + beta * ((x_new - x) - (y_new - y))  # (7d)


@dataclass(kw_only=True)
class AgentState(TokenState):
    y: np.ndarray  #: (q,) y_i
    lam: np.ndarray  #: (q,) lambda_i
    eps: np.ndarray  #: (q,) the noise this agent last put on u~ (published)


class Agent(TokenNode):
    """Agent `index` of n. `L` is its public smoothness constant, `size` = q. What `TokenNode` takes comes behind."""

    node_vectors = ("y", "lam", "eps")
    state: AgentState

    def __init__(
        self,
        params: Params,
        gate: Oracle,
        regularizer: Regularizer,
        index: int,
        n: int,
        L: float,
        size: int,
        name: str,
        neighbours: Iterable[str],
        route: Route,
        *,
        reading: Literal["A", "B"] = "B",
        **walk: Any,
    ) -> None:
        zero = np.zeros(size)
        super().__init__(name, neighbours, route, params.rounds, (zero, zero), **walk)
        self.params, self.gate, self.regularizer, self.n, self.reading = params, gate, regularizer, n, reading
        self.alpha, self.beta = params.alpha_i(index, L), params.beta_n(n)
        self.state = AgentState(y=zero, lam=zero, eps=zero)

    def activate(self, vectors: tuple[Vector, ...], live: int) -> tuple[Vector, ...]:
        (x, u), s, r = vectors, self.state, self.regularizer
        guarded, published = self.params.variant == "guarded", self.params.variant == "published"
        g = self.gate.gradient(s.y) if guarded else self.gate.exact_gradient(s.y)
        eps = self.gate.perturb(np.zeros_like(x)) if published else s.eps
        x_new, y, lam = activation(x, u, s.y, s.lam, g, self.alpha, self.beta, float(live), r.l1, r.l2, r.box)
        u_new = u + (lam - s.lam)  # (7e)
        if published:
            u_new = u_new - eps + (s.eps if self.reading == "B" else 0.0)
        s.y, s.lam, s.eps = y, lam, eps
        return x_new, u_new

    def counted(self) -> tuple[Vector, ...]:
        return (self.state.lam - self.state.eps,)  # reading B: u~ has every agent's own last noise; else eps = 0

    def recounted(self, vectors: tuple[Vector, ...], sums: tuple[Vector, ...], live: int) -> tuple[Vector, ...]:
        return vectors[0], sums[0]  # u = sum_i lambda_i
