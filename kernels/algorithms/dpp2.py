"""Z. Ou, D. Wang, Z. Liu, J. Lu, Distributed nonconvex optimization with double privacy protection and exact
convergence, Algorithm 1 and (16)-(21): DPP2 (neighbours, in rounds).

Problem (1):   min_x  f(x) = sum_i f_i(x),   f_i private to node i, M_i-smooth, perhaps nonconvex.
Node i keeps (x_i, q_i, d_i). A round is two messages: y_i (x_i where no noise is published), then z_i.
G = alpha I - beta P, P = I - W with Metropolis weights W.

Departures from the paper (docs/papers/dpp2.md):
 - `guarded` and `none` are (20)-(21) with e = w = 0, q+ with the old x; the noise stands behind the gate, on the
   gradient, and does not decay. The start x^0 = 0 is public.
 - P is no raw Laplacian, which diverges; parameters under which this method diverges are refused at the start.
   (24)-(27), which the paper's own experiment violates a hundredfold, are reported by `conditions` and not enforced.
 - `published` is Algorithm 1 with one eta for all nodes, a public constant (one per node diverges). It changes no x,
   makes y grow without bound and hides nothing (Finding 4.1). Theorem 3 sums from k = 1; k = 0 costs too (4.2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, sqrt
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from msgspec import Meta

from hushgrid.kernels.algorithms.base import Constrained, Published, Rounds
from hushgrid.kernels.algorithms.mixing import Mixing, NodeOracle, bound, check_published, decaying, weights_of
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.jit import kernel
from hushgrid.kernels.patterns.neighbours import NeighbourState, NodeContext
from hushgrid.kernels.ranges import MOST, Count, Fraction, Noise, Step
from hushgrid.kernels.types import Matrix, Vector


class Params(Rounds, tag_field="name", tag="dpp2", frozen=True, kw_only=True):
    """The scenario's `algorithm` section, in the paper's symbols. Raises InputError if keys contradict each other."""

    title: ClassVar[str] = "DPP2"
    paper: ClassVar[str] = (
        "Z. Ou, D. Wang, Z. Liu, J. Lu, Distributed nonconvex optimization with double privacy protection and exact "
        "convergence, Algorithm 1"
    )
    published: ClassVar[Published | None] = Published("scales")
    constrained: ClassVar[Constrained] = "no"
    max_step_ratio: ClassVar[float] = 1.0
    messages: ClassVar[int] = 2
    recorded: ClassVar[tuple[str, ...]] = ("x", "q")

    rounds: Count  #: K, of two messages each
    alpha: Step  #: the step, of G = alpha I - beta P
    beta: Step  #: of G = alpha I - beta P; below alpha over the largest eigenvalue of P
    rho: Step  #: the penalty on disagreement
    weights: Literal["metropolis"] = "metropolis"  #: W, of the mixing
    #: published: one number, or eta^k of each round
    eta: Fraction | Annotated[tuple[Fraction, ...], Meta(max_length=MOST)] | None = None
    decay: Fraction | None = None  #: published: r, the noises have scales r^k u
    u_w: Noise | None = None  #: published: on y
    u_e: Noise | None = None  #: published: on z

    def __post_init__(self) -> None:
        check_published(self.variant, eta=self.eta, decay=self.decay, u_w=self.u_w, u_e=self.u_e)
        if isinstance(self.eta, tuple) and len(self.eta) < self.rounds:
            raise InputError(f"algorithm.eta: found {len(self.eta)} numbers, expected one for each round")

    def eta_k(self, k: int) -> float:
        """eta^k of round k = 0, 1, ...; 1, which merges nothing, where nothing is published."""
        if isinstance(self.eta, tuple):
            return self.eta[min(k, len(self.eta) - 1)]
        return 1.0 if self.eta is None else self.eta

    def theta(self, k: int) -> tuple[float, float]:
        """theta_w^k and theta_e^k, the scales of the published noise on y and z of round k = 0, 1, ...; else 0."""
        return decaying(self.u_w, self.decay, k), decaying(self.u_e, self.decay, k)

    def check(self, L: Sequence[float], degree: int, convexity: float = 0.0) -> None:
        """Raises InputError unless no mode of (20)-(21) grows; `degree` is the largest of a node, L its M_i, M the
        largest.

        On an eigenvector of P, eigenvalue l, and a curvature 0 <= h <= M: g (rho l + 2 h) < 4, g = alpha - beta l > 0
        (Jury). It is concave in l, largest at an end or where its slope is 0.
        """
        most, M = bound(degree), max(L)
        if not self.beta * most < self.alpha:
            raise InputError(
                f"algorithm.beta: found {self.beta:g}, expected below alpha/{most:.4g} = {self.alpha / most:.4g} "
                f"(the largest degree is {degree})"
            )
        worst, worst_l = self._worst(most, M)
        if not worst < 4:
            raise InputError(
                f"algorithm.alpha: found {self.alpha:g} with beta {self.beta:g}, rho {self.rho:g}, expected "
                f"(alpha - beta l)(rho l + 2 M) < 4 for l in [0, {most:.4g}]; it is {worst:.4g} at l = {worst_l:.4g} "
                f"(M = {M:.4g}), where DPP2 may diverge"
            )

    def step_ratio(self, L: Sequence[float], degree: int) -> float | None:
        """The largest (alpha - beta l)(rho l + 2 M)/4 of `check`, which refuses 1 and more."""
        return self._worst(bound(degree), max(L))[0] / 4

    def step_of_answer(self, i: int, k: int, L: float, epsilon: float = inf, alpha: float = 0.0) -> float:
        return self.alpha

    @property
    def recorded_messages(self) -> tuple[str, ...]:
        return ("y", "z") if self.variant == "published" else ()

    def agent(self, context: NodeContext) -> Node:
        return Node(
            self,
            context.gate,
            weights_of(context),
            context.degree,
            max(context.L),
            context.size,
            context.name,
            report=context.report,
        )

    def _worst(self, most: float, M: float) -> tuple[float, float]:
        """The largest (alpha - beta l)(rho l + 2 M) for l in [0, most], and where it is."""
        slope_zero = (self.alpha * self.rho - 2 * self.beta * M) / (2 * self.beta * self.rho)
        l_worst = min(max(slope_zero, 0.0), most)
        return (self.alpha - self.beta * l_worst) * (self.rho * l_worst + 2 * M), l_worst


@kernel
def merged(g: Matrix, q: Matrix, Py: Matrix, eta: float, rho: float) -> tuple[Matrix, Matrix]:
    """(17), (19) and (21): z - e = g + eta q + rho P y, and q+ = eta q + rho P y. Any shape, all alike."""
    q_new = eta * q + rho * Py
    return g + q_new, q_new


@dataclass(kw_only=True)
class NodeState(NeighbourState):
    x: np.ndarray  #: (d,) x_i^k; between y and z of a round and its end: x_i^{k+1} but for beta P z
    q: np.ndarray  #: (d,) q_i
    d: np.ndarray  #: (d,) d_i (published, else 0)


class Node(Mixing):
    """Message 2k + 1 is y^k, message 2k + 2 is z^k. `degree`: the largest in the graph; M: the largest M_i; both
    public.

    Raises InputError if the parameters are unstable.
    """

    state: NodeState

    def __init__(
        self,
        params: Params,
        gate: NodeOracle,
        weights: Mapping[str, float],
        degree: int,
        M: float,
        size: int,
        name: str,
        **pattern: Any,
    ) -> None:
        params.check([M], degree)
        super().__init__(gate, params.variant, weights, 2 * params.rounds, size, name, **pattern)
        self.params = params
        self.state = NodeState(x=np.zeros(size), q=np.zeros(size), d=np.zeros(size))

    def first(self) -> Vector:
        return self._y(self.state.x, 0)

    def step(self, t: int, message: Vector, others: dict[str, Vector]) -> Vector:
        s, p, k, Pv = self.state, self.params, (t - 1) // 2, self.P(message, others)
        if t % 2:
            eta = p.eta_k(k)
            z, q = merged(self.gradient(s.x), s.q, Pv, eta, p.rho)
            sent = self.perturb(z, p.theta(k)[1])
            s.x = message - (1.0 - eta) * s.d - p.alpha * z  # by (16), y - (1 - eta) d = x + w
            s.q, s.d = q, eta * s.d + message if self.variant == "published" else s.d
            return sent
        x = s.x + p.beta * Pv  # (18)
        y = self._y(x, k + 1) if t < self.messages else x
        s.x = x
        return y

    def _y(self, x: Vector, k: int) -> Vector:
        """(16)."""
        p = self.params
        return self.perturb(x + (1.0 - p.eta_k(k)) * self.state.d, p.theta(k)[0])


# --- what the paper claims and demands ---


def stationarity(x: Matrix, g: Matrix) -> float:
    """(31): |x - mean x|^2 + |sum_i f_i'(x_i)|^2/N, of all nodes' x and exact gradients (N, d): from raw data."""
    return float(np.sum((x - x.mean(axis=0)) ** 2) + np.sum(g.sum(axis=0) ** 2) / len(x))


def claimed_epsilon(params: Params, delta: float, M: float, size: int) -> float:
    """Theorem 3's left side, k = 1..K-1: what `published` is said to cost, of functions whose gradients differ by at
    most delta. Not upheld: its sum lacks k = 0 (Finding 4.2). Raises InputError unless alpha M < 1.
    """
    p = _contracting(params, M)
    thetas = (p.theta(k) for k in range(1, p.rounds))
    c = sqrt(size) * p.alpha * delta / (1 - p.alpha * M)
    return c * sum(_over(1 / p.alpha, theta_e) + _over(1, theta_w) for theta_w, theta_e in thetas)


def epsilon(params: Params, delta: float, M: float, size: int) -> float:
    """What `published` costs by the proof of Theorem 3, (61)-(64), k = 0..K-1: attained where size = 1.

    The final x, which no noise is on, must not be released (Finding 4.4). Raises InputError unless alpha M < 1.
    """
    p = _contracting(params, M)
    total = gap = 0.0  # gap = |Delta x^k| = |Delta w^k|
    for k in range(p.rounds):
        change = delta + M * gap  # |Delta g^k| = |Delta e^k|
        theta_w, theta_e = p.theta(k)
        total += _over(gap, theta_w) + _over(change, theta_e)
        gap = p.alpha * change
    return sqrt(size) * total


def _over(change: float, theta: float) -> float:
    return change / theta if theta else inf  # r^k has underflown: there is no noise


def _contracting(params: Params, M: float) -> Params:
    if params.variant != "published" or not params.alpha * M < 1:
        raise InputError(
            f"algorithm.alpha: found alpha M = {params.alpha * M:.4g} ({params.variant}), expected < 1, published"
        )
    return params


class Condition(NamedTuple):
    where: str
    actual: float
    below: float  #: it must be

    @property
    def holds(self) -> bool:
        return self.actual < self.below


def conditions(params: Params, P: Matrix, M: float) -> list[Condition]:
    """(24)-(27) at these parameters, for the free constants c_theta and gamma that come nearest to fulfilling them.

    P (N, N) is symmetric, its null space the consensus. Raises InputError unless beta < alpha/lambda_1(P).
    """
    e = np.linalg.eigvalsh(P)
    low, high = float(e[1]), float(e[-1])
    a, b, rho = params.alpha, params.beta, params.rho
    if not (low > 1e-12 and b * high < a):
        raise InputError(f"conditions: found spectrum {low:.3g} to {high:.3g} of P, expected > 0 and beta P < alpha")
    g_high, g_low = a - b * low, a - b * high  # of G, its largest, alpha, left out
    c_a, k_L, k_G = a / g_high, high / low, g_high / g_low
    x6, x7 = 0.25, M + 10.5 * M * M
    part = np.arange(1, 200) / 200
    c_t = (part / k_G)[:, None]
    gamma = c_t * part[None, :] / 5
    room = c_t / 2 - 2.5 * gamma
    x1 = rho * high / 2 * (1 / k_G - c_t) - (1 + 0.75 * M * M + M * M * c_a / 2)
    x2 = (1 + 1 / gamma) * rho**2 * high / 2 + c_t / 4 + c_t * rho * high / 2 + 2.75
    x2 = x2 + M * M * (2 / gamma + c_t * rho * high / 4 + c_t**2 / 2)
    x3, x4, x5 = room - 1 / (rho * low) ** 2, c_t**2 / 4, 1.75 * c_t**2
    x8 = (4 + 3 * M * M + 2 * M * M * c_a) / (2 * high * (1 / k_G - c_t))
    x9 = 1 / (low * np.sqrt(room))
    root = np.sqrt(np.maximum(x4**2 + 4 * x3 * x5, 0))
    limits = np.minimum(x1 / x2, (root - x4) / (2 * x5))  # of (26); at most 0 unless (25) holds
    worst = np.maximum(np.maximum(x8, x9) / rho, g_high / np.maximum(limits, 1e-300))
    best = np.unravel_index(np.argmin(worst), worst.shape)
    return [
        Condition("(24) c_alpha < kappa_L/(kappa_L - 1)", c_a, k_L / (k_L - 1) if k_L > 1 else inf),
        Condition("(25) max(xi_8, xi_9) < rho", float(max(np.broadcast_to(x8, worst.shape)[best], x9[best])), rho),
        Condition("(26) lambda_G < min(xi_1/xi_2, root)", g_high, float(limits[best])),
        Condition("(26), (27) alpha < xi_6/xi_7", a, x6 / x7),
    ]
