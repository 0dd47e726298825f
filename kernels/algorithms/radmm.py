"""X. Zhang, M. M. Khalili, M. Liu, Recycled ADMM: improving the privacy and accuracy of distributed algorithms,
(8)-(19), Algorithms 1-3: conventional ADMM, R-ADMM and MR-ADMM (neighbours, synchronous rounds).

Problem (1):   min_f  sum_i O(f, D_i),   D_i private to node i.
Node i keeps (f_i, lambda_i); its message t, of round t, is f_i(t), and f_i(0) = lambda_i(0) = 0 are public. An even
round of R-ADMM and MR-ADMM recycles the odd one's answer: it uses no data and costs nothing, but its message is sent.

Departures from the paper (docs/papers/recycled-admm.md):
 - Penalties are those of edges, eta_ij = (eta_i + eta_j)/2, in the primal, the dual and the even step. The paper's own
   eta_i (`penalties: node`, the default when published) tend to argmin sum_i O_i/eta_i, a wrong point (Finding 5.1).
 - The even step recycles the KKT right-hand side -(v + 2 sum_j eta_ij f_i), a function of what was released, in every
   variant; with an inexact solve the stored gradient tells the data set (Finding 5.2).
 - `guarded`: the odd step is the gate's private minimiser, at the sharper price of kernels.perturbation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from msgspec import Meta, Struct
from msgspec.structs import replace

from hushgrid.kernels.algorithms.base import Constrained, Published, Question, Rounds
from hushgrid.kernels.algorithms.iadmm import Oracle
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.graphs import Graph
from hushgrid.kernels.jit import kernel
from hushgrid.kernels.patterns import routes
from hushgrid.kernels.patterns.neighbours import Neighbour, NeighbourState, NodeContext
from hushgrid.kernels.ranges import NODES, Count, Penalty, Step
from hushgrid.kernels.ranges import Growth as Factor
from hushgrid.kernels.types import Matrix, Vector

LARGEST = 1e9  #: of a penalty that grows
Steps = Annotated[tuple[Step, ...], Meta(max_length=NODES)]  #: one a node


class Growth(Struct, forbid_unknown_fields=True, frozen=True):
    """eta_i(k) = start growth^k at the k-th answer, k = 1, 2, ..., and at most 1e9; one number, or one a node."""

    start: Step | Steps  #: one number, or one a node
    growth: Factor | Annotated[tuple[Factor, ...], Meta(max_length=NODES)]  #: one number, or one a node


Eta = Step | Steps | Growth


class Params(Rounds, tag_field="name", tag="mradmm", frozen=True, kw_only=True):
    """The scenario's `algorithm` section, in the paper's symbols: MR-ADMM. Raises InputError if two keys contradict."""

    title: ClassVar[str] = "modified recycled ADMM"
    paper: ClassVar[str] = (
        "X. Zhang, M. M. Khalili, M. Liu, Recycled ADMM: improving the privacy and accuracy of distributed algorithms"
    )
    published: ClassVar[Published | None] = Published("gate", ("laplace",))
    constrained: ClassVar[Constrained] = "no"
    recorded: ClassVar[tuple[str, ...]] = ("lam",)
    recycles: ClassVar[bool] = True  #: every even round
    perturbed_dual: ClassVar[bool] = False  #: whether the dual step has a number of its own, the same for all nodes

    rounds: Count  #: odd and even ones
    eta: Eta  #: the penalty of a node, a number, one a node, or a start and its growth
    gamma: Penalty = 0.0  #: the proximal weight of the even rounds' step
    #: whose penalties the sums take [edge; published: node, as the paper has them]
    penalties: Literal["edge", "node"] | None = None

    def __post_init__(self) -> None:
        if self.gamma and not self.recycles:
            raise InputError(f"algorithm.gamma: found {self.gamma:g}, expected none ({self.name} has no even step)")

    @property
    def answers(self) -> int:
        """Of each node's gate over the whole run."""
        return (self.rounds + 1) // 2 if self.recycles else self.rounds

    def answer_of(self, t: int) -> int:
        """Number of the answer that message t rests on."""
        return (t + 1) // 2 if self.recycles else t

    @property
    def of_edges(self) -> bool:
        return (self.penalties or ("node" if self.variant == "published" else "edge")) == "edge"

    def eta_i(self, i: int, k: int) -> float:
        """eta_i of node i at its answer k. Raises InputError if a list is too short."""
        if not isinstance(self.eta, Growth):
            return per_node(self.eta, i, "eta")
        growth = per_node(self.eta.growth, i, "eta.growth")
        return float(min(per_node(self.eta.start, i, "eta.start") * np.exp(min(k * np.log(growth), 500.0)), LARGEST))

    def step_ratio(self, L: Sequence[float], degree: int) -> float | None:
        """None: minimisers are stable for every penalty; of the even rounds no public bound is known."""
        return None

    def asks(self, mode: str = "") -> Question:
        return "minimiser" if self.variant != "none" else super().asks(mode)

    def curvature(self, i: int, k: int, neighbours: Sequence[int]) -> float:
        """2 sum_j eta_ij(k)."""
        eta = self.eta_i(i, k)
        return sum(eta + (self.eta_i(j, k) if self.of_edges else eta) for j in neighbours)

    @property
    def recorded_messages(self) -> tuple[str, ...]:
        return ("f",)

    def agent(self, context: NodeContext) -> Agent:
        return Agent(self, context.gate, context.size, context.name, context.neighbours, report=context.report)


