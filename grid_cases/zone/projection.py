"""Step (3.1)/(3.2) of a zone: the weighted projection onto W_p, by a conic solver on the canonicalised model.

argmin over z in W_p of sum_k D_k/2 (z_k - v_k)^2, with D_k = 1/eta + rho [k shared]. P = diag(D) changes once a round,
q = -D v at every solve, the constraints never: so one solver is built and then only updated. It is built from the first
round's D and q = 0, for its scaling is fixed by both and q holds noise: a restarted node then gives the same bits.
"""

from __future__ import annotations

import numpy as np

from hushgrid.grid_cases.case import Floats
from hushgrid.grid_cases.zone.backends import solver
from hushgrid.grid_cases.zone.conic import Cones, StepFailed
from hushgrid.grid_cases.zone.model import ZoneModel
from hushgrid.grid_cases.zone.model import violation as _violation

# A duality gap g leaves |z - z*| <= sqrt(2 g / min D), so the entries with D = 1/eta only are the loose ones: with
# Clarabel's own 1e-8 they stray by 3e-3 on case14, with 1e-9 by 4e-4, for about 3 % more time.
TOLERANCE = 1e-9
# What is released is to be feasible: asked first for a tenth of the tolerance, which some steps cannot give.
FEASIBILITY = 1e-10


class ZoneStep:
    """The projection of one zone. `D_first`, shape (n,), is the first round's D; the same one at every restart.

    Raises InputError if there is no such solver, or if it is not installed.
    """

    def __init__(self, model: ZoneModel, D_first: Floats, kind: str = "clarabel") -> None:
        self.model = model
        cones = Cones(model.cone_A, model.cone_b, model.zero, model.nonneg, model.soc)
        self._solver = solver(kind, cones, D_first, TOLERANCE, f"zone {model.name}", FEASIBILITY)

    def project(self, v: Floats, D: Floats) -> Floats:
        """argmin over z in W_p of sum_k D_k/2 (z_k - v_k)^2, all of shape (n,), D > 0. Raises StepFailed.

        The bits depend on (model, D_first, v, D) alone, not on earlier calls.
        """
        if not np.all(D > 0):
            raise StepFailed(f"zone {self.model.name}: found a weight that is not positive, expected D > 0")
        return self._solver.solve(D, -D * v)[0]

    def violation(self, z: Floats) -> float:
        """The largest violation of (D.2d)-(D.2l) at z, p.u.; 0 where z is feasible."""
        return _violation(self.model, z)
