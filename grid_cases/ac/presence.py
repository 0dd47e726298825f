"""Whether Ipopt is installed here, without importing it."""

from __future__ import annotations

import importlib.util

ABSENT = "Ipopt is not installed: pip install 'hushgrid[laptop]' (casadi brings it)"


def installed() -> bool:
    """Whether casadi is here, which brings Ipopt."""
    return importlib.util.find_spec("casadi") is not None
