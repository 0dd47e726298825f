"""Whole fleets on one machine: `run` and `Result`. What they need is imported when one of them is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hushgrid.broker.report.result import Result as Result
    from hushgrid.broker.simulation.front import run as run

_HOMES = {
    "run": "hushgrid.broker.simulation.front",
    "Result": "hushgrid.broker.report.result",
}
__all__ = ["Result", "run"]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(name)
