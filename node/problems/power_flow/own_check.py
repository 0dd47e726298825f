"""What a zone's set-points do at its own true loads: an AC power flow of the zone alone. It stays on the device.

The owner asks for it, and reads it; no run starts it, and nothing of it is sent or kept. The flows to other zones are
taken as the dispatch has them, so that whatever the true loads differ by must be covered by the zone's own generators.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from hushgrid.grid_cases.ac.network import Point
from hushgrid.grid_cases.ac.power_flow import Operation, operate_zone
from hushgrid.grid_cases.setpoints import COLUMNS
from hushgrid.kernels.errors import InputError
from hushgrid.node.problems.power_flow.device import Zone
from hushgrid.node.problems.power_flow.files import day_file


def own_check(zone: Zone, file: Path) -> list[str]:
    """Lines to read. `file`: the set-points in force. Raises InputError if there are none of a dispatch."""
    done, base = operation(zone, file), zone.case.base_mva
    if not done.converged:
        return [f"at its true loads no AC power flow was found: a mismatch of {done.mismatch:.3g} p.u. is left"]
    worst = done.violations
    lines = [
        f"imbalance its own generators must cover: {done.imbalance * base:+.3f} MW (headroom "
        f"{done.headroom * base:.3f} MW{'' if done.uncovered == 0 else f', {done.uncovered * base:.3f} MW short'})",
        f"voltages: {done.point.v.min():.3f} to {done.point.v.max():.3f} p.u., beyond a limit by {worst['v']:.3f} p.u.",
        f"lines inside the zone: beyond a rating by {worst['rating'] * base:.3f} MVA",
        f"generators: beyond a limit by {worst['p'] * base:.3f} MW and {worst['q'] * base:.3f} MVAr",
    ]
    if zone.case.capability.generator.size or zone.case.power_factors.generator.size:
        lines.append(f"capability curves and power factors: beyond by {worst['capability'] * base:.3f} MVAr")
    return lines


def operation(zone: Zone, file: Path) -> Operation:
    """The zone operated at the set-points in a file and at its own true loads."""
    case, layout = zone.case, zone.layout
    values = read_setpoints(file)
    generators = case.generators.rows[layout.generators].tolist()
    try:
        p_g = np.array([values["p_g", str(row)] for row in generators])
        q_g = np.array([values["q_g", str(row)] for row in generators])
        v = np.array([values["v", str(bus)] for bus in layout.buses])
        converters = {
            (row, end): (values[f"dc_p_{end}", str(row)], values[f"dc_q_{end}", str(row)])
            for row, end in _converters(zone)
        }
        ties = {row: (values[f"p_{end}", str(row)], values[f"q_{end}", str(row)]) for row, end in _ties(zone)}
    except KeyError as missing:
        raise InputError(f"{file}: found no {' '.join(missing.args[0])}, expected a dispatch of this zone") from None
    base = case.base_mva
    point = Point(v, np.zeros(v.size), p_g / base, q_g / base)
    flows = {row: (p / base, q / base) for row, (p, q) in ties.items()}
    dc = {end: (p / base, q / base) for end, (p, q) in converters.items()}
    d = zone.d.reshape(zone.periods, -1)[_period(zone, file) - 1].copy()  # with what storage takes
    at = {bus: k for k, bus in enumerate(layout.buses)}
    for bus, taken in _stored(file):
        d[at[bus]] += taken / base
    return operate_zone(case, layout.buses, point, d, flows, dc)


def read_setpoints(file: Path) -> dict[tuple[str, str], float]:
    """MW, MVAr and p.u. by quantity and element, of a recovered dispatch. Raises InputError."""
    try:
        with file.open(newline="", encoding="utf-8") as text:
            rows = list(csv.DictReader(text))
        values = {(row["quantity"], row["element"]): float(row["value"]) for row in rows}
        sources = {row["source"] for row in rows} - {"plan"}  # storage is what the plan says, in either
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}, expected the set-points of a run") from None
    except (KeyError, TypeError, ValueError, csv.Error):
        raise InputError(f"{file}: found another table, expected the columns {', '.join(COLUMNS)}") from None
    if sources != {"ac"}:
        raise InputError(f"{file}: found values of the relaxation, expected a dispatch of the AC step (source ac)")
    return values


def _period(zone: Zone, file: Path) -> int:
    """Which period the set-points in a file are of: the first of the table of the day that stands beside it."""
    if zone.periods == 1:
        return 1
    day = day_file(file)
    try:
        with day.open(newline="", encoding="utf-8") as text:
            period = int(next(csv.DictReader(text))["period"])
    except (OSError, StopIteration, KeyError, ValueError, csv.Error):
        raise InputError(f"{day}: found no period, expected the day that {file.name} is of") from None
    if not 1 <= period <= zone.periods:
        raise InputError(f"{day}: found period {period}, expected 1 to {zone.periods}")
    return period


def _stored(file: Path) -> list[tuple[int, float]]:
    """(bus, MW) that each storage unit takes in a file that `read_setpoints` has read."""
    signs = {"charge": 1.0, "discharge": -1.0}
    with file.open(newline="", encoding="utf-8") as text:
        rows = [row for row in csv.DictReader(text) if row["quantity"] in signs]
    return [(int(row["bus"]), signs[row["quantity"]] * float(row["value"])) for row in rows]


def _converters(zone: Zone) -> list[tuple[int, str]]:
    """Each end of a dc line at a bus of the zone, by the line's row."""
    dc, buses = zone.case.dc_lines, set(zone.layout.buses)
    ends = (("F", dc.from_bus), ("T", dc.to_bus))
    return [(int(dc.rows[k]), end) for k in zone.layout.dc.tolist() for end, bus in ends if int(bus[k]) in buses]


def _ties(zone: Zone) -> list[tuple[int, str]]:
    """Each line to another zone, by its row, and which end of it is the zone's own."""
    lines, buses, ties = zone.case.lines, set(zone.layout.buses), []
    for k in zone.layout.lines.tolist():
        first, second = int(lines.from_bus[k]) in buses, int(lines.to_bus[k]) in buses
        if first != second:
            ties.append((int(lines.rows[k]), "F" if first else "T"))
    return ties
