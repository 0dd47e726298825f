"""A budget that renews, asked of a ledger: what a window of running time and the ledger's life have left.

An answer about data version v at running time t is refused unless the window's limit holds for

    the spends with ran >= t - window   and   those about version v, however old,

with what is asked added; and the life's limit for all spends. The second clause is for data that stand still: nothing
about them expires (docs/gate.md has both theorems). Of readings that count for less than a window, whatever is said of
versions, the first clause holds alone. Versions only rise, so of the two sets one holds the other: either
version v is younger than the window's begin, or all that the window holds is about v. The larger of both counts.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from hushgrid.kernels.privacy.accounting import Totals, total_epsilon
from hushgrid.kernels.privacy.limits import Charge, charge_of_totals, limit
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.ledger_rows import Window
from hushgrid.node.schema.durations import date, in_words
from hushgrid.node.schema.sections import Budget


class Denied(NamedTuple):
    """Which limit would be passed, and why in words."""

    by: str  #: "window" or "lifetime"
    words: str


class Renewal:
    """The two limits of one budget, for answers about one version of the data.

    A run that has begun answers about its own version to its end, whatever is declared meanwhile.
    """

    def __init__(
        self,
        ledger: Ledger,
        budget: Budget,
        adjacency: str,
        delta: float,
        version: int | None = None,
        *,
        expiring: bool = False,
    ) -> None:
        """`adjacency`: at whose unit all is counted. `delta`: of both limits. `version` [the ledger's of now].

        `expiring`: no reading in the data counts in an answer a window after it was read.
        """
        assert budget.span is not None
        self.expiring = expiring
        self.ledger, self.budget, self.adjacency, self.span = ledger, budget, adjacency, budget.span
        self.delta = delta
        self.version = ledger.data_version if version is None else version
        self._about_earlier: Charge | None = None  #: of the answers about it, once the ledger has a newer one

    @property
    def window(self) -> Window:
        return self.ledger.spends.window(self.span, self.adjacency)

    @property
    def spent(self) -> float:
        """Epsilon of what counts against the window now."""
        return limit(self.budget.epsilon, self.delta).spent(self._live())

    @property
    def spent_in_life(self) -> float:
        """Epsilon of all that the ledger holds."""
        return limit(self.budget.epsilon, self.delta).spent(self._life())

    @property
    def left(self) -> float:
        """Epsilon that the window has left, or the life if that is less."""
        window = self.budget.epsilon - self.spent
        life = inf if self.budget.lifetime is None else self.budget.lifetime - self.spent_in_life
        return max(min(window, life), 0.0)

    def committed(self, charge: Charge) -> None:
        """Answers of this charge, about this version, are in the ledger now."""
        if self._about_earlier is not None:
            self._about_earlier = self._about_earlier.plus(charge)

    def anew(self) -> Renewal:
        """The same limits for a data version that is yet to be declared: nothing has been said about it."""
        version = self.ledger.data_version + 1
        return Renewal(self.ledger, self.budget, self.adjacency, self.delta, version, expiring=self.expiring)

    def denied(self, more: Charge, asked: float, room: float = 1.0) -> Denied | None:
        """Which limit answers of the charge `more` would pass, None if neither. `asked`: their epsilon, to be said.

        `room`: by how much both limits are multiplied before they are compared.
        """
        b = self.budget
        if not limit(b.epsilon * room, self.delta).holds(self._live().plus(more)):
            words = (
                f"spent epsilon {self.spent:g} in the last {in_words(self.span)} of running time, asked {asked:g} "
                "more, "
                f"budget {b.epsilon:g} a window ({self.adjacency}, delta {self.delta:g}): {self._when(more, room)}"
            )
            return Denied("window", words)
        if b.lifetime is not None and not limit(b.lifetime * room, self.delta).holds(self._life().plus(more)):
            words = (
                f"spent epsilon {self.spent_in_life:g} over the life of the ledger, asked {asked:g} more, lifetime "
                f"{b.lifetime:g} ({self.adjacency}, delta {self.delta:g}): no time brings it back"
            )
            return Denied("lifetime", words)
        return self._denied_of_readings(more, asked, room)

    def _denied_of_readings(self, more: Charge, asked: float, room: float) -> Denied | None:
        """A reading that enters the answers of several days costs the budget's epsilon at most, over all of them."""
        days = self.ledger.spends.days(self.version)
        if days is None:
            return None
        cap, spends = limit(self.budget.epsilon * room, self.delta), self.ledger.spends
        for day, about in spends.about_days(self.adjacency, days.dates).items():
            spent, then = Charge(), Charge()
            for count, totals in ({days.n: Totals()} | about).items():
                charge = charge_of_totals(totals)  # summed before it is divided: n shares are a whole
                spent = spent.plus(charge.shared(count))
                then = then.plus((charge.plus(more) if count == days.n else charge).shared(count))
            if not cap.holds(then):
                words = (
                    f"spent epsilon {cap.spent(spent):g} on the readings of {date(day)}, asked 1/{days.n} "
                    f"of {asked:g} more, budget {self.budget.epsilon:g} a reading ({self.adjacency}, delta "
                    f"{self.delta:g}): fits with later days"
                )
                return Denied("window", words)
        return None

    def _when(self, more: Charge, room: float) -> str:
        """When it would fit, if nothing else is spent until then."""
        cap = limit(self.budget.epsilon * room, self.delta)
        if not cap.holds(more):
            return "more than a whole window"
        now, old = self.ledger.spends.running, self._of_version()
        wait = self.window.wait(now, lambda charge: cap.holds(charge.or_more(old).plus(more)))
        if wait is not None:
            return f"fits in {in_words(wait, up=True)} of running time"
        anew = self.window.wait(now, lambda charge: cap.holds(charge.plus(more)))
        then = f" in {in_words(anew, up=True)} of running time" if anew else ""
        return f"never while data version {self.version} stands, fits with new data{then}"

    def _live(self) -> Charge:
        return self.window.charge(self.ledger.spends.running).or_more(self._of_version())

    def _of_version(self) -> Charge:
        """Of the answers about the version. Its sums are the ledger's until a newer version is declared."""
        now = self.ledger.data_version
        if self.expiring or self.version > now:
            return Charge()
        if self.version == now:
            return charge_of_totals(self.ledger.spends.version_totals(self.adjacency))
        if self._about_earlier is None:
            self._about_earlier = charge_of_totals(self.ledger.spends.totals_about(self.version, self.adjacency))
        return self._about_earlier

    def _life(self) -> Charge:
        return charge_of_totals(self.ledger.spends.totals(self.adjacency))


class BudgetStatus(NamedTuple):
    """What a budget has left, from public numbers alone. Epsilons are at the budget's delta."""

    window_s: float | None  #: length of the window, s of running time; None without one
    left_window: float | None  #: epsilon that the window has left
    left_life: float | None  #: epsilon that the ledger's life has left; None: no limit over its life
    renews_s: float | None  #: s of running time until the earliest spend leaves the window; None if there is none
    #: s of running time until the life's epsilon is spent, if each window takes as much as the last one; None: never,
    #: or there is no window to judge by
    runs_out_s: float | None

    @property
    def left(self) -> float:
        """Epsilon left of the window and of the life, whichever has less."""
        return min(left for left in (self.left_window, self.left_life) if left is not None)


def budget_status(ledger: Ledger, budget: Budget, *, expiring: bool = False) -> BudgetStatus:
    """What is left of a budget now. `expiring`: as in `Renewal`."""
    adjacency, delta = str(budget.adjacency or ""), budget.delta or 0.0
    if budget.span is None:
        spent = total_epsilon(ledger.spends.totals(adjacency), delta)
        return BudgetStatus(None, None, max(budget.epsilon - spent, 0.0), None, None)
    renewal = Renewal(ledger, budget, adjacency, delta, expiring=expiring)
    window = renewal.window
    taken = window.charge(ledger.spends.running)
    renews = window.wait(ledger.spends.running, lambda charge: charge != taken) if window.groups else None
    left_window = max(budget.epsilon - renewal.spent, 0.0)
    if budget.lifetime is None:
        return BudgetStatus(budget.span, left_window, None, renews, None)
    cap = limit(budget.lifetime, delta)
    pace, left = cap.share(taken), max(1 - cap.share(charge_of_totals(ledger.spends.totals(adjacency))), 0.0)
    runs_out = left / pace * budget.span if pace else None
    left_life = max(budget.lifetime - renewal.spent_in_life, 0.0)
    return BudgetStatus(budget.span, left_window, left_life, renews, runs_out)
