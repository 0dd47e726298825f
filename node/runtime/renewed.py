"""A device's data for a new run: renewed only once the device and its owner agree to all that public numbers decide.

A plan that is refused leaves the data version as it was, however often it comes.
"""

from __future__ import annotations

from collections.abc import Callable

from hushgrid.node.privacy.budget import BudgetCheck
from hushgrid.node.problems.kind import Device, Renewal
from hushgrid.node.problems.plan import RunPlan
from hushgrid.node.runtime.driver import Driver


def renewed(
    renew: Renewal,
    plan: RunPlan,
    node: str,
    assembled: Callable[[], tuple[Driver, BudgetCheck]],
    budget_check: Callable[[int], BudgetCheck],
) -> Device:
    """The device with the data that the run is to have. The device of now has agreed to the plan.

    `assembled`: its driver and budget check with the data of now; `budget_check`: that about another data version.
    Raises InputError or Refused if device or owner do not agree; nothing is renewed then.
    """
    driver, before = assembled()
    before.admit(0)  # all but the budgets, before a source is read

    def agree(version: int) -> None:
        t, now = plan.terms_of(node), before.ledger.data_version
        repeated = driver.gate is None or (version == now and driver.gate.knows())
        budget_check(version).admit(0 if t is None or repeated else t.answers)

    return renew(before.affordable, agree, lambda device: device.check(plan))
