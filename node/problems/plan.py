"""The plan of a run: every public fact the members must agree on, and what it promises about privacy.

The coordinator publishes a plan, a device computes from it, by the same code, what it is asked to reveal; nothing in
the plan is a measured or a private quantity.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, cached_property, lru_cache
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from hushgrid.kernels.algorithms import registry
from hushgrid.kernels.algorithms.base import Walk, walk_of
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.patterns.sites import dealt
from hushgrid.kernels.ranges import Seconds, Title
from hushgrid.node.privacy.terms import Terms, check_privacy, terms
from hushgrid.node.problems.kind import Kind
from hushgrid.node.problems.registry import KINDS, AnyPublic
from hushgrid.node.schema.sections import Privacy, Question, Stop

DIGEST = re.compile(r"[0-9a-f]{64}\Z")  #: SHA-256


class RunPlan(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, dict=True):
    """What a member stores when it joins; its bytes are part of the run's id."""

    format: Literal[1] = 1
    name: Title
    problem: AnyPublic
    algorithm: registry.AnyAlgorithm
    privacy: Privacy | None
    stop: Stop | None
    #: Of runs that begin by themselves. Not in the bytes that travel: an older peer refuses a plan with a key it lacks.
    interval: Seconds | UnsetType = UNSET

    @property
    def every(self) -> float | None:
        """The next run of this kind begins so many seconds after this one; None: by no schedule."""
        return None if self.interval is UNSET else self.interval

    @cached_property
    def nodes(self) -> list[str]:
        nodes: list[str] = self.problem.nodes
        return nodes

    @cached_property
    def terms(self) -> Terms | None:
        """What the plan asks of the node's gate that may answer most; None without privacy."""
        if self.privacy is None:
            return None
        demands = [self._asked(i) for i in range(len(self._visits))]
        return self._terms(
            max(demands, key=lambda demand: min(demand[0] or demand[1], demand[1]), default=(self._stated, 0))
        )

    @cached_property
    def sites(self) -> dict[str, list[str]]:
        """The nodes of each site, by its name, of a run in two levels; {} of one level."""
        masked = self.terms.masked if self.terms else None
        if masked and masked.sites:
            return dict(dealt(self.nodes, masked.sites.sizes))
        return self.kind.sites(self.problem)

    @property
    def parties(self) -> list[str]:
        """Who takes part in the run of the fleet's coordinator: the sites, or all nodes."""
        return list(self.sites) or self.nodes

    @cached_property
    def site_of(self) -> dict[str, str]:
        """The site of each node; {} without sites."""
        return {node: site for site, nodes in self.sites.items() for node in nodes}

    def terms_of(self, node: str) -> Terms | None:
        """What the plan asks of a node's gate; None without privacy. Raises InputError if the plan has no such node."""
        if self.terms and self.terms.masked and node in self.site_of:
            return self._terms_at_site[self.site_of[node]]
        if self.privacy is None or not self._visits:
            return self.terms
        if node not in self.nodes:
            raise InputError(f"{node}: found a plan for {self.nodes[0]}..{self.nodes[-1]}, expected one for it")
        return self._terms(self._asked(self.nodes.index(node)))

    @cached_property
    def _terms_at_site(self) -> dict[str, Terms]:
        """What is asked of the nodes of each site."""
        t = self.terms
        assert t is not None
        assert t.masked is not None
        places = {site: self.nodes.index(nodes[0]) for site, nodes in self.sites.items()}
        return {site: replace(t, masked=t.masked.of_site(place)) for site, place in places.items()}

    @property
    def caps(self) -> tuple[int, ...]:
        """The most answers of each node on a token's walk; none without privacy, or without a token."""
        terms = [self._terms(self._asked(i)) for i in range(len(self._visits))] if self.privacy else []
        return tuple(t.answers for t in terms if t)

    @property
    def _stated(self) -> Any:
        return self.privacy.answers if self.privacy else None

    @cached_property
    def _visits(self) -> tuple[int, ...]:
        """The activations that each node is to answer; none if no token walks."""
        visits: tuple[int, ...] = self.problem.visits(self.algorithm, self._stated is not None)
        if isinstance(self._stated, tuple) and len(self._stated) != len(visits):
            expected = f"one for each of {len(visits)} nodes" if visits else "one"
            raise InputError(f"privacy.answers: found {len(self._stated)} numbers, expected {expected}")
        return visits

    def _asked(self, i: int) -> tuple[int | None, int]:
        """(the plan's cap of node i, if it says one; the activations that it is to answer)."""
        return (self._stated[i] if isinstance(self._stated, tuple) else self._stated), self._visits[i]

    @cached_property
    def _terms(self) -> Callable[[tuple[int | None, int]], Terms | None]:
        """Terms by `_asked`: few nodes of many differ, and a calibration takes its time."""

        @cache
        def terms_for(demand: tuple[int | None, int]) -> Terms | None:
            privacy = replace(self.privacy, answers=demand[0]) if self.privacy else None
            return terms(privacy, self.algorithm, demand[1], len(self.nodes))

        return terms_for

    @property
    def kind(self) -> Kind:
        """Of its problem."""
        return KINDS[self.problem.kind]

    @property
    def question(self) -> Question:
        """What it asks about the data of each device."""
        return self.kind.question(self.problem)

    @property
    def running(self) -> registry.AnyAlgorithm:
        """The algorithm with the rounds that the caps of the privacy section leave."""
        return msgspec.structs.replace(self.algorithm, rounds=self.terms.rounds) if self.terms else self.algorithm


