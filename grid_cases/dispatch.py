"""What an operator reads of a dispatch: generation, balance, lines and buses, in MW, MVAr, p.u. and $.

A dispatch is put together from the zones' own parts: each zone knows its generators, its buses, and its end of every
line that leaves it. Everything is at the loads that the zones computed with. `relaxed` values are those of the
second-order-cone relaxation, whose flows are not unique; `ac` values satisfy the AC power flow equations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hushgrid.grid_cases.case import Case, Floats, Ints
from hushgrid.grid_cases.costs import dispatch_cost, of_controls
from hushgrid.grid_cases.variables import Layout

#: Flows: p and q into a line at its first and at its second bus.
FLOWS = ("pF", "qF", "pT", "qT")

GENERATION = ("gen", "bus", "zone", "p_mw", "p_min", "p_max", "q_mvar", "cost_per_h", "marginal", "source")
BALANCE = (
    *("zone", "load_mw", "served_mw", "unserved_mw", "spilled_mw"),
    *("load_mvar", "served_mvar", "unserved_mvar", "spilled_mvar"),
    *("generation_mw", "losses_mw", "interchange_mw", "source"),
)
LINES = (
    *("branch", "from", "to", "zones", "p_from", "q_from", "p_to", "q_to"),
    *("limit_mva", "loading_percent", "tie", "disagreement_mw", "source"),
)
DC_LINES = (
    *("dcline", "from", "to", "zones", "p_from", "q_from", "p_to", "q_to"),
    *("p_min", "p_max", "losses_mw", "tie", "disagreement_mw", "source"),
)
BUSES = ("bus", "zone", "v_pu", "v_min", "v_max", "price_per_mwh", "price_q", "price_relaxed", "source")


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One zone's part of a dispatch, at loads d."""

    layout: Layout
    d: Floats  #: (2 nb,) p then q of its buses, p.u.
    z: Floats  #: (n,) p.u.
    price: Floats  #: (2 nb,) $/MWh, then $/MVArh
    stored: Floats | None = None  #: (nb,) what storage takes at each bus, p.u.; negative: gives


