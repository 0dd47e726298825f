"""Small runs with a transcript on made-up rows, to be attacked."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hushgrid.broker.simulation import run

LAPLACE = {"mechanism": "laplace", "adjacency": {"replace-one-record": {"clip": 1.0}}, "epsilon": 100.0}
KINDS = {"least-squares": {}, "logistic": {"l2": 0.1}, "softmax": {"classes": 3}}


def rows(place: Path, nodes: int, m: int, q: int, kind: str, seed: int = 0) -> list[str]:
    """m rows of unit norm at each node, in files n0.npz, ..."""
    place.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    for i in range(nodes):
        A = rng.normal(size=(m, q))
        t = A @ rng.normal(size=q) + rng.normal(size=m)
        b = {"least-squares": t, "logistic": np.where(t < 0, -1.0, 1.0), "softmax": rng.integers(0, 3, m)}[kind]
        np.savez(place / f"n{i}.npz", A=A / np.linalg.norm(A, axis=1, keepdims=True), b=b)
    return [str(place / f"n{i}.npz") for i in range(nodes)]


def attacked_rows(
    place: Path, algorithm, *, kind="logistic", nodes=4, m=1, q=4, privacy=None, record="transcript", problem=None
) -> Path:
    """The directory of a run on a ring; beside it in `place` are the rows."""
    raw = {
        "hushgrid": 1, "name": "rows", "seed": 1, "run": {"record": record},
        "problem": {
            "kind": kind, "row_bound": 1.0, "data": {"files": rows(place, nodes, m, q, kind)}
        } | KINDS[kind] | (problem or {}),
        "network": {"kind": "ring", "nodes": nodes}, "algorithm": algorithm,
    }  # fmt: skip
    if algorithm["variant"] == "guarded":
        raw["privacy"] = LAPLACE | (privacy or {})
    run(raw, out=place / record)
    return place / record
