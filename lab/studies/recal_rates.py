"""`hushgrid study recal-rates`: Theorem 3 and (18) of L. Wang, L. Guo, S. Yang, X. Shi (DP-RECAL), measured.

Theorem 3: if the operator is metrically subregular, the squared distance to the solutions falls by a constant factor an
activation, no faster than noise whose variance falls by 1/R. Least squares are subregular with or without strong
convexity, so both are here: data of full rank, and data of a subspace, whose solutions are a whole plane. (18): on n
agents the number of activations is O(n ln 1/epsilon), because the bound's phi is O(n). Theorem 2 has the walk at
random: once around a cycle is a fixed linear map where losses are quadratic, and its eigenvalues say what it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, log
from typing import NamedTuple

import numpy as np

from hushgrid.kernels.algorithms import recal
from hushgrid.kernels.problems.losses import Loss, Objective
from hushgrid.kernels.problems.prox import Regularizer
from hushgrid.kernels.randomness import counter_generator
from hushgrid.kernels.types import Vector
from hushgrid.lab.rollout.compiled.recal import Agents
from hushgrid.lab.studies.common.study import Page, Panel, Table, chart, on_two

ROWS, FEATURES, RANK = 20, 5, 3  #: of an agent; of the data without strong convexity
AGENTS = (5, 10, 20, 40, 80)
ROUNDS = 4000  #: activations of an agent
DECAYS = (0.0, 1.01, 1.003, 1.001)  #: R of noise on u~, variance 1 at first; 0: none
FLOOR = 1e-22  #: below it is rounding
FALLS = 1e-10  #: by which (18) counts
CYCLES = (8, 30, 50, 60, 70, 80, 120)  #: agents
CURVATURES = (1e-6, 0.1, 1.0, 10.0, 100.0)  #: of all losses


class Walked(NamedTuple):
    """A walk. E is (K,): the squared distance of the token's x to the solutions, after each activation."""

    n: int
    convex: bool
    cycle: bool
    R: float
    E: Vector

    @property
    def factor(self) -> float:
        """By which E falls an activation, over the second half of the activations before it is rounding; inf: it does
        not.
        """
        if not self.E[-1] < self.E[0]:
            return inf
        k = np.flatnonzero(FLOOR * self.E[0] < self.E)
        k = k[k >= k[-1] // 2]
        return float(np.exp(np.polyfit(k, np.log(self.E[k]), 1)[0]))

    @property
    def rounds(self) -> float:
        """Activations of an agent until E has fallen by FALLS, by its factor: constant in n if they are O(n) in all."""
        return log(FALLS) / log(self.factor) / self.n if self.factor < 1 else inf

    def __str__(self) -> str:
        return f"{'full rank' if self.convex else 'subspace'}, {'cycle' if self.cycle else 'at random'}"


def walked(task: tuple[int, bool, bool, float], rounds: int = ROUNDS) -> Walked:
    """One walk of (agents, full rank, cycle, R) with the paper's steps, from 0."""
    n, convex, cycle, R = task
    K, way = rounds * n, counter_generator(1, "recal-rates walk", n)
    plane = np.linalg.qr(counter_generator(1, "recal-rates plane", 0).normal(size=(FEATURES, RANK)))[0]
    seen = np.eye(FEATURES) if convex else plane @ plane.T  # the part of x that any loss sees
    drawn = np.array([counter_generator(1, "recal-rates data", i).normal(size=(ROWS, FEATURES + 1)) for i in range(n)])
    A = drawn[:, :, :-1] @ seen / np.sqrt(FEATURES)
    b = A.sum(axis=2) + 0.1 * drawn[:, :, -1]
    fs = [Loss(Objective(kind="least-squares"), *rows) for rows in zip(A, b, strict=True)]
    others = way.integers(1, n, size=K)  # at random: of all others one
    nodes = np.cumsum(np.ones(K, dtype=int) if cycle else others) % n
    noise = way.normal(size=(K, FEATURES)) * R ** (-0.5 * np.arange(K))[:, None] if R else None
    agents = Agents(recal.Params(rounds=K, variant="published" if R else "none"), fs, Regularizer())
    x = agents.walk(nodes, noise=noise, record=True)[:, 0]
    best = np.linalg.lstsq(A.reshape(-1, FEATURES), b.ravel(), rcond=None)[0]
    with np.errstate(over="ignore"):  # it may diverge
        return Walked(n, convex, cycle, R, np.sum(((x - best) @ seen) ** 2, axis=1))


def growth(n: int, curvature: float, beta: float) -> float:
    """By how much one time around a cycle of n agents stretches the state at most: the spectral radius of that map,
    f_i = curvature y^2/2, alpha = 1/(L + 1). Above 1 it diverges.
    """
    state = np.eye(2 * n + 2)  # a start a column: x, u, y_1 .. y_n, lambda_1 .. lambda_n
    x, u, y, lam = state[0], state[1], state[2 : n + 2], state[n + 2 :]
    for i in range(n):
        x_new, y_new, lam_new = recal.activation(
            x, u, y[i], lam[i], curvature * y[i], 1 / (curvature + 1), beta, float(n), 0.0, 0.0, inf
        )
        x, u, y[i], lam[i] = x_new, u + lam_new - lam[i], y_new, lam_new
    return float(np.abs(np.linalg.eigvals(np.vstack([x, u, y, lam]))).max())


def study(
    agents: Sequence[int] = AGENTS, decays: Sequence[float] = DECAYS, cycles: Sequence[int] = CYCLES
) -> list[Page]:
    """The factor by the number of agents, by how fast noise falls, and around cycles."""
    kinds = [(convex, cycle) for convex in (True, False) for cycle in (True, False)]
    sizes = on_two(walked, [(n, *kind, 0.0) for kind in kinds for n in agents], lambda t: f"Theorem 3, {t[0]} agents")
    noisy = on_two(
        walked, [(agents[0], *kind, R) for kind in kinds for R in decays], lambda t: f"Theorem 3, R = {t[3]:g}"
    )
    tables = [
        Table(
            f"(18): activations of an agent until the squared distance has fallen by {FALLS:g}",
            ("agents", *dict.fromkeys(map(str, sizes))),
            [(n, *(w.rounds for w in sizes if w.n == n)) for n in agents],
        ),
        Table(
            f"Theorem 3: factor an activation, {agents[0]} agents",
            ("R", "1/R", *dict.fromkeys(map(str, noisy))),
            [(f"{R:g}", 1 / R if R else 0.0, *(w.factor for w in noisy if w.R == R)) for R in decays],
        ),
    ]
    worst = {
        n: [max(growth(n, a, beta) for a in CURVATURES) for beta in (1 / (2 * (n + 1)), recal.AROUND / n**2)]
        for n in cycles
    }
    tables.append(
        Table(
            "Around a cycle: the factor of one time around, the largest over curvatures from 1e-6 to 100",
            ("agents", "beta n^2 at 1/(2(n + 1))", "factor", f"at beta n^2 = {recal.AROUND:g}"),
            [(n, n**2 / (2 * (n + 1)), *factors) for n, factors in worst.items()],
        )
    )
    panels = [
        Panel("without noise", "activations of an agent", "squared distance", _curves(sizes, agents[0])),
        Panel("with noise, full rank, cycle", "activations", "squared distance", _of_decays(noisy)),
    ]
    return [Page("recal-rates", tables, {"recal-rates.svg": chart("Rates of RECAL", [panels])})]


def _curves(walks: Sequence[Walked], n: int) -> dict[str, tuple[Vector, Vector]]:
    return {str(w): _curve(w.E[::n]) for w in walks if w.n == n}


def _of_decays(walks: Sequence[Walked]) -> dict[str, tuple[Vector, Vector]]:
    return {f"R = {w.R:g}": _curve(w.E) for w in walks if w.convex and w.cycle}


def _curve(E: Vector) -> tuple[Vector, Vector]:
    every = max(1, E.size // 1000)
    return np.arange(1.0, E.size + 1)[::every], np.maximum(E[::every], 1e-30)
