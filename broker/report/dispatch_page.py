"""The parts of a report that only a run of zones has: what is told first, key figures, the map, set-points, tables,
charts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import PurePath
from typing import TYPE_CHECKING

import numpy as np

from hushgrid.broker.report import dispatch, quality
from hushgrid.broker.report.dispatch import Dispatch
from hushgrid.broker.report.drawings import gridmap, powermap
from hushgrid.broker.report.drawings.numbers import MISSING, fixed, natural, number
from hushgrid.broker.report.drawings.page import figure, paragraphs, table
from hushgrid.broker.report.run_directory import Run, Setpoint
from hushgrid.kernels.types import DocumentView

if TYPE_CHECKING:
    from hushgrid.grid_cases.case import Case

Row = DocumentView

STYLE = (  # of the page
    powermap.STYLE
    + """
th, td { padding: 4px 6px; } th { white-space: normal; vertical-align: bottom; } table { font-size: 13px; }
.about { font-size: 13px; color: var(--soft); margin: 0 0 4px; max-width: none; } .about + .scroll { margin-top: 6px; }
@media (max-width: 640px) { dl:not(.wide) { grid-template-columns: 1fr 1fr; gap: 12px; } }
details > .scroll { margin-top: 10px; } details { margin: 0 0 22px; }
"""
)

SHORT = 40  #: rows of a table that stands whole; of a longer one the first that matter, and the rest folded
FIRST = 12
ENDS = 6  #: of the highest, and of the lowest

#: Columns as the operator reads them, with their units. "source" is told in the caption, or as a column if it varies.
HEADINGS = {
    "generation": {
        "gen": "Generator",
        "bus": "Bus",
        "zone": "Zone",
        "p_mw": "P, MW",
        "q_mvar": "Q, MVAr",
        "p_min": "P least, MW",
        "p_max": "P most, MW",
        "cost_per_h": "Cost, $/h",
        "marginal": "Marginal cost, $/MWh",
    },
    "balance": {
        "zone": "Zone",
        "load_mw": "Load, MW",
        "served_mw": "Served, MW",
        "unserved_mw": "Unserved, MW",
        "spilled_mw": "Curtailed, MW",
        "generation_mw": "Generation, MW",
        "losses_mw": "Losses, MW",
        "charge_mw": "Charging, MW",
        "discharge_mw": "Discharging, MW",
        "interchange_mw": "Interchange, MW",
        "load_mvar": "Load, MVAr",
        "served_mvar": "Served, MVAr",
        "unserved_mvar": "Unserved, MVAr",
        "spilled_mvar": "Curtailed, MVAr",
    },
    "lines": {
        "branch": "Branch",
        "from": "From bus",
        "to": "To bus",
        "zones": "Zones",
        "loading_percent": "Loading, %",
        "p_from": "P from, MW",
        "q_from": "Q from, MVAr",
        "p_to": "P to, MW",
        "q_to": "Q to, MVAr",
        "limit_mva": "Limit, MVA",
        "tie": "Tie",
        "disagreement_mw": "Disagreement, MW",
    },
    "dclines": {
        "dcline": "DC line",
        "from": "From bus",
        "to": "To bus",
        "zones": "Zones",
        "p_from": "P from, MW",
        "q_from": "Q from, MVAr",
        "p_to": "P to, MW",
        "q_to": "Q to, MVAr",
        "p_min": "P least, MW",
        "p_max": "P most, MW",
        "losses_mw": "Losses, MW",
        "tie": "Tie",
        "disagreement_mw": "Disagreement, MW",
    },
    "buses": {
        "bus": "Bus",
        "zone": "Zone",
        "v_pu": "V, p.u.",
        "price_per_mwh": "Price, $/MWh",
        "v_min": "V least, p.u.",
        "v_max": "V most, p.u.",
        "price_q": "Price of Q, $/MVArh",
        "price_relaxed": "Price in the relaxation, $/MWh",
    },
}


def dispatch_of(run: Run) -> Dispatch:
    """The run's dispatch in words."""
    return dispatch.dispatch_of(run.result, (run.scenario.get("problem") or {}).get("voll"), run.noisy_loads)


