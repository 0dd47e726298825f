"""What clipping does to a problem with rows, in the words of a report."""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from typing import Any

#: The largest |slope| of a loss: a record's gradient is at most as long, times row_bound.
SLOPE = {"logistic": 1.0, "softmax": sqrt(2)}


def clipping(problem: Mapping[str, Any], clip: float, mechanism: str) -> str:
    """What clipping does to what is computed."""
    kind, R = str(problem.get("kind")), problem.get("row_bound")
    if mechanism == "gaussian" and kind in SLOPE and isinstance(R, int | float) and SLOPE[kind] * R <= clip:
        return "No record's gradient can be longer than the clipping bound: clipping changes nothing here."
    if kind == "softmax":
        return (
            "Clipped softmax gradients are the gradients of no function: where clipping shortens any, what the nodes tend "
            "to, noise apart, is set by where the clipped gradients balance, not by the optimum of any loss."
        )
    return (
        "Clipped gradients of this loss are those of a Huberised loss, which is convex too: where clipping shortens any, "
        "it is that loss the nodes work on. An error against the optimum, where one is shown, is against the loss itself."
    )
