"""`hushgrid bench size`: what a device of a large fleet costs `hushgrid run`, by their number: it should cost the same.

Processor time of whole runs in this process, from the scenario to the answer: a star of five rounds, one masked sum
among few neighbours; and a round of two levels, which is the difference of two runs of a few rounds.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from hushgrid.broker.report.result import Result
from hushgrid.broker.simulation import run
from hushgrid.kernels.randomness import counter_generator
from hushgrid.kernels.types import AnyArray, Document
from hushgrid.lab.benchmarks.common.measure import Row, Table, against, row

FEATURES, ROWS, CORRUPT, NEIGHBOURS = 5, 20, 2, 20
STAR: Document = {}
FEW: Document = {"masked": {"corrupt": CORRUPT, "neighbours": NEIGHBOURS}}
ROUND_S = 2.0  #: the most that a round of the largest fleet in two levels may take on an idle machine, s


class Case(NamedTuple):
    """Two levels: so many devices in so many sites, in runs of so many rounds."""

    nodes: int = 2000
    sites: int = 20
    rounds: tuple[int, int] = (1, 4)


LEVELS = Case()


def size(nodes: tuple[int, ...] = (400, 1000, 2000), levels: Case = LEVELS) -> Table:
    rows: list[Row] = []
    _cost(20, {"masked": {"corrupt": 0, "sites": {"number": 2}}}, 1)  # so that all is imported
    for what, privacy, rounds in (("star", STAR, 5), (f"masked, {NEIGHBOURS} neighbours", FEW, 1)):
        each = [_cost(n, privacy, rounds)[0] / n for n in nodes]
        rows += [row(f"{what}, {n} devices: a device", "ms", [1e3 * s]) for n, s in zip(nodes, each, strict=True)]
    return Table(
        name="size", summary="`hushgrid run` in one process, by its processor time", rows=rows + _round(levels)
    )


def _round(case: Case) -> list[Row]:
    """A round of fedavg in two levels."""
    n, sites, (first, last) = case
    masked: Document = {"masked": {"corrupt": CORRUPT, "sites": {"number": sites}}}
    (before, short), (after, long) = (_cost(n, masked, rounds) for rounds in case.rounds)
    rounds, name = last - first, f"{n} devices in {sites} sites"
    assert short.in_sites is not None
    assert long.in_sites is not None
    per_round = [
        (f"{name}: a round", "s", after - before),
        (f"{name}: a round, messages in sites", "", long.in_sites.messages - short.in_sites.messages),
        (f"{name}: a round, bytes in sites", "kB", (long.in_sites.bytes - short.in_sites.bytes) / 1e3),
    ]
    rows = [row(what, unit, [value / rounds]) for what, unit, value in per_round]
    rows.append(row(f"{name}: {last} rounds with keys and ledgers", "s", [after]))
    return [against(rows[0], ROUND_S), *rows[1:]]


def _cost(nodes: int, privacy: Document, rounds: int) -> tuple[float, Result]:
    """Seconds of processor time of a whole run, and its result."""
    raw: Document = {
        "hushgrid": 1,
        "name": "bench-size",
        "seed": 1,
        "problem": {"kind": "logistic", "l2": 0.1, "row_bound": 1.0},
        "algorithm": {"name": "fedavg", "rounds": rounds, "step_size": 1.0},
        "privacy": {
            "mechanism": "gaussian",
            "accountant": "gdp",
            "epsilon": 1.0,
            "delta": 1e-5,
            "adjacency": {"replace-one-record": {"clip": 1.0}},
        }
        | privacy,
    }
    began = time.process_time()
    result = run(raw, data=_rows(nodes))
    return time.process_time() - began, result


def _rows(nodes: int) -> Iterable[tuple[AnyArray, AnyArray]]:
    for i in range(nodes):
        draw = counter_generator(0, "bench size", i)
        A = draw.normal(size=(ROWS, FEATURES))
        yield A / (np.linalg.norm(A, axis=1, keepdims=True) * (1 + 1e-9)), np.sign(draw.normal(size=ROWS))
