"""What a device lets a run have: the owner's consent, the budget, and the check before every single answer."""

from __future__ import annotations

from functools import lru_cache, reduce
from math import inf

from hushgrid.kernels.algorithms.base import Algorithm
from hushgrid.kernels.errors import InputError, Refused
from hushgrid.kernels.privacy.accounting import (
    Event,
    Totals,
    gdp_epsilon,
    grouped,
    root_up,
    spent_epsilon,
    total_epsilon,
)
from hushgrid.kernels.privacy.limits import Charge, charge_of, charge_of_totals, limit
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.ledger_rows import Spend, alone, at_site, counted_of, empty, relation, steps
from hushgrid.node.privacy.renewal import Renewal
from hushgrid.node.privacy.terms import NOT_OPTIMAL, Terms
from hushgrid.node.schema.sections import Allow, Budget, Question

#: A plan's numbers are decimals rounded to binary (100 answers of 0.05 are a little more than 5), and are compared with
#: this much room. The price of every answer that is really given is compared without.
DECIMAL = 1 + 1e-12


class BudgetCheck:
    """Whether one run may spend on one device. `budget` None: nothing is capped (simulation without a budget).

    Everything is counted at the budget's own unit: what a plan asks at a smaller one costs by group privacy; and a
    share of a masked sum as the owner believes in the others, whatever the plan relies on. A refusal says
    in `refused_by` which rule refused: mark, variant, algorithm, problem, adjacency, per-run, budget, window, lifetime.
    """

    def __init__(
        self,
        node: str,
        ledger: Ledger,
        run: bytes,
        algorithm: Algorithm,
        terms: Terms | None,
        budget: Budget | None,
        allow: Allow,
        question: Question | None = None,
        *,
        simulated: bool,
        version: int | None = None,
        expiring: bool = False,
    ) -> None:
        """`question`: what the plan asks about the data. `version`: of these, that the run answers from [the ledger's
        of now].

        `expiring`: as in `Renewal`.
        """
        self.expiring = expiring
        self.version = ledger.data_version if version is None else version
        self.node, self.algorithm, self.budget, self.allow = node, algorithm, budget, allow
        self.masked = terms.masked if terms else None  #: as the plan says it
        #: as the owner counts them
        self.terms = terms.relying_on(self.honest, self.honest_at_site) if terms else None
        self.ledger, self.simulated, self.run, self.question = ledger, simulated, run, question
        self._further: list[BudgetCheck] = []  #: of budgets that the run has to keep too
        counts = budget.adjacency if budget else None
        self.adjacency = str(counts or (terms.adjacency if terms else ""))
        if budget:
            ledger.spends.count_at(self.adjacency)
        earlier = ledger.spends.totals(
            self.adjacency, but=run
        )  # what other runs have spent: fixed while this one goes on
        self.first = empty(earlier)
        self.earlier = total_epsilon(earlier, self.delta)
        self.answered = ledger.spends.answers(run)  #: answers of this run in the ledger
        #: of a budget with a window; every other rule here is of one without
        self.renewal = (
            Renewal(ledger, budget, self.adjacency, self.delta, self.version, expiring=expiring)
            if budget and budget.span
            else None
        )

    @property
    def honest(self) -> int | None:
        """h: how many honest contributors of a masked sum the owner believes in at most; None: as many as the plan."""
        return self.allow.masked.honest if self.allow.masked else None

    @property
    def honest_at_site(self) -> int | None:
        """h_s: how many of its own site the owner believes in at most; None: as many as the plan."""
        allowed = self.allow.masked
        return allowed.site.honest if allowed and allowed.site else None

    @property
    def delta(self) -> float:
        if self.budget and self.budget.delta:
            return self.budget.delta
        return self.terms.delta if self.terms and self.simulated else 0.0

    @property
    def spent(self) -> float:
        """Epsilon of everything in the ledger under this adjacency, at the budget's delta; of a window's budget: in
        it.
        """
        return self.renewal.spent if self.renewal else self._cost()

    @property
    def left(self) -> float:
        if self.renewal:
            return self.renewal.left
        return max(self.budget.epsilon - self.spent, 0.0) if self.budget else inf

    def admit(self, answers: int) -> None:
        """Whether the whole plan, `answers` gate answers at most, is within what the owner allows. Refused otherwise.

        Raises InputError if its accountant cannot be counted by a budget that renews.
        """
        t, name = self.terms, self.algorithm.name
        if why := self.ledger.refusal:
            raise self._refused(why, "mark")
        if not self.simulated and self.algorithm.variant != "guarded":
            raise self._refused(f"variant {self.algorithm.variant} runs in simulation only (hushgrid run)", "variant")
        if self.allow.algorithms is not None and name not in self.allow.algorithms:
            allowed = ", ".join(self.allow.algorithms) or "none"
            raise self._refused(f"algorithm {name}, its owner allows {allowed}", "algorithm")
        self._admit_question()
        if t is None:
            if self.budget:
                reason = f"variant none reveals everything, its budget is {self.budget.epsilon:g}"
                raise self._refused(reason, "variant")
            return
        for whose, adjacency in (("budget", self.budget and self.budget.adjacency), ("allow", self.allow.adjacency)):
            if adjacency and relation(str(adjacency)) != relation(t.adjacency):
                raise self._refused(f"adjacency {t.adjacency}, its {whose} counts {adjacency}", "adjacency")
        self._admit_masked(t, answers)
        price = self._price(t, str(self.allow.adjacency or self.adjacency))
        if self.allow.per_run and price > self.allow.per_run.epsilon * DECIMAL:
            reason = f"asked epsilon {price:g} for the run, its owner allows {self.allow.per_run.epsilon:g}"
            raise self._refused(reason, "per-run")
        more = max(answers - self.answered, 0)  # none: what is only repeated passes no budget
        if self.renewal:
            if t.accountant == "pure-optimal":
                raise InputError(
                    f"{self.node}: found accountant pure-optimal in the plan, expected another: its budget has a "
                    f"window, and {NOT_OPTIMAL}"
                )
            if more:
                price = self._price(t, self.adjacency)
                self._renewed(charge_of_totals(self._planned(t, answers, more)), price, DECIMAL)
        elif self.budget and more and self._cost(self._planned(t, answers, more)) > self.budget.epsilon * DECIMAL:
            raise self._over(self._price(t, self.adjacency))

    def _admit_question(self) -> None:
        """Whether the owner lets the device answer what is asked: by a list, else by what there was when the ledger was
        born.
        """
        question, problems = self.question, self.allow.problems
        if question is None:
            return
        if problems is not None:
            if not any(problem.allows(question) for problem in problems):
                allowed = "; ".join(map(str, problems)) or "no question"
                raise self._refused(f"asked for {question}, its owner allows {allowed}", "problem")
        elif (kinds := self.ledger.kinds_at_birth) is not None and question.kind not in kinds:
            reason = f"asked for {question}, a kind that there was not when its ledger was born"
            raise self._refused(f"{reason}; its owner names it in allow.problems", "problem")

    def _admit_masked(self, t: Terms, answers: int) -> None:
        """Whether the owner lets sums be masked so. A simulated node has no owner."""
        masked, counted, allowed = self.masked, t.masked, self.allow.masked
        if masked is None or counted is None or (self.simulated and allowed is None):
            return
        if allowed is None:
            raise self._refused("masked sums, its owner allows none (allow.masked)", "masked")
        if masked.sites and allowed.site is None:
            raise self._refused("masked sums of sites, its owner allows none (allow.masked.site)", "masked")
        among = sum(masked.sites.fewest) if masked.sites else masked.contributors
        numbers = [
            ("corrupt contributors", masked.corrupt, allowed.least_corrupt(among)),
            ("honest contributors", masked.uncorrupted, allowed.honest),
        ]
        if allowed.site and masked.sites:
            numbers.append(("honest contributors of its site", masked.site, allowed.site.honest))
        for what, actual, least in numbers:
            if actual < least:
                raise self._refused(f"{actual} {what}, its owner asks for at least {least}", "masked")
        if masked.graph is not None:
            self._admit_graph(masked.exposed, allowed.exposed)
        more = max(answers - self.answered, 0) * steps(t.adjacency, self.adjacency) ** 2
        each = t.per_answer, counted_of(counted.honest, counted.site)
        self._hold_shares(more * alone(*each), more * at_site(*each), DECIMAL)

    def _admit_graph(self, exposed: float, allowed: float | None) -> None:
        """Whether the owner lets devices mask with few others, which may add `exposed` to delta."""
        if allowed is None:
            raise self._refused("masks with few neighbours, its owner allows none (allow.masked.exposed)", "masked")
        if self.ledger.spends.kinds(self.adjacency).get("gap"):  # whatever it cost
            reason = "masks with few neighbours, its ledger was lost once: what they have added to delta is not known"
            raise self._refused(reason, "masked")
        runs = self.ledger.runs
        before = runs.exposed
        if not runs.has_key(self.run) and before + exposed > allowed * DECIMAL:
            reason = (
                f"masks that may add {exposed:g} to delta, its owner allows {allowed:g} (allow.masked.exposed; so far "
                f"{before:g})"
            )
            raise self._refused(reason, "masked")

    def _hold_shares(self, more: int, of_site: int, room: float = 1.0) -> None:
        """Raises Refused if these shares would take all of the ledger's beyond what the owner allows: against everybody
        else, and of sites against the own site's coordinator.

        `more`: their sum of h mu^2, in units of 2^-256, and `of_site` that of h/h_s mu^2; with 0 nothing is asked.
        Shares are Gaussian answers by themselves, so that mu^2 adds up over runs, as in the budget's life, and is held
        to the limit at the budget's delta. It does not renew. Answers that were not masked are not counted: whoever
        listens sees them as they are, and the budget holds them.
        """
        allowed, spends = self.allow.masked, self.ledger.spends
        if allowed is None or self.terms is None:
            return
        if more:
            self._hold(allowed.alone, "alone", more, spends.shares(self.adjacency), room)
        if allowed.site and of_site:
            self._hold(allowed.site.epsilon, "site", of_site, spends.shares(self.adjacency, at_site=True), room)

    def _hold(self, allowed: float, key: str, more: int, shares: tuple[int, int], room: float) -> None:
        """`more`: in units of 2^-256, beside `shares` of the ledger."""
        delta = self.budget.delta or 0.0 if self.budget else self.terms.delta if self.terms else 0.0
        held = sum(shares)
        if not limit(allowed * room, delta).holds(Charge(mu2=held + more, gaussian=1)):
            before, after = (worth_alone(sum_, delta) for sum_ in (held, held + more))
            whom = "everybody else" if key == "alone" else "its own site's coordinator"
            reason = (
                f"shares worth epsilon {after:g} in all against {whom}, its owner allows {allowed:g} "
                f"(allow.masked.{key}; so far {before:g}, delta {delta:g})"
            )
            raise self._refused(reason, "masked")

    @property
    def affordable(self) -> bool:
        """Whether the window has room for all answers of the plan about a data version that is yet to be declared."""
        if self.renewal is None or self.terms is None:
            return True
        more = charge_of_totals(self._planned(self.terms, self.terms.answers, self.terms.answers))
        denied = self.renewal.anew().denied(more, 0.0, DECIMAL)
        return denied is None or denied.by != "window"

    def authorise(self, spends: list[Spend]) -> None:
        """Whether these spends, not yet committed, may be added now. Refused otherwise."""
        for further in self._further:
            further.authorise(spends)
        counts = [(steps(s.adjacency, self.adjacency) ** 2, s) for s in spends if s.honest]
        self._hold_shares(
            sum(k * alone(s.value, s.honest) for k, s in counts),
            sum(k * at_site(s.value, s.honest) for k, s in counts),
        )
        if self.budget is None:
            return
        if any(s.value == inf for s in spends):
            reason = f"an answer without privacy was asked, its budget is {self.budget.epsilon:g}"
            raise self._refused(reason, "variant")
        price = _claim(self.terms, 1, self.adjacency) if self.terms else inf
        if self.renewal:
            self._renewed(self._charge(spends), price)
        elif self._cost(self._added(spends)) > self.budget.epsilon:
            raise self._over(price)

    def committed(self, spends: list[Spend]) -> None:
        """These spends are in the ledger now."""
        self.answered += len(spends)
        if self.renewal:
            self.renewal.committed(self._charge(spends))
        for further in self._further:
            further.committed(spends)

    def tighten(self, budget: Budget) -> None:
        """Another budget that this run has to keep too, from its next answer on. A larger one changes nothing in it."""
        # Its readings count for less than the window that it began with.
        longer = (budget.span or 0.0) >= ((self.budget.span if self.budget else None) or inf)
        self._further.append(
            BudgetCheck(
                self.node,
                self.ledger,
                self.run,
                self.algorithm,
                self.terms,
                budget,
                self.allow,
                simulated=self.simulated,
                version=self.version,
                expiring=self.expiring and longer,
            )
        )

    def _renewed(self, more: Charge, price: float, room: float = 1.0) -> None:
        """Raises Refused if answers of this charge would pass the window's limit or the life's."""
        assert self.renewal is not None
        if denied := self.renewal.denied(more, price, room):
            raise self._refused(denied.words, denied.by)

    def _charge(self, spends: list[Spend]) -> Charge:
        return reduce(Charge.plus, (charge_of(self._at_unit(s)) for s in spends), Charge())

    def _at_unit(self, spend: Spend) -> Event:
        return grouped(spend.event, steps(spend.adjacency, self.adjacency))

    def _added(self, spends: list[Spend]) -> Totals:
        totals = Totals()
        for spend in spends:
            totals.add(self._at_unit(spend))
        return totals

    def _planned(self, t: Terms, answers: int, more: int) -> Totals:
        """The last `more` of so many answers of the plan."""
        return t.totals(answers, steps(t.adjacency, self.adjacency), answers - more)

    def _price(self, t: Terms, unit: str) -> float:
        """Epsilon of the whole plan by itself, at the unit of an adjacency: its claim, unless that takes a larger delta

        than this device gives.
        """
        if t.delta <= self.delta:
            return _claim(t, t.answers, unit)
        return total_epsilon(t.totals(t.answers, steps(t.adjacency, unit)), self.delta)

    def _cost(self, more: Totals | None = None) -> float:
        """Epsilon of the ledger with these answers more of this run: the smaller of two valid bounds."""
        t, totals, answers = self.terms, self.ledger.spends.totals(self.adjacency), self.answered
        if more is not None:
            totals.include(more)
            answers += more.laplace + more.gaussian
        together = total_epsilon(totals, self.delta)
        if t is None or t.published or not 0 < answers <= t.answers or t.growth != 1:  # an answer that was lost is paid
            return together  # twice: of unequal ones no number of answers bounds what they cost
        # The run's own accountant claims the cost of its cap, whatever happens, at the plan's delta; pure epsilon adds
        # to what was before.
        claim = t.delta <= self.delta if self.first else t.delta == self.delta == 0
        return min(together, self.earlier + _claim(t, t.answers, self.adjacency)) if claim else together

    def _over(self, price: float) -> Refused:
        assert self.budget is not None
        return self._refused(
            f"spent epsilon {self.spent:g}, asked {price:g} more, budget {self.budget.epsilon:g} "
            f"({self.terms.adjacency if self.terms else ''}, delta {self.delta:g})",
            "budget",
        )

    def _refused(self, reason: str, by: str) -> Refused:
        return Refused(f"{self.node}: {reason}", by)


@lru_cache(maxsize=256)  # asked for before every answer
def _claim(t: Terms, answers: int, unit: str) -> float:
    """What answers of a plan cost by its own accountant, at the unit of an adjacency; all of them: what it claims."""
    k = steps(t.adjacency, unit) if relation(t.adjacency) == relation(unit) else 1
    return t.epsilon if k == 1 and answers == t.answers else t.cost(answers, k)


def worth_alone(shares: int, delta: float) -> float:
    """Epsilon of shares of masked sums against everybody else together, at this delta. `shares`: as of `Ledger.shares`,
    summed.
    """
    return (gdp_epsilon(root_up(shares), delta) if delta else inf) if shares else 0.0


def spent_in(ledger: Ledger, run: bytes, t: Terms) -> float:
    """Epsilon of a run's answers by its own accountant. Of unequal and masked ones what each has cost, those that were
    lost too.
    """
    if t.growth == 1 and t.masked is None:
        return t.cost(ledger.spends.answers(run))
    return spent_epsilon(t.accountant, ledger.spends.run_totals(run, t.adjacency), t.delta)