def name(run: Run) -> str:
    """Of the case: its own, of a file that is gone the name without its folder."""
    if (case := run.case) is not None:
        return case.name
    return PurePath(str((run.scenario.get("problem") or {}).get("case"))).name.removesuffix(".m")


def title(run: Run) -> str:
    """Of the tables."""
    word = dispatch_of(run).title
    return word[0].upper() + word[1:]


def source(run: Run) -> str:
    """Of the rows of the tables: "ac", "relaxed", or "mixed"."""
    sources = {row["source"] for rows in run.tables.values() for row in rows}
    return next(iter(sources)) if len(sources) == 1 else "mixed"


def _what(run: Run, of_flows: bool = False) -> str:
    """Whether values are the relaxation's or AC."""
    lost = dispatch_of(run).lost
    words_of = {
        "ac": f"AC: the values satisfy the AC power flow equations{', but for ' * bool(lost)}{' and '.join(lost)}.",
        "relaxed": "Relaxed: values of the second-order-cone relaxation, which need not satisfy the AC power flow "
        "equations.",
        "mixed": "Each row says whether its values are AC or relaxed.",
    }[source(run)]
    flat = " Flows of the relaxation are not unique: others may cost the same." if of_flows else ""
    return words_of + (flat if source(run) != "ac" else "")


# --- key figures ---


def key_figures(run: Run) -> list[tuple[str, str]]:
    """Name and value pairs."""
    result = dispatch_of(run)
    power = result.power
    if power is None:
        return []
    how = "AC" if result.ac else "relaxed"
    rows = [
        (f"Load served ({result.loads})", f"{dispatch.amount(power.served)} of {dispatch.amount(power.load)} MW"),
        *_band(run),
        (f"Generation ({how})", f"{dispatch.amount(power.generation)} MW"),
        (f"Cost of generation ({how})", f"{dispatch.money(result.generation_cost(power))} $/h"),
    ]
    for label, value, unit in (
        ("Unserved", power.unserved, "MW"),
        ("Curtailed: generated, used by nobody", power.spilled, "MW"),
        ("Reactive power not balanced", power.mvar, "MVAr"),
    ):
        rows.append((label, f"{dispatch.amount(value) if value >= dispatch.SEEN else '0'} {unit}"))
    if power.slack >= dispatch.SEEN:
        rows.append((f"With slack at {result.voll:,.0f} $/MWh", f"{dispatch.money(power.objective)} $/h"))
    if result.bound is not None:
        rows.append(("Bound: no dispatch costs less, proven", f"{dispatch.money(result.bound)} $/h"))
    if result.gap is not None:
        rows.append(("Distance from it", f"at most {quality.at_most(result.gap)}"))
    if result.disagreement is not None:
        rows.append(("Largest disagreement of two zones", f"{result.disagreement:,.3f} MW or MVAr"))
    return rows + extremes(run)


def _band(run: Run) -> list[tuple[str, str]]:
    """Where the sum of the true loads is: a noisy sum, plus or minus two standard deviations of its noise."""
    sd = run.result.get("load_noise_mw")
    if not isinstance(sd, float):
        return []
    return [
        ("The true loads sum to it within", f"± {dispatch.amount(2 * sd)} MW (two standard deviations of the noise)")
    ]


def extremes(run: Run) -> list[tuple[str, str]]:
    """The lowest and the highest of its tables, over all periods of a day."""
    lines = []
    for column, label, unit, places in (("price_per_mwh", "Prices", "$/MWh", 2), ("v_pu", "Voltages", "p.u.", 3)):
        rows = _by(run.tables.get("buses", ()), column)
        if rows:
            low, high = rows[0], rows[-1]
            ends = [f"{fixed(row[column], places)} {{}}(bus {row['bus']}{_when(row)})" for row in (low, high)]
            text = f"{ends[0].format('')} to {ends[1].format(unit + ' ')}"
            lines.append((label, text))
    if closest := _by_room(run.tables.get("buses", ())):
        row = closest[0]
        limits = f"{fixed(row['v_min'], 3)} to {fixed(row['v_max'], 3)}"
        where = f"bus {row['bus']}, {fixed(row['v_pu'], 3)} of {limits}{_when(row)}"
        lines.append(("Voltage nearest to a limit", f"{fixed(_room(row), 3)} p.u. away ({where})"))
    loaded = _by(run.tables.get("lines", ()), "loading_percent")
    if loaded:
        most = loaded[-1]
        where = f"branch {most['branch']}, {most['from']} to {most['to']}{_when(most)}"
        lines.append(("Most loaded line", f"{fixed(most['loading_percent'], 1)} % ({where})"))
    return lines