class Recycled(Params, tag_field="name", tag="radmm", frozen=True, kw_only=True):
    """R-ADMM: MR-ADMM's keys; in the paper eta is one number."""

    title: ClassVar[str] = "recycled ADMM"


class Conventional(Params, tag_field="name", tag="admm", frozen=True, kw_only=True):
    """ADMM (8)-(9): an answer each round.

    Guarded it is Zhang and Zhu's dual variable perturbation at an honest price.
    """

    title: ClassVar[str] = "ADMM"
    recycles: ClassVar[bool] = False


def per_node(value: float | tuple[float, ...], i: int, key: str) -> float:
    """One number for all, or node i's of one a node. Raises InputError if there are too few."""
    if not isinstance(value, tuple):
        return value
    if i >= len(value):
        raise InputError(f"algorithm.{key}: found {len(value)} numbers, expected one for each node")
    return value[i]


# --- f, lam, v, d-vectors; eta (V,) of the edges; F (V, d) what the neighbours sent, sums in the order of their names
# ---


@kernel
def linear(f: Vector, lam: Vector, eta: Vector, F: Matrix) -> Vector:
    """v of (8), (12), (14): the sum there is <v, f> + sum_j eta_j |f|^2 and a constant, v = 2 lam - sum_j eta_j (f +
    f_j).
    """
    v = 2.0 * lam
    for j in range(F.shape[0]):
        v = v - eta[j] * (f + F[j])
    return v


@kernel
def disagreement(f: Vector, eta: Vector, F: Matrix) -> Vector:
    """sum_j eta_j (f - f_j): the dual step is half of it, (9), (13), (15)."""
    s = np.zeros_like(f)
    for j in range(F.shape[0]):
        s = s + eta[j] * (f - F[j])
    return s


@kernel
def recycled(f: Vector, lam: Vector, v: Vector, s: Vector, eta: float, gamma: float) -> Vector:
    """(10), (16), (19): f - (g + 2 lam + s)/(2 eta + gamma), g = -(v + 2 eta f) by KKT, eta = sum_j eta_j, s
    as above.
    """
    return f - (-(v + 2.0 * eta * f) + 2.0 * lam + s) / (2.0 * eta + gamma)


@dataclass(kw_only=True)
class AgentState(NeighbourState):
    lam: np.ndarray  #: (d,) lambda_i
    v: np.ndarray  #: (d,) the linear term of the last question: with the answer f, the public KKT right-hand side


