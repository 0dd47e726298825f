"""Least cost by zones: what a device and the coordinator make of a plan whose objective is cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hushgrid.grid_cases.case import Case
from hushgrid.grid_cases.zone.cost import CostStep
from hushgrid.grid_cases.zone.horizon import SNAPSHOT, Horizon
from hushgrid.grid_cases.zone.model import ZoneModel
from hushgrid.kernels.patterns.star import Index
from hushgrid.kernels.types import Vector

#: Of a zone and a round, in MW and then the same in MVAr, at the loads that its gate has answered.
TOTALS = ("served", "unserved", "spilled")


@dataclass(frozen=True, slots=True, eq=False)
class LeastCost:
    """What a step tells (`star.Least`)."""

    z: Vector  #: period by period, and the paths of storage behind: charging and discharging MW, energy MWh
    value: float  #: $/h; over a horizon $
    totals: Vector  #: (6,) served, unserved, spilled MW; the same in MVAr; the mean over the periods
    duals: Vector  #: (T 2 nb,) prices, $/MWh of each own bus, then $/MVArh, period by period


class LocalCost:
    """A zone's local problem at loads d (T 2 nb,), p.u."""

    def __init__(
        self,
        case: Case,
        model: ZoneModel,
        shared: Index,
        weight: Vector,
        d: Vector,
        voll: float,
        solver: str,
        horizon: Horizon = SNAPSHOT,
    ) -> None:
        self._step = CostStep(case, model, d, shared, weight, voll, solver, horizon)
        self._horizon, self._base = horizon, case.base_mva
        self._load = self._mean(d)

    def _mean(self, each: Vector) -> Vector:
        """(2,): active and reactive power of all buses, the mean over the periods."""
        sums: Vector = each.reshape(self._horizon.periods, 2, -1).sum(axis=2)
        mean: Vector = sums[0] if len(sums) == 1 else sums.mean(axis=0)
        return mean

    def bound(self, lam: Vector) -> float:
        """`CostStep.bound`: a function of the loads that the gate has answered, whatever lam is."""
        return self._step.bound(lam)

    def minimum(self, v: Vector, factor: float) -> LeastCost:
        least = self._step.minimum(v, factor)
        unserved, spilled = self._mean(least.unserved), self._mean(least.spilled)
        totals = np.stack([self._load - unserved, unserved, spilled]) * self._base
        z = np.concatenate([least.z, least.storage.ravel()])
        return LeastCost(z, least.value, totals.T.ravel(), least.price)
