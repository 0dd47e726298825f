"""Small runs with a transcript, to be attacked: images of handwritten digits, a few at each node."""

from __future__ import annotations

import bz2
import json
from functools import cache
from pathlib import Path

import numpy as np

from hushgrid.broker.simulation import run
from tests.support.paths import ROOT

GAUSSIAN = {
    "mechanism": "gaussian", "adjacency": {"replace-one-record": {"clip": 1.0}}, "epsilon": 1.0, "delta": 1e-5,
    "accountant": "gdp",
}  # fmt: skip


@cache
def digits():
    with bz2.open(ROOT / "scenarios/data/digits.trn.csv.bz2", "rt") as file:
        return np.loadtxt(file, delimiter=",")


def images(place: Path, nodes: int, m: int, seed: int = 0) -> list[str]:
    """m images of unit norm and their labels at each node, in files n0.npz, ..."""
    place.mkdir(parents=True, exist_ok=True)
    chosen = np.random.default_rng(seed).permutation(len(digits()))[: nodes * m].reshape(nodes, m)
    for i, rows in enumerate(chosen):
        A = digits()[rows, :-1]
        np.savez(place / f"n{i}.npz", A=A / np.linalg.norm(A, axis=1, keepdims=True), b=digits()[rows, -1])
    return [str(place / f"n{i}.npz") for i in range(nodes)]


def attacked(
    place: Path,
    *,
    nodes=4,
    m=1,
    visits=20,
    variant="none",
    seed=0,
    problem=None,
    privacy=None,
    whole=False,
    ring=False,
    **keys,
) -> Path:
    """A directory with what an attack reads of a run on digits, or the whole of it; beside it in `place` are the
    rows.
    """
    algorithm = {} if "name" in keys else {"name": "recal", "walk": "hamiltonian"}
    algorithm |= keys
    raw = {
        "hushgrid": 1,
        "name": "digits",
        "seed": 1,
        "run": {"record": "transcript"},
        "problem": {
            "kind": "softmax",
            "classes": 10,
            "row_bound": 1.0,
            "l2": 0.05,
            "data": {"files": images(place, nodes, m, seed)},
        }
        | (problem or {}),
        "algorithm": algorithm | {"variant": variant, "rounds": visits * nodes if "walk" in algorithm else visits},
    }
    if ring or "walk" in algorithm:
        raw["network"] = {"kind": "ring", "nodes": nodes}
    if variant != "none":
        raw["privacy"] = GAUSSIAN | (privacy or {})
    if whole:
        run(raw, out=place / "run")
        return place / "run"
    found = run(raw)
    (place / "run").mkdir()
    (place / "run/result.json").write_text(json.dumps(found.summary))
    (place / "run/transcript.jsonl").write_text("".join(json.dumps(line) + "\n" for line in found.transcript))
    return place / "run"


# --- Small runs with a transcript on made-up rows, to be attacked ---

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
