"""What a device lets a run have: the owner's consent, the budget, and the check before every single answer."""

from __future__ import annotations

from math import inf

from hushgrid.kernels.accounting import Event, Totals, total_epsilon
from hushgrid.kernels.errors import Refused
from hushgrid.node.config import Allow, Budget
from hushgrid.node.ledger import Ledger
from hushgrid.node.plan import RunPlan, Terms
from hushgrid.node.records import Spend

#: A plan's numbers are decimals rounded to binary (100 answers of 0.05 are a little more than 5), and are compared with
#: this much room. The price of every answer that is really given is compared without.
DECIMAL = 1 + 1e-12


class Allowance:
    """One run's allowance on one device. `budget` None: nothing is capped (simulation without a budget)."""

    def __init__(
        self, node: str, ledger: Ledger, run: bytes, plan: RunPlan, terms: Terms | None, budget: Budget | None,
        allow: Allow, *, simulated: bool,
    ) -> None:  # fmt: skip
        self.node, self.plan, self.terms, self.budget, self.allow = node, plan, terms, budget, allow
        self.ledger, self.simulated = ledger, simulated
        self.adjacency = terms.adjacency if terms else ""
        earlier = Totals()  # what earlier runs have spent: fixed while this one goes on
        events = ledger.events(self.adjacency, but=run)
        for event in events:
            earlier.add(event)
        self.first = not events
        self.earlier = total_epsilon(earlier, self.delta)
        self.answered = len(ledger.spends(run))  #: answers of this run in the ledger

    @property
    def delta(self) -> float:
        if self.budget and self.budget.delta:
            return self.budget.delta
        return self.terms.delta if self.terms and self.simulated else 0.0

    @property
    def spent(self) -> float:
        """Epsilon of everything in the ledger under this adjacency, at the budget's delta."""
        return self._cost()

    @property
    def left(self) -> float:
        return max(self.budget.epsilon - self.spent, 0.0) if self.budget else inf

    def consent(self, answers: int) -> None:
        """Whether the whole plan, `answers` gate answers at most, is within what the owner allows. Refused otherwise."""
        t, name = self.terms, self.plan.algorithm.name
        if told := self.ledger.told():
            raise Refused(
                f"{self.node}: its ledger is behind its mark: spend {self.ledger.no}, the mark says {told.no}; "
                f"its owner runs 'hushgrid ledger accept {self.ledger.path}'"
            )
        if not self.simulated and self.plan.algorithm.variant != "guarded":
            raise Refused(f"{self.node}: variant {self.plan.algorithm.variant} runs in simulation only (hushgrid run)")
        if self.allow.algorithms is not None and name not in self.allow.algorithms:
            raise Refused(
                f"{self.node}: algorithm {name}, its owner allows {', '.join(self.allow.algorithms) or 'none'}"
            )
        if t is None:
            if self.budget:
                raise Refused(f"{self.node}: variant none reveals everything, its budget is {self.budget.epsilon:g}")
            return
        for whose, adjacency in (("budget", self.budget and self.budget.adjacency), ("allow", self.allow.adjacency)):
            if adjacency and str(adjacency) != t.adjacency:
                raise Refused(f"{self.node}: adjacency {t.adjacency}, its {whose} counts {adjacency}")
        asked = self._price(t)
        if self.allow.per_run and asked > self.allow.per_run.epsilon * DECIMAL:
            raise Refused(
                f"{self.node}: asked epsilon {asked:g} for the run, its owner allows {self.allow.per_run.epsilon:g}"
            )
        more = max(answers - self.answered, 0)  # none: what is only repeated passes no budget
        if self.budget and more and self._cost((t.event, more)) > self.budget.epsilon * DECIMAL:
            raise self._refusal(asked)

    def authorise(self, spends: list[Spend]) -> None:
        """Whether these spends, not yet committed, may be added now. Refused otherwise."""
        if self.budget is None:
            return
        if any(s.value == inf for s in spends):
            raise Refused(f"{self.node}: an answer without privacy was asked, its budget is {self.budget.epsilon:g}")
        if self._cost(*((s.event, 1) for s in spends)) > self.budget.epsilon:
            raise self._refusal(self.terms.cost(1) if self.terms else inf)

    def committed(self, spends: list[Spend]) -> None:
        """These spends are in the ledger now."""
        self.answered += len(spends)

    def _price(self, t: Terms) -> float:
        """Epsilon of the whole plan by itself: its claim, unless that takes a larger delta than this device gives."""
        if t.delta <= self.delta:
            return t.epsilon
        alone = Totals()
        alone.add(t.event, t.answers)
        return total_epsilon(alone, self.delta)

    def _cost(self, *more: tuple[Event, int]) -> float:
        """Epsilon of the ledger with these answers more of this run: the smaller of two valid bounds."""
        t, totals, answers = self.terms, self.ledger.totals(self.adjacency), self.answered
        for event, times in more:
            totals.add(event, times)
            answers += times
        together = total_epsilon(totals, self.delta)
        if t is None or t.published or not 0 < answers <= t.answers:
            return together
        # The run's own accountant claims the cost of its cap, whatever happens, at the plan's delta; pure epsilon adds
        # to what was before.
        claim = t.delta <= self.delta if self.first else t.delta == self.delta == 0
        return min(together, self.earlier + t.epsilon) if claim else together

    def _refusal(self, asked: float) -> Refused:
        assert self.budget is not None
        return Refused(
            f"{self.node}: spent epsilon {self.spent:g}, asked {asked:g} more, budget {self.budget.epsilon:g} "
            f"({self.terms.adjacency if self.terms else ''}, delta {self.delta:g})"
        )
