"""Y. Ye, H. Chen, M. Xiao, M. Skoglund, H. V. Poor, Privacy-preserving incremental ADMM for decentralized consensus
optimization, Algorithms 1-4: I-ADMM, PI-ADMM1 and PI-ADMM2 (a token on a cycle).

Problem (1):   min_x  sum_i f_i(x),   f_i private to agent i.
The token is z; agent i keeps (x_i, y_i). Conserved: N z = sum_i (x_i - y_i/rho).

Departures from the paper (docs/papers/pi-admm.md):
 - Algorithm 2 prints y_i^0 = -rho v, which breaks the conserved sum and tends to a wrong point: it is +rho v.
 - Algorithm 3 replaces (4a) and (4b), with rho gamma; (5) keeps the nominal rho.
 - Algorithm 4 prints omega inside the argmin, where it is a constant: it is added to x after the argmin.
 - `guarded` takes the first-order step (8) with the gradient from the gate; y_i is then exactly the last answer.
 - `published` is PI-ADMM1 or 2, which hide nothing that the convergence does not tell (Finding 3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from msgspec import Struct

from hushgrid.kernels.algorithms import ladmm
from hushgrid.kernels.algorithms.base import Constrained, Published, Question, Walk, Way
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.jit import kernel
from hushgrid.kernels.patterns.token import NodeContext, Route, TokenNode, TokenState
from hushgrid.kernels.ranges import Count, Noise, Number, Step
from hushgrid.kernels.types import Vector


class Uniform(Struct, forbid_unknown_fields=True, frozen=True):
    """Algorithm 2: every entry of v = x_i^0 is drawn from U(low, high), and y_i^0 = rho v."""

    uniform: tuple[Number, Number]  #: low and high


#: What the league tunes of the first-order update.
class Params(Walk, tag_field="name", tag="iadmm", frozen=True, kw_only=True):
    """The scenario's `algorithm` section, in the paper's symbols.

    Raises InputError if two keys contradict each other.
    """

    title: ClassVar[str] = "incremental ADMM"
    paper: ClassVar[str] = (
        "Y. Ye, H. Chen, M. Xiao, M. Skoglund, H. V. Poor, Privacy-preserving incremental ADMM for decentralized "
        "consensus optimization, Algorithms 1-4"
    )
    published: ClassVar[Published | None] = Published("scales")
    constrained: ClassVar[Constrained] = "no"
    token: ClassVar[tuple[str, ...]] = ("z",)
    recorded: ClassVar[tuple[str, ...]] = ("x", "y")

    rounds: Count  #: K, activations
    rho: Step  #: the penalty
    update: Literal["exact", "first-order"] | None = None  #: (4a) or (8) [guarded: first-order, else exact]
    start: Literal["zeros"] | Uniform = "zeros"  #: of x and y
    gamma: tuple[Step, Step] | None = None  #: PI-ADMM1: gamma_i^k from U(low, high)
    noise_sd: Noise | None = None  #: PI-ADMM2: omega_i^k from N(0, noise_sd^2 I)
    walk: Way = "hamiltonian"  #: around a cycle, at random (metropolis: evenly), or the active node of each activation

    def __post_init__(self) -> None:
        if self.variant != "published" and (self.gamma or self.noise_sd):
            raise InputError(f"algorithm.variant: found {self.variant}, expected published with gamma or noise_sd")
        if self.gamma and self.noise_sd:
            raise InputError("algorithm: found gamma (PI-ADMM1) and noise_sd (PI-ADMM2), expected one of them")
        for key, span in (("gamma", self.gamma), ("start.uniform", getattr(self.start, "uniform", None))):
            if span and not span[0] <= span[1]:
                raise InputError(f"algorithm.{key}: found {list(span)}, expected [low, high]")

    @property
    def exact(self) -> bool:
        """Whether x_i is updated by (4a), not by (8)."""
        return (self.update or ("first-order" if self.variant == "guarded" else "exact")) == "exact"

    def step_ratio(self, L: Sequence[float], degree: int) -> float | None:
        """L/rho of the first-order update, stable where rho > L (the paper: rho >= 2 L + 2); None for the exact one."""
        return None if self.exact else max(L) / self.rho

    def asks(self, mode: str = "") -> Question:
        return "minimiser" if self.exact and self.variant == "guarded" else super().asks(mode)

    def curvature(self, i: int, k: int, neighbours: Sequence[int]) -> float:
        """rho of (4a)."""
        return self.rho

    def step_of_answer(self, i: int, k: int, L: float, epsilon: float = inf, alpha: float = 0.0) -> float:
        """1/rho of (8)."""
        return 1 / self.rho

    def agent(self, context: NodeContext) -> Agent:
        return Agent(
            self,
            context.gate,
            context.n,
            context.size,
            context.name,
            context.neighbours,
            context.route,
            draws=context.draws,
            **context.walk,
        )


class Oracle(ladmm.Oracle, Protocol):
    """What an agent may ask of its gate: argmin_x f(x) + <linear, x> + quadratic/2 |x|^2 too."""

    def minimizer(self, linear: Vector, quadratic: float) -> Vector: ...
    def exact_minimizer(self, linear: Vector, quadratic: float) -> Vector: ...


class Draws(Protocol):
    """One draw of a node's own random numbers: a numpy Generator is one."""

    def uniform(self, low: float, high: float, size: int) -> Vector: ...
    def normal(self, loc: float, scale: float, size: int) -> Vector: ...


