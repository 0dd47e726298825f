"""The set-points of a report: what each zone's controller is to do, in MW and MVAr."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hushgrid.broker.report.page import paragraphs, table
from hushgrid.broker.report.run_directory import Run, Setpoint, natural
from hushgrid.broker.report.statement import MISSING, fixed, number

if TYPE_CHECKING:
    from hushgrid.grid_cases.case import Case

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
    caption = "Set-points of the generators, active and reactive power. Generators are counted by their row in the case file, from 1."
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
