"""N-1 screening of a dispatch: what each line that goes out leaves of the other lines' loading and of the voltages.

One AC power flow with each line out whose loss cuts nothing off: set-points, loads and storage stay, generators take up
the change of the losses as `power_flow.operate` has it. A check of what is planned, no constraint of the plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from hushgrid.grid_cases.ac.network import Point
from hushgrid.grid_cases.ac.power_flow import Operation, operate
from hushgrid.grid_cases.case import Case, Floats, Ints
from hushgrid.grid_cases.elements.table import rows_but

#: Columns of contingencies.csv: the branch that is out; the most loaded other one; the voltage furthest beyond or
#: nearest to a limit of its bus.
COLUMNS = ("branch", "from", "to", "worst_branch", "loading_percent", "worst_bus", "v_pu", "v_min", "v_max", "outcome")
SOLVED, NONE, ISLAND = "solved", "no power flow", "island"


@dataclass(frozen=True, slots=True, eq=False)
class Outage:
    """The network without one line. Powers in p.u."""

    row: int  #: 0-based row of mpc.branch
    operation: Operation | None  #: None: it cuts buses off


def bridges(case: Case) -> Ints:
    """Positions of the lines without which the network falls apart (Tarjan, 1974); one of two in parallel is none."""
    n, lines = len(case.buses), case.lines
    ends = np.stack([case.index(lines.from_bus), case.index(lines.to_bus)], axis=1).tolist()
    at: list[list[tuple[int, int]]] = [[] for _ in range(n)]
    for k, (i, j) in enumerate(ends):
        at[i].append((j, k))
        at[j].append((i, k))
    order, low, result, count = [-1] * n, [0] * n, list[int](), 0
    stack: list[tuple[int, int, Iterator[tuple[int, int]]]] = [(0, -1, iter(at[0]))]
    order[0] = 0
    while stack:
        bus, came_by, rest = stack[-1]
        for other, line in rest:
            if line == came_by:
                continue
            if order[other] >= 0:
                low[bus] = min(low[bus], order[other])
                continue
            count += 1
            order[other] = low[other] = count
            stack.append((other, line, iter(at[other])))
            break
        else:
            stack.pop()
            if stack:
                before = stack[-1][0]
                low[before] = min(low[before], low[bus])
                if low[bus] > order[before]:
                    result.append(came_by)
    return np.array(sorted(result), np.int64)


def outages(case: Case, point: Point, loads: Floats, shed: Floats | None = None) -> Iterator[Outage]:
    """The network with each line out in turn, at set-points `point` and loads (2 nb,) p.u. as `power_flow.operate`."""
    cut = set(bridges(case).tolist())
    whole = operate(case, point, loads, shed).point  # its angles are where each search begins
    start = replace(point, v=whole.v, angle=whole.angle)
    for k, row in enumerate(case.lines.rows.tolist()):
        without = replace(case, lines=rows_but(case.lines, np.arange(len(case.lines)) == k)) if k not in cut else None
        yield Outage(row, None if without is None else operate(without, start, loads, shed))


def rows(case: Case, point: Point, loads: Floats, shed: Floats | None = None) -> list[tuple[object, ...]]:
    """Rows of COLUMNS, one for each line: branches from 1."""
    lines, buses, result = case.lines, case.buses, list[tuple[object, ...]]()
    for k, outage in enumerate(outages(case, point, loads, shed)):
        head = (outage.row + 1, int(lines.from_bus[k]), int(lines.to_bus[k]))
        seen = outage.operation
        if seen is None or not seen.converged:
            result.append((*head, *[""] * 6, ISLAND if seen is None else NONE))
            continue
        rest = np.delete(np.arange(len(lines)), k)
        size = np.maximum(np.hypot(*seen.flows[:, :2].T), np.hypot(*seen.flows[:, 2:].T))
        rate = lines.rate[rest]
        loading = np.where(rate > 0, 100 * size / np.where(rate > 0, rate, 1.0), -1.0)
        worst: tuple[object, ...] = ("", "")
        if loading.size and loading.max() >= 0:
            most = int(np.argmax(loading))
            worst = (int(lines.rows[rest[most]]) + 1, round(float(loading[most]), 3))
        v = seen.point.v
        free = np.where(buses.v_max > buses.v_min, np.minimum(v - buses.v_min, buses.v_max - v), np.inf)
        bus = int(np.argmin(free))
        limits = (round(float(x), 6) for x in (v[bus], buses.v_min[bus], buses.v_max[bus]))
        result.append((*head, *worst, int(buses.numbers[bus]), *limits, SOLVED))
    return result