class Agent(Neighbour):
    """Node `name` = n<i>. `size` = d. Raises InputError if eta is a list too short."""

    state: AgentState

    def __init__(
        self, params: Params, gate: Oracle, size: int, name: str, neighbours: Iterable[str], **rounds: Any
    ) -> None:
        super().__init__(name, neighbours, params.rounds, size, **rounds)
        self.params, self.gate = params, gate
        self.state = AgentState(lam=np.zeros(size), v=np.zeros(size))
        self.eta(1)

    def eta(self, k: int) -> Vector:
        """eta_ij(k) of the edges to the neighbours, or eta_i(k) on each of them; public. Shape (V,)."""
        p = self.params
        eta = p.eta_i(routes.index(self.name), k)
        others = [p.eta_i(routes.index(j), k) if p.of_edges else eta for j in self.neighbours]
        return (eta + np.array(others)) / 2.0

    def dual_step(self, k: int) -> Vector:
        """What multiplies the disagreement on each edge in the dual step. Shape (V,)."""
        return self.eta(k)

    def first(self) -> Vector:
        return self.answer(self.state.v, 1, np.zeros(self.size))

    def iterates(self) -> dict[str, Vector]:
        return {"x": self.state.last, "lam": self.state.lam}

    def step(self, t: int, message: Vector, others: dict[str, Vector]) -> Vector:
        s, p = self.state, self.params
        F = np.array([*others.values()]).reshape(-1, self.size)
        k = p.answer_of(t)
        lam, v, new = s.lam, s.v, message
        if p.answer_of(t - 1) < k:  # message t is an answer
            lam = lam + 0.5 * disagreement(message, self.dual_step(k), F)
        if t < self.messages and p.answer_of(t + 1) == k:
            eta = self.eta(k)
            new = recycled(message, lam, v, disagreement(message, eta, F), float(np.sum(eta)), p.gamma)
        elif t < self.messages:
            v = linear(message, lam, self.eta(k + 1), F)
            new = self.answer(v, k + 1, message)
        s.lam, s.v = lam, v
        return new

    def answer(self, v: Vector, k: int, f: Vector) -> Vector:
        """(8), (12), (14), (18): f_i of answer k, asked with the linear term v at the last f_i."""
        ask = self.gate.exact_minimizer if self.params.variant == "none" else self.gate.minimizer
        return ask(v, self.quadratic(k))

    def quadratic(self, k: int) -> float:
        """2 sum_j eta_ij(k): what the penalties add to the curvature of answer k."""
        return 2.0 * float(np.sum(self.eta(k)))


# --- Theorem IV.1 ---

LS = np.geomspace(1e-6, 1e6, 49)  #: the free constant L of (i) and (ii)
FEW = 9  #: answers of a growing eta that are looked at, the first and the last among them


def theorem(params: Params, graph: Graph, M: Sequence[float]) -> str:
    """What it says of this graph and these parameters, in words. M: as of `conditions`."""
    last = max(params.answers - 1, 1)
    grows = isinstance(params.eta, Growth)
    answers = sorted({round(k) for k in np.linspace(1, last, min(last, FEW))}) if grows else [1]
    if graph.bipartite:  # u'W (D + A) = 0 for a u, and with it all of (ii) but -D_M's term
        return "Theorem IV.1 promises nothing on a bipartite graph: (ii) fails for every eta and gamma"
    where = f" at {len(answers)} of {last} answers" if grows and len(answers) < last else ""
    if holds(params, graph, M, answers):
        return f"Theorem IV.1: its condition, (i) and (ii), is fulfilled by this graph, eta and gamma{where}"
    larger = (replace(params, gamma=10.0**k) for k in range(-3, 10) if 10.0**k > params.gamma)
    enough = next((one.gamma for one in larger if holds(one, graph, M, answers)), None)
    until = "no gamma up to 1e9 would fulfil it" if enough is None else f"gamma {enough:g} would fulfil it{where}"
    return f"Theorem IV.1: its condition, which is sufficient, fails for this graph, eta and gamma; {until}"


