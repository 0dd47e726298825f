"""The rest of `hushgrid study recycled`: Figure 2, and findings 5.1 (the limit) and 5.2 (what is told)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import msgspec
import numpy as np

from hushgrid.kernels.privacy.perturbation import spherical
from hushgrid.kernels.problems.centralised import optimum
from hushgrid.kernels.problems.losses import Loss
from hushgrid.kernels.problems.minimizer import Minimizer
from hushgrid.kernels.problems.prox import Regularizer
from hushgrid.kernels.randomness import counter_generator
from hushgrid.kernels.types import Vector
from hushgrid.lab.attacks.recycled import named
from hushgrid.lab.rollout.machines import AllowAll, run_rounds
from hushgrid.lab.studies.common.study import Exact, Table
from hushgrid.lab.studies.papers import recycled_runs as runs_of
from hushgrid.node.privacy.noise_source import SeededNoise
from hushgrid.node.problems.records.gate import RowsGate

RHOS = (0.0, 0.01, 0.05, 0.22, 1.0, 5.0, 25.0)
UNLIKE = (3.0, 6.0, 9.0, 5.0, 4.0)  #: eta_i
STRONG = 25.0  #: rho of the limit: with .22 flat directions are approached for ever
DESCENT = 10  #: steps of an inexact solve
EPSILON = 2.0  #: of the answer


def figure_two(rhos: tuple[float, ...] = RHOS, rounds: int = 50) -> Table:
    """L, and the share of the test rows that ADMM's mean classifies wrong, over rho."""
    method, rows = runs_of.METHODS["ADMM"], []
    for rho in rhos:
        fs = runs_of.losses(5, rho)
        keys = method.keys | {"rounds": rounds, "variant": "none"}
        *_, f = run_rounds(
            runs_of.fleet(method, keys, [Exact(g) for g in fs], runs_of.neighbours(5), fs[0].size), of_messages=True
        )
        rows.append((f"{rho:g}", runs_of.wrong(f.mean(axis=0)), runs_of.wrong(optimum(fs, Regularizer()).x)))
    return Table(
        "Figure 2: the share classified wrong over rho", ("rho", f"ADMM, {rounds} iterations", "optimum"), rows
    )


def wrong_limit(rounds: int = 400, rho: float = STRONG) -> Table:
    """Finding 5.1, fixed eta_i, all unlike, of nodes and of edges: how far the nodes end up from either limit."""
    fs = runs_of.losses(5, rho)
    o, rows = fs[0].objective, []
    right = optimum(fs, Regularizer()).x
    scaled = [msgspec.structs.replace(o, scale=o.scale / e, l2=o.l2 / e) for e in UNLIKE]
    other = optimum([Loss(s, f.A, f.b) for s, f in zip(scaled, fs, strict=True)], Regularizer()).x
    for penalties in ("node", "edge"):
        keys = {"eta": UNLIKE, "gamma": runs_of.GAMMA, "penalties": penalties, "rounds": rounds, "variant": "none"}
        nodes = runs_of.fleet(
            runs_of.METHODS["MR-ADMM"], keys, [Exact(f) for f in fs], runs_of.neighbours(5), fs[0].size
        )
        *_, f = run_rounds(nodes, of_messages=True)
        rows.append(
            (
                penalties,
                rounds,
                *(float(np.max(np.linalg.norm(f - x, axis=1)) / np.linalg.norm(x)) for x in (right, other)),
            )
        )
    columns = ("penalties of", "rounds", "relative distance from the optimum", "from argmin sum_i O_i/eta_i")
    return Table("Finding 5.1: the limit of MR-ADMM with fixed penalties that are unlike", columns, rows)


def descended(f: Loss, v: Vector, q: float, steps: int = DESCENT) -> Vector:
    """A minimiser as a hurried device would have it: a few steps of gradient descent from 0."""
    x = np.zeros(f.size)
    for _ in range(steps):
        x = x - (f.gradient(x) + v + q * x) / (f.L + q)
    return x


def pairs(games: int) -> Iterator[tuple[int, tuple[Loss, Loss], np.random.Generator]]:
    """Of each game its number, two data sets of B rows that differ in one record, and its randomness."""
    A, b = runs_of.adult()[0]
    base = runs_of.losses(5)[0]
    for game in range(games):
        draw = counter_generator(0, "recycled game", game)
        other = Loss(base.objective, base.A.copy(), base.b.copy(), row_bound=1.0)
        j = int(draw.integers(base.rows))
        other.A[j], other.b[j] = A[-1 - game], b[-1 - game]
        yield game, (base, other), draw


def won(games: int = 200, q: float = 4.0, epsilon: float = EPSILON, steps: int = DESCENT) -> tuple[int, int]:
    """How often the right data set is named, by f_i(1) and the gradient that was stored, and by KKT's right-hand side.

    Either data set gives an eps; the one whose solve by that eps comes nearer to f_i(1) is named.
    """
    solve, right = partial(descended, steps=steps), [0, 0]
    for game, pair, draw in pairs(games):
        base, truth = pair[0], game % 2
        alpha = epsilon * base.rows / (2 * base.objective.scale)  # about the gate's
        eps = spherical(base.size, alpha, draw.bytes)[0]
        x = solve(pair[truth], eps, q)
        right[0] += named(pair, x, eps + pair[truth].gradient(x), q, solve) == truth
        right[1] += named(pair, x, -q * x, q, solve) == truth
    return right[0], right[1]


def won_by_the_gate(games: int = 200, q: float = 4.0, epsilon: float = EPSILON) -> int:
    """The same of the gate's certified answer and KKT's right-hand side."""
    t, right = runs_of.terms("laplace", epsilon, 1), 0
    for game, pair, _ in pairs(games):
        gate = RowsGate("n000", pair[game % 2], t, SeededNoise(game, "n000"), AllowAll())
        answer = gate.minimizer(np.zeros(pair[0].size), q)
        right += named(pair, answer, -q * answer, q, lambda f, v, q: Minimizer(f)(v, q).x) == game % 2
    return right


def recycled_gradient(games: int = 200) -> Table:
    """Finding 5.2: from f_i(1) and the gradient that the even message tells, which of two data sets of B rows is it?"""
    ways = (
        (f"{DESCENT} steps of descent", "the stored gradient"),
        (f"{DESCENT} steps of descent", "KKT's, public"),
        ("certified, the gate's", "KKT's, public"),
    )
    rows = [(*way, f"{w}/{games}") for way, w in zip(ways, (*won(games), won_by_the_gate(games)), strict=True)]
    return Table("Finding 5.2: which of two data sets, one record apart", ("solve", "recycled", "named rightly"), rows)
