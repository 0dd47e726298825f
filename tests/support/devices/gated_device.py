"""A device for tests: the real ledger, budget check and gate around a few private numbers."""

from __future__ import annotations

import numpy as np

from hushgrid.kernels.algorithms.ladmm import Params
from hushgrid.kernels.privacy.accounting import grouped
from hushgrid.node import system
from hushgrid.node.privacy.budget import BudgetCheck
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.ledger_rows import Spend, event_of, steps
from hushgrid.node.privacy.noise_source import SystemNoise
from hushgrid.node.privacy.terms import terms
from hushgrid.node.problems.plan import RunPlan
from hushgrid.node.problems.power_flow.device import AnswerMemory
from hushgrid.node.problems.power_flow.gate import ZoneGate
from hushgrid.node.problems.power_flow.section import ZonesPlan
from hushgrid.node.schema.sections import Adjacency, Allow, Budget, PerAnswer, Privacy

BETA = 0.01
ADJACENCY = Adjacency(bounded_change=BETA)
WORDS = "bounded-change 0.01"
DATA = np.array([0.5, -0.25])


class Quadratic:
    """f(z) = |A z + d|^2; d is private."""

    A = np.array([[1.0, -1.0, 0.0, 2.0], [0.0, 1.0, 1.0, 1.0]])
    row_l1, row_l2, row_nnz, columns, periods = 4.0, 6.0**0.5, 3, 4, 1

    def __init__(self, data=DATA):
        self.data = np.asarray(data, float)
        self.loaded, self.size, self.unit = np.arange(self.data.size), self.data.size, None

    def gradient(self, z, d):
        return 2 * self.A.T @ (self.A @ z + d)


def budget(epsilon, delta=None, adjacency=ADJACENCY, window=None, lifetime=None):
    return Budget(epsilon=epsilon, delta=delta, adjacency=adjacency, window=window, lifetime=lifetime)


def plan(rounds=4, local_updates=1, variant="guarded", **privacy):
    """A plan; `privacy` overrides total epsilon 2 by Laplace noise on the data."""
    given = {"adjacency": ADJACENCY, "epsilon": 2.0} | privacy
    if "per_answer" in given:
        given |= {"epsilon": None, "per_answer": PerAnswer(**given["per_answer"])}
    return RunPlan(
        name="test",
        problem=ZonesPlan("case5", "", {"n0": [1]}, 10.0),
        algorithm=Params(rounds=rounds, local_updates=local_updates, variant=variant),
        privacy=Privacy(**given) if variant != "none" else None,
        stop=None,
    )


class Device:
    """One node with one ledger file; `start(plan)` begins a run and gives its gate."""

    def __init__(
        self,
        directory,
        cap=None,
        *,
        allow=None,
        simulated=False,
        data=DATA,
        noise=SystemNoise,
        mark=None,
        clock=system.boottime,
    ):
        self.ledger = Ledger(directory / "n0.ledger", "n0", mark, clock=clock)
        self.cap, self.allow, self.simulated = cap, allow or Allow(), simulated
        self.loss, self.noise = Quadratic(data), noise
        self.runs = 0

    def budget_check(self, wanted, run=b"?"):
        t = terms(wanted.privacy, wanted.algorithm)
        return BudgetCheck("n0", self.ledger, run, wanted.algorithm, t, self.cap, self.allow, simulated=self.simulated)

    def start(self, wanted):
        """The gate of a new run, consented to as a member does it."""
        self.runs += 1
        self.run = b"run%13d" % self.runs
        gate = self.gate(wanted)
        budget_check = gate.authority
        budget_check.admit(0 if budget_check.terms is None or gate.knows() else budget_check.terms.answers)
        self.ledger.join(self.run, b"plan")
        return gate

    def gate(self, wanted):
        """The gate of the run under way, as after a restart."""
        budget_check = self.budget_check(wanted, self.run)
        gate = ZoneGate("n0", self.loss, budget_check.terms, self.noise(), budget_check, AnswerMemory(self.ledger))
        gate.version = budget_check.version
        return gate

    def commit(self, gate):
        """What the driver does with a step."""
        self.ledger.commit(self.run, spends=gate.spends, answers=gate.repeat, version=gate.version)
        gate.committed()

    def event(self, spend):
        """What a stored spend costs at the budget's unit."""
        return grouped(event_of(spend.kind, spend.value), steps(spend.adjacency, str(self.cap.adjacency)))

    def answer(self, gate, times=1, x=None):
        """`times` gradients, each committed."""
        answers = []
        for _ in range(times):
            answers.append(gate.gradient(np.zeros(4) if x is None else x))
            self.commit(gate)
        return answers


def spend(answer=1, epsilon=0.5, adjacency=WORDS):
    return Spend(answer, "laplace", epsilon, 0.01, 0.02, 2.0**-20, adjacency, "exact")
