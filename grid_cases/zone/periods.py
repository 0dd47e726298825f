"""A zone's constraints over T periods: one block a period, and the rows in which storage and ramps couple them.

    x = (x_1, ..., x_T, c_1, ..., c_T, d_1, ..., d_T, e_1, ..., e_T)

with x_t the variables of a period and c_t, d_t, e_t (K,) charging, discharging and energy of its storage, MW and MWh.
Rows stand by kind, then by period: a block of one period without storage or ramps is that period's rows, to the bit.
Model: `grid_cases.zone.horizon`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hushgrid.grid_cases.case import Case, Floats, Ints
from hushgrid.grid_cases.matrix import Matrix
from hushgrid.grid_cases.variables import Layout
from hushgrid.grid_cases.zone.conic import Cones
from hushgrid.grid_cases.zone.horizon import Horizon, Storage

Entry = tuple[Ints, float | Floats]  #: columns, and their values


@dataclass
class Rows:
    """Rows of b - A x, as they are written down: each has a right side and entries (row, column, value)."""

    right: list[Floats] = field(default_factory=list)
    rows: list[Ints] = field(default_factory=list)
    columns: list[Ints] = field(default_factory=list)
    values: list[Floats] = field(default_factory=list)
    count: int = 0

    def add(self, right: Floats, *entries: Entry) -> None:
        """len(right) rows; `entries`: a column and a value for each of them."""
        places = self.count + np.arange(right.size)
        for columns, values in entries:
            self.rows.append(places)
            self.columns.append(columns)
            self.values.append(np.broadcast_to(np.asarray(values, np.float64), places.shape))
        self.right.append(np.asarray(right, np.float64))
        self.count += right.size


@dataclass(frozen=True, slots=True, eq=False)
class Periods:
    """Where the variables of a zone stand over a horizon."""

    horizon: Horizon
    width: int  #: variables of one period
    storage: Storage  #: the zone's own

    @property
    def first(self) -> int:
        """Where storage begins."""
        return self.horizon.periods * self.width

    @property
    def size(self) -> int:
        return self.first + 3 * self.horizon.periods * len(self.storage)

    def column(self, t: int, within: Ints) -> Ints:
        """Of variables of period t (from 0), which stand so in its block."""
        return t * self.width + within

    def stored(self, kind: int, t: int) -> Ints:
        """(K,) columns of charging (0), discharging (1) or energy (2) in period t."""
        count = len(self.storage)
        return self.first + (kind * self.horizon.periods + t) * count + np.arange(count)

    def paths(self, x: Floats) -> Floats:
        """(3, T, K): charging and discharging MW, energy MWh."""
        return x[self.first :].reshape(3, self.horizon.periods, len(self.storage))


def over_time(blocks: Sequence[Cones], periods: Periods, case: Case, layout: Layout, zone: str, balance: int) -> Cones:
    """The cones of all periods. `balance`: the row of a block at which the active balance of its own buses begins."""
    one, equal, within = blocks[0], Rows(), Rows()
    _energy(periods, equal, within)
    _ramps(periods, case, layout, within)
    _available(periods, case, layout, within)
    _reserve(periods, case, layout, zone, within)
    T, m = len(blocks), one.b.size
    linear = one.zero + one.nonneg
    zero, nonneg = T * one.zero + equal.count, T * one.nonneg + within.count
    kind = np.split(np.arange(m), [one.zero, linear])
    entries, b = list[tuple[Ints, Ints, Floats]](), np.zeros(T * m + equal.count + within.count)
    for t, block in enumerate(blocks):
        place = np.zeros(m, np.int64)  # where a row of the block stands among all
        for alike, begin in zip(kind, (0, zero, zero + nonneg), strict=True):
            place[alike] = begin + t * alike.size + np.arange(alike.size)
        b[place] = block.b
        entries.append((place[block.A.indices], periods.column(t, block.A.columns), block.A.data))
        buses = place[balance + np.searchsorted(layout.buses, periods.storage.bus)]
        for flow, sign in ((0, 1.0), (1, -1.0)):
            entries.append((buses, periods.stored(flow, t), np.full(buses.size, sign / case.base_mva)))
    for rows, begin in ((equal, T * one.zero), (within, zero + T * one.nonneg)):
        if rows.count:
            b[begin : begin + rows.count] = np.concatenate(rows.right)
            where, columns = np.concatenate(rows.rows), np.concatenate(rows.columns)
            entries.append((begin + where, columns, np.concatenate(rows.values)))
    A = Matrix.from_entries((b.size, periods.size), *(np.concatenate(part) for part in zip(*entries, strict=True)))
    return Cones(A, b, zero, nonneg, one.soc * T)


def _energy(periods: Periods, equal: Rows, within: Rows) -> None:
    """e_t - e_t-1 - h (eta c_t - d_t / eta) = 0, with e_0 given, and the limits of c, d and e."""
    storage, h = periods.storage, periods.horizon.hours
    if not len(storage):
        return
    for t in range(periods.horizon.periods):
        charge, discharge, energy = (periods.stored(kind, t) for kind in range(3))
        step: list[Entry] = [(energy, 1.0), (charge, -h * storage.eta), (discharge, h / storage.eta)]
        if t:
            equal.add(np.zeros(len(storage)), *step, (periods.stored(2, t - 1), -1.0))
        else:
            equal.add(storage.e_start, *step)
        for columns, most in ((charge, storage.p_mw), (discharge, storage.p_mw), (energy, storage.e_mwh)):
            within.add(most, (columns, 1.0))
            within.add(np.zeros(len(storage)), (columns, -1.0))
    within.add(-storage.e_end, (periods.stored(2, periods.horizon.periods - 1), -1.0))


def _ramps(periods: Periods, case: Case, layout: Layout, within: Rows) -> None:
    """|p_gt - p_g,t-1| <= h r p_max."""
    horizon, g = periods.horizon, layout.generators
    steps = horizon.steps_of(case, g)
    limited = np.isfinite(steps)
    columns, most = layout.p_g[limited], steps[limited]
    for t in range(horizon.periods):
        now = periods.column(t, columns)
        for sign in (1.0, -1.0):
            if t:
                within.add(most, (now, sign), (periods.column(t - 1, columns), -sign))
            elif horizon.before.size:
                within.add(most + sign * horizon.before[g[limited]], (now, sign))


def _available(periods: Periods, case: Case, layout: Layout, within: Rows) -> None:
    """p_gt <= a_gt p_max where a is below 1."""
    horizon, g = periods.horizon, layout.generators
    most, full = horizon.available(case, g), case.generators.p_max[g]
    for t in range(horizon.periods):
        less = most[t] < full
        within.add(most[t][less], (periods.column(t, layout.p_g[less]), 1.0))


def _reserve(periods: Periods, case: Case, layout: Layout, zone: str, within: Rows) -> None:
    """sum_g p_gt <= sum_g a_gt p_max - R_t: one row a period."""
    horizon = periods.horizon
    reserve = horizon.reserve.get(zone)
    if reserve is None:
        return
    most = horizon.available(case, layout.generators).sum(axis=1) - reserve / case.base_mva
    for t in range(horizon.periods):
        within.add(most[t : t + 1], *((periods.column(t, column[None]), 1.0) for column in layout.p_g))
