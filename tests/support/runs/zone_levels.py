"""Three zones of case14 in two sites, or in one level: scenarios, and what two runs of them have in common."""

from typing import Any

import numpy as np

from hushgrid.broker.report.result import Result
from tests.support.runs.background_run import assert_same_bits

CASE14 = {"case": "case14", "zones": 3, "ac": "none"}
TWO = {"sites": [["z1", "z2"], ["z3"]]}
LARGE = {"case": "case118", "zones": 8}
THREE = {"sites": [["z1", "z2", "z3"], ["z4", "z5", "z6"], ["z7", "z8"]]}
LAPLACE = {"adjacency": {"bounded-change": 0.01}, "mechanism": "laplace", "epsilon": 5.0, "mode": "input"}


def scenario(problem: dict[str, Any] = TWO, privacy: dict[str, Any] = LAPLACE, **run_keys: Any) -> dict[str, Any]:
    """Of three zones in two sites; problem {}: in one level."""
    return {
        "hushgrid": 1,
        "name": "zones",
        "seed": 1,
        "problem": {"kind": "zones", **CASE14, **problem},
        "algorithm": {"name": "consensus-admm", "rounds": 200},
        "privacy": privacy,
        "run": run_keys,
    }


def assert_same_run(one: Result, other: Result) -> None:
    """Every number of a run but what travelled."""
    assert_same_bits(one, other)
    for table in ("solution", "trajectory"):
        ours, theirs = getattr(one, table) or {}, getattr(other, table) or {}
        assert ours.keys() == theirs.keys()
        assert [key for key in ours if not np.array_equal(ours[key], theirs[key])] == []
    travelled = {"messages", "bytes"}
    assert {k: v for k, v in one.history.items() if k not in travelled} == {
        k: v for k, v in other.history.items() if k not in travelled
    }