def _when(row: Row) -> str:
    return f", period {row['period']}" if "period" in row else ""


def _by(rows: Iterable[Row], column: str) -> list[Row]:
    """Rows with a value in the column, the lowest first."""
    return sorted((row for row in rows if math.isfinite(row[column])), key=lambda row: float(row[column]))


def _room(row: Row) -> float:
    """How far a bus's voltage is from the nearer of its limits, p.u.; negative beyond it."""
    return float(min(row["v_pu"] - row["v_min"], row["v_max"] - row["v_pu"]))


def _by_room(rows: Iterable[Row]) -> list[Row]:
    """Buses with a choice of voltage, those nearest to a limit first."""
    return sorted((row for row in rows if row["v_max"] > row["v_min"] and math.isfinite(row["v_pu"])), key=_room)


# --- the map ---


def grid(run: Run) -> str:
    """The map of the dispatch as a figure; "" where there are no tables."""
    buses = run.tables.get("buses", ())
    if not buses:
        return ""
    if len(buses) > gridmap.MAX_DRAWN:
        return paragraphs([f"The grid is not drawn: it has {number(len(buses))} buses."])
    many = "" if len(buses) <= powermap.FEW else " Of this many buses the extremes are labelled."
    caption = (
        f"Arrows point where active power flows. The width of a line and its colour say how much of its limit is used; "
        "lines between the same two buses are drawn as one, with the highest loading. G, or a small square where no "
        "letter fits, marks a bus with a generator. "
        f"{_what(run, of_flows=True)} {_prices(run)}{many} "
    )
    places = _coordinates(run)
    caption += "The layout follows connections, not geography." if places is None else "Buses are where the case has "
    caption += "" if places is None else "them; those at one place are drawn side by side."
    return figure(f"{title(run)} on the grid", powermap.drawing(run.tables, name(run), places), caption)


def _coordinates(run: Run) -> np.ndarray | None:
    """(buses, 2) of the map, one unit as long to the east as to the north; None if the case has none."""
    case = run.case
    if case is None or not len(case.coordinates):
        return None
    known = {
        bus: (x, y)
        for bus, x, y in zip(*(getattr(case.coordinates, key).tolist() for key in ("bus", "x", "y")), strict=True)
    }
    buses = [row["bus"] for row in run.tables["buses"]]
    if any(bus not in known for bus in buses):
        return None
    places = np.array([known[bus] for bus in buses], np.float64)
    degrees = bool(np.all(np.abs(places) <= (180.0, 90.0))) and float(np.ptp(places[:, 0])) < 10.0
    east = math.cos(math.radians(float(places[:, 1].mean()))) if degrees else 1.0
    scaled: np.ndarray = places * np.array([east, 1.0])
    return scaled


def _prices(run: Run) -> str:
    """What a price is."""
    result = dispatch_of(run)
    if "period" in run.result:
        return "Prices are those of the plan over all periods, the relaxation's: what one more MWh of load would cost."
    meant = f"at the {result.loads}: what one more MW of load at the bus would cost, in $/MWh."
    apart = " of each zone's own last step: the zones have not agreed on them."
    if result.ac is not None:
        sentence = f"Prices are those of the AC dispatch {meant}"
        return sentence if result.converged else f"{sentence} Prices in the relaxation are those{apart}"
    return f"Prices are those of the relaxation {meant}" if result.converged else f"Prices are those{apart}"


# --- tables ---


def tables(run: Run) -> str:
    """The tables, each led by what matters in it, as HTML."""
    result = dispatch_of(run)
    if not run.tables:
        return paragraphs([result.sentence, "The run directory holds no tables of it."])
    return "".join(
        (paragraphs([result.sentence]), _generation(run), _balance(run), _lines(run), _dc_lines(run), _buses(run))
    )


