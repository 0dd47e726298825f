"""What a run at least cost has found, in words: the headline, whether the figures are set-points, and who knows what.

Pure functions of result.json and of the scenario's own words. A dispatch is `set-points` only if the zones have agreed,
hardly any load is left out and the AC power flow equations hold; else it is called what it is, and the reason is told.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, isfinite

from hushgrid.broker.report.quality import WORD
from hushgrid.kernels.types import DocumentView
from hushgrid.node.problems.power_flow.section import VOLL

UNSERVED = 0.01  #: of the load; a dispatch that leaves out more is no set-points
SEEN = 0.0005  #: MW; less is 0 at three decimals
SOLVED = "solved"  #: of an AC recovery that has found a dispatch


@dataclass(frozen=True)
class Power:
    """Sums of a dispatch in MW, its slack in MVAr too, and its objective in $/h, the slack's price included."""

    objective: float
    generation: float
    load: float
    served: float
    unserved: float
    spilled: float
    mvar: float  #: reactive power not served, or taken by nobody

    @property
    def slack(self) -> float:
        """MW and MVAr that are priced at the value of lost load."""
        return self.unserved + self.spilled + self.mvar


@dataclass(frozen=True)
class Dispatch:
    """The dispatch of a run, from result.json."""

    noisy: bool  #: whether the loads are a gate's noisy ones
    voll: float  #: $/MWh, $/MVArh
    verdict: str  #: on the answer, `quality`
    disagreement: float | None  #: MW or MVAr
    relaxed: Power | None  #: None: the run ended before the zones had handed over what they found
    ac: Power | None  #: None: there is no AC dispatch
    status: str  #: of the AC recovery; "": there was none
    bound: float | None  #: what no dispatch at these loads can be cheaper than, $/h, proven; None: none is known
    gap: float | None  #: how far the cost is from it, as a share of the cost

    @property
    def converged(self) -> bool:
        return self.verdict in ("solved", "agreed")

    @property
    def power(self) -> Power | None:
        """What the tables hold: the AC dispatch if there is one."""
        return self.ac or self.relaxed

    def generation_cost(self, power: Power) -> float:
        """$/h, without the price of the slack."""
        return power.objective - self.voll * power.slack

    @property
    def loads(self) -> str:
        return "noisy loads" if self.noisy else "loads"

    @property
    def lost(self) -> list[str]:
        """What is not balanced, in words; empty where all is."""
        power = self.power
        if power is None:
            return []
        amounts = ((power.unserved, "MW unserved"), (power.spilled, "MW spilled"), (power.mvar, "MVAr not balanced"))
        return [f"{amount(value)} {what}" for value, what in amounts if value >= SEEN]

    @property
    def reasons(self) -> list[str]:
        """Why these are no set-points; empty where they are."""
        power, reasons = self.power, []
        if power is None:
            return ["the run ended before the zones had handed over a dispatch"]
        if not self.converged:
            reasons.append(f"the zones have not agreed: {self.apart}")
        if self.ac is None:
            reasons.append(f"no dispatch was found that satisfies the AC power flow equations ({self.no_ac})")
        if power.unserved > UNSERVED * max(power.load, 0.0):
            share = f", {100 * power.unserved / power.load:.1f} % of the load," if power.load > 0 else ""
            reasons.append(f"{amount(power.unserved)} MW{share} are not served")
        return reasons

    @property
    def word(self) -> str:
        """What the figures are called."""
        return "dispatch (AC)" if self.ac else "dispatch (relaxed)"

    @property
    def title(self) -> str:
        """The word, or set-points where they are."""
        return self.word if self.reasons else "set-points"

    @property
    def apart(self) -> str:
        return f"disagreement {amount(self.disagreement)} MW" if self.disagreement is not None else "no round was done"

    @property
    def agreed(self) -> str:
        """How far the zones have come to agree."""
        if self.converged and self.disagreement is not None:
            return f"agreed within {within(self.disagreement)} MW"
        return f"{WORD.get(self.verdict, 'not converged')}, {self.apart}"

    @property
    def no_ac(self) -> str:
        if not self.status:
            return "none was looked for"
        return f"the AC step was {self.status}" if self.status.startswith("left out") else self.status

    @property
    def sentence(self) -> str:
        """What the figures are, and why they are no more."""
        if self.reasons:
            return f"{self.title[0].upper()}{self.title[1:]}, not for a controller: {'; '.join(self.reasons)}."
        but = f", but for {' and '.join(self.lost)}" if self.lost else ""
        return f"Set-points: the zones have agreed, and the AC power flow equations hold at the {self.loads}{but}."

    @property
    def headline(self) -> str:
        """The run in half a sentence."""
        power = self.power
        if power is None:
            return f"no dispatch: {self.reasons[0]}"
        cost, how = money(self.generation_cost(power)), ["AC"] if self.ac else [f"relaxed: {self.no_ac}"]
        if power.slack >= SEEN:
            how.append(f"{money(power.objective)} with slack at {self.voll:,.0f} $/MWh")
        if self.ac and self.bound is not None:
            how.append(f"bound {money(self.bound)}")
        clauses = [
            f"serves {power.served:,.1f} of {power.load:,.1f} MW ({self.loads}) at {cost} $/h ({'; '.join(how)})"
        ]
        return ", ".join([*clauses, *self.lost, self.agreed])


def dispatch_of(result: DocumentView, voll: float | None, noisy: bool) -> Dispatch:
    """The dispatch that result.json tells of. voll: None is the default."""
    ac = result.get("ac") or {}
    status = str(ac.get("status") or "")
    return Dispatch(
        noisy=noisy,
        voll=VOLL if voll is None else float(voll),
        verdict=str((result.get("quality") or {}).get("verdict")),
        disagreement=_number(result.get("disagreement_mw")),
        relaxed=_power(result),
        ac=_power(ac) if status == SOLVED else None,
        status=status,
        bound=_bound(result),
        gap=_number(result.get("gap")),
    )


def _bound(result: DocumentView) -> float | None:
    """Proven; of a run directory of before there was one, the optimum of the relaxation, where zones agree and it is
    known.
    """
    bound, known, value = (_number(result.get(key)) for key in ("bound", "optimality_gap", "objective"))
    if bound is not None or known is None or value is None:
        return bound
    return value - known if (result.get("quality") or {}).get("verdict") == "agreed" else None


def feasible(result: DocumentView) -> bool:
    """Whether result.json tells of a dispatch that satisfies the AC power flow equations."""
    return bool((result.get("ac") or {}).get("status") == SOLVED)


def _power(figures: DocumentView) -> Power | None:
    keys = ("objective", "generation_mw", "load_mw", "served_mw", "unserved_mw", "spilled_mw", "slack_mvar")
    values = [_number(figures.get(key)) for key in keys]
    return None if any(value is None for value in values) else Power(*(value for value in values if value is not None))


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def money(value: float) -> str:
    """$/h for reading."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.2f}"


def amount(value: float | None) -> str:
    """MW for reading: a decimal, or as many as it takes."""
    if value is None or not isfinite(value):
        return "–"
    return f"{value:,.1f}" if abs(value) >= 1 else f"{value:.2f}" if abs(value) >= 0.05 else f"{value:.3f}"


def within(value: float) -> str:
    """A bound on MW, rounded up."""
    return f"{ceil(value * 100 - 1e-9) / 100:.2f}" if isfinite(value) else "–"


# --- privacy ---
