"""Decentralised optimisation over MQTT with differential privacy.

    import hushgrid

    result = hushgrid.run("case14")
    result.frame("generation")

`run`, `sweep`, `load`, `Result` and `Case` are imported when they are first used: the import itself loads no numpy.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hushgrid.broker.report.result import Result as Result
    from hushgrid.broker.simulation.front import run as run
    from hushgrid.grid_cases.case import Case as Case
    from hushgrid.grid_cases.matpower import load as load
    from hushgrid.lab.sweep.sweeps import sweep as sweep

    __version__: str

_HOMES = {
    "run": "hushgrid.broker.simulation.front",
    "sweep": "hushgrid.lab.sweep.sweeps",
    "load": "hushgrid.grid_cases.matpower",
    "Result": "hushgrid.broker.report.result",
    "Case": "hushgrid.grid_cases.case",
}
__all__ = ["Case", "Result", "load", "run", "sweep"]


def __getattr__(name: str) -> object:
    if name == "__version__":  # read when it is asked for: a device never asks
        from importlib.metadata import version

        return version("hushgrid")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, "__version__"})
