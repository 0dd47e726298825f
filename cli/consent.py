"""What the owner of a device consents to by its file, in words, and the worst that can be asked of it.

Only public numbers: the owner's own limits, and of its data their number, width and declared range.
"""

from __future__ import annotations

from math import exp

from hushgrid.node.config.device import DeviceConfig
from hushgrid.node.privacy.budget import DECIMAL
from hushgrid.node.problems.kind import Device
from hushgrid.node.problems.registry import KINDS
from hushgrid.node.schema.sections import Adjacency

LARGEST = 20.0  #: epsilon whose odds are written out


def consent(config: DeviceConfig, device: Device) -> list[str]:
    """A line each: what is hidden, the labels' range, one run, the life of the ledger, what the coordinator chooses."""
    adjacency = config.budget.adjacency
    assert adjacency is not None  # load_device has seen to it
    return [*config.kind.hidden(config, device, adjacency), *_limits(config, device), _chosen(config, adjacency)]


def _limits(config: DeviceConfig, device: Device) -> list[str]:
    budget, allow = config.budget, config.allow
    algorithms = KINDS[device.kind].algorithms if allow.algorithms is None else allow.algorithms
    run = min(allow.per_run.epsilon, budget.epsilon) if allow.per_run else budget.epsilon
    count = int(budget.epsilon * DECIMAL / run)
    enough = f"{'at least ' if budget.delta else ''}{count} runs of epsilon {run:g}" if count > 1 else "a single run"
    unlimited = "" if allow.per_run else " (no allow.per_run: a single run may spend the budget)"
    exact = f", but for a probability of about {budget.delta:g}" if budget.delta else ""
    return [
        f"one run: {', '.join(algorithms) or 'no algorithm'}; epsilon {run:g} at most{unlimited}: whoever sees every "
        f"message can tell two such data sets apart with odds of at most {_odds(run)}{exact}",
        f"all runs: epsilon {budget.epsilon:g} over the life of the ledger, enough for {enough}: odds of at most "
        f"{_odds(budget.epsilon)}{exact}",
    ]


def _odds(epsilon: float) -> str:
    return f"{exp(epsilon):.3g} : 1 (e^{epsilon:g})" if epsilon <= LARGEST else f"e^{epsilon:g} : 1"


def _chosen(config: DeviceConfig, adjacency: Adjacency) -> str:
    free = ["when", "how often", "the steps"]
    free += ["the clip"] if adjacency.replace_one_record is not None else []
    free += ["the mechanism"] if config.budget.delta else []  # without a delta only Laplace noise is within a budget
    return (
        "the worst case: a coordinator asks for all of this at once, and chooses everything else within its public "
        f"ranges: {', '.join(free)}"
    )
