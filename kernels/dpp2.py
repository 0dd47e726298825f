"""Z. Ou, D. Wang, Z. Liu, J. Lu, Distributed nonconvex optimization with double privacy protection and exact convergence,
Algorithm 1 and (16)-(21): DPP2 (neighbours, in rounds).

Problem (1):   min_x  f(x) = sum_i f_i(x),   f_i private to node i, M_i-smooth, perhaps nonconvex.
Node i keeps (x_i, q_i, d_i). A round is two messages: y_i (x_i where no noise is published), then z_i.
G = alpha I - beta P, P = I - W with Metropolis weights W.

Departures from the paper (numbers of the project's readings, section 4):
 - `guarded` and `none` are (20)-(21) with e = w = 0, q+ with the old x; the noise stands behind the gate, on the gradient,
   and does not decay. The start x^0 = 0 is public.
 - P is no raw Laplacian, which diverges; parameters under which this method diverges are refused at the start.
   (24)-(27), which the paper's own experiment violates a hundredfold, are reported by `conditions` and not enforced.
 - `published` is Algorithm 1 with one eta for all nodes, a public constant (one per node diverges). It changes no x,
   makes y grow without bound and hides nothing (Finding 4.1). Theorem 3 sums from k = 1; k = 0 costs too (4.2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, sqrt
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from msgspec import Struct

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.graphs import Graph
from hushgrid.kernels.jit import Matrix, Vector, kernel
from hushgrid.kernels.ladmm import Count, Positive
from hushgrid.kernels.losses import Loss
from hushgrid.kernels.mixing import Edges, Fraction, Mixing, Oracle, Variant, bound, check_published, decaying, mix
from hushgrid.kernels.neighbours import NeighbourState
from hushgrid.kernels.stacked import Stack, Tensor, gradient, stack


class Params(Struct, tag_field="name", tag="dpp2", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The scenario's `algorithm` section, in the paper's symbols. InputError where keys contradict each other."""

    name: ClassVar[str] = "dpp2"
    variant: Variant = "guarded"
    rounds: Count  #: K, of two messages each
    alpha: Positive
    beta: Positive
    rho: Positive
    weights: Literal["metropolis"] = "metropolis"
    eta: Fraction | tuple[Fraction, ...] | None = None  #: published: one number, or eta^k of each round
    decay: Fraction | None = None  #: published: r, the noises have scales r^k u
    u_w: Positive | None = None  #: published: on y
    u_e: Positive | None = None  #: published: on z

    @property
    def answers(self) -> int:
        """Gradients each node asks its gate for over the whole run."""
        return self.rounds

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

    def check_stable(self, degree: int, M: float) -> None:
        """InputError unless no mode of (20)-(21) grows; `degree` is the largest of a node, M the largest M_i.

        On an eigenvector of P, eigenvalue l, and a curvature 0 <= h <= M: g (rho l + 2 h) < 4, g = alpha - beta l > 0
        (Jury). It is concave in l, largest at an end or where its slope is 0.
        """
        most = bound(degree)
        if not self.beta * most < self.alpha:
            raise InputError(
                f"algorithm.beta: found {self.beta:g}, expected below alpha/{most:.4g} = {self.alpha / most:.4g} "
                f"(the largest degree is {degree})"
            )
        slope_zero = (self.alpha * self.rho - 2 * self.beta * M) / (2 * self.beta * self.rho)
        at = min(max(slope_zero, 0.0), most)
        found = (self.alpha - self.beta * at) * (self.rho * at + 2 * M)
        if not found < 4:
            raise InputError(
                f"algorithm.alpha: found {self.alpha:g} with beta {self.beta:g}, rho {self.rho:g}, expected "
                f"(alpha - beta l)(rho l + 2 M) < 4 for l in [0, {most:.4g}]; it is {found:.4g} at l = {at:.4g} "
                f"(M = {M:.4g}), where DPP2 may diverge"
            )


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
    """Message 2k + 1 is y^k, message 2k + 2 is z^k. `degree`: the largest in the graph; M: the largest M_i; both public.

    InputError where the parameters are unstable.
    """

    state: NodeState

    def __init__(
        self, params: Params, gate: Oracle, weights: Mapping[str, float], degree: int, M: float, size: int, name: str,
        **pattern: Any,
    ) -> None:  # fmt: skip
        params.check_stable(degree, M)
        super().__init__(gate, params.variant, weights, 2 * params.rounds, size, name, **pattern)
        self.params = params
        self.state = NodeState(x=np.zeros(size), q=np.zeros(size), d=np.zeros(size))

    def first(self) -> Vector:
        return self._y(self.state.x, 0)

    def step(self, t: int, own: Vector, others: dict[str, Vector]) -> Vector:
        s, p, k, Pv = self.state, self.params, (t - 1) // 2, self.P(own, others)
        if t % 2:
            eta = p.eta_k(k)
            z, q = merged(self.gradient(s.x), s.q, Pv, eta, p.rho)
            sent = self.perturb(z, p.theta(k)[1])
            s.x = own - (1.0 - eta) * s.d - p.alpha * z  # by (16), y - (1 - eta) d = x + w
            s.q, s.d = q, eta * s.d + own if self.variant == "published" else s.d
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
    """Theorem 3's left side, k = 1..K-1: what `published` is said to cost, of functions whose gradients differ by at most
    delta. Not upheld: its sum lacks k = 0 (Finding 4.2). InputError unless alpha M < 1.
    """
    p = _contracting(params, M)
    thetas = (p.theta(k) for k in range(1, p.rounds))
    c = sqrt(size) * p.alpha * delta / (1 - p.alpha * M)
    return c * sum(_over(1 / p.alpha, theta_e) + _over(1, theta_w) for theta_w, theta_e in thetas)


