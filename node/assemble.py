"""Where names meet classes: what a device is to a run, and the public plan of a scenario.

What a kind of problem needs is imported with it: a device of a data problem never loads a case, a solver or scipy.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

from msgspec.structs import replace

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.machine import Machine
from hushgrid.node.allowance import Allowance
from hushgrid.node.config import Scenario
from hushgrid.node.gate import Entropy, Gate, Seeded
from hushgrid.node.ledger import Ledger
from hushgrid.node.plan import DataPlan, RunPlan, ZonesPlan, encode_plan, resolved
from hushgrid.node.wire import PLAN_LIMIT


class Device(Protocol):
    """A device's own: its private data, which its gate alone sees, and the public part of its problem."""

    name: str
    kind: ClassVar[str]  #: of the problems it takes part in: zones | data
    neighbours: ClassVar[bool]  #: whether it speaks to others than the coordinator

    @property
    def digest(self) -> str: ...

    @property
    def dimension(self) -> int: ...
    def check(self, plan: RunPlan) -> None: ...
    def limit(self, plan: RunPlan) -> int: ...
    def machine(
        self, plan: RunPlan, run: bytes, ledger: Ledger, noise: Entropy | Seeded, allowance: Allowance
    ) -> tuple[Machine, Gate]: ...


def make_plan(scenario: Scenario, problem: ZonesPlan | DataPlan, file: str = "scenario") -> tuple[Scenario, RunPlan]:
    """The scenario with its privacy section filled in, and its public plan; budgets stay with the nodes. InputError."""

    def plan(of: Scenario) -> RunPlan:
        privacy = replace(of.privacy, budget=None) if of.privacy else None
        return RunPlan(name=of.name, problem=problem, algorithm=of.algorithm, privacy=privacy, stop=of.run.stop)

    try:
        scenario = resolved(scenario, plan(scenario).terms)
        made = plan(scenario)
        if isinstance(problem, DataPlan):
            from hushgrid.node.machines import check_minimizers

            check_minimizers(made)
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    if (size := len(encode_plan(made))) > PLAN_LIMIT // 2:
        raise InputError(f"{file}: found a plan of {size} bytes, expected at most {PLAN_LIMIT // 2} (a shorter walk)")
    return scenario, made
