"""The solvers of a zone's conic program: Clarabel, and two others as second opinions.

clarabel  the default: updated in place, the fastest by far
ecos      another interior-point method for cones; the objective enters as a cone of its own (extra: ecos)
ipopt     a general nonlinear interior-point method, the one of the paper, through casadi (extra: laptop)
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from math import inf
from typing import Any

import numpy as np

from hushgrid.grid_cases.case import Floats
from hushgrid.grid_cases.zone.conic import UNCHANGED, ClarabelSolver, Cones, Solver, StepFailed
from hushgrid.kernels.errors import InputError

SOLVERS = ("clarabel", "ecos", "ipopt")
_SOLVED = ("Solve_Succeeded", "Solved_To_Acceptable_Level")


def solver(
    kind: str,
    cones: Cones,
    P_first: Floats,
    tolerance: float,
    label: str,
    feasibility: float | None = None,
    changes: Mapping[str, object] = UNCHANGED,
) -> Solver:
    """The solver named; `feasibility` [tolerance], P_first, shape (n,), and changes are Clarabel's alone.

    Raises InputError if there is no such solver, or if it is not installed.
    """
    if kind == "clarabel":
        return ClarabelSolver(cones, P_first, tolerance, label, feasibility, changes)
    if kind == "ecos":
        return EcosSolver(cones, label)
    if kind == "ipopt":
        return IpoptSolver(cones, label)
    raise InputError(f"solver: found {kind!r}, expected one of {', '.join(SOLVERS)}")


class EcosSolver:
    """ECOS: 1/2 x'Px enters as t with a cone |(sqrt(2P) x, t - 1)| <= t + 1, over the entries with P > 0."""

    def __init__(self, cones: Cones, label: str) -> None:
        self.cones, self.label = cones, label
        self._ecos = _extra("ecos", "ecos", "ecos")

    def solve(self, P: Floats, q: Floats) -> tuple[Floats, Floats]:
        """As `Solver.solve`."""
        from scipy import sparse

        cones, n = self.cones, P.size
        curved = np.flatnonzero(P > 0)
        padded = sparse.hstack([cones.A.scipy(), sparse.csc_array((cones.A.shape[0], 1))], format="csc")
        k = curved.size
        # h - G (x, t) = (t + 1, sqrt(2 P) x, t - 1), in a cone iff 1/2 x'Px <= t.
        edge = sparse.csc_array(-np.eye(1, n + 1, n))
        roots = sparse.csc_array((-np.sqrt(2 * P[curved]), (np.arange(k), curved)), shape=(k, n + 1))
        G = sparse.csc_matrix(sparse.vstack([padded[cones.zero :], edge, roots, edge]))
        h = np.concatenate([cones.b[cones.zero :], [1.0], np.zeros(k), [-1.0]])
        dims = {"l": cones.nonneg, "q": [*cones.soc, k + 2]}
        equalities = (sparse.csc_matrix(padded[: cones.zero]), cones.b[: cones.zero]) if cones.zero else ()
        solution = self._ecos.solve(
            np.append(q, 1.0), G, h, dims, *equalities, verbose=False, abstol=1e-9, reltol=1e-9, max_iters=200
        )
        if solution["info"]["exitFlag"] not in (0, 10):  # optimal, or optimal to reduced accuracy
            raise StepFailed(f"{self.label}: ecos ended {solution['info']['infostring']}, expected an optimum")
        inside = np.array(solution["z"])[: cones.A.shape[0] - cones.zero]
        equal = np.array(solution["y"]) if cones.zero else np.zeros(0)
        return np.array(solution["x"][:n]), np.concatenate([equal, inside])


class IpoptSolver:
    """Ipopt through casadi: a smooth program, each cone |v| <= t as |v|^2 <= t^2, t >= 0.

    Each solve begins at x = 0, so that it depends on (P, q) alone.
    """

    def __init__(self, cones: Cones, label: str) -> None:
        ca = _extra("casadi", "ipopt", "laptop")
        self.cones, self.label = cones, label
        n, linear = cones.A.shape[1], cones.zero + cones.nonneg
        #: Rows of s = b - A x at which a cone begins, and the cone of each later row.
        self._tops = linear + np.cumsum([0, *cones.soc[:-1]]).astype(np.int64) if cones.soc else np.zeros(0, np.int64)
        self._cone_of = np.repeat(np.arange(len(cones.soc)), cones.soc)
        x, P, q = ca.MX.sym("x", n), ca.MX.sym("P", n), ca.MX.sym("q", n)
        s = ca.DM(cones.b) - ca.DM(cones.A.scipy().tocsc()) @ x
        squares, count = s[linear:] ** 2, len(cones.soc)
        places = ca.DM.triplet(
            self._cone_of.tolist(),
            list(range(self._cone_of.size)),
            ca.DM.ones(self._cone_of.size),
            count,
            squares.numel(),
        )
        tops = s[self._tops.tolist()] if count else ca.MX(0, 1)
        rows = ca.vertcat(s[:linear], places @ squares - 2 * tops**2, tops)
        goal = ca.dot(P, x**2) / 2 + ca.dot(q, x)
        options = {"print_time": 0, "ipopt": {"print_level": 0, "sb": "yes", "tol": 1e-9}}
        self._solve = ca.nlpsol("step", "ipopt", {"x": x, "p": ca.vertcat(P, q), "f": goal, "g": rows}, options)
        self._low = np.concatenate([np.zeros(linear), np.full(count, -inf), np.zeros(count)])
        self._high = np.concatenate(
            [np.zeros(cones.zero), np.full(cones.nonneg, inf), np.zeros(count), np.full(count, inf)]
        )

    def solve(self, P: Floats, q: Floats) -> tuple[Floats, Floats]:
        """As `Solver.solve`."""
        cones, count = self.cones, len(self.cones.soc)
        solution = self._solve(x0=np.zeros(P.size), p=np.concatenate([P, q]), lbg=self._low, ubg=self._high)
        status = self._solve.stats()["return_status"]
        if status not in _SOLVED:
            raise StepFailed(f"{self.label}: ipopt ended {status}, expected an optimum")
        x, multipliers = (np.array(solution[key]).ravel() for key in ("x", "lam_g"))
        linear = cones.zero + cones.nonneg
        # d/ds of mu (|v|^2 - t^2) + nu t: the multipliers of A x + s = b are minus that.
        mu, nu = multipliers[linear : linear + count], multipliers[linear + count :]
        s = cones.b - cones.A.scipy() @ x
        y = np.concatenate([-multipliers[:linear], -2 * mu[self._cone_of] * s[linear:]])
        y[self._tops] = 2 * mu * s[self._tops] - nu
        return x, y


def _extra(module: str, kind: str, extra: str) -> Any:
    """An optional module. Raises InputError that names the extra."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise InputError(f"solver {kind}: {module} is not installed, expected hushgrid[{extra}]") from None
