"""What a report says of a sum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hushgrid.kernels.problems.statistics import STATISTICS


def added(problem: Mapping[str, Any], clip: Any, mechanism: str) -> str:
    """What each node has said, and what its sum leaves out. `mechanism`: of the noise, which has its own norm."""
    sentence = "Each node has answered once: its part of the sum, with fresh noise, added before anything else sees it."
    if not STATISTICS[str(problem.get("kind"))].shortened or not isinstance(clip, int | float):
        return sentence
    norm = "sum of absolute values" if mechanism == "laplace" else "Euclidean norm"
    return (
        f"{sentence} Records whose columns are longer than {clip:g} ({norm}) were shortened to it before: the noise that is shown "
        "is not all of the error, and how much that took is not told."
    )
