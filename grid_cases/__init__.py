"""Power-system cases, their partition into zones and the zone models."""

from typing import TYPE_CHECKING, Any

import hushgrid.kernels  # noqa: F401  (fixes BLAS to one thread before numpy is loaded)

if TYPE_CHECKING:
    from hushgrid.grid_cases.matpower import load

__all__ = ["load"]


def __getattr__(name: str) -> Any:
    # Lazy: a device that only needs errors or names must not pay for numpy.
    if name == "load":
        from hushgrid.grid_cases.matpower import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