@dataclass(frozen=True, slots=True, eq=False)
class Dispatch:
    """A dispatch of the whole case, arrays in the order of the case's own tables."""

    case: Case
    source: str  #: relaxed, or ac
    zone_of: Mapping[int, str]  #: of each bus number
    d: Floats  #: (buses, 2) loads, p.u.
    p_g: Floats  #: (generators,) p.u.
    q_g: Floats
    v: Floats  #: (buses,) voltage magnitude, p.u.
    flows: Floats  #: (lines, 4) in the order of FLOWS, p.u.
    apart: Floats  #: (lines,) the most by which two zones differ in a flow of the line, p.u.; 0 inside a zone
    dc: Floats  #: (dc lines, 4) as flows
    dc_apart: Floats  #: (dc lines,) as apart
    slack: Floats  #: (buses, 4) p not served, p spilled, q not served, q spilled, p.u.
    price: Floats  #: (buses, 2) $/MWh and $/MVArh, the multipliers of this dispatch's own balance
    price_relaxed: Floats  #: (buses,) $/MWh, of the relaxation: where `source` is relaxed they are the same
    #: (buses,) what storage takes at each bus, p.u.; negative: gives; (0,): there is none
    stored: Floats = field(default_factory=lambda: np.zeros(0))

    @property
    def generation_cost(self) -> float:
        """$/h, of dc lines too."""
        return dispatch_cost(self.case, self.p_g, self.q_g, self.dc)

    @property
    def power(self) -> dict[str, float]:
        """Sums over the case, MW and MVAr."""
        load, slack, base = self.d.sum(axis=0), self.slack.sum(axis=0), self.case.base_mva
        figures = {
            "generation_mw": float(self.p_g.sum()),
            "load_mw": float(load[0]),
            "served_mw": float(load[0] - slack[0]),
            "unserved_mw": float(slack[0]),
            "spilled_mw": float(slack[1]),
            "slack_mvar": float(slack[2] + slack[3]),
        }
        return {key: value * base for key, value in figures.items()}

    def tables(self) -> dict[str, tuple[tuple[str, ...], list[tuple[Any, ...]]]]:
        """The tables by name: columns, and rows. That of dc lines only if there are any."""
        tables: dict[str, tuple[tuple[str, ...], list[tuple[Any, ...]]]] = {
            "generation": (GENERATION, self._generation()),
            "balance": (BALANCE, self._balance()),
            "lines": (LINES, self._lines()),
            "buses": (BUSES, self._buses()),
        }
        return tables | ({"dclines": (DC_LINES, self._dc_lines())} if len(self.case.dc_lines) else {})

    @property
    def zones(self) -> list[str]:
        return list(dict.fromkeys(self.zone_of.values()))

    def interchange(self) -> dict[str, float]:
        """Power that leaves each zone over the lines between zones, MW."""
        out = dict.fromkeys(self.zones, 0.0)
        for i, j, p_from, p_to in self._ends():
            a, b = self.zone_of[i], self.zone_of[j]
            if a != b:
                out[a] += p_from * self.case.base_mva
                out[b] += p_to * self.case.base_mva
        return out

    def tie_flows(self) -> dict[str, float]:
        """Power from the first to the second of two zones, MW, by their names: over all lines between them."""
        total: dict[str, float] = {}
        rank = {zone: place for place, zone in enumerate(self.zones)}
        for i, j, p_from, p_to in self._ends():
            a, b = self.zone_of.get(i), self.zone_of.get(j)
            if a is None or b is None or a == b:
                continue
            first, second, p = (a, b, p_from) if rank[a] < rank[b] else (b, a, p_to)
            name = f"{first}-{second}"
            total[name] = total.get(name, 0.0) + p * self.case.base_mva
        return total

    def _ends(self) -> list[tuple[int, int, float, float]]:
        """First and second bus of every line and dc line, and the active power into it at each, p.u."""
        rows = list[tuple[int, int, float, float]]()
        for table, flows in ((self.case.lines, self.flows), (self.case.dc_lines, self.dc)):
            columns = (table.from_bus, table.to_bus, flows[:, 0], flows[:, 2])
            rows += zip(*(column.tolist() for column in columns), strict=True)
        return rows

    # --- rows ---

    def _generation(self) -> list[tuple[Any, ...]]:
        g, base = self.case.generators, self.case.base_mva
        costs, controls = of_controls(self.case), np.concatenate([self.p_g, self.q_g, self.dc[:, 0]])
        (active, reactive), slope = costs.each(controls)[: 2 * len(g)].reshape(2, -1), costs.marginal(controls) / base
        cost = active + reactive
        columns = (self.p_g * base, g.p_min * base, g.p_max * base, self.q_g * base, cost, slope)
        return [
            (row + 1, bus, self.zone_of[bus], *(_places(c[k]) for c in columns), self.source)
            for k, (row, bus) in enumerate(zip(g.rows.tolist(), g.bus.tolist(), strict=True))
        ]

    def _balance(self) -> list[tuple[Any, ...]]:
        base, case, out = self.case.base_mva, self.case, self.interchange()
        losses = dict.fromkeys(self.zones, 0.0)  # of a line between zones, half to each
        for i, j, p_from, p_to in self._ends():
            for bus in (i, j):
                losses[self.zone_of[bus]] += (p_from + p_to) * base / 2
        rows = []
        of_bus = np.array([self.zone_of[bus] for bus in case.buses.numbers.tolist()])
        of_gen = np.array([self.zone_of[bus] for bus in case.generators.bus.tolist()])
        for zone in self.zones:
            load = self.d[of_bus == zone].sum(axis=0) * base
            lost_p, spilled_p, lost_q, spilled_q = self.slack[of_bus == zone].sum(axis=0) * base
            values = (load[0], load[0] - lost_p, lost_p, spilled_p, load[1], load[1] - lost_q, lost_q, spilled_q)
            generated = self.p_g[of_gen == zone].sum() * base
            rows.append((zone, *(_places(v) for v in (*values, generated, losses[zone], out[zone])), self.source))
        return rows

    def _lines(self) -> list[tuple[Any, ...]]:
        lines, base = self.case.lines, self.case.base_mva
        size = np.maximum(np.hypot(*self.flows[:, :2].T), np.hypot(*self.flows[:, 2:].T)) * base
        rows = []
        for k, (row, i, j) in enumerate(
            zip(lines.rows.tolist(), lines.from_bus.tolist(), lines.to_bus.tolist(), strict=True)
        ):
            a, b = self.zone_of[i], self.zone_of[j]
            limit = lines.rate[k] * base
            rows.append(
                (
                    *(row + 1, i, j, a if a == b else f"{a}-{b}", *(_places(f) for f in self.flows[k] * base)),
                    *((_places(limit), _places(100 * size[k] / limit)) if limit else ("", "")),
                    *("no" if a == b else "yes", _places(self.apart[k] * base), self.source),
                )
            )
        return rows

    def _dc_lines(self) -> list[tuple[Any, ...]]:
        lines, base, rows = self.case.dc_lines, self.case.base_mva, list[tuple[Any, ...]]()
        for k, (row, i, j) in enumerate(
            zip(lines.rows.tolist(), lines.from_bus.tolist(), lines.to_bus.tolist(), strict=True)
        ):
            a, b, flow = self.zone_of[i], self.zone_of[j], self.dc[k] * base
            values = (*flow, lines.p_min[k] * base, lines.p_max[k] * base, flow[0] + flow[2])
            where = (row + 1, i, j, a if a == b else f"{a}-{b}")
            tie = ("no" if a == b else "yes", _places(self.dc_apart[k] * base), self.source)
            rows.append((*where, *(_places(v) for v in values), *tie))
        return rows

    def _buses(self) -> list[tuple[Any, ...]]:
        buses = self.case.buses
        columns = (self.v, buses.v_min, buses.v_max, *self.price.T, self.price_relaxed)
        return [
            (bus, self.zone_of[bus], *(_places(c[k]) for c in columns), self.source)
            for k, bus in enumerate(buses.numbers.tolist())
        ]


