"""Private minimisers in games: answers about a pair of records whose slopes are both near one, and opposed.

Output perturbation is noise on a lattice around two minimisers, as any answer of a gradient. Objective perturbation
adds a random linear term eps before it minimises. Beside one record all rows are zero, so that the minimiser has a
closed form but for the record's margin, one equation that rises in it, and games are played in bulk; the gate's own
normal deviates make eps. The two data sets' likelihoods of an answer x follow from eps = -F'(x) and the determinant of
F'' (docs/papers/mechanisms.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from hushgrid.kernels.privacy import perturbation
from hushgrid.kernels.privacy.noise import Kind
from hushgrid.kernels.privacy.perturbation import Perturbation
from hushgrid.kernels.problems.losses import Loss
from hushgrid.kernels.randomness import Entropy
from hushgrid.kernels.types import Index, Matrix, Vector
from hushgrid.lab.audit.answers import Answer, Likely
from hushgrid.lab.audit.canaries import Canary, Pair, RowGates, moved
from hushgrid.node.problems.plan import RunPlan

COSINES = (0.3, 0.1, 0.03, 0.01, 0.003)  #: of both rows with the way to the minimiser; the best is taken
MARGIN = 30.0  #: of both rows at the minimiser: their slopes are then one
HALVINGS = 60


@dataclass(frozen=True)
class Record:
    """F(x) = kappa log(1 + exp(-u.x)) + <v, x> + mu/2 |x|^2: one record u (q,), k times, all others zero."""

    u: Vector
    kappa: float
    v: Vector
    mu: float

    def minimisers(self, eps: Matrix) -> Matrix:
        """argmin F + <eps, .> for every row of eps (games, q): the margin t = u.x by bisection of a rising function."""
        size = float(self.u @ self.u)
        base = -(eps + self.v) @ self.u / self.mu
        low, high = base.copy(), base + self.kappa * size / self.mu
        for _ in range(HALVINGS):
            t = (low + high) / 2
            below = t - self.kappa * size / self.mu / (1 + np.exp(t)) < base
            low, high = np.where(below, t, low), np.where(below, high, t)
        s = 1 / (1 + np.exp((low + high) / 2))
        minimisers: Matrix = (self.kappa * s[:, None] * self.u - eps - self.v) / self.mu
        return minimisers

    def likelihood(self, x: Matrix, alpha: float) -> Vector:
        """log of the density of x (games, q), but for what is the same about every record."""
        t = x @ self.u
        s = 1 / (1 + np.exp(t))
        eps = self.kappa * s[:, None] * self.u - self.v - self.mu * x
        log_density: Vector = -alpha * np.linalg.norm(eps, axis=1) + np.log1p(
            self.kappa * s * (1 - s) * (self.u @ self.u) / self.mu
        )
        return log_density


@dataclass(frozen=True)
class Perturbed:
    """One answer by objective perturbation."""

    records: tuple[Record, Record]
    p: Perturbation
    kind: Kind = "laplace"

    @property
    def values(self) -> tuple[Vector, Vector]:
        none = np.zeros((1, self.records[0].u.size))
        return self.records[0].minimisers(none)[0], self.records[1].minimisers(none)[0]

    @property
    def apart(self) -> Index:
        return np.arange(self.records[0].u.size)

    def drawn(self, games: int, world: int, where: Index, entropy: Entropy) -> Matrix:
        d = where.size
        eps = perturbation.sphericals(games, d, self.p.alpha, entropy)
        x = self.records[world].minimisers(eps)
        n = self.p.lattice.sample(games * d, entropy)
        return self.p.lattice.release(x.ravel(), n).reshape(games, d)

    def ratio(self, y: Matrix, where: Index) -> Vector:
        one, other = (r.likelihood(y, self.p.alpha) for r in self.records)
        return one - other


def of_minimisers(plan: RunPlan, node: str) -> Canary:
    """The pair that a node's private minimisers tell apart best, asked with a linear term that carries x far out."""
    gates, t = RowGates(plan, node), plan.terms_of(node)
    assert t is not None
    quadratic = plan.algorithm.curvature(gates.i, 1, plan.problem.graph.neighbours[gates.i])
    by_output = plan.algorithm.by_output(t.mechanism)
    answers: Sequence[Likely]
    if by_output:
        outputs = [output(gates, pair, linear, quadratic) for pair, linear in far(gates, quadratic)]
        best = max(outputs, key=moved)
        answers, share = [best], moved(best)
    else:
        tried = [objective(gates, pair, linear, quadratic) for pair, linear in far(gates, quadratic)]
        shares = [distance(one) for one in tried]
        k = int(np.argmax(shares))
        answers, share = [tried[k]], shares[k]
    description = (
        "a record replaced, found by search, all other rows zero, asked with a linear term that carries the "
        "minimiser far out"
    )
    return Canary(description, list(answers) * t.answers, share, False)


