"""What a zone's controller sets or sees, row by row: MW, MVAr and p.u., with the case file's own numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hushgrid.grid_cases.case import Case, Floats
from hushgrid.grid_cases.variables import DC_FLOWS, Layout

#: Of a row. element: the key's own, rows of mpc.gen, mpc.branch and mpc.dcline counted from 0; number: the same counted
#: from 1, or the bus number; bus: of a generator or a voltage; from, to: of a flow, dc_p_F of a dc line. source:
#: relaxed, or ac.
COLUMNS = ("quantity", "element", "value", "unit", "number", "bus", "from", "to", "source")
Row = tuple[str, str, float, str, int, int | str, int | str, int | str, str]


def setpoints(case: Case, keys: Sequence[str], values: Floats, source: str = "relaxed") -> list[Row]:
    """Of a zone's variables z, or of some of them, by their names (pg:0, pF:7, c:4); others have no row."""
    bus_of = dict(zip(case.generators.rows.tolist(), case.generators.bus.tolist(), strict=True))
    ends, dc_ends = (
        dict(zip(table.rows.tolist(), zip(table.from_bus.tolist(), table.to_bus.tolist(), strict=True), strict=True))
        for table in (case.lines, case.dc_lines)
    )
    rows: list[Row] = []
    for key, value in zip(keys, values.tolist(), strict=True):
        kind, _, element = key.partition(":")
        if kind in ("pg", "qg", "pF", "qF", "pT", "qT"):
            unit, row = "MW" if kind[0] == "p" else "MVAr", int(element)
            where = (bus_of[row], "", "") if kind[1] == "g" else ("", *ends[row])
            rows.append((f"{kind[0]}_{kind[1]}", element, value * case.base_mva, unit, row + 1, *where, source))
        elif kind in DC_FLOWS:
            unit, row, name = "MW" if kind[3] == "p" else "MVAr", int(element), f"dc_{kind[3]}_{kind[4]}"
            rows.append((name, element, value * case.base_mva, unit, row + 1, "", *dc_ends[row], source))
        elif kind in ("c", "v"):
            size = math.sqrt(max(value, 0.0)) if kind == "c" else value
            rows.append(("v", element, size, "p.u.", int(element), int(element), "", "", source))
    return rows


def released_keys(case: Case, layout: Layout) -> list[str]:
    """What a zone is told of a recovered dispatch, by name: p_g, q_g of its generators, |V| of its own buses, and p, q
    at its own end of every line to another zone and at each of its ends of dc lines."""
    dc = case.dc_lines
    generators, lines, buses = case.generators.rows[layout.generators].tolist(), case.lines, set(layout.buses)
    keys = [f"{kind}:{row}" for row in generators for kind in ("pg", "qg")]
    keys += [f"v:{bus}" for bus in layout.buses]
    for k in layout.lines.tolist():
        first, second = int(lines.from_bus[k]) in buses, int(lines.to_bus[k]) in buses
        if first != second:
            keys += [f"{kind}{'F' if first else 'T'}:{lines.rows[k]}" for kind in "pq"]
    for k in layout.dc.tolist():
        for end, bus in (("F", dc.from_bus[k]), ("T", dc.to_bus[k])):
            keys += [f"dc_{kind}{end}:{dc.rows[k]}" for kind in "pq" if int(bus) in buses]
    return keys


def released(
    case: Case, keys: Sequence[str], p_g: Floats, q_g: Floats, v: Floats, flows: Floats, dc: Floats | None = None
) -> Floats:
    """These values of a dispatch of the whole case, p.u.; arrays in the order of the case's tables, flows (lines, 4)
    and dc (dc lines, 4)."""
    generators, lines = case.generators.rows.tolist(), case.lines.rows.tolist()
    named: dict[str, float] = {}
    for kind, ids, values in (("pg", generators, p_g), ("qg", generators, q_g), ("v", case.buses.numbers.tolist(), v)):
        named |= {f"{kind}:{one}": value for one, value in zip(ids, values.tolist(), strict=True)}
    for k, kind in enumerate(("pF", "qF", "pT", "qT")):
        named |= {f"{kind}:{row}": value for row, value in zip(lines, flows[:, k].tolist(), strict=True)}
    carried = np.zeros((0, 4)) if dc is None else dc
    for k, kind in enumerate(DC_FLOWS):
        named |= {
            f"{kind}:{row}": value
            for row, value in zip(case.dc_lines.rows.tolist(), carried[:, k].tolist(), strict=True)
        }
    return np.array([named[key] for key in keys])