def holds(params: Params, graph: Graph, M: Sequence[float], answers: Sequence[int]) -> bool:
    """Whether (i) and (ii) of Theorem IV.1 are fulfilled at all these answers for one L > 0 and one mu > 1."""
    return any(_holds(params, graph, M, answers, L) for L in LS)


def _holds(params: Params, graph: Graph, M: Sequence[float], answers: Sequence[int], L: float) -> bool:
    mu = 1.0
    for k in answers:  # (ii) of each wants a larger one, (i) of each a smaller one
        if (least := _least_mu(_second(params, graph, k, L), M, L)) is None:
            return False
        mu = max(mu, least)
    return all(min(conditions(params, graph, M, k, L, mu)) > 0 for k in answers)


def conditions(
    params: Params, graph: Graph, M: Sequence[float], k: int, L: float, mu: float | None = None
) -> tuple[float, float]:
    """The smallest eigenvalues of left less right side in (i) and in (ii) of Theorem IV.1, from answer k to k + 1,
    that of (ii) less what rounding may have added.

    Of a matrix that is not symmetric its symmetric part counts. Penalties of edges take the place of W (D -+ A) by sums
    over edges. M (N,): Lipschitz constants of O(f, D_i)'s gradient. mu: None is the one that favours (i) most among
    those that (ii) allows, for (i) wants a small mu and (ii) a large one.
    """
    two = _second(params, graph, k, L)
    if mu is None:
        mu = _least_mu(two, M, L) or 2.0
    DM, half = np.diag(np.square(M)), L * mu / (2 * two.sigma)
    first = np.eye(graph.n) + _symmetric(two.recycled) - half * _symmetric(np.linalg.pinv(two.minus) @ DM)
    second = two.second - half / (mu - 1) * DM
    rounding = 8 * graph.n * np.finfo(float).eps * np.linalg.norm(two.plus, 2)
    return float(np.linalg.eigvalsh(first)[0]), float(np.linalg.eigvalsh(second)[0] - rounding)


class _Second(NamedTuple):
    """(ii) without D_M's term, and what it is made of. W (D -+ A) of answer k + 1; sigma: the least of D~."""

    minus: Matrix
    plus: Matrix
    recycled: Matrix  #: W (D + A) D~^-1
    second: Matrix
    sigma: float


def _second(params: Params, graph: Graph, k: int, L: float) -> _Second:
    (minus, plus), (before, _) = (_laplacians(params, graph, answer) for answer in (k + 1, k))
    D = 2 * np.diag(before) + params.gamma
    recycled = plus / D
    return _Second(minus, plus, recycled, _symmetric(plus - recycled @ (before + 2 / L * plus)), float(D.min()))


def _least_mu(two: _Second, M: Sequence[float], L: float) -> float | None:
    """The least mu that (ii) allows; None: it allows none."""
    half = np.diag(1 / np.asarray(M, np.float64))
    ratio = float(np.linalg.eigvalsh(half @ two.second @ half)[0]) * 2 * two.sigma / L * (1 - 1e-9)  # mu/(mu - 1)
    return ratio / (ratio - 1) if ratio > 1 else None


def _laplacians(params: Params, graph: Graph, k: int) -> tuple[Matrix, Matrix]:
    """W (D - A) and W (D + A) at answer k."""
    A = np.zeros((graph.n, graph.n))
    for i, neighbours in enumerate(graph.neighbours):
        eta = params.eta_i(i, k)
        for j in neighbours:
            A[i, j] = (eta + params.eta_i(j, k)) / 2 if params.of_edges else eta
    D = np.diag(A.sum(axis=1))
    return D - A, D + A


def _symmetric(X: Matrix) -> Matrix:
    return (X + X.T) / 2
