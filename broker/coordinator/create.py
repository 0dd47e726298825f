"""Which coordinator a plan needs: that of its algorithm's pattern."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from hushgrid.broker.coordinator.base import Coordinator
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems.plan import RunPlan


def coordinator(fleet: str, plan: RunPlan, source: str, ledger: Ledger, **options: Any) -> Coordinator:
    """The coordinator of a plan: `COORDINATOR` of the file here that is called like the algorithm's pattern.

    source: where the public part of the problem that no plan carries is found. The options are those of `Coordinator`.
    """
    module = import_module(f"hushgrid.broker.coordinator.{plan.algorithm.pattern}")
    made: Coordinator = module.COORDINATOR(fleet, plan, source, ledger, **options)
    return made
