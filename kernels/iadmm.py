"""Y. Ye, H. Chen, M. Xiao, M. Skoglund, H. V. Poor, Privacy-preserving incremental ADMM for decentralized consensus
optimization, Algorithms 1-4: I-ADMM, PI-ADMM1 and PI-ADMM2 (a baton on a cycle).

Problem (1):   min_x  sum_i f_i(x),   f_i private to agent i.
The baton is z; agent i keeps (x_i, y_i). Conserved: N z = sum_i (x_i - y_i/rho).

Departures from the paper (numbers of the project's readings, section 3):
 - Algorithm 2 prints y_i^0 = -rho v, which breaks the conserved sum and tends to a wrong point: it is +rho v.
 - Algorithm 3 replaces (4a) and (4b), with rho gamma; (5) keeps the nominal rho.
 - Algorithm 4 prints omega inside the argmin, where it is a constant: it is added to x after the argmin.
 - `guarded` takes the first-order step (8) with the gradient from the gate; y_i is then exactly the last answer.
 - `published` is PI-ADMM1 or 2, which hide nothing that the convergence does not tell (Finding 3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Protocol

import numpy as np
from msgspec import Meta, Struct

from hushgrid.kernels import ladmm
from hushgrid.kernels.baton import Baton, BatonState, Route
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.jit import Matrix, Vector, kernel
from hushgrid.kernels.ladmm import Count, Positive
from hushgrid.kernels.losses import Loss
from hushgrid.kernels.recal import Walk
from hushgrid.kernels.stacked import SPECTRAL, Index, Stack, Tensor, check, gradient, minimizer, stack

Number = Annotated[float, Meta(ge=-1e150, le=1e150)]


class Uniform(Struct, forbid_unknown_fields=True, frozen=True):
    """Algorithm 2: every entry of v = x_i^0 is drawn from U(low, high), and y_i^0 = rho v."""

    uniform: tuple[Number, Number]


class Params(Struct, tag_field="name", tag="iadmm", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The scenario's `algorithm` section, in the paper's symbols. InputError where two keys contradict each other."""

    name: ClassVar[str] = "iadmm"
    variant: Literal["guarded", "published", "none"] = "guarded"
    rounds: Count  #: K, activations
    rho: Positive
    update: Literal["exact", "first-order"] | None = None  #: (4a) or (8); first-order when guarded, else exact
    start: Literal["zeros"] | Uniform = "zeros"
    gamma: tuple[Positive, Positive] | None = None  #: PI-ADMM1: gamma_i^k from U(low, high)
    noise_sd: Positive | None = None  #: PI-ADMM2: omega_i^k from N(0, noise_sd^2 I)
    walk: Walk = "hamiltonian"

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
class AgentState(BatonState):
    x: np.ndarray  #: (p,) x_i
    y: np.ndarray  #: (p,) y_i


class Agent(Baton):
    """An agent of N. `draws(k)` gives its random numbers of activation k, counted here from 1; of its start, k = 0."""

    own = ("x", "y")
    state: AgentState

    def __init__(
        self, params: Params, gate: Oracle, N: int, size: int,
        name: str, neighbours: Iterable[str], route: Route, *, draws: Callable[[int], Draws] | None = None, **walk: Any,
    ) -> None:  # fmt: skip
        super().__init__(name, neighbours, route, params.rounds, (np.zeros(size),), **walk)
        self.params, self.gate, self.N = params, gate, N
        self.draws = draws
        v = np.zeros(size)
        if isinstance(params.start, Uniform):
            v = self._random(0).uniform(*params.start.uniform, size)
        self.state = AgentState(x=v, y=params.rho * v)

    def activate(self, vectors: tuple[Vector, ...]) -> tuple[Vector, ...]:
        (z,), s, p = vectors, self.state, self.params
        rho = p.rho
        if p.gamma:
            rho = p.rho * float(self._random(s.asked + 1).uniform(*p.gamma, 1)[0])
        x = self._primal(z, rho)
        if p.noise_sd:
            x = x + self._random(s.asked + 1).normal(0.0, p.noise_sd, x.size)
        y = dual(s.y, z, x, rho)
        z_new = token(z, s.x, s.y, x, y, p.rho, float(self.N))
        s.x, s.y = x, y
        return (z_new,)

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


# --- for studies: all agents in a few arrays, no gate and no network; the updates are those above ---


@kernel
def whole_walk(
    f: Stack, walk: Index, z: Vector, x: Matrix, y: Matrix, rho: float, gamma: Vector, omega: Matrix, record: Tensor
) -> None:
    """(4a), (12) or (8), then (4b) or (13) and (5), at each agent of `walk` (K,) in turn; z (p,), x, y (N, p) in place.

    gamma (K,) and omega (K, p) are those of each activation; `record` (K, 2, p) takes z and the active agent's x after
    it. Where there are no omegas, or nothing is to be recorded, the array has length 0.
    """
    N, p = x.shape
    check(walk, y, omega, record)
    if x.shape != y.shape or z.size != p or gamma.size != walk.size:
        raise ValueError("z, x, y, gamma: shape mismatch")
    A, b, e, v, x_new = f.A, f.b, f.e, np.empty(p), np.empty(p)
    for k in range(walk.size):
        i, r = walk[k], rho * gamma[k]
        rows = slice(f.start[i], f.start[i + 1])
        if f.kind == SPECTRAL:
            for j in range(p):
                v[j] = -(r * z[j] + y[i, j])
            minimizer(e[i], A[rows], b[rows], v, r, x_new)
        else:
            gradient(f.kind, A[rows], b[rows], f.factor[i], f.l2, f.lam, f.omega, x[i], v)
            for j in range(p):
                x_new[j] = first_order(z[j], y[i, j], v[j], r)
        for j in range(p):
            if omega.shape[0]:
                x_new[j] += omega[k, j]
            y_new = dual(y[i, j], z[j], x_new[j], r)
            z[j] = token(z[j], x[i, j], y[i, j], x_new[j], y_new, rho, N)
            x[i, j], y[i, j] = x_new[j], y_new
            if record.shape[0]:
                record[k, 0, j], record[k, 1, j] = z[j], x_new[j]


class Agents:
    """All N agents; `start` (N, p) holds their v of Algorithm 2. InputError where no compiled update serves."""

    def __init__(self, params: Params, fs: Sequence[Loss], start: Matrix | None = None) -> None:
        N, p = len(fs), fs[0].size
        self.params, self.f = params, stack(fs, params.exact)
        self.z = np.zeros(p)
        self.x = np.zeros((N, p)) if start is None else start.copy()
        self.y = params.rho * self.x

    def walk(
        self, nodes: Sequence[int] | Index, *,
        gamma: Vector | None = None, noise: Matrix | None = None, record: bool = False,
    ) -> Tensor:  # fmt: skip
        """Activate `nodes` in turn, from where the last call ended: (K, 2, p) z and the active x of each, or none.

        `gamma` (K,) of PI-ADMM1. `noise` (K, p): omega, or where guarded what the gate adds to the gradient (which is
        not clipped here). Activations beyond an agent's cap, which change nothing, are left out of `nodes`.
        """
        K, p, rho, guarded = len(nodes), self.z.size, self.params.rho, self.params.variant == "guarded"
        omega = np.zeros((0, p)) if noise is None else -noise / rho if guarded else noise  # (8) of g + noise
        tokens = np.empty((K if record else 0, 2, p))
        gamma = np.ones(K) if gamma is None else gamma
        whole_walk(self.f, np.asarray(nodes, dtype=np.int64), self.z, self.x, self.y, rho, gamma, omega, tokens)
        return tokens