def far(gates: RowGates, quadratic: float) -> list[tuple[Pair, Vector]]:
    """Pairs of rows, opposed but for a small cosine with a linear term that makes both slopes one."""
    t = gates.plan.terms_of(gates.node)
    assert t is not None
    mu, R, q, softmax = quadratic + gates.objective.l2, gates.R, gates.q, gates.objective.kind == "softmax"
    k, candidates = min(t.records, gates.m), []
    if q == 1:  # no two rows are opposed and have a slope of one: the label flips where both have half of it
        one = gates.axis(R)
        return [(Pair((one, -one), (0.0, 0.0) if softmax else (1.0, 1.0), gates.point(0, 0.0), k), gates.point(0, 0.0))]
    to, way = gates.axis(1.0), gates.axis(0.0, 1.0)
    if t.mechanism == "laplace":  # sign vectors: of a length in L2 they have the most in L1
        to, way = np.ones(q), 1 - 2.0 * (np.arange(q) % 2)
        to[2 * (q // 2) :] = 0.0
        to, way = to / np.linalg.norm(to), way / sqrt(q)
    for s in COSINES:
        rows = [R * (1 - 1e-12) * (sign * sqrt(1 - s * s) * way - s * to) for sign in (1, -1)]
        length = MARGIN / (s * R) * mu
        linear = gates.point(1, length) - gates.point(0, length) if softmax else -length * to
        candidates.append((Pair((rows[0], rows[1]), (0.0, 0.0) if softmax else (1.0, 1.0), linear, k), linear))
    return candidates


def output(gates: RowGates, pair: Pair, linear: Vector, quadratic: float) -> Answer:
    """The minimisers that two gates without noise release, and the noise that the gate would add."""
    t = gates.plan.terms_of(gates.node)
    assert t is not None
    made = gates.gates(pair)
    values = [gate.output_minimizer(linear, quadratic) for gate in made]  # type: ignore[attr-defined]
    p = perturbation.output(loss_of(made[0]), t.mechanism, t.per_answer, linear, quadratic, t.records)
    return Answer(t.mechanism, (values[0], values[1]), p.lattice.scale, p.lattice)


def objective(gates: RowGates, pair: Pair, linear: Vector, quadratic: float) -> Perturbed:
    """The two densities of an answer by objective perturbation."""
    t = gates.plan.terms_of(gates.node)
    assert t is not None
    loss, o = loss_of(gates.gates(pair)[0]), gates.objective
    p = perturbation.objective(loss, t.per_answer, linear, quadratic, t.records)
    kappa, mu = o.scale * pair.k / gates.m, quadratic + o.l2
    one, other = (Record(b * a, kappa, linear, mu) for a, b in zip(pair.rows, pair.labels, strict=True))
    return Perturbed((one, other), p)


def distance(pair: Perturbed) -> float:
    """How far apart F' of the two data sets lies where no noise is, over what the noise is for."""
    x = pair.values[0][None]
    one, other = (r.kappa * r.u / (1 + np.exp(x[0] @ r.u)) for r in pair.records)
    return float(np.linalg.norm(one - other)) / pair.p.change


def loss_of(gate: object) -> Loss:
    loss: Loss = gate.loss  # type: ignore[attr-defined]
    return loss
