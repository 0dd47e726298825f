"""A step is judged by its residuals and its gap, and tried again by solvers of other settings, in a fixed order."""

from types import SimpleNamespace

import numpy as np
import pytest

from hushgrid.grid_cases.matrix import Matrix
from hushgrid.grid_cases.zone import conic
from hushgrid.grid_cases.zone.conic import LADDER, RESIDUAL, ClarabelSolver, Cones, StepFailed

#: min x^2/2 - x for x <= 0.5: x = 0.5, multiplier 0.5
ONE = Cones(
    Matrix.from_entries((1, 1), np.zeros(1, np.int64), np.zeros(1, np.int64), np.ones(1)), np.array([0.5]), 0, 1, ()
)
P, Q = np.ones(1), np.array([-1.0])


@pytest.fixture
def solvers(monkeypatch):
    """Solvers that end as they are told: (status, primal residual) each, in the order in which they are built."""
    ends, seen, real = [], [], conic.built

    def built(cones, P, q, tolerance, feasibility, changes=conic.UNCHANGED):
        status, residual = ends[len(seen)]
        seen.append(dict(changes))
        solver = real(cones, P, q, tolerance, feasibility, changes)

        def solve():
            found = solver.solve()
            kept = {key: getattr(found, key) for key in ("x", "z", "r_dual", "obj_val", "obj_val_dual", "status")}
            kept["r_prim"] = found.r_prim if residual is None else residual
            return SimpleNamespace(**kept | ({"status": status} if status != "Solved" else {}))

        return SimpleNamespace(solve=solve, update=solver.update)

    monkeypatch.setattr(conic, "built", built)
    return ends, seen


def solve():
    return ClarabelSolver(ONE, P, 1e-9, "zone z2").solve(P, Q)


def test_the_rungs_are_tried_in_order_until_one_has_solved_it(solvers):
    ends, seen = solvers
    ends += [("InsufficientProgress", 1e-3), ("AlmostSolved", 1e-6), ("NumericalError", 1e-3), ("Solved", None)]
    x, y = solve()
    assert seen == [{}, *map(dict, LADDER[:3])]
    assert (x[0], y[0]) == (pytest.approx(0.5), pytest.approx(0.5))


def test_where_none_calls_it_solved_the_smallest_residual_decides(solvers):
    ends, seen = solvers
    ends += [("InsufficientProgress", 1e-3), *[("InsufficientProgress", 5e-7)] * len(LADDER)]
    x, y = solve()
    assert len(seen) == 1 + len(LADDER)
    assert (x[0], y[0]) == (pytest.approx(0.5), pytest.approx(0.5))


def test_residuals_that_are_small_enough_end_the_search(solvers):
    ends, seen = solvers
    ends += [("InsufficientProgress", 1e-3), ("NumericalError", 2e-3), ("AlmostSolved", 1e-8)]
    x, _ = solve()
    assert len(seen) == 3
    assert x[0] == pytest.approx(0.5)


def test_a_step_without_small_residuals_fails_and_says_how_it_ended(solvers):
    ends, _ = solvers
    ends += [("InsufficientProgress", 2e-3), *[("NumericalError", 1e-3)] * len(LADDER)]
    expected = (
        rf"^zone z2: the solver ended InsufficientProgress, and {len(LADDER)} others left residuals of 0.001 or more"
    )
    with pytest.raises(StepFailed, match=expected):
        solve()
    assert RESIDUAL < 1e-3


def test_nothing_that_is_not_finite_is_ever_a_solution(solvers):
    ends, _ = solvers
    ends += [("Solved", float("nan"))] * (1 + len(LADDER))
    with pytest.raises(StepFailed):
        solve()
