"""Numbers as a reader sees them in a report, and the order of names."""

from __future__ import annotations

import math
from typing import Any

MISSING = "–"
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_SPACE = "\u202f"  # narrow, does not break


def number(value: Any, digits: int = 3) -> str:
    """A number for reading: thousands apart, powers of ten written out; a dash where there is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return MISSING if value is None else str(value)
    if math.isnan(value):
        return MISSING
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if isinstance(value, int):
        return f"{value:,}".replace(",", _SPACE).replace("-", "−")
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        places = 0 if value == 0 else max(0, digits - 1 - math.floor(math.log10(abs(value))))
        text = f"{value:,.{places}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
        return text.replace(",", _SPACE).replace("-", "−")
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return f"{mantissa} × 10{str(int(exponent)).translate(_SUPERSCRIPT)}".replace("-", "−")


def fixed(value: float, places: int = 2) -> str:
    """A number of a column, to be compared with those above and below. What rounds to zero has no sign."""
    return f"{value:z,.{places}f}".replace(",", _SPACE).replace("-", "−") if math.isfinite(value) else number(value)


def natural(name: str) -> tuple[str, int, str]:
    """A key to sort names by: z2 before z10."""
    digits = name[len(name.rstrip("0123456789")) :]
    return name[: len(name) - len(digits)], int(digits or 0), name
