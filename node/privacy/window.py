"""What counts against a budget that renews: the spends of the last `span` seconds of a device's running time.

The interval is closed, and slides with every second: a period of the calendar would let twice the budget pass across
its end. Spends are held in at most a thousand groups, whatever their number, each with the time of its last one: so a
spend leaves the window up to a thousandth of it late, never early. What is older is not held at all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hushgrid.kernels.privacy.accounting import Totals, grouped
from hushgrid.kernels.privacy.limits import Charge, charge_of, charge_of_totals
from hushgrid.node.privacy.ledger_rows import Recent, events_of, relation, steps

GROUPS = 1000  #: the most that a window is divided into


@dataclass
class Group:
    """Spends that are close together in time."""

    first: float  #: running time of the earliest, s
    last: float  #: of the latest
    charge: Charge


class Window:
    """The spends of the last `span` s, at the unit of `adjacency`. `recent`: those that a ledger has, the last first."""

    def __init__(self, span: float, adjacency: str, recent: Iterable[Recent] = ()) -> None:
        self.span, self.adjacency = span, adjacency
        self._groups: deque[Group] = deque()
        self._charge = Charge()
        for row in recent:
            if (k := self._steps(row.adjacency)) is not None:
                totals = Totals()
                totals.include(row.totals, k)
                self._put(row.ran, charge_of_totals(totals), before=True)

    def add(self, ran: float, adjacency: str, kind: str, value: float, mu2: float) -> None:
        """A spend was made at running time `ran`, s."""
        if (k := self._steps(adjacency)) is not None:
            for event in events_of(kind, value, mu2):
                self._put(ran, charge_of(grouped(event, k)))

    def charge(self, now: float) -> Charge:
        """Of all spends in [now - span, now], now in s of running time."""
        while self._groups and self._groups[0].last < now - self.span:
            self._charge = self._charge.plus(self._groups.popleft().charge, -1)
        return self._charge

    def wait(self, now: float, fits: Callable[[Charge], bool]) -> float | None:
        """How long, s of running time, until `fits` is true of what the window then holds, if nothing more is spent.

        None if it is not even of an empty window.
        """
        left, wait = self.charge(now), 0.0
        if fits(left):
            return wait
        for group in self._groups:
            left, wait = left.plus(group.charge, -1), max(group.last + self.span - now, 0.0)
            if fits(left):
                return wait
        return None

    @property
    def groups(self) -> int:
        """How many groups of spends it holds."""
        return len(self._groups)

    def _steps(self, adjacency: str) -> int | None:
        """k of group privacy by which a spend under `adjacency` counts; None if it does not count here."""
        if adjacency == "":  # a gap: it counts everywhere
            return 1
        return steps(adjacency, self.adjacency) if relation(adjacency) == relation(self.adjacency) else None

    def _put(self, ran: float, charge: Charge, *, before: bool = False) -> None:
        """Counts a charge made at `ran`, which is not before the last group, or with `before` not after the first."""
        self._charge = self._charge.plus(charge)
        group = self._groups[0 if before else -1] if self._groups else Group(ran, ran, Charge())
        first, last = min(group.first, ran), max(group.last, ran)
        if not self._groups or last - first > self.span / GROUPS:
            group = Group(ran, ran, Charge())
            (self._groups.appendleft if before else self._groups.append)(group)
            first = last = ran
        group.first, group.last, group.charge = first, last, group.charge.plus(charge)