@kernel
def first_order(z: Vector, y: Vector, g: Vector, rho: float) -> Vector:
    """(8): x+ = z + y/rho - g/rho, g the gradient at the agent's previous x_i. Shape (p,)."""
    return z + y / rho - g / rho


@kernel
def dual(y: Vector, z: Vector, x_new: Vector, rho: float) -> Vector:
    """(4b), (13): y+ = y + rho (z - x+). Shape (p,)."""
    return y + rho * (z - x_new)


@kernel
def token(z: Vector, x: Vector, y: Vector, x_new: Vector, y_new: Vector, rho: float, N: float) -> Vector:
    """(5): z+ = z + ((x+ - y+/rho) - (x - y/rho))/N. Shape (p,)."""
    return z + ((x_new - y_new / rho) - (x - y / rho)) / N


@dataclass(kw_only=True)
class AgentState(TokenState):
    x: np.ndarray  #: (p,) x_i
    y: np.ndarray  #: (p,) y_i


class Agent(TokenNode):
    """An agent of N. `draws(k)` gives its random numbers of activation k, counted here from 1; of its start, k = 0."""

    node_vectors = ("x", "y")
    state: AgentState

    def __init__(
        self,
        params: Params,
        gate: Oracle,
        N: int,
        size: int,
        name: str,
        neighbours: Iterable[str],
        route: Route,
        *,
        draws: Callable[[int], Draws] | None = None,
        **walk: Any,
    ) -> None:
        super().__init__(name, neighbours, route, params.rounds, (np.zeros(size),), **walk)
        self.params, self.gate, self.n = params, gate, N
        self.draws = draws
        v = np.zeros(size)
        if isinstance(params.start, Uniform):
            v = self._random(0).uniform(*params.start.uniform, size)
        self.state = AgentState(x=v, y=params.rho * v)

    def activate(self, vectors: tuple[Vector, ...], live: int) -> tuple[Vector, ...]:
        (z,), s, p = vectors, self.state, self.params
        rho = p.rho
        if p.gamma:
            rho = p.rho * float(self._random(s.answers + 1).uniform(*p.gamma, 1)[0])
        x = self._primal(z, rho)
        if p.noise_sd:
            x = x + self._random(s.answers + 1).normal(0.0, p.noise_sd, x.size)
        y = dual(s.y, z, x, rho)
        z_new = token(z, s.x, s.y, x, y, p.rho, float(live))
        s.x, s.y = x, y
        return (z_new,)

    def counted(self) -> tuple[Vector, ...]:
        return (self.state.x - self.state.y / self.params.rho,)

    def recounted(self, vectors: tuple[Vector, ...], sums: tuple[Vector, ...], live: int) -> tuple[Vector, ...]:
        return (sums[0] / live,)  # N z = sum_i (x_i - y_i/rho)

    def _primal(self, z: Vector, rho: float) -> Vector:
        """(4a), (12) or (8). argmin f(x) + rho/2 |z - x + y/rho|^2 has the linear term -(rho z + y)."""
        s, guarded = self.state, self.params.variant == "guarded"
        if self.params.exact:
            solve = self.gate.minimizer if guarded else self.gate.exact_minimizer
            return solve(-(rho * z + s.y), rho)
        gradient = self.gate.gradient if guarded else self.gate.exact_gradient
        return first_order(z, s.y, gradient(s.x), rho)

    def _random(self, k: int) -> Draws:
        if self.draws is None:
            raise InputError(f"{self.name}: found no source of random numbers, expected one for {self.params.name}")
        return self.draws(k)
