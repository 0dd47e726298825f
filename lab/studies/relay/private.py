"""The other half of `hushgrid study relay`: RECAL where the answers cost something (Sections V and VII of the paper).

Rings of 8 agents: made-up least squares (2000 rows of 22 features an agent), the UCI Adult sample, and ijcnn1 where
HUSHGRID_IJCNN1 says where it is. Three ways to pay: none; the published noise on u~, reading B, of which Theorem 4
claims epsilon; noise on clipped gradients at the gate. Of the last two the free parameters are the best of a grid, by
the error itself, which no run could see: optimistic, for both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from math import inf, log, nan, sqrt
from typing import Any, NamedTuple

import numpy as np

from hushgrid.kernels.algorithms import iadmm, recal
from hushgrid.kernels.graphs import Network
from hushgrid.kernels.privacy import accounting
from hushgrid.kernels.problems.losses import Loss
from hushgrid.kernels.randomness import counter_generator
from hushgrid.kernels.types import Matrix, Vector
from hushgrid.lab.attacks.recal import one_visit_late
from hushgrid.lab.attacks.transcript import Visit
from hushgrid.lab.rollout.compiled import recal as whole_recal
from hushgrid.lab.rollout.machines import AllowAll
from hushgrid.lab.rollout.machines import walk as hand_on
from hushgrid.lab.studies.common.study import (
    Exact,
    Page,
    Panel,
    Table,
    chart,
    nowhere,
    on_two,
    random_walk,
)
from hushgrid.lab.studies.problems.relay import AGENTS, MADE_UP, SENSORS, Problem, made_up, problems
from hushgrid.node.privacy.noise_source import SeededNoise
from hushgrid.node.privacy.terms import Terms
from hushgrid.node.problems.records.gate import RowsGate

ACTIVATIONS = 2400  #: the paper's, 300 for each agent on average
DELTA = 1e-3  #: the paper's
EPSILONS = (0.1, 1.0, 12.0)
CLAIMED = 12.0  #: epsilon of Tables IV and V
DECAYS = (1.0, 1.01, 1.02, 1.05)  #: R, the published noise's: the grid
VISITS = (5, 20, 60, 200)  #: T, answers of each agent: the grid
STEPS = (
    1.0,
    1.9,
)  #: alpha_i in units of 1/(L_i + 1): the grid, but for the published (1); of I-ADMM 1/rho in units of 1/L
CLIPS = (0.25, 1.0, 4.0)  #: c: the grid
SEEDS = 3
ALPHA = "α(L+1)"


# --- the three ways ---


def ring_walk(seed: int) -> list[int]:
    """The paper's: a random walk around the ring."""
    return random_walk(Network(kind="ring", nodes=AGENTS).build(), ACTIVATIONS, seed)


def walked(p: Problem, seed: int, noise: Matrix | None = None, step: float = 1.0) -> Matrix:
    """x after each of ACTIVATIONS activations of plain (no noise) or published RECAL, alpha_i = step/(L_i + 1)."""
    alpha = tuple(step / (L + 1) for L in p.L)
    variant: Any = "none" if noise is None else "published"
    agents = whole_recal.Agents(recal.Params(rounds=ACTIVATIONS, variant=variant, alpha=alpha), p.losses, p.regularizer)
    agents.x[:] = p.start()
    agents.y[:] = p.start()
    x: Matrix = agents.walk(ring_walk(seed), noise=noise, record=True)[:, 0]
    return x


def budget(epsilon: float, delta: float = DELTA) -> float:
    """rho of Theorem 4: epsilon = rho + 2 sqrt(rho ln(1/delta)), rho = sum_t rho_t."""
    known = log(1 / delta)
    return (sqrt(known + epsilon) - sqrt(known)) ** 2


def last_noise(p: Problem, epsilon: float) -> float:
    """The least standard deviation of the last noise that Theorem 4 allows, c = 1: all of the budget spent on it."""
    alpha, beta = 1 / (min(p.L) + 1), 1 / (2 * (len(p.losses) + 1))
    return alpha * beta * sqrt(8 / budget(epsilon))


