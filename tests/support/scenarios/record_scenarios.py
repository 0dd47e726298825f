"""Small data problems as a scenario's mapping, for whole runs: a ring of four sensors, made-up rows of three
features.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

Raw = dict[str, Any]
NOT_PRIVATE: Raw = {"algorithm.variant": "none", "privacy": None}
GAUSSIAN: Raw = {"privacy.mechanism": "gaussian", "privacy.delta": 1e-5}


def scenario(over: Mapping[str, Any] | None = None, **more: Any) -> Raw:
    """Guarded RECAL of 20 activations. `over`: dotted key paths to values, None takes the key away."""
    raw: Raw = {
        "hushgrid": 1, "name": "sensors", "network": {"kind": "ring", "nodes": 4},
        "problem": {
            "kind": "logistic", "data": {"synthetic": {"rows": 10, "features": 3}, "normalize": "unit-rows"},
            "row_bound": 1.0, "l2": 0.1,
        },
        "algorithm": {"name": "recal", "rounds": 20},
        "privacy": {"adjacency": {"replace-one-record": {"clip": 1.0}}, "epsilon": 50.0},
    }  # fmt: skip
    for path, value in (dict(over or {}) | more).items():
        here = raw
        *parents, last = path.split(".")
        for parent in parents:
            here = here.setdefault(parent, {})
        if value is None:
            here.pop(last, None)
        else:
            here[last] = value
    return raw


def iadmm(over: Mapping[str, Any] | None = None, **more: Any) -> Raw:
    """The same by I-ADMM on the cycle, guarded."""
    return scenario({"algorithm": {"name": "iadmm", "rounds": 20, "rho": 1.0}} | dict(over or {}), **more)


def files(directory: Path, A: np.ndarray, b: np.ndarray) -> list[str]:
    """One archive a node, of A (n, m, q) and b (n, m)."""
    for i in range(len(A)):
        np.savez(directory / f"n{i}.npz", A=A[i], b=b[i])
    return [str(directory / f"n{i}.npz") for i in range(len(A))]


def sensors(nodes, rounds, **over):
    """I-ADMM around a ring of sensors with twenty rows each. `over`: keys of the section `run`."""
    return {
        "hushgrid": 1, "name": "sensors", "seed": 3, "run": over,
        "problem": {
            "kind": "logistic", "row_bound": 1.0, "l2": 0.1,
            "data": {"synthetic": {"rows": 20, "features": 4}, "normalize": "unit-rows"},
        },
        "network": {"kind": "ring", "nodes": nodes},
        "algorithm": {"name": "iadmm", "rounds": rounds, "rho": 1.0},
        "privacy": {"epsilon": 50.0, "adjacency": {"replace-one-record": {"clip": 1.0}}},
    }  # fmt: skip
