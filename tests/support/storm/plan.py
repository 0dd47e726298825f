"""What goes wrong in a storm of real daemons, and when: drawn from its seed."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from hushgrid.lab.simulate.faults import Fault
from hushgrid.node.wire import COORDINATOR

PAUSE_S = 1.2  #: between two faults, on average
AIMED, RUN_MS = 0.6, 50  #: the share meant for rounds: so many ms after one of the next run, on average
#: How often each kind is drawn, as (kind, how).
SHARES = {
    ("kill", "one"): 8.0, ("kill", "all"): 0.7, ("freeze", "one"): 4.0, ("restart", "one"): 3.0,
    ("reload", "same"): 1.5, ("reload", "budget"): 1.5, ("cut", "reset"): 4.0, ("cut", "silent"): 3.0,
    ("cut", "all"): 1.0, ("broker", "kill"): 1.2, ("broker", "freeze"): 1.0,
}  # fmt: skip
#: The most seconds that each lasts.
LONGEST_S = {"kill": 2.0, "freeze": 5.0, "restart": 1.0, "reload": 5.0, "cut": 5.0, "broker": 3.0}


def drawn(seed: str, nodes: Sequence[str], seconds: float) -> list[Fault]:
    """Those of a storm of so many seconds. `call`: of one meant for rounds, ms after an iterate."""
    dice, moment, faults = Random(seed), 0.0, []
    everybody = [*nodes, COORDINATOR]
    while (moment := moment + dice.expovariate(1 / PAUSE_S)) < seconds:
        ((kind, how),) = dice.choices(list(SHARES), list(SHARES.values()))
        if kind == "broker":
            who: tuple[str, ...] = ()
        elif how == "all":
            who = tuple(everybody)
        else:
            who = (dice.choice(nodes if how == "budget" else everybody),)
        during = max(int(dice.expovariate(1 / RUN_MS)), 1) if dice.random() < AIMED else 0
        lasts = LONGEST_S[kind] * dice.random() ** 2
        faults.append(Fault(moment, kind, who, lasts, dice.uniform(0.4, 1.5), during, how))
    return faults


def words(faults: Sequence[Fault]) -> str:
    """A plan to be read: time, kind, whom, seconds; +: ms after an iterate of the next run."""
    return "; ".join(
        f"{f.moment:.1f}{f'+{f.call}' if f.call else ''} {f.kind} {f.how} {' '.join(f.who)} {f.seconds:.1f}"
        for f in faults
    )
