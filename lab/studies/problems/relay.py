"""The problems of `hushgrid study relay` on rings of sensors: made up, on Adult, and on ijcnn1."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from math import sqrt
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hushgrid.kernels.problems.centralised import optimum
from hushgrid.kernels.problems.losses import Kind, Loss, Objective
from hushgrid.kernels.problems.prox import Regularizer
from hushgrid.kernels.randomness import counter_generator
from hushgrid.kernels.types import Matrix, Vector
from hushgrid.node.problems.records.data import Synthetic, even, synthetic, unit_rows
from hushgrid.node.problems.records.files import Shard, read_libsvm

ADULT = Path("scenarios/data/adult.trn.bz2")
ADULT_TEST = Path("scenarios/data/adult.tst.bz2")
AGENTS = 8
PLAIN = Regularizer()
#: The paper's r, and what is left of it without its l1 term.
PENALTIES = {"the paper's r": Regularizer(l1=0.5, l2=1.0), "ridge": Regularizer(l2=1.0)}
MADE_UP, SENSORS = "made up, least-squares", "Adult, logistic, unit rows"


class Problem(NamedTuple):
    name: str
    losses: list[Loss]
    regularizer: Regularizer
    star: Vector
    L: list[float]  #: L_i as the data have it, c1 lambda_max(A'A/m) + l2: for the variants that promise nothing
    test: Shard | None = None

    def start(self) -> Vector:
        """x^0: zeros, as everywhere; where x* = 0 that would leave nothing to do, and entries of N(0, 1) are taken."""
        zero = np.zeros_like(self.star)
        return zero if self.star.any() else counter_generator(0, "start", 0).normal(size=zero.size)

    def error(self, x: Vector) -> float:
        """|x - x*|/|x^0 - x*|, the paper's relative error."""
        return float(np.linalg.norm(x - self.star) / np.linalg.norm(self.start() - self.star))

    def accuracy(self, x: Vector) -> float:
        """The share of the test set classified right; where there is none, of all agents' rows, as in the paper."""
        every = [self.test] if self.test else [Shard(f.A, f.b) for f in self.losses]
        right = sum(np.count_nonzero(np.where(A @ x >= 0, 1.0, -1.0) == b) for A, b in every)
        return right / sum(len(b) for _, b in every)


def made_up() -> Problem:
    """Least squares, made up: 2000 rows of 22 features an agent, |a| = 1, ridge 0.01."""
    shards = synthetic(Synthetic(rows=2000, features=22, seed=3), "least-squares", AGENTS)
    return _problem(
        "made up", [Shard(unit_rows(s.A), s.b) for s in shards], Objective(kind="least-squares", l2=0.01), 1.0
    )


def adult(name: str) -> Problem:
    """The sensor ring: logistic regression on Adult, |a| = 1, ridge 0.001; tested on the sample's other rows."""
    A, b = read_libsvm(ADULT, "logistic")
    test = read_libsvm(ADULT_TEST, "logistic", features=A.shape[1], first_index=0)
    A = unit_rows(A)
    problem = _problem(name, _dealt(A, b), Objective(kind="logistic", l2=0.001), 1.0)
    return problem._replace(test=Shard(unit_rows(test.A), test.b))


def table_four(name: str, path: Path, kind: Kind, regularizer: Regularizer) -> Problem:
    """The paper's preprocessing: every feature to [0, 1], rows shared out evenly. |a| <= sqrt(q) is then public."""
    A, b = read_libsvm(path, "logistic")
    low, high = A.min(axis=0), A.max(axis=0)
    A = (A - low) / np.where(high > low, high - low, 1.0)
    return _problem(name, _dealt(A, b), Objective(kind=kind), sqrt(A.shape[1]), regularizer)


def of_images(name: str, shard: Shard, kind: Kind, regularizer: Regularizer) -> Problem:
    """Rows of [0, 1] with labels -1 and 1, shared out evenly."""
    return _problem(name, _dealt(shard.A, shard.b), Objective(kind=kind), sqrt(shard.A.shape[1]), regularizer)


def _dealt(A: Matrix, b: Vector) -> list[Shard]:
    return [Shard(A[part], b[part]) for part in even(len(b), AGENTS)]


def _problem(
    name: str, shards: Sequence[Shard], objective: Objective, bound: float, regularizer: Regularizer = PLAIN
) -> Problem:
    losses = [Loss(objective, s.A, s.b, row_bound=bound) for s in shards]
    grams = [f.A.T @ f.A if f.rows > f.A.shape[1] else f.A @ f.A.T for f in losses]
    largest = [float(np.linalg.eigvalsh(gram / f.rows)[-1]) for gram, f in zip(grams, losses, strict=True)]
    L = [objective.lipschitz(sqrt(e)) for e in largest]
    return Problem(name, losses, regularizer, optimum(losses, regularizer).x, L)


def problems() -> dict[str, Callable[[], Problem]]:
    """Name -> how to make it. The paper's r is |x|^2/2 + |x|_1/2."""
    makers: dict[str, Callable[[], Problem]] = {MADE_UP: made_up, SENSORS: partial(adult, SENSORS)}
    sets = {"Adult": ADULT} | ({"ijcnn1": Path(file)} if (file := os.environ.get("HUSHGRID_IJCNN1")) else {})
    kinds: tuple[Kind, ...] = ("least-squares", "logistic")
    for (label, path), kind, (penalty, r) in product(sets.items(), kinds, PENALTIES.items()):
        name = f"{label}, {kind}, {penalty}"
        makers[name] = partial(table_four, name, path, kind, r)
    return makers
