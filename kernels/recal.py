"""L. Wang, L. Guo, S. Yang, X. Shi, Differentially private decentralized optimization with relay communication,
Algorithm 1 and (7): RECAL and DP-RECAL (a baton walks at random).

Problem (1):   min_x  sum_i f_i(x) + n r(x),   f_i private to agent i and L_i-smooth, r and the box public.
The baton is (x, u), u = sum_i lambda_i; agent i keeps (y_i, lambda_i). Stepsizes: beta = 1/(2(n + 1)) and
alpha_i in (0, 2/(L_i + 1)), whatever the network.

Departures from the paper (numbers of the project's readings, section 1):
 - (7a) and (7d) together say lambda+ = lambda + beta (x+ - y+). The start is x = y = lambda = u = 0.
 - `guarded`: the noise stands behind the gate, on the gradient; the baton is exact (Finding 1.1: x+ puts y_i on the wire
   one visit late, so that noise on u protects nothing).
 - `published`: agents only ever receive the noisy u~, which the algorithm box does not say how to go on from. Reading B
   (shipped): u~+ = u~ + lambda+ - lambda - eps + the agent's own last eps; the noise does not add up. Reading A lets it
   add up, and tends to argmin sum f + n r - <E, x>, E the total noise.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from msgspec import Meta, Struct

from hushgrid.kernels.baton import Baton, BatonState, Route
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.jit import Matrix, Vector, kernel
from hushgrid.kernels.ladmm import Count, Oracle, Positive
from hushgrid.kernels.losses import Loss
from hushgrid.kernels.prox import Regularizer, elastic_net
from hushgrid.kernels.stacked import Index, Stack, Tensor, check, gradient, stack

Walk = Literal["random", "hamiltonian"] | tuple[Annotated[int, Meta(ge=0)], ...]


class Params(Struct, tag_field="name", tag="recal", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The scenario's `algorithm` section, in the paper's symbols."""

    name: ClassVar[str] = "recal"
    variant: Literal["guarded", "published", "none"] = "guarded"
    rounds: Count  #: K, activations
    alpha: Positive | tuple[Positive, ...] | None = None  #: one number, or one per agent; 1/(L_i + 1)
    beta: Positive | None = None  #: 1/(2(n + 1))
    walk: Walk = "random"
    decay: Annotated[float, Meta(ge=1, le=1e9)] | None = None  #: published: R, sigma_k^2 = R sigma_{k+1}^2; 1

    def __post_init__(self) -> None:
        if self.decay is not None and self.variant != "published":
            raise InputError(f"algorithm.variant: found {self.variant}, expected published with decay")

    def alpha_i(self, i: int, L: float) -> float:
        """alpha_i of agent i, whose public smoothness constant is L. InputError where the list is too short."""
        if isinstance(self.alpha, tuple):
            if i >= len(self.alpha):
                raise InputError(f"algorithm.alpha: found {len(self.alpha)} numbers, expected one for each agent")
            return self.alpha[i]
        return self.alpha if self.alpha is not None else 1.0 / (L + 1.0)

    def beta_n(self, n: int) -> float:
        """beta for n agents."""
        return self.beta if self.beta is not None else 1.0 / (2.0 * (n + 1))


@kernel
def activation(
    x: Vector, u: Vector, y: Vector, lam: Vector, g: Vector,
    alpha: float, beta: float, n: float, l1: float, l2: float, box: float,
) -> tuple[Vector, Vector, Vector]:  # fmt: skip
    """(7a)-(7d): x+, y_i+, lambda_i+ from the baton (x, u), the agent's (y_i, lambda_i) and g, its gradient at y_i."""
    half = lam + beta * (x - y)  # (7a)
    x_new = elastic_net(x - (u + half - lam), n, l1, l2, box)  # (7b)
    y_new = y - alpha * (g - half)  # (7c)
    return x_new, y_new, half + beta * ((x_new - x) - (y_new - y))  # (7d)


@dataclass(kw_only=True)
class AgentState(BatonState):
    y: np.ndarray  #: (q,) y_i
    lam: np.ndarray  #: (q,) lambda_i
    eps: np.ndarray  #: (q,) the noise this agent last put on u~ (published)


