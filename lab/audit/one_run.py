"""A whole run audited by itself: thousands of canaries, each in one of two forms by a fair coin, guessed from the
transcript.

T. Steinke, M. Nasr, M. Jagielski, Privacy auditing with one (1) training run (2023). The audited node's rows are
canaries, one a feature: row j is R e_j, and the coin chooses its label, so that either form is the other with one
record replaced. All other nodes have rows of zeros. The run is made by the devices' own program, in this process or as
daemons through a real broker. The auditor reads the transcript and the plan alone: `replay` finds the gate's answers,
and the log-likelihood ratio of coordinate j says which form canary j had. How many of the surest guesses are made is
fixed beforehand, by what the claimed noise lets expect. Nothing is read of the scenario's data.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hushgrid.broker.simulation.front import run
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.graphs import Network
from hushgrid.kernels.privacy import auditing
from hushgrid.kernels.privacy.accounting import gdp_epsilon
from hushgrid.kernels.privacy.noise import simulated
from hushgrid.kernels.problems.losses import Loss
from hushgrid.kernels.types import Document, DocumentView, Matrix, Vector
from hushgrid.lab.attacks.transcript import parse
from hushgrid.lab.audit.audit import SURE, terms_of
from hushgrid.lab.audit.games import Claim
from hushgrid.lab.audit.replay import GateAnswer, replayed
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.privacy.terms import Terms
from hushgrid.node.problems.plan import RunPlan
from hushgrid.node.problems.records.gate import lattice_of, order_of

CANARIES = 4000
SHARES = (
    1 / 40,
    1 / 20,
    3 / 40,
    1 / 10,
    3 / 20,
    1 / 5,
    1 / 4,
    3 / 10,
    2 / 5,
    7 / 10,
    1.0,
)  #: of the canaries that may be guessed

DRAWN = 100  #: runs that are imagined to choose how many guesses are made
UNLUCKY = 0.1  #: share of runs that may show less than the one that the choice is for
ZEROS = 1 << 23  #: numbers in the other nodes' rows of zeros, about: the more rows, the less noise they bring in
STRONG = 1e6  #: a label of least squares: no margin comes near it, and the canary pulls with all its strength


class OneRun(NamedTuple):
    """What one run shows."""

    name: str
    node: str
    plan: RunPlan
    terms: Terms
    claim: Claim
    confidence: float
    canaries: int
    guesses: int  #: fixed beforehand
    right: int  #: of these
    seen: int  #: answers that the transcript told
    epsilon: float  #: lower bound at the claim's delta
    mu: float | None  #: the same of GDP, of Gaussian answers
    plain: float  #: epsilon by the theorem for any mechanism
    power: float  #: what exactly the claimed noise lets expect
    share: float  #: of mu (Laplace: of epsilon) that this is: more of the claim cannot be shown with so many canaries
    transport: str
    seconds: float

    @property
    def above(self) -> bool:
        return self.epsilon > self.claim.epsilon


def one_run(
    raw: DocumentView,
    file: str = "scenario",
    *,
    canaries: int = CANARIES,
    confidence: float = SURE,
    node: str | None = None,
    transport: str = "mqtt",
    broker: str = "auto",
    base: Path | None = None,
    coins: np.random.Generator | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> OneRun:
    """One run with canaries, and what its transcript proves. Raises InputError, Refused, Stopped.

    coins: which form each canary has [the operating system's].
    """
    begun = time.perf_counter()
    signs = (coins or np.random.default_rng()).integers(0, 2, canaries).astype(np.float64) * 2 - 1
    made, rows, i = with_canaries(raw, file, signs, node, base)
    say(f"{made.get('name', '')}: {canaries:,} canaries, one run over {transport}")
    result = run(made, transport, data=rows, broker=broker, file=file)
    assert result.transcript is not None
    listened = parse(result.transcript, file)
    plan, name = listened.plan, listened.nodes[i]
    t = terms_of(plan, name, file)
    claim = Claim(t.epsilon, t.delta, t.mechanism == "gaussian")
    gate_answers = replayed(listened, name)
    ratios = ratios_of(plan, i, t, gate_answers, canaries)
    doubt = 1 - confidence
    guesses, power, share = beforehand(t, claim, canaries, doubt)
    sure = np.argsort(-np.abs(np.round(ratios, 9)), kind="stable")[:guesses]
    right = int(np.sum(np.where(ratios >= 0, 1, -1)[sure] == signs[sure]))
    epsilon, mu, plain = proved(claim, canaries, guesses, right, doubt)
    seconds = time.perf_counter() - begun
    return OneRun(
        plan.name,
        name,
        plan,
        t,
        claim,
        confidence,
        canaries,
        guesses,
        right,
        len(gate_answers),
        epsilon,
        mu,
        plain,
        power,
        share,
        transport,
        seconds,
    )


def again_at_the_gate(first: OneRun, coins: Iterator[np.random.Generator]) -> Iterator[tuple[float, Vector]]:
    """Further runs like `first`, without their fleet: (the bound, which guesses were right, the surest first), a run a
    stream.

    The gate's own clip, grid, sampler and release, the bounds and the number of guesses are those of `one_run`, and as
    many answers as its transcript told. Left out is what travels. That is the same for least squares alone, where a
    canary pulls with all its strength at every point, so that every answer is about the same gradient. Raises
    ValueError for another loss.
    """
    p, t, m = first.plan.problem, first.terms, first.canaries
    if p.objective.kind != "least-squares":
        raise ValueError(f"found {p.objective.kind}, expected least-squares")
    objective = p.node_objective(first.plan.nodes.index(first.node))
    rows, zero = np.diag(np.full(m, p.row_bound)), np.zeros(m)
    forms = [Loss(objective, rows, labels(p.objective.kind, s * np.ones(m)), 1, p.row_bound) for s in (1.0, -1.0)]
    lattice = lattice_of(first.node, forms[0], t)
    assert lattice is not None
    one, other = (form.clipped_gradient(zero, t.clip, order_of(t)) for form in forms)
    for dice in coins:
        signs = dice.integers(0, 2, m) * 2 - 1
        v, ratios = np.where(signs > 0, one, other), np.zeros(m)
        for _ in range(first.seen):
            y = lattice.release(v, lattice.sample(m, dice.bytes))
            if t.mechanism == "laplace":
                ratios += (np.abs(y - other) - np.abs(y - one)) / lattice.scale
            else:
                ratios += (y - (one + other) / 2) * (one - other) / lattice.scale**2
        sure = np.argsort(-np.abs(np.round(ratios, 9)), kind="stable")
        right = (np.where(ratios >= 0, 1, -1) == signs)[sure]
        yield proved(first.claim, m, first.guesses, int(right[: first.guesses].sum()), 1 - first.confidence)[0], right


def with_canaries(
    raw: DocumentView, file: str, signs: Vector, node: str | None, base: Path | None
) -> tuple[Document, list[tuple[Matrix, Vector]], int]:
    """The scenario over canaries, every node's rows, and the audited node's number. Raises InputError."""
    made = deepcopy(dict(raw))
    scenario = scenario_from(deepcopy(made), file, *(() if base is None else (base,)))
    p = scenario.privacy
    if not scenario.kind.records or not hasattr(scenario.problem, "data"):
        raise InputError(
            f"{file}: problem.kind: found {scenario.problem.__struct_config__.tag}, expected rows of data (--one-run)"
        )
    if p is None or p.adjacency.replace_one_record is None or p.adjacency.records != 1:
        adjacency = p.adjacency if p is not None else "no privacy"
        raise InputError(f"{file}: privacy.adjacency: found {adjacency}, expected replace-one-record (--one-run)")
    if scenario.algorithm.asks(p.mode) != "gradient" or scenario.algorithm.variant != "guarded":
        raise InputError(
            f"{file}: algorithm: found {scenario.algorithm.variant} {scenario.algorithm.name}, expected a guarded "
            "algorithm that asks for gradients (--one-run)"
        )
    if p.masked:
        raise InputError(f"{file}: privacy.masked: found a section, expected none (--one-run reads single answers)")
    n = nodes_of(scenario.network, scenario.problem.data, file)
    names = [f"n{i}" for i in range(n)]
    if node is not None and node not in names:
        raise InputError(f"--node: found {node}, expected one of n0..n{n - 1}")
    i, m = names.index(node) if node else 0, signs.size
    problem = made["problem"]
    R, kind = scenario.problem.row_bound or 1.0, scenario.problem.kind
    problem.pop("test", None)
    problem.pop("data", None)
    problem["row_bound"] = R
    beside = int(np.clip(ZEROS // (m * max(n - 1, 1)), 1, m))
    zero = np.zeros((beside, m)), np.full(beside, 0.0 if kind != "logistic" else 1.0)
    rows = [zero] * n
    rows[i] = np.diag(np.full(m, R)), labels(kind, signs)
    made["run"] = {k: v for k, v in made.get("run", {}).items() if k == "stop"} | {"record": "transcript"}
    made.get("privacy", {}).pop("budget", None)
    return made, rows, i


def nodes_of(network: Network | None, data: Any, file: str) -> int:
    """How many nodes the scenario has, by its public numbers. Raises InputError if they do not say."""
    n = network.build().n if network is not None else data.nodes or (len(data.files) if data.files else None)
    if n is None:
        raise InputError(f"{file}: problem.data.nodes: missing, expected the number of nodes")
    return int(n)


def labels(kind: str, signs: Vector) -> Vector:
    """(m,): of least squares far from every margin, so that a canary pulls with all its strength all along."""
    if kind == "softmax":
        return (signs + 1) / 2
    return signs * (STRONG if kind == "least-squares" else 1.0)


def ratios_of(plan: RunPlan, i: int, t: Terms, gate_answers: list[GateAnswer], m: int) -> Vector:
    """(m,): log of how much likelier the answers are if a canary's coin was +1, each from its own feature's
    coordinates.
    """
    p = plan.problem
    rows = np.diag(np.full(m, p.row_bound))
    forms = [
        Loss(p.node_objective(i), rows, labels(p.objective.kind, s * np.ones(m)), p.classes, p.row_bound)
        for s in (1.0, -1.0)
    ]
    total = np.zeros(m)
    for k, (x, answer) in enumerate(gate_answers, start=1):
        lattice = lattice_of(plan.nodes[i], forms[0], t, k if t.growth != 1 else 1)
        assert lattice is not None
        y = answer - forms[0].public_gradient(x)
        one, other = (form.clipped_gradient(x, t.clip, order_of(t)) for form in forms)
        if t.mechanism == "laplace":
            each = (np.abs(y - other) - np.abs(y - one)) / lattice.scale
        else:
            each = (y - (one + other) / 2) * (one - other) / lattice.scale**2
        total += np.nansum(each.reshape(-1, m), axis=0)
    return total


def proved(claim: Claim, canaries: int, guesses: int, right: int, doubt: float) -> tuple[float, float | None, float]:
    """(epsilon, mu, epsilon by the theorem for any mechanism)."""
    plain = auditing.one_run_epsilon(canaries, guesses, right, claim.delta, doubt)
    if not claim.gaussian:
        return plain, None, plain
    mu = auditing.one_run_mu(canaries, guesses, right, doubt)
    return (float(gdp_epsilon(mu, claim.delta)) if mu > 1e-9 else 0.0), mu, plain


def beforehand(t: Terms, claim: Claim, canaries: int, doubt: float) -> tuple[int, float, float]:
    """How many of the surest guesses are made, for canaries that move all that a record may; the bound to expect then.

    The bound is an epsilon at the claim's delta, and beside it the share of the claimed mu that it is (Laplace: of
    epsilon). The number is the best one for an unlucky run: more guesses show a little less in the middle and vary
    less.
    """
    dice, drawn = np.random.Generator(np.random.Philox(key=4)), []
    for _ in range(DRAWN):
        ratios = np.zeros(canaries)
        if t.mechanism == "gaussian":
            mu = t.per_answer * t.answers**0.5
            ratios = mu**2 / 2 + mu * dice.normal(size=canaries)
        else:
            for _ in range(t.answers):
                x = simulated("laplace", 1 / t.per_answer, canaries, dice)
                ratios += t.per_answer * (np.abs(x + 1) - np.abs(x))
        drawn.append((ratios >= 0)[np.argsort(-np.abs(ratios), kind="stable")])
    best = (max(1, canaries // 10), 0.0)
    for share in SHARES:
        r = max(1, round(share * canaries))
        unlucky = int(np.quantile([np.sum(right[:r]) for right in drawn], UNLUCKY))
        bound = proved(claim, canaries, r, unlucky, doubt)[0]
        if bound > best[1]:
            best = r, bound
    middle = round(float(np.mean([np.sum(right[: best[0]]) for right in drawn])))
    epsilon, mu, _ = proved(claim, canaries, best[0], middle, doubt)
    share = epsilon / claim.epsilon if mu is None else mu / (t.per_answer * t.answers**0.5)
    return best[0], epsilon, share
