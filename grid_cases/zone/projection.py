"""Step (3.1)/(3.2) of a zone: the weighted projection onto W_p, by Clarabel on the canonicalised model.

argmin over z in W_p of sum_k D_k/2 (z_k - v_k)^2, with D_k = 1/eta + rho [k shared]. P = diag(D) changes once a round,
q = -D v at every solve, the constraints never: so one solver is built and then only updated. It is built from the first
round's D and q = 0, for its scaling is fixed by both and q holds noise: a restarted node then gives the same bits.
"""

from __future__ import annotations

from typing import Protocol

import clarabel
import numpy as np
from scipy import sparse

from hushgrid.grid_cases.case import Floats
from hushgrid.grid_cases.zone.model import ZoneModel
from hushgrid.grid_cases.zone.model import violation as _violation
from hushgrid.kernels.errors import Stopped

# A duality gap g leaves |z - z*| <= sqrt(2 g / min D), so the entries with D = 1/eta only are the loose ones: with
# Clarabel's own 1e-8 they stray by 3e-3 on case14, with 1e-9 by 4e-4, for about 3 % more time.
TOLERANCE = 1e-9
# What is released is to be feasible: asked first for a tenth of the tolerance, which some steps cannot give.
FEASIBILITY = 1e-10
_ACCEPTED = (clarabel.SolverStatus.Solved, clarabel.SolverStatus.AlmostSolved)


class StepFailed(Stopped):
    """The projection was not solved: the step fails, and nothing is released."""


class Step(Protocol):
    """Whatever projects onto a zone's constraints; `zone_solvers.make_step` chooses one."""

    def project(self, v: Floats, D: Floats) -> Floats:
        """argmin over z in W_p of sum_k D_k/2 (z_k - v_k)^2, all of shape (n,), D > 0. Raises StepFailed."""
        ...

    def violation(self, z: Floats) -> float:
        """The largest violation of (D.2d)-(D.2l) at z, p.u."""
        ...


class ZoneStep:
    """The projection of one zone. `D_first`, shape (n,), is the first round's D; the same one at every restart."""

    def __init__(self, model: ZoneModel, D_first: Floats) -> None:
        self.model = model
        self._at = np.arange(model.n)
        self._cones = [
            *([clarabel.ZeroConeT(model.zero)] if model.zero else []),
            *([clarabel.NonnegativeConeT(model.nonneg)] if model.nonneg else []),
            *(clarabel.SecondOrderConeT(k) for k in model.soc),
        ]
        self._A = sparse.csc_matrix(model.cone_A)
        self._D = np.array(D_first, np.float64)
        self._solver = self._built(self._D, np.zeros(model.n), FEASIBILITY)
        # P as updated differs in its last bits from P as built: update it once, so that D_first too gives the same
        # bits whether or not another D came between.
        self._solver.update(P=self._D)

    def project(self, v: Floats, D: Floats) -> Floats:
        """argmin over z in W_p of sum_k D_k/2 (z_k - v_k)^2, all of shape (n,), D > 0. Raises StepFailed.

        The bits depend on (model, D_first, v, D) alone, not on earlier calls.
        """
        q = -D * v
        if not (np.isfinite(q).all() and np.all(D > 0)):
            raise StepFailed(f"zone {self.model.name}: found a step that is not finite, expected finite v and D > 0")
        if np.array_equal(D, self._D):
            self._solver.update(q=q)
        else:
            self._solver.update(P=D, q=q)
            self._D = D.copy()
        solution = self._solver.solve()
        if solution.status != clarabel.SolverStatus.Solved:
            # A solver scaled for this very problem, used once; the first one goes on afterwards. Dividing the
            # objective by its largest coefficient moves no minimiser and keeps heavy noise within range.
            size = float(np.abs(q).max()) or 1.0
            again = self._built(D / size, q / size, TOLERANCE).solve()
            if again.status == clarabel.SolverStatus.Solved or solution.status not in _ACCEPTED:
                solution = again
        if solution.status not in _ACCEPTED:
            raise StepFailed(f"zone {self.model.name}: the projection ended {solution.status}, expected Solved")
        return np.array(solution.x)

    def violation(self, z: Floats) -> float:
        """The largest violation of (D.2d)-(D.2l) at z, p.u.; 0 where z is feasible."""
        return _violation(self.model, z)

    def _built(self, D: Floats, q: Floats, feasibility: float) -> clarabel.DefaultSolver:
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.presolve_enable = False  # presolve would forbid updates
        settings.direct_solve_method = "qdldl"
        settings.max_threads = 1
        settings.tol_gap_abs = settings.tol_gap_rel = TOLERANCE
        settings.tol_feas = feasibility
        n = self.model.n
        P = sparse.csc_matrix((D, self._at, np.arange(n + 1)), shape=(n, n))
        return clarabel.DefaultSolver(P, q, self._A, self.model.cone_b, self._cones, settings)