def _head(name: str, *paragraphs: str) -> str:
    return f'<h3>{escape(name)}</h3><p class="about">{escape(" ".join(paragraphs))}</p>'


def _cell(value: object) -> str:
    return fixed(value, 3) if isinstance(value, float) else str(value)


def _table(run: Run, name: str, rows: Sequence[Row], which: str) -> str:
    """Rows under a caption that says which they are, what they are, and at which loads."""
    columns = {key: heading for key, heading in HEADINGS[name].items() if all(key in row for row in rows)}
    columns |= {"source": "Source"} if source(run) == "mixed" else {}
    cells = [[_cell(row[key]) for key in columns] for row in rows]
    result = dispatch_of(run)
    apart = "" if result.converged else f"; {result.agreed}"
    return table(list(columns.values()), cells, f"{which}: {result.title}, at the {result.loads}{apart}.")


def _folded(run: Run, name: str, which: str) -> str:
    table = _table(run, name, run.tables[name], which)
    return f"<details><summary>{escape(which)} ({len(run.tables[name])} rows)</summary>{table}</details>"


def _generation(run: Run) -> str:
    rows = run.tables["generation"]
    head = _head("Generation", _what(run), "Generators are counted by their row in the case file, from 1.")
    if len(rows) <= SHORT:
        return head + _table(run, "generation", rows, "All generators")
    first = _by(rows, "p_mw")[::-1][:FIRST]
    led = _table(run, "generation", first, f"The {len(first)} generators of the largest output")
    return head + led + _folded(run, "generation", "All generators")


def _balance(run: Run) -> str:
    rows = list(run.tables["balance"])
    if len(rows) > 1:
        numbers = [key for key in HEADINGS["balance"] if key not in ("zone", "interchange_mw") and key in rows[0]]
        sums = {key: math.fsum(row[key] for row in rows) for key in numbers}
        rows.append({"zone": "all", "interchange_mw": math.nan, **sums, "source": ""})
    sentence = (
        "Interchange is what leaves a zone into lines to others, at its own end of them; what is lost on these lines "
        "is counted half to each of their zones."
    )
    return _head("Balance of each zone", _what(run), sentence) + _table(run, "balance", rows, "All zones")


def _lines(run: Run) -> str:
    rows = run.tables["lines"]
    head = _head(
        "Lines",
        _what(run, of_flows=True),
        "Flows are those into the line at its two ends. Branches are counted by their row in the case file, from 1. "
        "Disagreement: by how much the copies of a flow of two zones differed at the end of the rounds.",
    )
    if len(rows) <= SHORT:
        return head + _table(run, "lines", rows, "All lines")
    loaded = _by(rows, "loading_percent")[::-1][:FIRST]
    ties = [row for row in rows if row["tie"] == "yes"]
    out = head + _table(run, "lines", loaded, f"The {len(loaded)} most loaded lines")
    if 0 < len(ties) <= SHORT:
        out += _table(run, "lines", ties, f"The {len(ties)} lines between zones")
    return out + _folded(run, "lines", "All lines")


def _dc_lines(run: Run) -> str:
    if "dclines" not in run.tables:
        return ""
    sentence = (
        "Flows are those into the line at its two ends. DC lines are counted by their row in the case file, "
        "from 1; the map does not draw them."
    )
    return _head("DC lines", _what(run), sentence) + _table(run, "dclines", run.tables["dclines"], "All dc lines")


def _buses(run: Run) -> str:
    rows = run.tables["buses"]
    head = _head("Buses", _what(run), _prices(run))
    if len(rows) <= SHORT:
        return head + _table(run, "buses", rows, "All buses")
    known = _by(rows, "price_per_mwh")[::-1]
    ends = known if len(known) <= 2 * ENDS else [*known[:ENDS], *known[-ENDS:]]
    out = head + _table(run, "buses", ends, f"The {ENDS} highest and the {ENDS} lowest prices")
    closest = _by_room(rows)[:FIRST]
    out += _table(run, "buses", closest, f"The {len(closest)} voltages nearest to a limit")
    return out + _folded(run, "buses", "All buses")


# --- charts ---


