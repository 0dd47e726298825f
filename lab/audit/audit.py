"""A scenario's claim beside what games measure of it: `audited`.

What is measured is a lower bound: it can refute a claim and never confirms one. So beside it stands what a perfect
attack could have shown at most.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from hushgrid.broker.simulation.setup import setup_of
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.patterns.routes import index
from hushgrid.kernels.randomness import Entropy, counter_generator
from hushgrid.kernels.types import DocumentView
from hushgrid.lab.audit.answers import Answer
from hushgrid.lab.audit.canaries import Canary, of_loads, of_rows, typical_row
from hushgrid.lab.audit.games import Attack, Bound, Claim, play, power
from hushgrid.lab.audit.minimisers import of_minimisers
from hushgrid.lab.audit.sums import of_sums
from hushgrid.node.config.planning import make_plan
from hushgrid.node.config.scenario import Scenario, scenario_from
from hushgrid.node.privacy.terms import Terms
from hushgrid.node.problems.plan import RunPlan

GAMES = 100_000  #: about either data set, that are counted
DRAWS = 4_000_000  #: numbers of noise for these, at most, unless games are asked for
FEWEST = 2000
#: of what is measured. At 95 % one honest audit in twenty would refute its claim by chance.
SURE = 0.999
USUAL = 0.95  #: the confidence that is shown beside it: what papers state


class Measured(NamedTuple):
    """One pair of data sets, played."""

    canary: Canary
    attack: Attack
    bounds: dict[float, Bound]  #: by confidence
    counted: int  #: games about either data set


class AuditResult(NamedTuple):
    """An audit."""

    name: str
    node: str
    plan: RunPlan
    terms: Terms
    claim: Claim
    confidence: float
    worst: Measured
    typical: Measured | None
    power: float  #: what a perfect attack could have shown at most
    expected: float  #: what it shows in the middle
    seconds: float

    @property
    def above(self) -> bool:
        """Whether more is measured than is claimed: the claim is refuted, but for a chance of 1 - `confidence`."""
        return self.worst.bounds[self.confidence].epsilon > self.claim.epsilon


def audited(
    raw: DocumentView,
    file: str = "scenario",
    *,
    games: int | None = None,
    confidence: float = SURE,
    also: float = USUAL,
    node: str | None = None,
    at_site: bool = False,
    base: Path | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> AuditResult:
    """The games of one node's gate. Raises InputError, one line.

    games: about either data set, counted; as many choose the attack. also: a second confidence, of which nothing
    follows. node: [the first]. at_site: of two levels, what its site's coordinator sees. base: where paths begin.
    """
    begun = time.perf_counter()
    scenario = scenario_from(dict(raw), file, *(() if base is None else (base,)))
    setup, plan = prepared(scenario, file)
    name = node or plan.nodes[0]
    if name not in plan.nodes:
        raise InputError(f"--node: found {name}, expected one of {plan.nodes[0]}..{plan.nodes[-1]}")
    t = terms_of(plan, name, file)
    if at_site:
        t = _at_site(t, file)
    claim = Claim(t.epsilon, t.delta, t.mechanism == "gaussian")
    say(f"{plan.name}: looking for the pair of data sets that differs most")
    worst, aside, typical = pairs(plan, name, setup)
    if at_site:
        worst, typical = seen_by(worst, t), typical and seen_by(typical, t)
    width = max(1, worst.answers[0].apart.size)
    N = games or int(max(FEWEST, min(GAMES, DRAWS / (width * t.answers))))
    confidences = tuple(dict.fromkeys((confidence, also)))
    entropy = entropy_of(scenario)
    say(f"{plan.name}: {4 * N:,} games of {t.answers} answers")
    measured = Measured(worst, *play(worst.answers, aside, claim, N, confidences, entropy))
    usual = None
    if typical is not None:
        fewer = min(N, int(max(FEWEST, DRAWS / (4 * max(1, typical.answers[0].apart.size) * t.answers))))
        usual = Measured(typical, *play(typical.answers, [], claim, fewer, confidences, entropy))
    most = power(t.mechanism, t.per_answer, t.answers, claim, N, 1 - confidence)
    return AuditResult(plan.name, name, plan, t, claim, confidence, measured, usual, *most, time.perf_counter() - begun)


def prepared(scenario: Scenario, file: str) -> tuple[Any, RunPlan]:
    """The nodes with their data (None where these are on devices), and the plan."""
    if getattr(getattr(scenario.problem, "data", None), "devices", None) is not None:
        return None, make_plan(scenario, scenario.kind.public(scenario, file), file)
    setup = setup_of(scenario.kind)(scenario, file)  # type: ignore[arg-type]
    return setup, setup.plan


def terms_of(plan: RunPlan, node: str, file: str) -> Terms:
    """The terms that are audited. Raises InputError where there is no claim, or none that games at a gate are about."""
    t, algorithm = plan.terms_of(node), plan.algorithm
    if t is None:
        hint = " (what its messages tell: hushgrid attack RUN_DIR)" if algorithm.variant == "published" else ""
        raise InputError(
            f"{file}: algorithm.variant: found {algorithm.variant}, expected a run that claims an epsilon{hint}"
        )
    if t.published and (algorithm.pattern != "star" or t.mode.startswith("output")):
        raise InputError(
            f"{file}: algorithm.variant: found published "
            f"{algorithm.name}{f', mode {t.mode}' if t.mode != 'objective' else ''}, "
            "whose noise stands on messages, expected guarded (what its messages tell: hushgrid attack RUN_DIR)"
        )
    return t


def _at_site(t: Terms, file: str) -> Terms:
    """The same against the own site's coordinator, who sees the sum of its site: h_s shares. Raises InputError without
    sites.
    """
    if t.masked is None or not t.masked.site:
        raise InputError(f"{file}: privacy.masked.sites: found none, expected sites (--at-site)")
    return t.relying_on(t.masked.site)


def seen_by(canary: Canary, t: Terms) -> Canary:
    """The same pair in sums of so many honest shares as these terms count."""
    assert t.masked is not None
    each = {id(a): a.of_shares(t.masked.honest) for a in canary.answers}  # type: ignore[attr-defined]
    return canary._replace(answers=[each[id(a)] for a in canary.answers])


def pairs(plan: RunPlan, node: str, setup: Any) -> tuple[Canary, list[Answer], Canary | None]:
    """The worst pair, a pair for attacks on the noise, and a typical one if the data are here."""
    if plan.problem.kind == "zones":
        from hushgrid.node.problems.power_flow.device import loss_of

        public = setup.public_loss(node)
        contracts = setup.device(node).contracts
        return of_loads(
            plan,
            node,
            public,
            lambda d: loss_of(public.model, d, plan.problem, plan.terms, contracts, base_mva=setup.case.base_mva),
        )
    if plan.algorithm.asks() == "statistic":
        shard = setup.shards[index(node)] if setup is not None else None
        farthest, typical = of_sums(plan, node, shard)
        return farthest, [], typical
    if plan.algorithm.asks() == "minimiser":
        return of_minimisers(plan, node), [], None
    worst, aside = of_rows(plan, node)
    return worst, aside, typical_row(plan, node, setup.shards[index(node)]) if setup is not None else None


def entropy_of(scenario: Scenario) -> Entropy:
    """The operating system's, or of a seeded scenario a stream of its own: the same games again."""
    if scenario.seed is None:
        return os.urandom
    return counter_generator(scenario.seed, "audit", 0).bytes
