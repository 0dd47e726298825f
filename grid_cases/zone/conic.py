"""min 1/2 x' diag(P) x + q'x subject to b - A x in cones: built once, then solved at other P and q.

The bits of a solution depend on (cones, the first P, P, q) alone: a solver's scaling is fixed when it is built, from
the first P and q = 0, so a device that restarts and is given the same question gives the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import Any, Protocol

import clarabel
import numpy as np

from hushgrid.grid_cases.case import Floats
from hushgrid.grid_cases.matrix import Matrix
from hushgrid.kernels.errors import Stopped

_SOLVED = clarabel.SolverStatus.Solved
#: Of an optimum that the solver itself does not call one, the larger of its residuals and its gap, each relative: with
#: ENOUGH no further solver is asked; at the end the best one is taken up to RESIDUAL, or if it is called almost solved.
ENOUGH, RESIDUAL = 1e-7, 1e-6
_ALMOST = clarabel.SolverStatus.AlmostSolved
#: What a fresh solver of one problem is given, one after the other, until one has solved it.
UNCHANGED: Mapping[str, object] = MappingProxyType({})
#: Half the time of a solve over a horizon is iterative refinement, and it saves no iteration there. The ladder has it.
UNREFINED: Mapping[str, object] = MappingProxyType({"iterative_refinement_enable": False})
LADDER: tuple[Mapping[str, Any], ...] = (
    UNCHANGED,
    {"iterative_refinement_max_iter": 50, "iterative_refinement_stop_ratio": 2.0},
    {"static_regularization_constant": 1e-6, "iterative_refinement_max_iter": 50},
    {"equilibrate_enable": False, "iterative_refinement_max_iter": 50},
    {"direct_solve_method": "faer", "iterative_refinement_max_iter": 50},
)


class StepFailed(Stopped):
    """A zone's step was not solved: it fails, and nothing is released."""


@dataclass(frozen=True, slots=True, eq=False)
class Cones:
    """b - A x in {0}^zero x R+^nonneg x second-order cones of these dimensions."""

    A: Matrix  #: (m, n)
    b: Floats  #: (m,)
    zero: int
    nonneg: int
    soc: tuple[int, ...]


class Solver(Protocol):
    def solve(self, P: Floats, q: Floats) -> tuple[Floats, Floats]:
        """The minimiser x (n,) and the multipliers y (m,) of A x + s = b. Raises StepFailed."""
        ...


class ClarabelSolver:
    """Clarabel, updated in place. P >= 0, (n,); its zeros stay in the pattern. `changes`: of its settings."""

    def __init__(
        self,
        cones: Cones,
        P_first: Floats,
        tolerance: float,
        label: str,
        feasibility: float | None = None,
        changes: Mapping[str, object] = UNCHANGED,
    ) -> None:
        self.cones, self.label, self.tolerance, self.changes = cones, label, tolerance, changes
        self._P = np.array(P_first, np.float64)
        self._solver = self._built(self._P, np.zeros(self._P.size), feasibility or tolerance, changes)
        # P as updated differs in its last bits from P as built: update it once, so that the first P too gives the same
        # bits whether or not another P came between.
        self._solver.update(P=self._P)

    def solve(self, P: Floats, q: Floats) -> tuple[Floats, Floats]:
        if not (np.isfinite(q).all() and np.isfinite(P).all() and np.all(P >= 0)):
            raise StepFailed(f"{self.label}: found a step that is not finite, expected finite numbers and P >= 0")
        if np.array_equal(P, self._P):
            self._solver.update(q=q)
        else:
            self._solver.update(P=P, q=q)
            self._P = P.copy()
        first = SolverResult.from_solution(self._solver.solve())
        if first.solved:
            return first.x, first.y
        tried = [first]
        for again in fresh(self._built, P, q, self.tolerance):
            if again.solved:
                return again.x, again.y
            tried.append(again)
            if good := [one for one in tried if one.residual <= ENOUGH]:
                return good[0].x, good[0].y
        best = min(tried, key=lambda one: one.residual)
        if not (best.residual <= RESIDUAL or best.almost):
            raise StepFailed(
                f"{self.label}: the solver ended {first.status}, and {len(tried) - 1} others left residuals of "
                f"{best.residual:.2g} or more, expected at most {RESIDUAL:g}"
            )
        return best.x, best.y

    def _built(
        self, P: Floats, q: Floats, feasibility: float, changes: Mapping[str, object] = UNCHANGED
    ) -> clarabel.DefaultSolver:
        return built(self.cones, P, q, self.tolerance, feasibility, changes)


@dataclass(frozen=True, slots=True, eq=False)
class SolverResult:
    """What a solver has found, and how well by its own residuals."""

    x: Floats
    y: Floats
    status: str
    residual: float  #: the largest of primal and dual residual and gap, relative; nan or infinite: it is worth nothing

    @classmethod
    def from_solution(cls, solution: clarabel.DefaultSolution, size: float = 1.0) -> SolverResult:
        """`size`: what the objective was divided by."""
        gap = abs(solution.obj_val - solution.obj_val_dual)
        relative = gap / max(1.0, min(abs(solution.obj_val), abs(solution.obj_val_dual)))
        residual = max(solution.r_prim, solution.r_dual, relative)
        x, y = np.array(solution.x), np.array(solution.z) * size
        finite = np.isfinite(residual) and np.isfinite(x).all() and np.isfinite(y).all()
        return cls(x, y, str(solution.status), float(residual) if finite else inf)

    @property
    def solved(self) -> bool:
        return self.status == str(_SOLVED) and self.residual < inf

    @property
    def almost(self) -> bool:
        return self.status == str(_ALMOST) and self.residual < inf


def fresh(
    build: Callable[..., clarabel.DefaultSolver], P: Floats, q: Floats, tolerance: float
) -> Iterator[SolverResult]:
    """What solvers find that are scaled for this very problem and used once, one for each rung of the ladder.

    Dividing the objective by its largest coefficient moves no minimiser and keeps heavy noise within range.
    """
    size = float(np.abs(q).max(initial=0.0)) or 1.0
    for changes in LADDER:
        yield SolverResult.from_solution(build(P / size, q / size, tolerance, changes).solve(), size)


def multipliers(cones: Cones, P: Floats, q: Floats, tolerance: float) -> Iterator[Floats]:
    """(m,) each: the multipliers that solvers find, until one of them has solved the problem."""
    for one in fresh(
        lambda P, q, feasibility, changes: built(cones, P, q, tolerance, feasibility, changes), P, q, tolerance
    ):
        yield one.y
        if one.solved:
            return


def built(
    cones: Cones,
    P: Floats,
    q: Floats,
    tolerance: float,
    feasibility: float,
    changes: Mapping[str, object] = UNCHANGED,
) -> clarabel.DefaultSolver:
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.presolve_enable = False  # presolve would forbid updates
    settings.direct_solve_method = "qdldl"
    settings.max_threads = 1
    settings.tol_gap_abs = settings.tol_gap_rel = tolerance
    settings.tol_feas = feasibility
    for key, value in changes.items():
        setattr(settings, key, value)
    n = P.size
    parts = [
        *([clarabel.ZeroConeT(cones.zero)] if cones.zero else []),
        *([clarabel.NonnegativeConeT(cones.nonneg)] if cones.nonneg else []),
        *(clarabel.SecondOrderConeT(k) for k in cones.soc),
    ]
    diagonal = Matrix(P, np.arange(n), np.arange(n + 1), (n, n))
    return clarabel.DefaultSolver(diagonal, q, cones.A, cones.b, parts, settings)
