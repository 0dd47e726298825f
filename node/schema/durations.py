"""Lengths of time as files say them: a number and its unit, as in 10s, 15min, 1h or 30d."""

from __future__ import annotations

import re
from typing import Annotated

from msgspec import Meta

UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_FORM = r"^[0-9]{1,7}(\.[0-9]{1,3})?(s|min|h|d)\Z"

#: A number without its unit is refused: whether 15 is seconds or minutes is what two people will not agree on.
Duration = Annotated[str, Meta(pattern=_FORM, examples=["10s", "15min", "1h"])]


def seconds(duration: str) -> float:
    """The length of a `Duration`, s."""
    unit = re.sub("[0-9.]", "", duration)
    return float(duration.removesuffix(unit)) * UNITS[unit]
