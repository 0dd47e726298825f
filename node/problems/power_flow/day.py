"""What a run over a horizon ends with: a dispatch for each period, and what storage does.

As in `conclusion`, all of it is a function of the gates' answers and of public data. Storage is fixed where the
relaxation has it; the AC optimal power flows of the periods are one program, tied by ramps. If it has no solution they
are solved one by one, and one that fails takes no other with it. Model: `grid_cases.zone.horizon`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from hushgrid.grid_cases.ac import contingencies
from hushgrid.grid_cases.ac.network import Point
from hushgrid.grid_cases.ac.opf import AcDispatch, NoDispatch, recover_each
from hushgrid.grid_cases.case import Case
from hushgrid.grid_cases.dispatch import Dispatch, Part
from hushgrid.grid_cases.dispatch import relaxed as together
from hushgrid.grid_cases.variables import Layout
from hushgrid.grid_cases.zone.horizon import Horizon, Storage
from hushgrid.kernels.patterns.star import Closing
from hushgrid.kernels.types import Vector
from hushgrid.node.problems.power_flow.section import StorageUnit, ZonesPlan

STORAGE = ("period", "storage", "bus", "zone", "charge_mw", "discharge_mw", "energy_mwh", "source")
CONTINGENCIES = ("period", *contingencies.COLUMNS)
FLOWS = ("charge_mw", "discharge_mw")  #: of storage, what a zone's balance has beside its other columns

Table = tuple[tuple[str, ...], list[tuple[Any, ...]]]


class ZoneDay(NamedTuple):
    """What a zone has handed over, period by period."""

    layout: Layout
    d: Vector  #: (T, 2 nb) p.u.
    z: Vector  #: (T, n) p.u.
    price: Vector  #: (T, 2 nb)
    storage: Storage  #: its own
    paths: Vector  #: (3, T, K) charging and discharging MW, energy MWh

    @classmethod
    def from_closing(cls, layout: Layout, closing: Closing, horizon: Horizon) -> ZoneDay:
        T, storage = horizon.periods, horizon.storage.at(np.array(layout.buses, np.int64))
        z, paths = np.split(closing.z, [T * len(layout.keys)])
        d, z, price = (part.reshape(T, -1) for part in (closing.data, z, closing.duals))
        return cls(layout, d, z, price, storage, paths.reshape(3, T, len(storage)))

    def part(self, case: Case, horizon: Horizon, t: int) -> Part:
        """Of period t, from 0."""
        taken = horizon.paths(case, self.storage, self.paths)[t]
        here = case.index(np.array(self.layout.buses, np.int64))
        return Part(self.layout, self.d[t], self.z[t], self.price[t], taken[here])


def days_of(layouts: Mapping[str, Layout], closing: Mapping[str, Closing], horizon: Horizon) -> dict[str, ZoneDay]:
    return {p: ZoneDay.from_closing(layouts[p], one, horizon) for p, one in sorted(closing.items())}


def relaxed_periods(case: Case, days: Mapping[str, ZoneDay], horizon: Horizon) -> list[Dispatch]:
    """The relaxation's dispatch of each period, in the case of that period."""
    return [
        together(horizon.case(case, t), {p: day.part(case, horizon, t) for p, day in days.items()})
        for t in range(horizon.periods)
    ]


def recovered_periods(
    case: Case, relaxed: Sequence[Dispatch], horizon: Horizon, voll: float
) -> list[AcDispatch | NoDispatch]:
    """An AC optimal power flow of each period, storage as the relaxation has it: all at once, tied by their ramps; if
    that has no solution one by one, so near to the relaxation's plan that ramps hold whatever each of them chooses.
    """
    every = np.arange(len(case.generators))
    steps = horizon.steps_of(case, every)
    if np.isfinite(steps).any() and len(relaxed) > 1:
        low, high = horizon.limits(case)
        together = recover_each(_problems(relaxed, low, high), voll=voll, steps=steps)
        if all(isinstance(one, AcDispatch) for one in together):
            return together
    low, high = horizon.around(case, np.stack([one.p_g for one in relaxed]))
    return recover_each(_problems(relaxed, low, high), voll=voll)


def _problems(relaxed: Sequence[Dispatch], low: Vector, high: Vector) -> list[tuple[Case, Vector]]:
    """Case and loads (2 nb,), p.u., of each period, with generation between low and high (T, ng)."""
    problems = list[tuple[Case, Vector]]()
    for t, one in enumerate(relaxed):
        generators = replace(one.case.generators, p_min=low[t], p_max=high[t])
        loads = one.d + np.stack([one.stored, np.zeros(len(one.stored))], axis=1)
        problems.append((replace(one.case, generators=generators), loads.T.ravel()))
    return problems