def epsilon(params: Params, delta: float, M: float, size: int) -> float:
    """What `published` costs by the proof of Theorem 3, (61)-(64), k = 0..K-1: attained where size = 1. The final x, which
    no noise is on, must not be released (Finding 4.4). InputError unless alpha M < 1.
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
    found: float
    below: float  #: it must be

    @property
    def holds(self) -> bool:
        return self.found < self.below


def conditions(params: Params, P: Matrix, M: float) -> list[Condition]:
    """(24)-(27) at these parameters, for the free constants c_theta and gamma that come nearest to fulfilling them.

    P (N, N) is symmetric, its null space the consensus; beta < alpha/lambda_1(P). InputError otherwise.
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


# --- for studies: all nodes in a few arrays, no gate and no network; the updates are those above ---


@kernel
def whole_run(
    f: Stack, edges: Edges, x: Matrix, q: Matrix, d: Matrix, alpha: float, beta: float, rho: float, eta: Vector,
    noise: Tensor, w: Tensor, e: Tensor, record: Tensor,
) -> None:  # fmt: skip
    """(16)-(19) for every eta^k of `eta` (K,), in turn; x, q, d (N, d) in place.

    Of each round and node: `noise` (K, N, d) on the gradient, `w` and `e` on y and z; `record` (K, 2, N, d) takes x and q
    after it. Each may have length 0: there is none.
    """
    K, shape = eta.size, x.shape
    if q.shape != shape or d.shape != shape or f.start.size != shape[0] + 1:
        raise ValueError("x, q, d: shape mismatch with each other or the functions")
    for a in (noise, w, e):
        if a.shape[0] not in (0, K) or a.shape[1:] != shape:
            raise ValueError("noise, w, e: shape mismatch with the rounds or the state")
    if record.shape[0] not in (0, K) or record.shape[1] != 2 or record.shape[2:] != shape:
        raise ValueError("record: shape mismatch with the rounds or the state")
    g, Pv = np.empty(shape), np.empty(shape)
    for k in range(K):
        start = x + w[k] if w.shape[0] else x
        y = start + (1.0 - eta[k]) * d
        mix(edges.start, edges.near, edges.weight, y, Pv)
        for i in range(shape[0]):
            rows = slice(f.start[i], f.start[i + 1])
            gradient(f.kind, f.A[rows], f.b[rows], f.factor[i], f.l2, f.lam, f.omega, x[i], g[i])
        if noise.shape[0]:
            g += noise[k]
        z, q[:] = merged(g, q, Pv, eta[k], rho)
        mix(edges.start, edges.near, edges.weight, z + e[k] if e.shape[0] else z, Pv)
        x[:] = start - alpha * z + beta * Pv
        d[:] = eta[k] * d + y
        if record.shape[0]:
            record[k, 0], record[k, 1] = x, q


class Nodes:
    """All N nodes of a graph. M: the largest M_i, where a sharper one than Loss.L is known.

    InputError where no compiled gradient serves, or the parameters are unstable.
    """

    def __init__(self, params: Params, fs: Sequence[Loss], graph: Graph, M: float | None = None) -> None:
        params.check_stable(max(map(len, graph.neighbours)), max(f.L for f in fs) if M is None else M)
        self.params, self.f, self.edges = params, stack(fs), Edges.of(graph)
        self.x, self.q, self.d = np.zeros((3, len(fs), fs[0].size))
        self.k = 0  #: rounds made

    def run(
        self, rounds: int, *,
        noise: Tensor | None = None, w: Tensor | None = None, e: Tensor | None = None, record: bool = False,
    ) -> Tensor:  # fmt: skip
        """`rounds` more: (K, 2, N, d) x and q after each of them, or none.

        (K, N, d): guarded `noise` on the gradient (not clipped here); published `w` on y and `e` on z.
        """
        p, (n, d) = self.params, self.x.shape
        none = np.zeros((0, n, d))
        eta = np.array([p.eta_k(k) for k in range(self.k, self.k + rounds)])
        states = np.empty((rounds if record else 0, 2, n, d))
        whole_run(
            self.f, self.edges, self.x, self.q, self.d, p.alpha, p.beta, p.rho, eta, none if noise is None else noise,
            none if w is None else w, none if e is None else e, states,
        )  # fmt: skip
        self.k += rounds
        return states
