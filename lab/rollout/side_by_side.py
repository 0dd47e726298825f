"""A gate for many seeds at once: it passes over the rows once for all of them.

Noise has the law of the gate's, in floating point: single precision for sums over rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse
from scipy.special import expit

from hushgrid.broker.simulation.problems.records import RowSetup
from hushgrid.kernels.errors import Refused
from hushgrid.kernels.privacy import perturbation
from hushgrid.kernels.problems.losses import Loss
from hushgrid.kernels.types import DocumentView, Matrix, Tensor, Vector
from hushgrid.lab.rollout.batch import rollout
from hushgrid.lab.rollout.machines import AllowAll, device_iterates
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.privacy.noise_source import SeededNoise
from hushgrid.node.privacy.terms import Terms
from hushgrid.node.problems.records.gate import RowsGate

CLOSE = 1e-3  #: of how far one record can move its gradient: the residual of a minimiser, far below the noise
SPARSE = 0.25  #: of a matrix: with fewer entries that are not zero it is stored sparsely
MOST = 60  #: steps of Newton's method with one matrix


def thin(A: Any) -> Any:
    """A, as a sparse matrix where most of its entries are zeros: the same product with less to read."""
    return csr_array(A) if np.count_nonzero(A) < SPARSE * A.size else A


class Rows:
    """A node's rows in single precision, and sums over them for points X (S, d) at once; logistic."""

    def __init__(self, loss: Loss) -> None:
        self.A, self.b = thin(loss.A.astype(np.float32)), loss.b.astype(np.float32)[:, None]
        self.At = self.A.T.tocsr() if issparse(self.A) else self.A.T
        norms = loss.row_norms(2).astype(np.float32)[:, None]
        self.shortest, self.m, self.scale = 1 / np.maximum(norms, 1e-30), len(loss.b), loss.objective.scale

    def gradients(self, X: Matrix, clip: float = inf) -> Matrix:
        """Of the mean loss, rows' gradients clipped to that length; shape (S, d)."""
        margins = self.b * (self.A @ np.ascontiguousarray(X.T, dtype=np.float32))
        slopes = self.b * (np.tanh(margins / 2) - 1) / 2
        if clip < inf:
            most = np.float32(clip) * self.shortest
            np.clip(slopes, -most, most, out=slopes)
        return np.array((self.At @ slopes).T, dtype=float) * (self.scale / self.m)

    def hessian(self, x: Vector) -> Matrix:
        """Of the mean loss at one point, shape (d, d)."""
        s = expit(self.A @ x.astype(np.float32))[:, None]
        hessian = self.At @ (self.A * (s * (1 - s)))
        return np.array(hessian.toarray() if issparse(hessian) else hessian, dtype=float) * (self.scale / self.m)


class SideBySideGate:
    """Answers for S seeds, each with noise of its own."""

    def __init__(self, node: str, loss: Loss, terms: Terms, seeds: Sequence[int]) -> None:
        i = int(node[1:])
        self.loss, self.terms, self.rows, self.d = loss, terms, Rows(loss), loss.size
        self.random = [np.random.default_rng([seed, i]) for seed in seeds]
        self.clip, self.l2 = (terms.clip if terms.clip < loss.R else inf), loss.objective.l2
        self.real, self.answers = RowsGate(node, loss, terms, SeededNoise(0, node), AllowAll()), 0
        self.start = np.zeros((len(seeds), loss.size))

    def gradient(self, x: Vector) -> Vector:
        self.answers += 1
        scale = self.real.lattice_at(self.answers).scale
        noise = np.array([self._noise(r, scale) for r in self.random])
        gradients = self.rows.gradients(x.reshape(noise.shape), self.clip) + noise
        answer: Vector = gradients.ravel() + self.loss.public_gradient(x)
        return answer

    def minimizer(self, linear: Vector, quadratic: float) -> Vector:
        """By objective or by output perturbation, as the gate's own."""
        t, V = self.terms, linear.reshape(self.start.shape)
        if t.mechanism == "gaussian":
            p = perturbation.output(self.loss, "gaussian", t.per_answer, V[0], quadratic, t.records)
        else:
            p = perturbation.objective(self.loss, t.per_answer, V[0], quadratic, t.records)
            V = V + np.array([self._spherical(r) / p.alpha for r in self.random])
        self.start = self._least(self.start, V, quadratic + self.l2, CLOSE * p.change)
        kind = "gaussian" if t.mechanism == "gaussian" else "laplace"
        noisy = self.start + np.array([self._noise(r, p.lattice.scale, kind) for r in self.random])
        answer: Vector = noisy.ravel()
        return answer

    def _least(self, X: Matrix, V: Matrix, mu: float, close: float) -> Matrix:
        """argmin of loss + <v, x> + mu/2 |x|^2 for each v in V, from X on.

        Newton's method with the Hessian at the mean; if that is slow, with the one at 0, which none exceeds.
        """
        for x in (X.mean(axis=0), np.zeros(self.d)):
            inverse = np.linalg.inv(self.rows.hessian(x) + mu * np.eye(self.d))
            for _ in range(MOST):
                G = self.rows.gradients(X) + V + mu * X
                if np.linalg.norm(G, axis=1).max() <= close + 1e-6 * np.abs(V).max():
                    return X
                X = X - G @ inverse
            X = np.where(np.isfinite(X), X, 0.0)
        raise Refused(f"found a residual of {np.linalg.norm(G, axis=1).max():.3g}, expected {close:.3g}")

    def _noise(self, random: np.random.Generator, scale: float, kind: str = "") -> Vector:
        if (kind or self.terms.mechanism) == "gaussian":
            return np.array(random.normal(scale=scale, size=self.d))
        return np.array(random.laplace(scale=scale, size=self.d))

    def _spherical(self, random: np.random.Generator) -> Vector:
        """Of density proportional to exp(-|eps|)."""
        way = random.normal(size=self.d)
        return np.array(way * (random.gamma(self.d) / np.linalg.norm(way)))


def device_models(scenario: DocumentView, seeds: Sequence[int]) -> Tensor:
    """What each device has at the end of a scenario, before any rounds of averaging; shape (S, n, d).

    Raises InputError or Refused.
    """
    setup = RowSetup(scenario_from(dict(scenario)))

    def gate(i: int, group: Sequence[int]) -> SideBySideGate:
        node = setup.plan.nodes[i]
        terms = setup.plan.terms_of(node)
        assert terms is not None
        return SideBySideGate(node, setup.losses[i], terms, group)

    return rollout(setup.plan, gate, seeds, side_by_side=True, read=device_iterates)