def tolerance(run: Run) -> float | None:
    """What the primal residual was to stay below at the end: tol (sqrt(m) + |z|), m the number of shared entries."""
    rule = (run.scenario.get("run") or {}).get("stop")
    size = (run.result.get("quality") or {}).get("size")
    shared = run.solution.get("w", np.zeros(0)).size
    if not isinstance(rule, Mapping) or not isinstance(size, int | float) or not shared:
        return None
    value = rule.get("tolerance")
    return float(value) * (math.sqrt(shared) + size) if isinstance(value, int | float) else None


# --- set-points ---

GENERATED = ("p_g", "q_g")


def setpoints(run: Run, case: Case | None) -> str:
    """Generators, tie lines, and everything else folded away, as HTML."""
    out = [_generators(run.setpoints, case), _ties(run, case)]
    rest = [s for s in run.setpoints if s.quantity not in GENERATED]
    if rest:
        rows = [(s.node, s.quantity, s.element, number(s.value, 6), s.unit) for s in rest]
        listed = table(("Zone", "Quantity", "Element", "Value", "Unit"), rows, "Everything else in setpoints.csv.")
        out.append(f"<details><summary>All other values ({len(rows)})</summary>{listed}</details>")
    return "".join(out)


def _generators(points: Sequence[Setpoint], case: Case | None) -> str:
    bus_of = dict(zip(case.generators.rows.tolist(), case.generators.bus.tolist(), strict=True)) if case else {}
    each: dict[tuple[str, str], dict[str, Setpoint]] = {}
    for point in points:
        if point.quantity in GENERATED:
            each.setdefault((point.node, point.element), {})[point.quantity] = point
    rows = []
    for (node, element), values in each.items():
        digits = element.rpartition(":")[2]
        bus = str(bus_of.get(int(digits), MISSING)) if digits.isdigit() else MISSING
        cells = [f"{fixed(values[q].value)} {values[q].unit}" if q in values else MISSING for q in GENERATED]
        rows.append((node, bus, str(int(digits) + 1) if digits.isdigit() else element, *cells))
    if not rows:
        return paragraphs(["No generator set-points were written."])
    caption = (
        "Set-points of the generators, active and reactive power. Generators are counted by their row in the "
        "case file, from 1."
    )
    return table(("Zone", "Bus", "Generator", "Active", "Reactive"), rows, caption)


def _ties(run: Run, case: Case | None) -> str:
    """The flows of every line that two zones share, as each of them sees it."""
    sides: dict[str, dict[str, dict[str, float]]] = {}
    for node in run.nodes():
        keys, values = run.solution.get(f"keys_{node}"), run.solution.get(f"z_{node}")
        if keys is None or values is None:
            continue
        for key, value in zip(keys.tolist(), values.tolist(), strict=True):
            quantity, _, element = str(key).partition(":")
            if quantity in ("pF", "qF", "pT", "qT"):
                sides.setdefault(element, {}).setdefault(node, {})[quantity] = value
    shared = {element: seen for element, seen in sides.items() if len(seen) > 1}
    if not shared:
        return ""
    base = case.base_mva if case else 1.0
    active, reactive, places = ("MW", "MVAr", 2) if case else ("p.u.", "p.u.", 4)
    ends = {}
    if case:
        for row, a, b in zip(case.lines.rows, case.lines.from_bus, case.lines.to_bus, strict=True):
            ends[str(row)] = f"{a} → {b}"
    rows = []
    quantities = ("pF", "qF", "pT", "qT")
    for element in sorted(shared, key=natural):
        for i, (node, flows) in enumerate(shared[element].items()):
            label = ends.get(element, f"row {element}") if i == 0 else ""
            rows.append((label, node, *(fixed(flows[q] * base, places) if q in flows else MISSING for q in quantities)))
    columns = (
        "Tie line",
        "Seen by",
        f"P from, {active}",
        f"Q from, {reactive}",
        f"P to, {active}",
        f"Q to, {reactive}",
    )
    caption = (
        "Flows into each tie line at its first (from) and second (to) bus. Both zones hold a copy; "
        "what they differ by is part of the consensus residual."
    )
    return table(columns, rows, caption)
