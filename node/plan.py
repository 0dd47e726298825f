"""The plan of a run: every public fact the members must agree on, and what it promises about privacy.

The coordinator publishes a plan, a device computes from it, by the same code, what it is asked to reveal; nothing in
the plan is a measured or a private quantity.
"""

from __future__ import annotations

from bisect import bisect_right
from math import inf
from typing import Literal

import msgspec
from msgspec import Struct

from hushgrid.kernels import accounting, ladmm
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.graphs import Graph, check_walk
from hushgrid.kernels.losses import Objective
from hushgrid.kernels.prox import Regularizer
from hushgrid.kernels.routes import name, visits
from hushgrid.node.config import Privacy, Scenario, Stop, check_privacy
from hushgrid.node.problem import Algorithm, Penalized, Walking, answered

#: Why a published privacy claim does not hold, by the readings of the paper.
FINDINGS = {
    "objective": "ladmm 6.1: the gradient moves by 2 beta a_i, not 2 beta; the noise is scaled to an L1 (L2) sensitivity "
    "up to 5 (2.24) times too small in case14, 13 (3.6) in case118, and is drawn in floating point",
    "recal": "recal 1.1: the token carries y_i one visit late without noise; an eavesdropper gets every gradient from it",
    "dpp2": "dpp2 4.1-4.5: eta hides nothing from the nodes, the sum of Theorem 3 lacks its first term, the final x has no noise",
    "mradmm": "mradmm 5.1: the paper's penalties of nodes lead to a wrong point (argmin sum O_i/eta_i), whatever is spent",
    "diadsp": "diadsp: reconstructed; its noise decays and is drawn in floating point, no epsilon is counted",
    "ppdc": "ppdc: reconstructed; its noise decays and is drawn in floating point, no epsilon is counted",
    "iadmm": "iadmm 3.1: the token's differences tell x_i - y_i/rho; gradients follow from them. Obfuscation, no epsilon",
    "output": "ladmm 6.1: the sensitivity beta of the projected step is not derived, and the noise is drawn in floating point",
}


class ZonesPlan(Struct, tag_field="kind", tag="zones", frozen=True, forbid_unknown_fields=True):
    """The public part of a zones problem."""

    case: str  #: the case's own name
    digest: str  #: of the case without its loads
    zones: dict[str, list[int]]
    L: float  #: 2 lambda_max(A_z A_z^T), the largest over the zones

    @property
    def kind(self) -> str:
        return "zones"

    @property
    def nodes(self) -> list[str]:
        return sorted(self.zones)


