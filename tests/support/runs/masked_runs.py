"""A small masked run to disturb, and what its transcript must show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hushgrid.broker.simulation import run
from hushgrid.kernels.patterns.masked import Ask, Masked
from hushgrid.kernels.problems.statistics import STATISTICS
from hushgrid.lab.attacks.masked import decodable
from hushgrid.lab.attacks.transcript import Transcript, parse
from tests.support.runs.attacked_runs import rows
from tests.support.runs.background_run import assert_same_bits

GAUSSIAN = {
    "mechanism": "gaussian", "accountant": "gdp", "epsilon": 1.0, "delta": 1e-5,
    "adjacency": {"replace-one-record": {"clip": 1.0}},
}  # fmt: skip


def masked(
    place: Path, *, nodes=4, seed=1, m=50, privacy=None, algorithm=None, problem=None, **over: Any
) -> dict[str, Any]:
    """The scenario: logistic regression on made-up rows, one of the devices may be corrupt."""
    return {
        "hushgrid": 1, "name": "masked", "seed": seed,
        "problem": {
            "kind": "logistic", "l2": 0.1, "row_bound": 1.0, "data": {"files": rows(place, nodes, m, 5, "logistic")}
        } | (problem or {}),
        "algorithm": {"name": "fedavg", "rounds": 6, "step_size": 1.0} | (algorithm or {}),
        "privacy": GAUSSIAN | {"masked": {"corrupt": 1}} | (privacy or {}),
    } | over  # fmt: skip


def assert_no_pad_twice(transcript: list[dict[str, Any]]) -> Transcript:
    """No device has sent two messages under one (round, attempt), nor one for two; and every whole attempt decodes."""
    of = parse(transcript, "transcript")
    asked = {(m.dst, m.seq): (m.body.round, m.body.attempt) for m in of.messages if isinstance(m.body, Ask)}
    under: dict[tuple[str, tuple[int, int]], set[bytes]] = {}
    for m in of.messages:
        if isinstance(m.body, Masked):
            under.setdefault((m.src, asked[m.src, m.seq]), set()).add(m.body.share)
    assert under
    assert all(len(words) == 1 for words in under.values())
    per_device = [(node, next(iter(words))) for (node, _), words in under.items()]
    assert len({words for _, words in per_device}) == len(per_device)
    assert decodable(of)
    return of


def assert_faults_change_nothing(raw: dict[str, Any], seeds: int) -> None:
    """Losses, repeats, reordering and crashes change no bit of the result, and use no pad twice."""
    quiet = run(raw)
    for seed in range(seeds):
        faults = {"loss": 0.2, "duplicate": 0.3, "reorder": 0.5, "crash": 0.1, "seed": seed}
        disturbed = run(raw | {"run": {"record": "transcript", "faults": faults}})
        assert_same_bits(quiet, disturbed)
        assert_no_pad_twice(disturbed.transcript)


# --- Small runs that add up a statistic, and what they must show ---

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
