"""A small masked run to disturb, and what its transcript must show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hushgrid.kernels.patterns.masked import Ask, Masked
from hushgrid.lab.attacks.masked import decodable
from hushgrid.lab.attacks.transcript import Transcript, parse
from tests.support.runs.attacked_rows import rows

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
            under.setdefault((m.src, asked[m.src, m.seq]), set()).add(m.body.words)
    assert under
    assert all(len(words) == 1 for words in under.values())
    per_device = [(node, next(iter(words))) for (node, _), words in under.items()]
    assert len({words for _, words in per_device}) == len(per_device)
    assert decodable(of)
    return of
