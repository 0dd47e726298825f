"""`hushgrid bench timing`: whether the time that an answer takes depends on the rows it is about.

Whoever asks chooses the point, and sees the answer come. So an attacker asks one question of pairs of data sets that
are as unlike in time as is known. Both are asked in turn; what slows the machine slows both. Ratio: how much longer the
second takes, the median of such pairs; at the point 0, which tells nothing, it is what this machine makes of unlike
memory and of chance.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
from msgspec.structs import replace

from hushgrid.kernels.problems.losses import Kind, Loss, Objective
from hushgrid.kernels.problems.statistics import Gram, Histogram, Statistic, Total
from hushgrid.kernels.types import Index, Matrix, Vector
from hushgrid.lab.benchmarks.common.measure import Row, Table, row

FIRST = 0.25  #: the number of a record that has the feature asked about
SUBNORMAL = 720.0  #: e^-720 is subnormal
POINTS = {"slopes near e^-720": SUBNORMAL / FIRST, "products near 1e-311": 1e-310, "margins near 1e199": 4e199}


def timing(rows: int = 4000, features: int = 123, games: int = 200) -> Table:
    """Of so many rows all, or one, have what the question is about."""
    rows_: list[Row] = []
    for what, one, other in _pairs(rows, features):
        apart = _apart(one, other, games)
        rival = row(f"{what[0]}: {what[1]}", "ms", [first for first, _ in apart])
        ratio = float(np.median([second / first for first, second in apart]))
        ours = row(f"{what[0]}: {what[2]}", "ms", [second for _, second in apart], rival=rival)
        rows_ += [replace(ours, ratio=ratio), rival]
    return Table(
        name="timing", summary="what an answer computes of the rows, asked so that unlike rows would tell", rows=rows_
    )


def _apart(one: Callable[[], object], other: Callable[[], object], games: int) -> list[tuple[float, float]]:
    """Milliseconds of both, in turn, after a first that is not counted."""
    taken = []
    gc.disable()
    try:
        for k in range(games + 1):
            seconds = [0.0, 0.0]
            for which in (k % 2, 1 - k % 2):
                began = time.perf_counter()
                (one, other)[which]()
                seconds[which] = 1e3 * (time.perf_counter() - began)
            taken.append((seconds[0], seconds[1]))
    finally:
        gc.enable()
    return taken[1:]


def _pairs(m: int, q: int) -> Iterator[tuple[tuple[str, str, str], Callable[[], object], Callable[[], object]]]:
    """What is asked, of whom, and the two askings."""
    kinds: tuple[Kind, ...] = ("logistic", "least-squares", "softmax")
    for kind, (name, size) in product(kinds, {"the point 0": 0.0, **POINTS}.items()):
        none, one, each = (_asked(kind, m, q, size, having) for having in (0, 1, m))
        yield (f"{kind}, {name}", "no record has the feature", f"one of {m} has it"), none, one
        yield (f"{kind}, {name}", "no record has the feature", f"all of {m} have it"), none, each
    draw = np.random.default_rng(1)
    mixed, alike, b = draw.random((5 * m, 8)), np.full((5 * m, 8), 0.5), np.zeros(5 * m)
    statistics: tuple[Statistic, ...] = (
        Histogram(column=0, edges=tuple(np.linspace(0, 1, 65).tolist())),
        Total(),
        Gram(),
    )
    for statistic in statistics:
        equal, unlike = (_summed(statistic, A, b) for A in (alike, mixed))
        yield (f"{statistic.name}, {5 * m} records", "all alike", "in disorder"), equal, unlike


def _asked(kind: Kind, m: int, q: int, size: float, having: int) -> Callable[[], Vector]:
    """Asks m records, of which the first so many have feature 0, at a point that is 0 beside it."""
    draw = np.random.default_rng(2)
    classes = 10 if kind == "softmax" else 1
    A = draw.random((m, q)) / np.sqrt(q)
    A[:, 0] = 0.0
    A[:having, 0] = FIRST
    b = np.zeros(m) if kind == "softmax" else np.ones(m)
    loss, x = Loss(Objective(kind=kind), A, b, classes, row_bound=1.0), np.zeros(q * classes)
    x[0] = size
    return lambda: loss.clipped_gradient(x, 1.0, 2)


def _summed(statistic: Statistic, A: Matrix, b: Vector) -> Callable[[], Index]:
    return lambda: statistic.on_grid(A, b, 1.0, 2, 2.0**-20)