class Agent(Baton):
    """Agent `index` of n. `L` is its public smoothness constant, `size` = q. What `Baton` takes comes behind."""

    own = ("y", "lam", "eps")
    state: AgentState

    def __init__(
        self, params: Params, gate: Oracle, regularizer: Regularizer, index: int, n: int, L: float, size: int,
        name: str, neighbours: Iterable[str], route: Route, *, reading: Literal["A", "B"] = "B", **walk: Any,
    ) -> None:  # fmt: skip
        zero = np.zeros(size)
        super().__init__(name, neighbours, route, params.rounds, (zero, zero), **walk)
        self.params, self.gate, self.regularizer, self.n, self.reading = params, gate, regularizer, n, reading
        self.alpha, self.beta = params.alpha_i(index, L), params.beta_n(n)
        self.state = AgentState(y=zero, lam=zero, eps=zero)

    def activate(self, vectors: tuple[Vector, ...]) -> tuple[Vector, ...]:
        (x, u), s, r = vectors, self.state, self.regularizer
        guarded, published = self.params.variant == "guarded", self.params.variant == "published"
        g = self.gate.gradient(s.y) if guarded else self.gate.exact_gradient(s.y)
        eps = self.gate.perturb(np.zeros_like(x)) if published else s.eps
        x_new, y, lam = activation(x, u, s.y, s.lam, g, self.alpha, self.beta, float(self.n), r.l1, r.l2, r.box)
        u_new = u + (lam - s.lam)  # (7e)
        if published:
            u_new = u_new - eps + (s.eps if self.reading == "B" else 0.0)
        s.y, s.lam, s.eps = y, lam, eps
        return x_new, u_new


# --- for studies: all agents in a few arrays, no gate and no network; the update is the one above ---


@kernel
def whole_walk(
    f: Stack, walk: Index, x: Vector, u: Vector, y: Matrix, lam: Matrix, last: Matrix,
    alpha: Vector, beta: float, l1: float, l2: float, box: float, noise: Matrix, eps: Matrix, kept: float, record: Tensor,
) -> None:  # fmt: skip
    """Algorithm 1 at each agent of `walk` (K,) in turn; x, u (q,) and y, lam, last (n, q) in place.

    Of each activation: `noise` (K, q) on the gradient; `eps` (K, q) on u~, where `last` holds each agent's own, added
    back `kept` times (reading A 0, B 1); `record` (K, 2, q) takes x and u after it. Each may have length 0: there is none.
    """
    n, q = y.shape
    check(walk, y, noise, record)
    check(walk, lam, eps, record)
    if y.shape != lam.shape or y.shape != last.shape or alpha.size != n:
        raise ValueError("y, lam, last, alpha: shape mismatch")
    g = np.empty(q)
    for k in range(walk.size):
        i = walk[k]
        rows = slice(f.start[i], f.start[i + 1])
        gradient(f.kind, f.A[rows], f.b[rows], f.factor[i], f.l2, f.lam, f.omega, y[i], g)
        if noise.shape[0]:
            g += noise[k]
        x_new, y_new, lam_new = activation(x, u, y[i], lam[i], g, alpha[i], beta, float(n), l1, l2, box)
        u += lam_new - lam[i]  # (7e)
        if eps.shape[0]:
            u += kept * last[i] - eps[k]
            last[i] = eps[k]
        x[:], y[i], lam[i] = x_new, y_new, lam_new
        if record.shape[0]:
            record[k, 0], record[k, 1] = x, u


class Agents:
    """All n agents. InputError where no compiled gradient serves."""

    def __init__(
        self, params: Params, fs: Sequence[Loss], regularizer: Regularizer, reading: Literal["A", "B"] = "B"
    ) -> None:
        n, q = len(fs), fs[0].size
        self.params, self.f, self.regularizer, self.kept = params, stack(fs), regularizer, float(reading == "B")
        self.alpha = np.array([params.alpha_i(i, f.L) for i, f in enumerate(fs)])
        self.x, self.u = np.zeros(q), np.zeros(q)
        self.y, self.lam, self.eps = np.zeros((n, q)), np.zeros((n, q)), np.zeros((n, q))

    def walk(self, nodes: Sequence[int] | Index, *, noise: Matrix | None = None, record: bool = False) -> Tensor:
        """Activate `nodes` in turn, from where the last call ended: (K, 2, q) x and u after each of them, or none.

        `noise` (K, q): guarded on the gradient (which is not clipped here), published on u~. Activations beyond an
        agent's cap, which change nothing, are left out of `nodes`.
        """
        (n, q), r, none = self.y.shape, self.regularizer, np.zeros((0, self.x.size))
        noise, published = none if noise is None else noise, self.params.variant == "published"
        tokens = np.empty((len(nodes) if record else 0, 2, q))
        whole_walk(
            self.f, np.asarray(nodes, dtype=np.int64), self.x, self.u, self.y, self.lam, self.eps, self.alpha, self.params.beta_n(n),
            r.l1, r.l2, r.box, none if published else noise, noise if published else none, self.kept, tokens,
        )  # fmt: skip
        return tokens