def _places(value: float) -> float | str:
    """Six decimals, a watt of a MW; empty where there is no number or no limit."""
    return round(float(value), 6) + 0.0 if np.isfinite(value) else ""


def relaxed(case: Case, parts: Mapping[str, Part]) -> Dispatch:
    """The zones' parts together. Of a line between zones each flow is the mean of what its two zones hold."""
    n, base_slack = len(case.buses), np.zeros((len(case.buses), 4))
    d, v, price, stored = np.zeros((n, 2)), np.zeros(n), np.zeros((n, 2)), np.zeros(n)
    p_g, q_g = np.zeros(len(case.generators)), np.zeros(len(case.generators))
    lines, dc_lines = _Shared(len(case.lines)), _Shared(len(case.dc_lines))
    for part in parts.values():
        layout, z = part.layout, part.z
        places = case.index(np.array(layout.buses, np.int64))
        d[places], price[places] = part.d.reshape(2, -1).T, part.price.reshape(2, -1).T
        v[places] = np.sqrt(np.maximum(z[layout.c[np.searchsorted(layout.seen, layout.buses)]], 0.0))
        p_g[layout.generators], q_g[layout.generators] = z[layout.p_g], z[layout.p_g + 1]
        s = (layout.balance() @ z + part.d).reshape(2, -1)
        if part.stored is not None:
            stored[places] = part.stored
            s[0] += part.stored
        base_slack[places] = np.stack(
            [*(x for row in s for x in (np.maximum(row, 0.0), np.maximum(-row, 0.0)))], axis=1
        )
        lines.add(layout.lines, np.stack([z[layout.p_F + k] for k in range(4)], axis=1))
        dc_lines.add(layout.dc, np.stack([z[layout.dc_p_F + k] for k in range(4)], axis=1))
    base_slack[base_slack < SMALLEST] = 0.0
    return Dispatch(
        case=case,
        source="relaxed",
        zone_of=zone_of(parts),
        d=d,
        p_g=p_g,
        q_g=q_g,
        v=v,
        flows=lines.mean,
        apart=lines.apart,
        dc=dc_lines.mean,
        dc_apart=dc_lines.apart,
        slack=base_slack,
        price=price,
        price_relaxed=price[:, 0],
        stored=stored,
    )


class _Shared:
    """The flows of lines as their zones hold them."""

    def __init__(self, count: int) -> None:
        self._total, self._count = np.zeros((count, 4)), np.zeros(count)
        self._low, self._high = np.full((count, 4), np.inf), np.full((count, 4), -np.inf)

    def add(self, lines: Ints, flows: Floats) -> None:
        self._total[lines] += flows
        self._count[lines] += 1
        self._low[lines] = np.minimum(self._low[lines], flows)
        self._high[lines] = np.maximum(self._high[lines], flows)

    @property
    def mean(self) -> Floats:
        """(lines, 4); a line inside a zone that is held is nobody's."""
        return self._total / np.maximum(self._count, 1)[:, None]

    @property
    def apart(self) -> Floats:
        """(lines,) the most by which two zones differ in a flow."""
        most: Floats = (self._high - self._low).max(axis=1, initial=0.0)
        return most


SMALLEST = 1e-6  #: p.u.; less slack than that is a solver's rounding


def zone_of(parts: Mapping[str, Part]) -> dict[int, str]:
    """The zone of each bus number."""
    return {bus: zone for zone, part in parts.items() for bus in part.layout.buses}
