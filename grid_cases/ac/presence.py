"""Whether some Ipopt is installed here. It imports none."""

from __future__ import annotations

import importlib.util

ABSENT = "Ipopt is not installed: pip install 'hushgrid[laptop]' (casadi), or 'hushgrid[ipopt]' (cyipopt)"


def installed() -> bool:
    """Whether casadi, which brings Ipopt with it, or cyipopt is here."""
    return any(importlib.util.find_spec(name) is not None for name in ("casadi", "cyipopt"))
