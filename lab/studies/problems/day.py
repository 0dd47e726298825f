"""The whole day of a case by one solver that sees everything: the program of `grid_cases.zone.cost` of all buses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hushgrid.grid_cases.case import Case, Floats
from hushgrid.grid_cases.zone.cost import CostStep, Least
from hushgrid.grid_cases.zone.horizon import Horizon
from hushgrid.grid_cases.zone.model import ZoneModel

NONE = np.zeros(0)


@dataclass(frozen=True)
class CentralDay:
    """The least-cost day of the whole case. `model`: that of one zone of all buses."""

    case: Case
    model: ZoneModel
    voll: float
    horizon: Horizon

    def least(self, d: Floats) -> Least:
        """The day at loads d (T 2 nb,), p.u., period by period, p then q. Raises StepFailed."""
        nothing_shared = np.zeros(0, np.int64)
        step = CostStep(self.case, self.model, d, nothing_shared, NONE, self.voll, horizon=self.horizon)
        return step.minimum(NONE, 1.0)