@dataclass(frozen=True, slots=True, eq=False)
class Day:
    """The dispatch of every period, AC where there is one; prices are the relaxation's."""

    horizon: Horizon
    units: Sequence[StorageUnit]
    periods: Sequence[Dispatch]
    relaxed: Sequence[Dispatch]
    paths: Vector  #: (3, T, K) of all units, in the plan's order
    voll: float
    screened: bool = False  #: whether each period is checked with each line out

    def cost(self, each: Sequence[Dispatch]) -> float:
        """$ of the whole horizon: generation, lost load and storage."""
        rates = np.array([unit.cost for unit in self.units])
        cost = sum(one.generation_cost + self.voll * one.case.base_mva * float(one.slack.sum()) for one in each)
        return self.horizon.hours * (cost + float((self.paths[:2] * rates).sum()))

    def figures(self) -> dict[str, Any]:
        """Lists of one value a period."""
        powers = [one.power for one in self.periods]
        prices = np.stack([one.price[:, 0] for one in self.periods])
        numbers = self.periods[0].case.buses.numbers.tolist()
        return {
            "horizon": {"periods": self.horizon.periods, "hours": self.horizon.hours},
            **{key: [round(power[key], 6) + 0.0 for power in powers] for key in powers[0]},
            "charge_mw": np.round(self.paths[0].sum(axis=1), 6).tolist(),
            "discharge_mw": np.round(self.paths[1].sum(axis=1), 6).tolist(),
            "price_min": np.round(prices.min(axis=1), 6).tolist(),
            "price_max": np.round(prices.max(axis=1), 6).tolist(),
            "prices": {str(bus): np.round(prices[:, k], 6).tolist() for k, bus in enumerate(numbers)},
        }

    def tables(self) -> dict[str, Table]:
        """Those of a dispatch, with a first column `period` (the day's own), and what storage does."""
        stacked: dict[str, Table] = {}
        for t, one in enumerate(self.periods):
            for name, (columns, rows) in one.tables().items():
                header, more = ("period", *columns), [(self.horizon.first + t, *row) for row in rows]
                if name == "balance":
                    header, more = (*header, *FLOWS), [(*row, *self._flows(row[1], t)) for row in more]
                stacked.setdefault(name, (header, []))[1].extend(more)
        if self.units:
            stacked["storage"] = STORAGE, list(self._storage())
        if self.screened:
            stacked["contingencies"] = (
                CONTINGENCIES,
                [(t, *row) for t, one in enumerate(self.periods, self.horizon.first) for row in _screened(one)],
            )
        return stacked

    def _flows(self, zone: str, t: int) -> tuple[float, float]:
        inside = [self.periods[0].zone_of[unit.bus] == zone for unit in self.units]
        charge, discharge = (round(float(self.paths[k, t, inside].sum()), 6) + 0.0 for k in (0, 1))
        return charge, discharge

    def _storage(self) -> Sequence[tuple[Any, ...]]:
        return [
            (
                *(self.horizon.first + t, unit.name, unit.bus, one.zone_of[unit.bus]),
                *(round(float(self.paths[kind, t, k]), 6) + 0.0 for kind in range(3)),
                one.source,
            )
            for t, one in enumerate(self.periods)
            for k, unit in enumerate(self.units)
        ]


def _screened(one: Dispatch) -> list[tuple[Any, ...]]:
    """Rows of one period: each line out, at the dispatch's set-points and the loads that it serves."""
    point = Point(one.v, np.zeros(len(one.v)), one.p_g, one.q_g, one.dc)
    loads = one.d + np.stack([one.stored, np.zeros(len(one.stored))], axis=1)
    return contingencies.rows(one.case, point, loads.T.ravel(), one.slack[:, [0, 2]] - one.slack[:, [1, 3]])


def paths_of(problem: ZonesPlan, days: Mapping[str, ZoneDay]) -> Vector:
    """(3, T, K) of all units, in the plan's order."""
    assert problem.horizon is not None
    units, T = problem.horizon.storage, problem.horizon.left
    paths = np.zeros((3, T, len(units)))
    for day in days.values():
        mine = [k for k, unit in enumerate(units) if unit.bus in day.layout.buses]
        paths[:, :, mine] = day.paths
    return paths
