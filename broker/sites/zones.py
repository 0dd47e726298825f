"""A site of zones as a member of the fleet above: it knows the public case, and what its zones share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, cast

from hushgrid.grid_cases import load
from hushgrid.kernels.algorithms import registry
from hushgrid.kernels.algorithms.base import Star
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.patterns.levels import SiteMember
from hushgrid.kernels.patterns.star import ServerContext
from hushgrid.kernels.types import Vector
from hushgrid.node.privacy.budget import BudgetCheck
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.noise_source import NoiseSource
from hushgrid.node.problems.kind import Plan
from hushgrid.node.problems.power_flow.centre import centre
from hushgrid.node.problems.power_flow.section import NAME, Part
from hushgrid.node.wire import SMALL


class ZoneSite:
    """What a site has where a zone has its data: nothing but the public case. `source`: its name or path."""

    kind: ClassVar[str] = NAME
    neighbours: ClassVar[bool] = False
    until: Vector | None = None
    dimension, public_part = 1, ""

    def __init__(self, name: str, source: str, ignore: Sequence[Part] = ()) -> None:
        self.name, self.source = name, source
        self.digest = load(source).without(ignore).public_digest()

    def check(self, plan: Plan) -> None:
        """Raises InputError unless the plan names this site, and is about its case."""
        if self.name not in plan.sites or plan.problem.kind != NAME:
            raise InputError(f"{self.name}: found a plan of {len(plan.sites)} sites, expected it among sites of zones")
        if plan.problem.digest != self.digest:
            raise InputError(
                f"{self.name}: found a plan for another version of the case {plan.problem.case}, expected its own"
            )

    def remark(self, plan: Plan) -> str:
        return ""

    def limit(self, plan: Plan) -> int:
        return SMALL + 8 * self._context(plan).largest[self.name]

    def machine(
        self, plan: Plan, run: bytes, ledger: Ledger, noise: NoiseSource, budget_check: BudgetCheck
    ) -> tuple[SiteMember, None]:
        return registry.member_of(cast(Star, plan.running), self._context(plan), self.name), None

    def _context(self, plan: Plan) -> ServerContext:
        return centre(plan, self.source)
