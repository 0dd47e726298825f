"""What a device can take part in, as its birth says it."""

from __future__ import annotations

from hushgrid.kernels.privacy.accounting import total_epsilon
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems.kind import Device
from hushgrid.node.problems.registry import KINDS
from hushgrid.node.schema.sections import Budget
from hushgrid.node.versions import RUNNING
from hushgrid.node.wire import OLDER, WIRE, Capabilities


def capabilities(device: Device, budget: Budget | None, ledger: Ledger) -> Capabilities:
    """The algorithms, problem and mechanisms of a device, and what is left of its budget."""
    kind = KINDS[device.kind]
    adjacency = str(budget.adjacency or "") if budget else ""
    spent = total_epsilon(ledger.totals(adjacency), budget.delta or 0.0) if budget else 0.0
    return Capabilities(
        version=RUNNING,
        algorithms=kind.algorithms,
        mechanisms=("laplace", "gaussian"),
        problem=kind.name,
        digest=device.digest,
        dimension=device.dimension,
        adjacency=adjacency,
        budget_left=budget.epsilon - spent if budget else None,
        wire=WIRE,
        older=OLDER,
    )
