"""Least cost by zones: what a device and the coordinator make of a plan whose objective is cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hushgrid.grid_cases.case import Case
from hushgrid.grid_cases.zone.cost import CostStep
from hushgrid.grid_cases.zone.model import ZoneModel
from hushgrid.kernels.patterns.star import Index
from hushgrid.kernels.types import Vector

#: Of a zone and a round, in MW and then the same in MVAr, at the loads that its gate has answered.
TOTALS = ("served", "unserved", "spilled")


@dataclass(frozen=True, slots=True, eq=False)
class LeastCost:
    """What a step tells (`star.Least`)."""

    z: Vector
    value: float  #: $/h
    totals: Vector  #: (6,) served, unserved, spilled MW; the same in MVAr
    duals: Vector  #: (2 nb,) prices, $/MWh of each own bus, then $/MVArh


class LocalCost:
    """A zone's local problem at loads d (2 nb,), p.u."""

    def __init__(
        self, case: Case, model: ZoneModel, shared: Index, weight: Vector, d: Vector, voll: float, solver: str
    ) -> None:
        self._step = CostStep(case, model, d, shared, weight, voll, solver)
        self._load, self._base = d.reshape(2, -1).sum(axis=1), case.base_mva

    def bound(self, lam: Vector) -> float:
        """`CostStep.bound`: a function of the loads that the gate has answered, whatever lam is."""
        return self._step.bound(lam)

    def minimum(self, v: Vector, factor: float) -> LeastCost:
        least = self._step.minimum(v, factor)
        unserved, spilled = (s.reshape(2, -1).sum(axis=1) for s in (least.unserved, least.spilled))
        totals = np.stack([self._load - unserved, unserved, spilled]) * self._base
        return LeastCost(least.z, least.value, totals.T.ravel(), least.price)