class DataPlan(Struct, tag_field="kind", tag="data", frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The public part of a data problem; node i of the network is called n<i>."""

    objective: Objective
    l1: float
    l2: float
    box: float | None
    row_bound: float | None
    features: int  #: q
    classes: int  #: C of softmax, else 1
    rows: list[int]  #: m_i
    L: list[float]  #: L_i: of the row bound, or (variant none, where nothing is private) of the largest row
    edges: list[tuple[int, int]]
    route: list[int]  #: the closed walk to repeat, from node 0; empty for a random and for a given walk
    route_is: Literal["random", "given", "hamiltonian", "closed-walk", "rounds"]
    walk_seed: int | None  #: of a seeded run; else a random walk is a function of the run's id
    digest: str = ""  #: rows have no public part but what stands here

    @property
    def kind(self) -> str:
        return "data"

    @property
    def nodes(self) -> list[str]:
        return [name(i) for i in range(len(self.rows))]

    @property
    def graph(self) -> Graph:
        return Graph.of(len(self.rows), self.edges)

    @property
    def size(self) -> int:
        """d, the length of x."""
        return self.features * self.classes

    @property
    def regularizer(self) -> Regularizer:
        return Regularizer(l1=self.l1, l2=self.l2, box=self.box or inf)

    def visits(self, algorithm: Algorithm) -> int:
        """Activations that a node is to answer: of the node that has most, by the cap's rule for a random walk."""
        if not isinstance(algorithm, Walking):
            return 0
        given = () if isinstance(algorithm.walk, str) else algorithm.walk
        return visits(len(self.rows), given or self.route, algorithm.rounds)

    def check(self, algorithm: Algorithm) -> None:
        """InputError unless its parts belong together: a device computes with them, whoever wrote them."""
        n, graph, route = len(self.rows), self.graph, self.route
        shape = (len(self.L), min(self.rows) > 0, self.features > 0, self.classes > 0, min(self.L, default=0.0) >= 0)
        if shape != (n, True, True, True, True) or (self.classes > 1) != (self.objective.kind == "softmax"):
            raise InputError("plan: found numbers of rows, features, classes or L that do not fit, expected a problem")
        _ = self.regularizer
        if not isinstance(algorithm, Walking):
            return
        if not isinstance(algorithm.walk, str):
            check_walk(graph, algorithm.walk, algorithm.rounds)
        elif (algorithm.walk == "hamiltonian") != bool(route) or (route and set(route) != set(range(n))):
            raise InputError(
                f"plan: route: found {len(route)} nodes, expected a closed walk (algorithm.walk: hamiltonian)"
            )
        elif route:
            check_walk(graph, (*route, route[0]), len(route), "plan: route")


class RunPlan(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a member stores when it joins; its bytes are part of the run's id."""

    format: Literal[1] = 1
    name: str
    problem: ZonesPlan | DataPlan
    algorithm: Algorithm
    privacy: Privacy | None
    stop: Stop | None

    @property
    def nodes(self) -> list[str]:
        return self.problem.nodes

    @property
    def terms(self) -> Terms | None:
        """What the plan asks of each node's gate; None without privacy."""
        visits = self.problem.visits(self.algorithm) if isinstance(self.problem, DataPlan) else 0
        return terms(self.privacy, self.algorithm, visits)


def encode_plan(plan: RunPlan) -> bytes:
    return msgspec.json.encode(plan, order="deterministic")


def decode_plan(blob: bytes) -> RunPlan:
    """The plan in its bytes; InputError where it is not one, or where its privacy section contradicts itself."""
    try:
        plan = msgspec.json.decode(blob, type=RunPlan)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InputError(f"plan: {str(error)[:200]}, expected a plan of format 1") from None
    check_privacy(plan.privacy, plan.algorithm, "plan")
    problem, name = plan.problem, plan.algorithm.name
    if isinstance(problem, DataPlan) == isinstance(plan.algorithm, ladmm.Params):
        raise InputError(f"plan: algorithm.name: found {name}, expected one for a problem of kind {problem.kind}")
    if isinstance(problem, DataPlan):
        problem.check(plan.algorithm)
    return plan


class Terms(Struct, frozen=True):
    """What a plan asks of each node's gate, resolved: how it answers, how often at most, and what all of it costs."""

    mechanism: Literal["laplace", "gaussian"]
    adjacency: str
    beta: float  #: bounded change, p.u.
    mode: Literal["objective", "input", "output", "output-projected"]
    at: Literal["data", "gradient"]
    published: bool  #: the noise stands where the paper puts it, not at the gate
    accountant: str
    answers: int  #: the cap
    per_answer: float  #: epsilon (laplace) or mu (gaussian) of one answer
    paper_epsilon: float  #: the per-answer epsilon the paper's scales and (E.1) are written in
    paper_delta: float | None
    delta: float  #: of the whole run; 0 for pure epsilon
    epsilon: float  #: claimed for the whole run
    rounds: int  #: after which the run ends, the first cap being reached
    capped: bool
    clip: float = 0.0  #: c, where the adjacency is replace-one-record
    step: float = 0.0  #: alpha beta, alpha the largest alpha_i: published DP-RECAL's Lemma 5
    decay: float = 1.0  #: R >= 1, sigma_k^2 = R sigma_{k+1}^2: its noise, answer by answer

    @property
    def event(self) -> accounting.Event:
        return (
            accounting.Laplace(self.per_answer) if self.mechanism == "laplace" else accounting.Gaussian(self.per_answer)
        )

    def cost(self, answers: int) -> float:
        """Epsilon of this many answers, at the run's delta, by the run's accountant."""
        if answers == 0:
            return 0.0
        return accounting.claimed_epsilon(self.accountant, self.per_answer, answers, self.delta)


def terms(privacy: Privacy | None, algorithm: Algorithm, visits: int = 0) -> Terms | None:
    """The terms of a plan; None without privacy (variant none). `visits`: activations to answer, where a baton walks."""
    if privacy is None or algorithm.variant == "none":
        return None
    p, rounds = privacy, algorithm.rounds
    if isinstance(algorithm, ladmm.Params):
        E = algorithm.local_updates
        needed = 1 if p.mode == "input" else algorithm.answers
        answers = min(p.answers or needed, needed)
        if answers > ladmm.MOST:
            raise InputError(
                f"algorithm.rounds: found {rounds} with {E} local_updates, expected at most {ladmm.MOST} answers"
            )
        rounds = rounds if p.mode == "input" else min(rounds, answers // E)
        if rounds < 1:
            raise InputError(f"privacy.answers: found {p.answers}, expected at least local_updates = {E}, one round")
    elif isinstance(algorithm, Walking):
        # Of a random walk nobody knows before how often it visits a node; beyond the cap the token goes on unchanged.
        answers = min(p.answers or visits, rounds if algorithm.walk == "random" else visits)
    else:  # synchronous rounds end with the one in which the cap is reached
        answers = max(min(p.answers or algorithm.answers, algorithm.answers), 1)
        rounds = bisect_right(range(1, rounds + 1), answers, key=lambda k: answered(algorithm, k))
    accountant = p.accountant or ("zcdp" if p.mechanism == "gaussian" else "pure-basic")
    delta = p.delta or (p.per_answer.delta if p.per_answer else None) or 0.0
    if p.per_answer:
        per_answer = p.per_answer.epsilon
        if p.mechanism == "gaussian":
            sigma = accounting.per_answer_paper("gaussian", p.per_answer.epsilon, p.per_answer.delta, 1.0)
            per_answer = 1.0 / sigma
    else:
        assert p.epsilon is not None
        per_answer = accounting.calibrate(accountant, p.epsilon, delta, answers)
    paper_epsilon = p.per_answer.epsilon if p.per_answer else (p.epsilon or inf) / answers
    t = Terms(
        mechanism=p.mechanism, adjacency=str(p.adjacency), beta=p.adjacency.bounded_change or 0.0, mode=p.mode, at=p.at,
        published=algorithm.variant == "published" and algorithm.name in ("ladmm", "recal"), accountant=accountant, answers=answers, per_answer=per_answer,
        paper_epsilon=paper_epsilon, paper_delta=p.per_answer.delta if p.per_answer else p.delta, delta=delta, epsilon=0.0,
        rounds=rounds, capped=rounds < algorithm.rounds,
        clip=p.adjacency.replace_one_record.clip if p.adjacency.replace_one_record else 0.0,
    )  # fmt: skip
    return msgspec.structs.replace(t, epsilon=p.epsilon if p.epsilon is not None else t.cost(answers))


def resolved(scenario: Scenario, t: Terms | None) -> Scenario:
    """The scenario with what its privacy section leaves to the program filled in."""
    if t is None or scenario.privacy is None:
        return scenario
    privacy = msgspec.structs.replace(scenario.privacy, accountant=t.accountant, answers=t.answers)
    return msgspec.structs.replace(scenario, privacy=privacy)


def findings(plan: RunPlan) -> list[str]:
    """Why the claim of a published variant is not upheld; nothing for the others."""
    if plan.algorithm.variant != "published":
        return []
    if isinstance(plan.problem, DataPlan):
        name = "mradmm" if isinstance(plan.algorithm, Penalized) else plan.algorithm.name
        return [FINDINGS["iadmm" if name == "wadmm" else name]]
    return [FINDINGS["output" if plan.privacy and plan.privacy.mode.startswith("output") else "objective"]]
