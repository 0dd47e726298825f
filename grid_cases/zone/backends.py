"""Other solvers of a zone's projection behind the interface of `ZoneStep`, for comparison and as second opinions.

    clarabel  the default: updated in place, the fastest by far
    ecos      another interior-point method for cones; the objective enters as a cone of its own (extra: ecos)
    ipopt     a general nonlinear interior-point method, the one of the paper, through cvxpy (extra: ipopt)

Each is an optional extra; an absent one is an InputError that names it.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from hushgrid.grid_cases.case import Floats
from hushgrid.grid_cases.zone.conic import StepFailed, extra, second_order
from hushgrid.grid_cases.zone.model import ZoneModel
from hushgrid.grid_cases.zone.model import violation as _violation
from hushgrid.grid_cases.zone.projection import Step, ZoneStep
from hushgrid.kernels.errors import InputError

SOLVERS = ("clarabel", "ecos", "ipopt")


def make_step(model: ZoneModel, D: Floats, solver: str = "clarabel") -> Step:
    """The projection of one zone by the solver named; D, shape (n,), is the first round's. Raises InputError."""
    if solver == "clarabel":
        return ZoneStep(model, D)
    if solver == "ecos":
        return EcosStep(model)
    if solver == "ipopt":
        return IpoptStep(model)
    raise InputError(f"solver: found {solver!r}, expected one of {', '.join(SOLVERS)}")


class EcosStep:
    """min t over (z, t) with |D^1/2 (z - v)| <= t and z in W_p: the same minimiser, as a linear conic program."""

    def __init__(self, model: ZoneModel) -> None:
        from scipy import sparse

        self.model = model
        self._ecos = extra("ecos", "ecos")
        n, zero = model.n, model.zero
        padded = sparse.hstack([model.cone_A.scipy(), sparse.csc_array((model.cone_A.shape[0], 1))], format="csc")
        self._equal = sparse.csc_matrix(padded[:zero])
        self._inside = padded[zero:]
        self._cost = np.eye(1, n + 1, n)[0]

    def project(self, v: Floats, D: Floats) -> Floats:
        """As `ZoneStep.project`."""
        from scipy import sparse

        model, root = self.model, np.sqrt(D)
        # (t, D^1/2 (z - v)) in a second-order cone: h - G (z, t) with G = [[0, -1], [-D^1/2, 0]].
        cone = sparse.vstack([-self._cost[None, :], sparse.hstack([-sparse.diags_array(root), np.zeros((model.n, 1))])])
        G = sparse.csc_matrix(sparse.vstack([self._inside, cone]))
        h = np.concatenate([model.cone_b[model.zero :], [0.0], -root * v])
        dims = {"l": model.nonneg, "q": [*model.soc, model.n + 1]}
        equalities = (self._equal, model.cone_b[: model.zero]) if model.zero else ()
        found = self._ecos.solve(self._cost, G, h, dims, *equalities, verbose=False, abstol=1e-10, reltol=1e-10)
        if found["info"]["exitFlag"] not in (0, 10):  # optimal, or optimal to reduced accuracy
            raise StepFailed(f"zone {model.name}: ecos ended {found['info']['infostring']}, expected an optimum")
        return np.array(found["x"][: model.n])

    def violation(self, z: Floats) -> float:
        """As `ZoneStep.violation`."""
        return _violation(self.model, z)


class IpoptStep:
    """The same projection as a smooth nonlinear program, each cone |v| <= t as |v|^2 <= t^2, t >= 0."""

    def __init__(self, model: ZoneModel) -> None:
        extra("cyipopt", "ipopt")
        self.model = model
        self._cp = cp = extra("cvxpy", "model")
        self._v, self._D = cp.Parameter(model.n), cp.Parameter(model.n, nonneg=True)
        self._z = cp.Variable(model.n)
        self._program = cp.Problem(
            cp.Minimize(0.5 * cp.sum(cp.multiply(self._D, cp.square(self._z - self._v)))), self._constraints(self._z)
        )

    def _constraints(self, z: Any) -> list[Any]:
        cp, model = self._cp, self.model
        s = model.cone_b - model.cone_A.scipy() @ z
        linear = model.zero + model.nonneg
        found = [s[: model.zero] == 0] if model.zero else []
        if model.nonneg:
            found.append(s[model.zero : linear] >= 0)
        return [*found, *second_order(cp, s, linear, model.soc)]

    def project(self, v: Floats, D: Floats) -> Floats:
        """As `ZoneStep.project`; every call starts from the flat start, so that it depends on (v, D) alone."""
        cp = self._cp
        self._v.value, self._D.value, self._z.value = v, D, self.model.start.copy()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                self._program.solve(nlp=True, solver=cp.IPOPT, tol=1e-9, print_level=0, sb="yes")
            except cp.SolverError as error:
                raise StepFailed(f"zone {self.model.name}: ipopt ended {error}, expected an optimum") from None
        if self._program.status not in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE) or self._z.value is None:
            raise StepFailed(f"zone {self.model.name}: ipopt ended {self._program.status}, expected an optimum")
        return np.array(self._z.value)

    def violation(self, z: Floats) -> float:
        """As `ZoneStep.violation`."""
        return _violation(self.model, z)
