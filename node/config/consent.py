"""What the owner of a device consents to by its file, in words, and the worst that can be asked of it.

Only public numbers: the owner's own limits, and of its data their number, width and declared range.
"""

from __future__ import annotations

from math import ceil, exp

from hushgrid.node.config.device import DeviceConfig
from hushgrid.node.privacy.budget import DECIMAL
from hushgrid.node.problems.kind import Device
from hushgrid.node.problems.registry import algorithms_of
from hushgrid.node.schema.durations import in_words, seconds
from hushgrid.node.schema.sections import Adjacency, AllowMasked, Budget

YEAR = 365 * 86400.0  #: s
LARGEST = 20.0  #: epsilon whose odds are written out


def consent(config: DeviceConfig, device: Device) -> list[str]:
    """A line each: what is hidden, the labels' range, one run, the life of the ledger, what the coordinator chooses."""
    adjacency = config.budget.adjacency
    assert adjacency is not None  # load_device has seen to it
    return [*config.kind.hidden(config, device, adjacency), *_limits(config, device), _chosen(config, adjacency)]


def _limits(config: DeviceConfig, device: Device) -> list[str]:
    budget, allow = config.budget, config.allow
    algorithms = algorithms_of(device.kind) if allow.algorithms is None else allow.algorithms
    run = min(allow.per_run.epsilon, budget.epsilon) if allow.per_run else budget.epsilon
    count = int(budget.epsilon * DECIMAL / run)
    enough = f"{'at least ' if budget.delta else ''}{count} runs of epsilon {run:g}" if count > 1 else "a single run"
    unlimited = "" if allow.per_run else " (no allow.per_run: a single run may spend the budget)"
    enough += " a window" if budget.span else ""
    exact = f", but for a probability of about {budget.delta:g}" if budget.delta else ""
    counted = renews(budget) or " over the life of the ledger"
    return [
        f"one run: {', '.join(algorithms) or 'no algorithm'}; epsilon {run:g} at most{unlimited}: whoever sees every "
        f"message can tell two such data sets apart with odds of at most {_odds(run)}{exact}",
        f"all runs: epsilon {budget.epsilon:g}{counted}, enough for {enough}: "
        f"odds of at most {_odds(budget.epsilon)}{exact}",
        *([] if budget.span is None else [_not_promised(config)]),
        *([_expires(config)] if config.expiring else []),
        *([_of_a_reading(config)] if config.mean else []),
        *([] if allow.masked is None else [_masked(allow.masked)]),
    ]


def _masked(allowed: AllowMasked) -> str:
    """Which masked sums the owner takes part in."""
    whose = f"{len(allowed.peers)} certificates" if allowed.peers else f"whom {allowed.ca} has certified"
    corrupt = allowed.corrupt if isinstance(allowed.corrupt, int) else f"{allowed.corrupt:g} of the contributors"
    return (
        f"masked sums: with {whose}; at least {corrupt} reckoned corrupt, and each share counted as one of "
        f"{allowed.honest} honest ones, this device's among them, whatever the plan says; if all others were corrupt, "
        f"all its shares over the life of the ledger would be worth epsilon {allowed.alone:g} at most"
        + (f"; masks with few neighbours may add {allowed.exposed:g} to delta in all" if allowed.exposed else "")
        + _site(allowed)
    )


def _site(allowed: AllowMasked) -> str:
    if allowed.site is None:
        return "; in no plan with sites"
    return (
        f"; in plans with sites the coordinator of its own sees sums over {allowed.site.honest} honest ones at least, "
        f"worth epsilon {allowed.site.epsilon:g} at most over the life of the ledger"
    )


def renews(budget: Budget) -> str:
    """How a budget renews, as the end of a line; "" if it does not."""
    if budget.span is None:
        return ""
    life = "no limit over its life" if budget.lifetime is None else f"epsilon {budget.lifetime:g} over its life"
    return f" in any {in_words(budget.span)} of running time, {life}"


def _not_promised(config: DeviceConfig) -> str:
    """What a window does not hide, in numbers."""
    budget, retention = config.budget, config.retention
    span = budget.span or 0.0
    hidden = span - (seconds(retention) if retention is not None else 0.0)
    many = ceil(YEAR / span)
    year = f"epsilon {budget.epsilon:g} x {many} = {budget.epsilon * many:g}" if many > 1 else "within one window"
    at_most = f", and {budget.lifetime:g} at most" if budget.lifetime is not None else ""
    event = "the readings of one day" if config.mean else f"an event of at most {in_words(hidden)}"
    return (
        f"a window hides {event}; each window of {in_words(span)} begins anew, so a "
        f"habit that is seen through many windows is not hidden: someone present for a year: {year} (pure){at_most}"
    )


def _expires(config: DeviceConfig) -> str:
    """For how long a reading counts, and what does then."""
    length = in_words(seconds(config.retention or 0.0))
    if config.kind.records:
        then = "a row is the zero row"
    else:
        then = (
            f"a load is that of {config.file}, which is public"
            if config.file.name
            else "a load is zero (no data.loads)"
        )
    return (
        f"a reading counts for {length} of running time after it was read first, whatever a coordinator says; "
        f"then {then}"
    )


def _of_a_reading(config: DeviceConfig) -> str:
    """What one reading costs in all."""
    n, epsilon = config.mean, config.budget.epsilon
    share = f"1/{n} in each of {n} days' answers" if n > 1 else "in the next day's answer alone"
    span = "" if config.budget.span is None else f"; epsilon {epsilon:g} at most in all of them, however many there are"
    return f"a reading counts {share}, so an answer a day costs it no more than one answer does{span}"


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