def attenuated(last: float, R: float, PLF: int) -> Vector:
    """sigma_t (PLF,), sigma_t^2 = R sigma_{t+1}^2, of the budget that would allow `last` for one answer alone."""
    shares = np.exp(log(R) * np.arange(1 - PLF, 1))  # rho_t over the last one's
    sd: Vector = last * np.sqrt(shares.sum() / shares)
    return sd


def published_sd(p: Problem, epsilon: float, R: float, walk: Sequence[int]) -> Vector:
    """sigma (K,) of each activation: sigma_t^2 = R sigma_{t+1}^2, sum_t rho_t = budget for the agent asked most,

    rho_t = 8 (alpha beta c/sigma_t)^2, c = 1.
    """
    of_visit = attenuated(last_noise(p, epsilon), R, max(np.bincount(walk).tolist()))
    visit, each = [0] * len(p.losses), np.empty(len(walk))
    for k, i in enumerate(walk):
        each[k], visit[i] = of_visit[visit[i]], visit[i] + 1
    return each


def published_noise(p: Problem, epsilon: float, R: float, seed: int) -> Matrix:
    """eps^k (K, q) of DP-RECAL, of the ring walk of this seed."""
    sd = published_sd(p, epsilon, R, ring_walk(seed))
    return sd[:, None] * counter_generator(seed, "published", 0).normal(size=(sd.size, p.star.size))


def terms(epsilon: float, delta: float, answers: int, clip: float) -> Terms:
    """`answers` Gaussian answers that cost `epsilon` in all (GDP), one record replaced."""
    mu = accounting.calibrate("gdp", epsilon, delta, answers)
    return Terms(
        mechanism="gaussian",
        adjacency=f"replace-one-record, clip {clip:g}",
        beta=0.0,
        mode="objective",
        at="data",
        published=False,
        accountant="gdp",
        answers=answers,
        per_answer=mu,
        paper_epsilon=epsilon / answers,
        paper_delta=None,
        delta=delta,
        epsilon=epsilon,
        rounds=answers * AGENTS,
        capped=False,
        clip=clip,
    )


def guarded(p: Problem, method: str, t: Terms, step: float, seed: int) -> tuple[Matrix, float]:
    """(K, d) the token's x after each activation around the ring, and what the gates' spends cost in all."""
    n, d, K = len(p.losses), p.star.size, len(p.losses) * t.answers
    gates = [RowsGate(f"n{i}", f, t, SeededNoise(seed, f"n{i}"), AllowAll()) for i, f in enumerate(p.losses)]
    L = max(f.L for f in p.losses)
    agents: list[recal.Agent] | list[iadmm.Agent]
    if method == "RECAL":
        r = recal.Params(rounds=K, alpha=step / (L + 1))
        agents = [recal.Agent(r, g, p.regularizer, i, n, L, d, g.node, (), nowhere) for i, g in enumerate(gates)]
    else:
        a = iadmm.Params(rounds=K, rho=L / step)
        agents = [iadmm.Agent(a, g, n, d, g.node, (), nowhere) for g in gates]
    token = (np.zeros(d),) * len(agents[0].first)
    x = np.array([hop.token[0] for hop in hand_on(agents, [k % n for k in range(K)], token)])
    totals = accounting.Totals()
    for spend in gates[0].spends:
        totals.add(spend.event)
    return x, accounting.spent_epsilon("gdp", totals, t.delta)


# --- the tasks ---


class Ask(NamedTuple):
    """One line: a problem by its name, a way, its epsilon."""

    problem: str
    way: str  #: "none", "published", or a method's name: guarded
    epsilon: float


class PrivateResult(NamedTuple):
    ask: Ask
    claimed: float
    honest: float
    chosen: str
    plf: int
    error: float  #: the median over seeds
    accuracy: float
    noise: float  #: the least last sigma that Theorem 4 allows (published)
    zeros: float  #: the share of x* that is 0
    curve: Vector  #: of the first seed, after each activation


