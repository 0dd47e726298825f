"""Lengths of time as files say them, a number and its unit (10s, 15min, 1h, 30d), and as lines of text say them."""

from __future__ import annotations

import time
from math import ceil
from typing import Annotated

from msgspec import Meta

UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
LONGEST = 3.2e9  #: s, a hundred years
EXPECTED = "a length of time with its unit: 30s, 15min, 24h or 7d"  #: what an error line says in place of the pattern

PATTERN = r"^[0-9]{1,7}(\.[0-9]{1,3})?(s|min|h|d)\Z"
#: A number without its unit is refused: whether 15 is seconds or minutes is what two people will not agree on.
Duration = Annotated[str, Meta(pattern=PATTERN, examples=["10s", "15min", "1h"])]
#: The same, or a number of seconds, for keys that programs write too.
Length = Duration | Annotated[float, Meta(ge=0, le=LONGEST)]

SLACK = 0.1, 10.0  #: of the interval, and s: what a run and its jitter may take at the most before an answer is old


def seconds(length: Length) -> float:
    """The length of a `Duration`, or of a number of seconds, s."""
    if isinstance(length, int | float):
        return float(length)
    number = length.rstrip("smindh")
    return float(number) * UNITS[length[len(number) :]]


def moment(seconds: float) -> str:
    """A time of the machine's clock, s since 1970, in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def date(day: int) -> str:
    """A day, counted from 1970-01-01, by its date."""
    return moment(day * UNITS["d"])[:10]


def in_words(length: float, *, up: bool = False) -> str:
    """A length of time, s, to two parts: "45s", "2h 13min", "24h", "3d 4h" (days from the third on).

    `up`: never less than the length; else what is smaller than the second part is left out.
    """
    if up:
        length = ceil(length)
        part = next((UNITS[unit] for most, unit in ((3600, "s"), (3 * 86400, "min")) if length < most), UNITS["h"])
        length = ceil(length / part) * part
    if length < 60:
        return f"{length:.3g}s"
    rounded = round(length)
    for big, small in (("d", "h"), ("h", "min"), ("min", "s")):
        size = round(UNITS[big])
        if rounded >= size * (3 if big == "d" else 1):
            rest = rounded % size // round(UNITS[small])
            return f"{rounded // size}{big}" + (f" {rest}{small}" if rest else "")
    return f"{rounded}s"


def validity(every: float | None) -> float | None:
    """Seconds for which an answer counts: until the next one is there, with some slack; None without a schedule."""
    if every is None:
        return None
    return every + min(max(SLACK[0] * every, SLACK[1]), every)
