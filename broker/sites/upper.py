"""A site as a member of the fleet above: no data, no gate, no budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from hushgrid.kernels.errors import HushgridError, InputError
from hushgrid.kernels.machine import Step
from hushgrid.kernels.patterns.sites import SiteMember
from hushgrid.kernels.types import Vector
from hushgrid.node.privacy.budget import BudgetCheck
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.noise_source import NoiseSource
from hushgrid.node.problems import masking
from hushgrid.node.problems.kind import Device, Plan
from hushgrid.node.problems.plan import RunPlan, decode_plan
from hushgrid.node.problems.records.section import NAME
from hushgrid.node.runtime.member import Member
from hushgrid.node.runtime.witness import Simulated
from hushgrid.node.wire import SMALL, Envelope, Publication, Refuse


class SiteDevice:
    """What a site has where a device has its data: its masks against the other sites."""

    kind: ClassVar[str] = NAME
    neighbours: ClassVar[bool] = False
    until: Vector | None = None
    digest, dimension, public_part = "", 1, ""

    def __init__(self, name: str, masks: masking.MakeMasks) -> None:
        self.name, self.masks = name, masks

    def check(self, plan: Plan) -> None:
        """Raises InputError unless the plan names this site."""
        if self.name not in plan.sites:
            raise InputError(f"{self.name}: found a plan of {len(plan.sites)} sites, expected it among these")

    def remark(self, plan: Plan) -> str:
        return ""

    def limit(self, plan: Plan) -> int:
        return SMALL + 16 * int(plan.problem.size) + masking.INTRODUCTION * len(plan.sites)

    def machine(
        self, plan: Plan, run: bytes, ledger: Ledger, noise: NoiseSource, budget_check: BudgetCheck
    ) -> tuple[SiteMember, None]:
        return masking.site_member(plan, self.name, self.masks(run, ledger, None, 0.0), run), None


class UpperMember(Member):
    """Its ledger keeps its key and which question it has answered last; nothing is spent in it."""

    def __init__(self, site: Device, fleet: str, ledger: Ledger, log: Callable[[str], None] = lambda _: None) -> None:
        super().__init__(fleet, site, ledger, None, simulated=Simulated(), log=log)

    @property
    def plan(self) -> RunPlan | None:
        """Of the run under way."""
        stored = self.ledger.runs.find(self.driver.run) if self.driver else None
        return decode_plan(stored.plan) if stored else None

    def act(self, step: Step) -> list[Publication]:
        """Commits and sends a step that the site's devices have caused."""
        assert self.driver is not None
        self.last = None
        self._soon()
        return [self._edge(payload, dst) for dst, payload in self.driver.act(step)]

    def _on_step(self, src: str, envelope: Envelope, size: int) -> list[Publication]:
        try:
            return super()._on_step(src, envelope, size)
        except HushgridError as error:  # another site is not believed
            return self.give_up(error)

    def give_up(self, error: HushgridError) -> list[Publication]:
        """The site takes no further part in the run under way."""
        if self.driver is None:
            return []
        run, self.driver, self.refusal = self.driver.run, None, error.kind
        return self._refuse(run, Refuse(f"{self.name}: {error}", error.kind))