def every_setting() -> list[Ask]:
    """Tables IV and V without and with the published noise; then honest totals."""
    names = list(problems())
    published = [Ask(name, way, CLAIMED) for name in names[2:] for way in ("none", "published")]
    honest = [(MADE_UP, "RECAL"), (SENSORS, "RECAL"), (SENSORS, "I-ADMM")]
    honest += [(name, "RECAL") for name in names if name.endswith("least-squares, ridge")]
    return [*published, *(Ask(name, way, epsilon) for (name, way), epsilon in product(honest, EPSILONS))]


def measure(ask: Ask, visits: Sequence[int] = VISITS) -> PrivateResult:
    """The best of the way's grid, by the median of the error over seeds."""
    return best_of(problems()[ask.problem](), ask, visits)


def best_of(p: Problem, ask: Ask, visits: Sequence[int] = VISITS) -> PrivateResult:
    """The same of a problem that is at hand."""
    seeds, candidates = range(SEEDS), []
    if ask.way == "none":
        for step in STEPS:
            runs = [walked(p, seed, step=step) for seed in seeds]
            candidates.append(_line(p, ask, inf, inf, f"{ALPHA} = {step:g}", _plf(), runs))
    elif ask.way == "published":
        for R in DECAYS:
            runs = [walked(p, s, published_noise(p, ask.epsilon, R, s)) for s in seeds]
            candidates.append(_line(p, ask, ask.epsilon, inf, f"{ALPHA} = 1, R = {R:g}", _plf(), runs))
    else:
        name = ALPHA if ask.way == "RECAL" else "L/ρ"
        for T, step, c in product(visits, STEPS, CLIPS):
            t = terms(ask.epsilon, DELTA, T, c)
            outcomes = [guarded(p, ask.way, t, step, seed) for seed in seeds]
            chosen = f"{name} = {step:g}, T = {T}, c = {c:g}"
            candidates.append(_line(p, ask, ask.epsilon, outcomes[0][1], chosen, T, [x for x, _ in outcomes]))
    return min(candidates, key=lambda line: line.error)


def _plf() -> int:
    return int(np.median([np.bincount(ring_walk(seed)).max() for seed in range(SEEDS)]))


def _line(
    p: Problem, ask: Ask, claimed: float, honest: float, chosen: str, plf: int, runs: Sequence[Matrix]
) -> PrivateResult:
    error = float(np.median([p.error(x[-1]) for x in runs]))
    accuracy = float(np.median([p.accuracy(x[-1]) for x in runs]))
    noise = last_noise(p, ask.epsilon) if ask.way == "published" else nan
    zeros = float(np.mean(p.star == 0))
    return PrivateResult(
        ask, claimed, honest, chosen, plf, error, accuracy, noise, zeros, np.array([p.error(x) for x in runs[0]])
    )


# --- Finding 1.1: what the token tells ---


class Noisy(Exact):
    """An exact oracle whose `perturb` adds noise that was drawn before, in turn."""

    def __init__(self, loss: Loss, noise: Iterator[Vector]) -> None:
        super().__init__(loss)
        self.noise = noise

    def perturb(self, x: Vector) -> Vector:
        return x + next(self.noise)


def overheard(p: Problem, way: str, epsilon: float) -> Vector:
    """|gradient heard - gradient|/|gradient| of every visit but an agent's last, on a ring walk. r must be 0.

    By `hushgrid attack`'s own reading of the token.
    """
    walk, n, d = ring_walk(0)[:300], len(p.losses), p.star.size
    noise = published_noise(p, epsilon, 1.0, 0)
    most = max(np.bincount(walk).tolist())
    t = terms(epsilon, DELTA, most, 1.0)
    gates = [
        RowsGate(f"n{i}", f, t, SeededNoise(0, f"n{i}"), AllowAll())
        if way == "guarded"
        else Noisy(f, iter(noise[[k for k, holder in enumerate(walk) if holder == i]]))
        for i, f in enumerate(p.losses)
    ]
    params = recal.Params(rounds=len(walk), variant=way)  # type: ignore[arg-type]
    agents = [
        recal.Agent(params, g, p.regularizer, i, n, p.losses[i].L, d, f"n{i}", (), nowhere) for i, g in enumerate(gates)
    ]
    points: list[list[Vector]] = [[np.zeros(d)] for _ in agents]
    before: tuple[Vector, ...] = (np.zeros(d), np.zeros(d))
    visits = []
    for k, i, token in hand_on(agents, walk, before):
        visits.append(Visit(k, i, before, token, n))
        points[i].append(agents[i].state.y)
        before = token
    recovered = one_visit_late(visits, [a.alpha for a in agents], params.beta_n(n), p.regularizer, d)
    errors = []
    for i, triples in recovered.items():
        for y, (_, _, g) in zip(points[i], triples, strict=False):  # of the last question he hears no answer
            true = p.losses[i].gradient(y)
            errors.append(np.linalg.norm(g - true) / np.linalg.norm(true))
    return np.array(errors)


