"""Small runs that add up a statistic, and what they must show."""

from __future__ import annotations

from typing import Any

import numpy as np

from hushgrid.kernels.problems.statistics import STATISTICS
from tests.support.runs.attacked_rows import rows
from tests.support.runs.masked_runs import GAUSSIAN

EXAMPLES: dict[str, dict[str, Any]] = {kind: dict(statistic.example) for kind, statistic in STATISTICS.items()} | {
    "total": {"columns": [0, 4], "nonnegative": True},
    "mean": {},
}


def summed(place, kind="total", *, nodes=4, m=50, seed=1, privacy=None, masked=True, **over) -> dict[str, Any]:
    """The scenario: made-up rows of five features, one of the devices may be corrupt."""
    private = GAUSSIAN | ({"masked": {"corrupt": 1}} if masked else {}) | (privacy or {})
    return {
        "hushgrid": 1, "name": "summed", "seed": seed,
        "problem": {"kind": kind, "data": {"files": rows(place, nodes, m, 5, "logistic")}} | EXAMPLES[kind],
        "algorithm": {"name": "sum"}, "privacy": private,
    } | over  # fmt: skip


def plain(raw) -> dict[str, Any]:
    """The same without privacy."""
    found = raw | {"algorithm": {"name": "sum", "variant": "none"}}
    del found["privacy"]
    return found


def records(raw) -> tuple[np.ndarray, np.ndarray]:
    """A (n m, q), b (n m,) of all nodes."""
    archives = [np.load(path) for path in raw["problem"]["data"]["files"]]
    return np.concatenate([a["A"] for a in archives]), np.concatenate([a["b"] for a in archives])
