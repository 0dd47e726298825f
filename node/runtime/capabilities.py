"""What a device can take part in, as its birth says it."""

from __future__ import annotations

from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.renewal import budget_status
from hushgrid.node.problems.kind import Device
from hushgrid.node.problems.registry import algorithms_of
from hushgrid.node.schema.sections import Budget
from hushgrid.node.versions import RUNNING
from hushgrid.node.wire import OLDER, WIRE, Capabilities


def capabilities(device: Device, budget: Budget | None, ledger: Ledger, days: int | None = None) -> Capabilities:
    """The algorithms, problem and mechanisms of a device, and what is left of its budget. `days`: until its certificate
    ends.
    """
    left = budget_status(ledger, budget, expiring=device.until is not None).left if budget else None
    return Capabilities(
        version=RUNNING,
        algorithms=algorithms_of(device.kind),
        mechanisms=("laplace", "gaussian"),
        problem=device.kind,
        digest=device.digest,
        dimension=device.dimension,
        adjacency=str(budget.adjacency or "") if budget else "",
        budget_left=left,
        wire=WIRE,
        older=OLDER,
        certificate_days=days,
        recounts=True,
    )