# --- the whole ---


def page(asks: Sequence[Ask] | None = None, visits: Sequence[int] = VISITS) -> Page:
    """Tables IV and V, honest totals, the leak."""
    work = partial(measure, visits=visits)
    lines = on_two(work, asks if asks is not None else every_setting(), lambda a: f"{a.problem}: {a.way} {a.epsilon:g}")
    paper = [line for line in lines if line.ask.way in ("none", "published")]
    honest = [line for line in lines if line not in paper]
    p = made_up()
    leaks = [
        (way, epsilon, float(np.median(errors)), float(errors.max()))
        for way, epsilon in (("none", inf), *product(("published", "guarded"), EPSILONS))
        for errors in [overheard(p, way, min(epsilon, CLAIMED))]
    ]
    tables = [
        Table(
            f"Tables IV and V again: a ring of {AGENTS}, {ACTIVATIONS} activations, δ = {DELTA:g}",
            (
                "problem",
                "zeros in x*",
                "noise",
                "ε claimed",
                "honest ε",
                "best",
                "PLF",
                "least last σ",
                "relative error",
            ),
            [
                (
                    li.ask.problem,
                    f"{li.zeros:.0%}",
                    li.ask.way,
                    li.claimed,
                    li.honest,
                    li.chosen,
                    li.plf,
                    li.noise,
                    li.error,
                )
                for li in paper
            ],
        ),
        Table(
            f"At honest totals: noise at the gate, around the ring, δ = {DELTA:g}",
            (
                "problem",
                "method",
                "ε asked",
                "ε by the gates' spends",
                "best",
                "PLF",
                "relative error",
                "test accuracy",
            ),
            [
                (li.ask.problem, li.ask.way, li.claimed, li.honest, li.chosen, li.plf, li.error, li.accuracy)
                for li in honest
            ],
        ),
        Table(
            "Finding 1.1: the gradients an eavesdropper reads off the token, relative error",
            ("noise", "ε claimed", "median", "worst"),
            leaks,
        ),
    ]
    return Page("relay-private", tables, {"relay-private.svg": picture(paper, honest)})


def picture(paper: Sequence[PrivateResult], honest: Sequence[PrivateResult]) -> str:
    """The error on its way, without noise and with the published; and what honest totals reach."""
    ways = {"none": "no noise", "published": f"published, ε = {CLAIMED:g} claimed"}
    names = list(dict.fromkeys(li.ask.problem for li in paper if li.ask.problem.split(", ")[1] == "least-squares"))
    rows = [
        [
            Panel(
                name,
                "activations",
                "relative error",
                {
                    ways[li.ask.way]: (np.arange(1.0, li.curve.size + 1), np.maximum(li.curve, 1e-17))
                    for li in paper
                    if li.ask.problem == name
                },
            )
            for name in names[k : k + 2]
        ]
        for k in range(0, len(names), 2)
    ]
    by_epsilon = {}
    for problem, way in dict.fromkeys((li.ask.problem, li.ask.way) for li in honest):
        same = [li for li in honest if (li.ask.problem, li.ask.way) == (problem, way)]
        by_epsilon[f"{way}: {problem}"] = np.array([li.claimed for li in same]), np.array([li.error for li in same])
    rows.append(
        [Panel("at honest totals", "ε of the whole run, an agent", "relative error", by_epsilon, xlog=True, marks=True)]
    )
    return chart("RECAL where answers cost something", rows)
