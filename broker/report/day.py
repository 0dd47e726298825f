"""What result.json tells of a run over a horizon, in words: for the summary and the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from hushgrid.broker.report.dispatch import SEEN, amount, money


class Day(NamedTuple):
    """A day's energies, MWh, and its cost, $."""

    periods: int
    hours: float
    load: float
    served: float
    unserved: float
    worst: tuple[float, int]  #: the most that is not served, MW, and in which period
    spilled: float
    generation: float
    discharged: float
    cost: float
    ac: float | None  #: $; None where a period has no AC dispatch
    failed: tuple[int, ...]  #: the periods that have none, from 1
    status: str  #: of the AC recovery
    bound: float | None
    gap: float | None
    disagreement: float | None
    noisy: bool

    @property
    def loads(self) -> str:
        return "the gate's noisy loads" if self.noisy else "the loads"

    @property
    def slack(self) -> str:
        """What the cost counts beside generation and storage, as the end of a clause; "" where there is none of it."""
        return ", with lost load and curtailment" if max(self.unserved, self.spilled) >= SEEN else ""

    @property
    def headline(self) -> str:
        """The run in half a sentence."""
        how = ["AC in every period"] if self.ac is not None else [f"relaxed: {self.status}"]
        if self.slack:
            how.append(self.slack.removeprefix(", "))
        if self.bound is not None:
            how.append(f"bound {money(self.bound)}")
        cost = self.cost if self.ac is None else self.ac
        return (
            f"serves {self.served:,.1f} of {self.load:,.1f} MWh ({self.loads}) in {self.periods} periods of "
            f"{self.hours:g} h at {money(cost)} $ ({'; '.join(how)})"
        )

    @property
    def sentence(self) -> str:
        """Energies, and what storage moved."""
        lost = list[str]()
        if self.unserved >= SEEN:
            most, when = self.worst
            lost = [f"{amount(self.unserved)} MWh are not served (most in period {when}: {amount(most)} MW)"]
        lost += [f"{amount(self.spilled)} MWh are generated and used by nobody"] if self.spilled >= SEEN else []
        apart = (
            "" if self.disagreement is None else f"; zones differ by at most {amount(self.disagreement)} MW in a tie"
        )
        moved = f"storage gives {amount(self.discharged)} MWh" if self.discharged >= SEEN else ""
        clauses = [f"{self.generation:,.1f} MWh are generated", *([moved] if moved else []), *lost]
        return ", ".join(clauses) + apart


def day_of(result: Mapping[str, Any], noisy: bool) -> Day | None:
    """None of a run that is no day, or has ended without a dispatch."""
    horizon = result.get("horizon")
    if not horizon or not isinstance(result.get("served_mw"), list):
        return None
    hours, ac = float(horizon["hours"]), result.get("ac") or {}
    energy = {key: hours * sum(result[f"{key}_mw"]) for key in ("load", "served", "unserved", "spilled", "generation")}
    return Day(
        periods=int(horizon["periods"]),
        hours=hours,
        **energy,
        worst=max((mw, t) for t, mw in enumerate(result["unserved_mw"], 1)),
        discharged=hours * sum(result.get("discharge_mw") or ()),
        cost=float(result["objective"]),
        ac=ac.get("objective"),
        failed=tuple(ac.get("failed") or ()),
        status=str(ac.get("status") or ""),
        bound=result.get("bound"),
        gap=result.get("gap"),
        disagreement=result.get("disagreement_mw"),
        noisy=noisy,
    )
