"""M. Ryu, K. Kim, Differentially private distributed convex optimization, Algorithm 3.1 (linearised ADMM, star).

Problem (2.1):   min_w  sum_p f_p(z_p)   s.t.  z_p in W_p,   w = z_p on the entries p shares,
with f_p private to agent p and W_p public. Each round the server averages (line 5), each agent takes E linearised,
perturbed steps (3.2), and both sides update the same dual (lines 8 and 22). In power flow (Section 6.1) p is a zone
that shares some entries of z_p; in federated learning (Section 6.2) all nodes share all entries, and W_p is a box.

Departures from the paper (docs/papers/objpert-ladmm.md):
 - w averages each entry over its owners, not over all P agents, and only shared entries travel: an agent's private
   entries keep the 1/(2 eta) proximal term and nothing else (docs/papers/power-flow.md).
 - The noise stands behind the gate. (3.2) is a noisy gradient followed by a weighted projection onto W_p, so everything
   after the gate is post-processing. The paper's own scales are the variant `published`.
 - eta^t = 1/(L + sqrt t) by default: the paper's 1/sqrt t is unstable while sqrt t < max |a|^2
   (docs/papers/objpert-ladmm.md, 2.4). (5.1a), (5.2a) and (5.3a) are the rules of Theorems 5.3 (smooth f_p), 5.4
   (nonsmooth) and 5.5 (strongly convex).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, sqrt
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np
from msgspec import Struct

from hushgrid.kernels.algorithms.base import Constrained, Published, Sharing, Star
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.machine import LARGEST, Malformed
from hushgrid.kernels.patterns.star import (
    Feasible,
    FinalState,
    Index,
    NodeContext,
    ServerContext,
    StarCentre,
    StarMember,
    W,
    Z,
    held_at,
)
from hushgrid.kernels.ranges import Count, Penalty, Step, Updates

Vector = np.ndarray[Any, np.dtype[np.float64]]


class Rho(Struct, forbid_unknown_fields=True, frozen=True):
    """The schedule (E.1): rho^t = min(1e9, c1 1.2^floor(t / period) + c2 / epsilon), epsilon per answer."""

    c1: Step  #: the first penalty
    c2: Penalty  #: of the term of epsilon
    period: Count  #: rounds from one growth by 1.2 to the next


BY_CONVEXITY = "2/(alpha(t+2))"  #: the rule (5.3a)


class Constants(NamedTuple):
    """What Theorems 5.3 to 5.5 need to know: of all P agents together, public, and no smaller than the truth."""

    L: float  #: every f_p is L-smooth
    alpha: float  #: and alpha-strongly convex
    slope: float  #: (sum_p U_1^2)^(1/2), U_1 >= |f_p'| on W_p
    diameter: (
        float  #: (sum_p U_2^2)^(1/2), U_2 >= |u - v| on W_p: all agents' copies move, so that their squares add up
    )
    noise: float  #: E sum_p |xi_p|^2 of one answer, the paper's n P U_3/epsilon^2
    epsilon: float  #: of one answer, in (5.1a)


class ClaimedNoise(Published):
    def sensitivity(self, mode: str, moved: float, step: float) -> float:
        """(6.4) counts one record's gradient, not the difference of two: half of it. (3.4) stands behind the
        step D^-1.
        """
        return moved * step if mode.startswith("output") else moved / 2


class Params(Star, tag_field="name", tag="ladmm", frozen=True, kw_only=True):
    """The scenario's `algorithm` section, in the paper's symbols."""

    title: ClassVar[str] = "linearised ADMM with local updates"
    paper: ClassVar[str] = "M. Ryu, K. Kim, Differentially private distributed convex optimization, Algorithm 3.1"
    published: ClassVar[Published | None] = ClaimedNoise("paper")
    sharing: ClassVar[tuple[Sharing, ...]] = ("parts", "copies")
    constrained: ClassVar[Constrained] = "box"
    modes: ClassVar[tuple[str, ...]] = ("objective", "input", "output", "output-projected")

    both_remember: ClassVar[bool] = True

    rounds: Count  #: T, rounds around the coordinator
    rho: Step | Rho = 100.0  #: the penalty, a number or the schedule (E.1)
    #: the proximal step, a number or a rule; L: the public smoothness constant, t: the round, epsilon: of one answer
    #: (5.1a), alpha: every f_p - alpha/2 |x|^2 is convex (5.3a)
    eta: Step | Literal["1/(L+sqrt(t))", "1/sqrt(t)", "1/(L+sqrt(t)/epsilon)", "2/(alpha(t+2))"] = "1/(L+sqrt(t))"
    local_updates: Updates = 1  #: E, steps of a node between two messages

    @property
    def per_round(self) -> int:
        """E gradients."""
        return self.local_updates

    def rho_t(self, t: int, epsilon: float = inf) -> float:
        """rho^t of round t >= 1; `epsilon` is the per-answer epsilon of (E.1), infinite without privacy."""
        if isinstance(self.rho, Rho):
            growth = min(t // self.rho.period * np.log(1.2), 50.0)  # beyond it the minimum is 1e9 whatever c1 >= 1e-12
            return float(min(1e9, self.rho.c1 * np.exp(growth) + self.rho.c2 / epsilon))
        return float(self.rho)

    def eta_t(self, t: int, L: float, epsilon: float = inf, alpha: float = 0.0) -> float:
        """eta^t of round t >= 1.

        L: the public smoothness constant, the largest over the agents. epsilon: of one answer. alpha: every f_p is
        alpha-strongly convex.
        """
        if self.eta == "1/(L+sqrt(t))":
            return 1.0 / (L + sqrt(t))
        if self.eta == "1/(L+sqrt(t)/epsilon)":  # (5.1a)
            return 1.0 / (L + sqrt(t) / epsilon)
        if self.eta == BY_CONVEXITY:  # (5.3a); what is larger than any number of a plan may be is cut
            return 2.0 / max(alpha * (t + 2), 2e-9)
        return 1.0 / sqrt(t) if self.eta == "1/sqrt(t)" else float(self.eta)  # (5.2a)

    def bound(self, known: Constants) -> tuple[str, float] | None:
        """The theorem for this eta, and its bound on F(z^(T)) - F(z*) for averaged iterates; None: no theorem.

        (5.1b) with any c in eta = 1/(L + c sqrt(t)), as its proof allows; (5.2b); (5.3b). gamma = 2 |lambda*|, and
        lambda*_p = f_p'(z*) less the mean of all is a dual optimum: |lambda*| <= slope. The start is lambda = 0.
        """
        T, E, gamma, diameter, slope = (
            self.rounds,
            self.local_updates,
            2 * known.slope,
            known.diameter**2,
            known.slope**2,
        )
        first, last = self.rho_t(1, known.epsilon), self.rho_t(T, known.epsilon)
        dual = diameter * last + gamma**2 / first
        if self.eta in ("1/(L+sqrt(t))", "1/(L+sqrt(t)/epsilon)"):
            c = 1.0 if self.eta == "1/(L+sqrt(t))" else 1 / known.epsilon
            return "5.3", (known.noise / c + c * diameter / (2 * E)) / sqrt(T) + (dual + diameter * known.L / E) / (
                2 * T
            )
        if self.eta == "1/sqrt(t)":
            kinks = 2 * gamma * known.diameter
            return "5.4", (known.noise + slope + diameter / (2 * E)) / sqrt(T) + (dual + kinks) / (2 * T)
        if self.eta == BY_CONVEXITY and not isinstance(self.rho, Rho):  # Assumption 5.2 (ii)
            dual = 2 * known.diameter * gamma + diameter * last + 4 * gamma**2 / first
            return "5.5", (dual + known.alpha * diameter / (2 * E) + 2 * (slope + known.noise) / known.alpha) / (T + 1)
        return None

    def step_ratio(self, L: Sequence[float], degree: int) -> float | None:
        """eta L/2, L = max L_p: (3.2) is a gradient step of at most eta. Of the last round, where eta^t falls."""
        if self.eta == BY_CONVEXITY:
            return None
        return self.eta_t(self.rounds, max(L)) * max(L) / 2

    def check(self, L: Sequence[float], degree: int, convexity: float = 0.0) -> None:
        if self.eta == BY_CONVEXITY and not convexity > 0:
            raise InputError(
                "algorithm.eta: found a step of strong convexity, expected problem.l2 above 0, and no more of "
                "problem.nonconvex than that"
            )

    def step_of_answer(self, i: int, k: int, L: float, epsilon: float = inf, alpha: float = 0.0) -> float:
        """1/(1/eta + rho): D^-1 of (3.2) on the shared entries."""
        return 1 / (1 / self.eta_t(k, L, epsilon, alpha) + self.rho_t(k, epsilon))

    def agent(self, context: NodeContext) -> Agent:
        first = weights(
            context.start.size,
            context.shared,
            self.rho_t(1, context.epsilon),
            self.eta_t(1, context.L, context.epsilon, context.alpha),
        )
        after: dict[str, Perturbation] = {"output": "output", "output-projected": "output-projected"}
        perturbation: Perturbation = "none" if context.mode is None else after.get(context.mode, "gate")
        return Agent(
            self,
            context.gate,
            context.feasible(first),
            context.shared,
            context.start,
            context.L,
            perturbation=perturbation,
            epsilon=context.epsilon,
            alpha=context.alpha,
            patience=context.patience,
        )

    def server(self, context: ServerContext) -> Server:
        return Server(self, context)


def average(z: list[Vector], lam: list[Vector], position: list[Index], size: int, rho: float) -> Vector:
    """Line 5: w^{t+1} = mean over the owners p of each entry of z_p^t - lambda_p^t / rho^t. Sums in the order given."""
    total, owners = np.zeros(size), np.zeros(size)
    for z_p, lam_p, k in zip(z, lam, position, strict=True):
        total[k] += z_p - lam_p / rho
        owners[k] += 1.0
    return total / owners


def dual(lam: Vector, rho: float, w: Vector, z: Vector) -> Vector:
    """Lines 8 and 22: lambda_p^{t+1} = lambda_p^t + rho^t (w^{t+1} - z_p^{t+1}). Shapes (m_p,)."""
    return lam + rho * (w - z)


def weights(n: int, shared: Index, rho: float, eta: float) -> Vector:
    """D of (3.2) as a weighted projection: D_k = 1/eta + rho [k shared]. Shape (n,)."""
    D = np.full(n, 1.0 / eta)
    D[shared] += rho
    return D


def target(g: Vector, z: Vector, w: Vector, lam: Vector, shared: Index, rho: float, eta: float, D: Vector) -> Vector:
    """v of (3.2): argmin over W_p of sum_k D_k/2 (z_k - v_k)^2, v = D^-1 (-g + z/eta + [k shared](rho w + lambda)).

    g = f_p'(z^{t,e}) + xi (n,), z = z^{t,e} (n,), w and lam (m,) on the entries `shared` (m,).
    """
    r = z / eta - g
    r[shared] += rho * w + lam
    return r / D


class Oracle(Protocol):
    """What an agent may ask of its gate."""

    def gradient(self, x: Vector) -> Vector: ...
    def exact_gradient(self, x: Vector) -> Vector: ...
    def perturb(self, x: Vector) -> Vector: ...


#: How an agent's step is perturbed: at the gate, not at all, or after the projection by (3.4), the baseline.
Perturbation = Literal["gate", "none", "output", "output-projected"]


@dataclass
class AgentState:
    t: int  #: rounds answered
    z: np.ndarray  #: (n,) z_p^{t,E+1}
    mean: np.ndarray  #: (n,) z_p^{t+1}, line 20
    lam: np.ndarray  #: (m,) lambda_p^{t+1}
    warm: bool = False  #: the first of them were an earlier run's last
    common: np.ndarray = field(
        default_factory=lambda: np.zeros(0)
    )  #: (m,) mean of the owners' z^t, as w^{t+1} tells it


class Agent(StarMember):
    """Agent p, lines 11-23. `shared` (m,) are the positions in z_p of the entries it shares, `start` is z_p^1 (n,)."""

    def __init__(
        self,
        params: Params,
        gate: Oracle,
        feasible: Feasible,
        shared: Index,
        start: Vector,
        L: float,
        *,
        perturbation: Perturbation = "gate",
        epsilon: float = inf,
        alpha: float = 0.0,
        centre: str = "coordinator",
        patience: int = 0,
    ) -> None:
        super().__init__(centre, params.rounds, patience)
        self.params, self.gate, self.feasible = params, gate, feasible
        self.shared, self.L, self.epsilon, self.alpha = shared, L, epsilon, alpha
        self.perturbation = perturbation
        self.state = AgentState(0, start.copy(), start.copy(), np.zeros(shared.size))

    remembers: ClassVar[bool] = True

    def take(self, ended: AgentState) -> bool:
        """Begin at the last state of an earlier run.

        False, and nothing has changed, if it is not one of this problem's.
        """
        state = self.state
        for name in ("z", "mean", "lam"):
            theirs = getattr(ended, name)
            if theirs.shape != getattr(state, name).shape or not np.all(np.abs(theirs) <= LARGEST):
                return False
        self.state = AgentState(0, ended.z, ended.mean, ended.lam, warm=True)
        return True

    def check(self, body: object) -> None:
        if not isinstance(body, W) or body.w.shape != self.shared.shape:
            raise Malformed(f"{type(body).__name__}, expected w of {self.shared.size} entries")

    def update(self, t: int, body: W) -> None:
        s, p = self.state, self.params
        rho, eta = p.rho_t(t, self.epsilon), p.eta_t(t, self.L, self.epsilon, self.alpha)
        D = weights(s.z.size, self.shared, rho, eta)
        z, total = s.z, np.zeros_like(s.z)
        for _ in range(p.local_updates):  # lines 17-19
            z = self.local_step(z, body.w, rho, eta, D)
            total = total + z
        mean = total / p.local_updates  # line 20
        lam = dual(s.lam, rho, body.w, mean[self.shared])  # line 22
        # By lines 5, 8: w^{t+1} = zbar^t + r (zbar^t - zbar^{t-1}), r = rho^{t-1}/rho^t. A first zbar is forgotten by
        # halves.
        r = p.rho_t(max(t - 1, 1), self.epsilon) / rho
        s.common = (body.w + r * (s.common if s.common.size else body.w)) / (1 + r)
        s.z, s.mean, s.lam = z, mean, lam

    def local_step(self, z: Vector, w: Vector, rho: float, eta: float, D: Vector) -> Vector:
        """(3.2), or for the output-perturbation baseline (3.4)."""
        g = self.gate.gradient(z) if self.perturbation == "gate" else self.gate.exact_gradient(z)
        z = self.feasible.project(target(g, z, w, self.state.lam, self.shared, rho, eta, D), D)
        if self.perturbation in ("output", "output-projected"):
            z = self.gate.perturb(z)
            if self.perturbation == "output-projected":
                z = self.feasible.project(z, D)
        return z

    def answer_body(self) -> Z:
        return Z(self.state.mean[self.shared])

    def outcome(self) -> dict[str, Vector]:
        return {"z": self.state.mean, "x": self.state.common}


@dataclass
class ServerState:
    encoded_names: ClassVar[Mapping[str, str]] = {"stable_rounds": "calm"}

    t: int  #: round under way
    w: np.ndarray  #: (N,) w^{t+1}
    z: dict[str, np.ndarray]  #: z_p^t, (m_p,) each
    lam: dict[str, np.ndarray]  #: lambda_p^t, (m_p,) each
    arrived: dict[str, Z] = field(default_factory=dict)
    stable_rounds: int = 0  #: rounds in a row with max |w^{t+1} - w^t| within the tolerance
    residual: float = inf  #: sqrt(sum_p |w_p - z_p|^2) of the last complete round
    done: str | None = None
    cold: list[str] = field(default_factory=list)  #: members that began at the flat start while the server did not


class Server(StarCentre):
    """The server, lines 1-9. `position[p]` (m_p,) places p's shared entries in w (N,); `start[p]` is z_p^1 there."""

    def __init__(self, params: Params, context: ServerContext) -> None:
        super().__init__(list(context.position), params.rounds)
        self.params, self.position, self.epsilon = params, context.position, context.epsilon
        self.tolerance, self.patience, self.held = context.tolerance, context.patience, context.held
        self.size = 1 + max((int(k.max()) for k in context.position.values() if k.size), default=-1)
        z = context.warm or context.start
        lam = {p: context.duals.get(p, np.zeros(z[p].size)) for p in self.members}
        cold = [p for p in self.members if context.warm and p not in context.duals]
        self.state = ServerState(0, np.zeros(self.size), {p: z[p].copy() for p in self.members}, lam, cold=cold)

    def check(self, member: str, body: object) -> None:
        if not isinstance(body, Z) or body.z.shape != self.position[member].shape:
            raise Malformed(f"{type(body).__name__}, expected z of {self.position[member].size} entries")

    def begin(self) -> None:
        self.state.w = self.next_w(self.state.t)

    def next_w(self, t: int) -> Vector:
        s, m = self.state, self.members
        rho = self.params.rho_t(t, self.epsilon)
        free = average([s.z[p] for p in m], [s.lam[p] for p in m], [self.position[p] for p in m], self.size, rho)
        return held_at(free, self.held)

    def combine(self) -> bool:
        s, rho = self.state, self.params.rho_t(self.state.t, self.epsilon)
        gap = 0.0
        for p in self.members:
            z, w = s.arrived[p].z, s.w[self.position[p]]
            s.lam[p], s.z[p] = dual(s.lam[p], rho, w, z), z
            gap += float(np.sum((w - z) ** 2))
        s.residual = sqrt(gap)
        if not self.patience:
            return False
        moved = float(np.max(np.abs(self.next_w(s.t + 1) - s.w), initial=0.0))  # decided before the next w is sent
        s.stable_rounds = s.stable_rounds + 1 if moved <= self.tolerance else 0
        return bool(s.stable_rounds >= self.patience)

    def final_state(self) -> FinalState:
        z = self.state.z
        return FinalState(warm=z, z=z, duals=self.state.lam)

    def round_body(self, member: str) -> W:
        return W(self.state.w[self.position[member]])
