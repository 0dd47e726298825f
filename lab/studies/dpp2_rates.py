"""`hushgrid study dpp2-rates`: Theorems 1 and 2 of Z. Ou, D. Wang, Z. Liu, J. Lu (DPP2), measured.

Theorem 1: the mean over rounds of the optimality (31) falls as 1/K. Theorem 2: under the Polyak-Lojasiewicz condition
|x^k - mean|^2 + f(mean) - f* falls by a constant factor a round, no faster than r^2 if noise falls by r. The problem is
that of the figures: without its nonconvex penalty and with l2 = mu it is strongly convex, which implies the condition
with nu = mu.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from hushgrid.kernels.algorithms import dpp2
from hushgrid.kernels.problems.centralised import optimum
from hushgrid.kernels.problems.losses import Loss, Objective
from hushgrid.kernels.problems.prox import Regularizer
from hushgrid.kernels.randomness import counter_generator
from hushgrid.kernels.types import Vector
from hushgrid.lab.rollout.compiled import dpp2 as whole_dpp2
from hushgrid.lab.studies.common.study import Page, Panel, Table, chart, on_two
from hushgrid.lab.studies.papers.dpp2_figures import Dpp2Task, N, parameters, problem

MU = 0.1
DECAYS = (0.0, 0.5, 0.9, 0.97, 0.995)  #: r, u = 1; 0: no noise
ROUNDS = 8000
FLOOR = 1e-24  #: below it is rounding


class Rate(NamedTuple):
    """One run. E is (T,): (31) of Theorem 1, or the left side of Theorem 2."""

    r: float
    E: Vector

    @property
    def factor(self) -> float:
        """By which E falls a round, over the second half of the rounds (in logarithms) before it is rounding."""
        k = np.flatnonzero(FLOOR * self.E[0] < self.E)
        k = k[k >= k[-1] // 2]
        return float(np.exp(np.polyfit(k, np.log(self.E[k]), 1)[0]))

    def scaled(self, K: int) -> float:
        """K times the mean of E over the first K rounds: bounded if the mean falls as 1/K."""
        return float(np.sum(self.E[:K]))


def measured(r: float, convex: bool, n: int, rounds: int) -> Rate:
    """One run of the paper's parameters from 0."""
    task = Dpp2Task("rate", "DPP2", r, 1.0, 0.5, n, rounds)
    fs, graph = problem(n)
    if convex:
        fs = [Loss(Objective(kind="logistic", l2=MU), f.A, f.b) for f in fs]
    p, shape, w, e = parameters(task), (rounds, n, fs[0].size), None, None
    if r:
        scales = np.array([p.theta(k) for k in range(rounds)])
        w, e = (
            scales[:, place, None, None] * counter_generator(0, f"dpp2 {name}", 0).laplace(size=shape)
            for place, name in enumerate("we")
        )
    x = whole_dpp2.Nodes(p, fs, graph).run(rounds, w=w, e=e, record=True)[:, 0]
    if not convex:
        return Rate(r, np.array([dpp2.stationarity(X, _gradients(fs, X)) for X in x]))
    best = optimum(fs, Regularizer()).x
    least = _value(fs, best)
    return Rate(r, np.array([np.sum((X - X.mean(axis=0)) ** 2) + _value(fs, X.mean(axis=0)) - least for X in x]))


def _gradients(fs: Sequence[Loss], x: Vector) -> Vector:
    return np.array([f.gradient(v) for f, v in zip(fs, x, strict=True)])


def _value(fs: Sequence[Loss], x: Vector) -> float:
    return float(sum(f.value(x) for f in fs))


def study(n: int = N, rounds: int = ROUNDS, decays: Sequence[float] = DECAYS) -> list[Page]:
    """Both theorems without noise and with noise that falls."""
    strong = on_two(partial(measured, convex=True, n=n, rounds=rounds // 8), decays, lambda r: f"Theorem 2, r = {r:g}")
    weak = on_two(partial(measured, convex=False, n=n, rounds=rounds), decays, lambda r: f"Theorem 1, r = {r:g}")
    doubled = [rounds // 8 * 2**k for k in range(4)]
    tables = [
        Table(f"Theorem 2: mu = {MU:g}", ("r", "factor a round", "r^2"), [(s.r, s.factor, s.r**2) for s in strong]),
        Table(
            "Theorem 1: K times the mean of (31)",
            ("r", *(f"K = {K}" for K in doubled)),
            [(w.r, *(w.scaled(K) for K in doubled)) for w in weak],
        ),
    ]
    panels = [
        Panel("Theorem 2", "round k", "|x - mean|^2 + f(mean) - f*", _curves(strong)),
        Panel("Theorem 1", "round k", "(31)", _curves(weak)),
    ]
    return [Page("dpp2-rates", tables, {"dpp2-rates.svg": chart("Rates of DPP2", [panels])})]


def _curves(lines: Sequence[Rate]) -> dict[str, tuple[Vector, Vector]]:
    return {f"r = {li.r:g}": (np.arange(1.0, li.E.size + 1), np.maximum(li.E, 1e-30)) for li in lines}
