"""What is public about a simulated run, prepared once: the plan, and the data its nodes are given."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Protocol

from hushgrid.broker.coordinator import Coordinator
from hushgrid.broker.results import Finished, Result
from hushgrid.node.assemble import Device
from hushgrid.node.config import Scenario
from hushgrid.node.driver import Driver
from hushgrid.node.gate import PAPER_SAMPLER, Entropy, Seeded
from hushgrid.node.ledger import Ledger
from hushgrid.node.plan import RunPlan, ZonesPlan
from hushgrid.node.problem import Walking, ZonesProblem


class Observer(Protocol):
    """Simulation's trace of one node, called by its driver after each commit."""

    def __call__(self, driver: Driver, fresh: bool) -> None: ...
    def close(self) -> None: ...


class Setup(ABC):
    """A scenario made ready, whatever its kind of problem. Only `device` and `collect` touch raw data."""

    scenario: Scenario
    plan: RunPlan

    def __init__(self, scenario: Scenario, plan: RunPlan) -> None:
        self.scenario, self.plan = scenario, plan
        self.terms = plan.terms
        self.budget = scenario.privacy.budget if scenario.privacy else None

    @property
    def upheld(self) -> bool | str:
        """Whether the claim holds: False (published), "not private" (none, seeded or truth), or True."""
        s, variant = self.scenario, self.scenario.algorithm.variant
        if variant == "published":
            return False
        return "not private" if variant == "none" or s.seed is not None or s.run.truth else True

    @property
    def reveal(self) -> bool:
        """Whether raw-data figures may be computed."""
        return self.upheld is not True

    @property
    def sampler(self) -> str | None:
        if self.terms is None:
            return None
        if self.terms.published:
            return PAPER_SAMPLER
        return Entropy.sampler if self.scenario.seed is None else Seeded.sampler

    # --- what a kind of problem says ---

    about: str  #: the problem in a few words

    @abstractmethod
    def device(self, name: str) -> Device:
        """A node with its data."""

    @abstractmethod
    def child(self, name: str, place: Path) -> dict[str, Any]:
        """How a process of its own makes this node: fields of `processes.Child`; files for it go to `place`."""

    @abstractmethod
    def trace(self, name: str, place: Path) -> Observer:
        """What is taken down of a node, or of the coordinator, while the run goes on."""

    @abstractmethod
    def collect(self, f: Finished) -> Result:
        """Everything of RUN_DIR, from the traces."""

    @abstractmethod
    def written_out(self, resolved: dict[str, Any]) -> dict[str, Any]:
        """The resolved scenario with what the program has chosen."""


def prepare(scenario: Scenario, file: str = "scenario") -> Setup:
    """A scenario made ready. InputError names `file` and the key."""
    if isinstance(scenario.problem, ZonesProblem):
        from hushgrid.broker.zone_runs import ZoneSetup

        return ZoneSetup(scenario, file)
    if isinstance(scenario.algorithm, Walking):
        from hushgrid.broker.row_runs import RowSetup

        return RowSetup(scenario, file)
    from hushgrid.broker.round_runs import RoundSetup

    return RoundSetup(scenario, file)


def coordinator(fleet: str, plan: RunPlan, case: str, ledger: Ledger, **options: Any) -> Coordinator:
    """The coordinator of a plan; `case` is where the public case of a zones problem is found."""
    if isinstance(plan.problem, ZonesPlan):
        from hushgrid.broker.rounds import Rounds
        from hushgrid.grid_cases import load

        return Rounds(fleet, plan, load(case).without_loads(), ledger, **options)
    if isinstance(plan.algorithm, Walking):
        from hushgrid.broker.watcher import Watcher

        return Watcher(fleet, plan, ledger, **options)
    from hushgrid.broker.peers import Peers

    return Peers(fleet, plan, ledger, **options)