def _plan_in(blob: bytes) -> RunPlan:
    """The plan in its bytes, as they are. Raises msgspec.DecodeError, ValueError, RecursionError or InputError."""
    plan = msgspec.json.decode(blob, type=RunPlan)
    try:
        return replace(plan, algorithm=registry.algorithm_from(plan.algorithm))
    except msgspec.ValidationError as error:
        raise msgspec.ValidationError(str(error).replace("at `$", "at `$.algorithm", 1)) from None


def encode_plan(plan: RunPlan) -> bytes:
    return msgspec.json.encode(plan, order="deterministic")


def scheduled(blob: bytes, every: float | None) -> bytes:
    """A plan's bytes with `every`, as a member stores them; as they are where they are no plan, or there is no
    schedule.
    """
    if every is None:
        return blob
    try:
        return encode_plan(replace(_plan_in(blob), interval=every))
    except (msgspec.DecodeError, ValueError, RecursionError):
        return blob


def scheduled_every(blob: bytes) -> float | None:
    """`every` of the plan in a member's store; None where there is none."""
    try:
        return _plan_in(blob).every
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


@lru_cache(maxsize=1)  # nodes of one process are sent the same one, and a node reads it several times
def decode_plan(blob: bytes) -> RunPlan:
    """The plan in its bytes. Raises InputError if it is not one, or contradicts itself."""
    try:
        plan = _plan_in(blob)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InputError(f"plan: {str(error)[:200]}, expected a plan of format 1") from None
    problem, algorithm, kind = plan.problem, plan.algorithm, plan.kind
    registry.check_variant(algorithm, "plan")
    check_privacy(plan.privacy, algorithm, kind.records, "plan")
    change = plan.privacy.adjacency.of_loads if plan.privacy else None
    if change is not None and change.of is not None and not (change.digest is None and DIGEST.match(change.of)):
        raise InputError("plan: privacy.adjacency.bounded-change.of: found a name, expected a SHA-256 digest")
    if not kind.solved_by(algorithm):
        raise InputError(
            f"plan: algorithm.name: found {algorithm.name}, expected one for a problem of kind {problem.kind}"
        )
    problem.check(algorithm)
    if plan.privacy is not None and plan.privacy.answers is None and walk_of(algorithm) in ("random", "metropolis"):
        raise InputError("plan: privacy.answers: missing, expected the cap of each node of a random walk")
    check_steps(plan)
    return plan


def step_ratio(plan: RunPlan) -> float | None:
    """The largest step of a node over the public bound below which the algorithm is stable; None if there is no
    bound.
    """
    return plan.algorithm.step_ratio(*plan.problem.constants)


def step_warning(plan: RunPlan) -> str | None:
    """What to say of a guarded run whose step is beyond its bound; None if it is within, or constraints hold the
    iterates.

    The bound is of the worst data that the public numbers allow: real rows often bear several times of it.
    """
    ratio = step_ratio(plan)
    if ratio is None or ratio <= 1 or plan.algorithm.variant != "guarded" or plan.problem.held:
        return None
    return f"the step is {ratio:.3g} times the bound below which {plan.algorithm.name} is stable, whatever the data"


def warnings(plan: RunPlan, source: str) -> list[str]:
    """What to say of a plan before its run. `source`: where the public part that no plan carries is found."""
    (L, _), algorithm = plan.problem.constants, plan.algorithm
    walk = algorithm.warning(len(L)) if isinstance(algorithm, Walk) else None
    sentences = step_warning(plan), walk, plan.kind.warning(plan, source)
    return [warning for warning in sentences if warning]


def check_steps(plan: RunPlan) -> None:
    """Raises InputError if a guarded run would spend its budget on steps far beyond their bound, unheld."""
    ratio, most = step_ratio(plan), plan.algorithm.max_step_ratio
    if plan.algorithm.variant == "guarded" and ratio is not None and ratio > most and not plan.problem.held:
        raise InputError(
            f"plan: algorithm: found a step of {ratio:.4g} times its bound of stability, expected at most {most:g} "
            f"times ({plan.algorithm.name}, guarded, without a box)"
        )
