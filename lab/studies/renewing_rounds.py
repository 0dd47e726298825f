"""The rounds of a run, in `hushgrid study renewing`: linearised ADMM over zones whose gates share a window's epsilon.

Noise on the loads is drawn once a run, whatever its rounds; noise on the gradients in each round. More rounds are nearer to the
optimum of what is seen, and in the second case more answers for the same epsilon, noisier each.
"""

from __future__ import annotations

from itertools import product
from math import sqrt
from typing import Literal, NamedTuple

import numpy as np

from hushgrid.kernels.privacy.accounting import Mechanism, calibrate, claimed_epsilon
from hushgrid.lab.benchmarks.continuous import fleet, households, scenario
from hushgrid.lab.studies.common.study import Table
from hushgrid.node.config.coordinator import Continuous
from hushgrid.node.runtime.member import Member, Simulated

FRESH = (24, 96)  #: runs a window
ROUNDS = (5, 20)  #: of a run
DELTA = 1e-5  #: of Gaussian noise
SEED = 1000


class Task(NamedTuple):
    epsilon: float  #: of a window
    mechanism: Mechanism
    at: Literal["loads", "gradients"]  #: where the noise is
    fresh: int
    rounds: int

    @property
    def answers(self) -> int:
        """Of a window."""
        return self.fresh * (self.rounds if self.at == "gradients" else 1)


class Line(NamedTuple):
    task: Task
    shed: float  #: rms of what is not served of one load, MW, over the window
    least: float  #: the same of the central optimum at the true loads


def of_a_run(task: Task) -> dict[str, object]:
    """The scenario's section: all runs of a window together cost epsilon."""
    mode = {"mode": "input"} if task.at == "loads" else {"mode": "objective", "at": "gradient"}
    section: dict[str, object] = mode | {"mechanism": task.mechanism, "adjacency": {"bounded-change": 0.01}}
    if task.mechanism == "laplace":
        return section | {"epsilon": task.epsilon / task.fresh}
    mu = calibrate("gdp", task.epsilon, DELTA, task.answers)
    return section | {
        "epsilon": claimed_epsilon("gdp", mu, task.answers // task.fresh, DELTA),
        "delta": DELTA,
        "accountant": "gdp",
    }


def measure(task: Task) -> Line:
    """A day of the households' loads through real gates; each run begins where the last one has ended."""
    setup = scenario("ladmm", task.rounds, of_a_run(task))
    changes = households(setup)
    size, base = sum(d.size for d in changes[0].values()), setup.case.base_mva
    shed, least = [], []
    with fleet(setup, run=Continuous(every="15min", warm_start=True)) as made:
        for k, loads in enumerate(changes):
            made.draws(loads)
            if k % (len(changes) // task.fresh) == 0:
                for z in made.zones:
                    member = made.hub.endpoints[z]
                    assert isinstance(member, Member)
                    member.simulated = Simulated(SEED + k)
                made.interval()
            best = setup.optimum(loads)
            if best is not None:
                shed.append(made.shed())
                least.append(best)
    return Line(task, *(base * sqrt(float(np.mean(each)) / size) for each in (shed, least)))


def tasks(epsilons: tuple[float, ...]) -> list[Task]:
    mechanisms: tuple[Mechanism, ...] = ("gaussian", "laplace")
    places: tuple[Literal["loads", "gradients"], ...] = ("loads", "gradients")
    return [Task(*setting) for setting in product(epsilons, mechanisms, places, FRESH, ROUNDS)]


COLUMNS = (
    "epsilon a window", "noise", "on the", "fresh runs", "rounds of a run", "answers a window", "not served of one load, MW rms",
    "of the central optimum",
)  # fmt: skip


def table(lines: list[Line]) -> Table:
    """A row a setting."""
    rows = [
        (f"{t.epsilon:g}", t.mechanism, t.at, t.fresh, t.rounds, t.answers, shed, least) for t, shed, least in lines
    ]
    return Table("Rounds of linearised ADMM, each run from the last one's end", COLUMNS, rows)
