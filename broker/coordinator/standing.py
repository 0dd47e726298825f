"""What a coordinator does now, or waits for, in words."""

from __future__ import annotations

from hushgrid.broker.coordinator.base import Coordinator


def standing(coordinator: Coordinator) -> str:
    """What a coordinator does, or waits for."""
    run = coordinator.run.hex()[:8]
    match coordinator.phase:
        case "gathering":
            return f"waits for {', '.join(coordinator.waiting)}"
        case "joining":
            return f"run {run}: waits for {', '.join(coordinator.waiting)} to join"
        case "running":
            return f"in run {run}"
        case _:
            return f"run {run} is over: waits for {', '.join(coordinator.waiting)} to hear it"
