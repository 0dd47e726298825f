"""Decentralised optimisation over MQTT with differential privacy.

Python: `hushgrid.broker.simulation.fleet` (`run`) and `hushgrid.grid_cases` (`load`); nothing is imported here.
"""


def __getattr__(name: str) -> str:
    if name == "__version__":  # read when it is asked for: a device never asks
        from importlib.metadata import version

        return version("hushgrid")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
