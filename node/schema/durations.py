"""Lengths of time, as the owner of a file writes them and as lines of text say them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86400}
LONGEST = 3.2e9  #: s, a hundred years
EXPECTED = "a length of time: 30s, 15min, 24h, 7d, or a number of seconds"  #: what an error line says

#: The text's pattern; `node/schema/yaml_file.py` says EXPECTED in its place.
PATTERN = r"^[0-9]{1,9}(\.[0-9]{1,9})?(s|min|h|d)\Z"
Duration = Annotated[str, Meta(pattern=PATTERN)] | Annotated[float, Meta(ge=0, le=LONGEST)]


def seconds(given: Duration) -> float:
    """A length of time in seconds. Raises ValueError if the text is none."""
    if isinstance(given, int | float):
        return float(given)
    number = given.rstrip("smindh")
    try:
        return float(number) * SECONDS[given[len(number) :].strip()]
    except (KeyError, ValueError):
        raise ValueError(f"found {given!r}, expected {EXPECTED}") from None


def in_words(length: float) -> str:
    """A length of time, s, to two parts: "45s", "2h 13min", "24h", "3d 4h" (days from the third on)."""
    if length < 60:
        return f"{length:.3g}s"
    whole = round(length)
    for big, small in (("d", "h"), ("h", "min"), ("min", "s")):
        size = SECONDS[big]
        if whole >= size * (3 if big == "d" else 1):
            rest = whole % size // SECONDS[small]
            return f"{whole // size}{big}" + (f" {rest}{small}" if rest else "")
    return f"{whole}s"
