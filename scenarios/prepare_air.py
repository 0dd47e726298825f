"""Writes the rows of the `air` scenarios from the original tables of the Beijing Multi-Site Air-Quality data
(data/README.md).

    python -m hushgrid.scenarios.prepare_air ORIGINALS scenarios/data/air

ORIGINALS holds the twelve tables, one a station, as `aotizhongxin.csv` (plain or packed by bzip2). A row is made of the
readings of one hour and of PM2.5 six hours later; every constant is a public number, taken from no private row. A
device computes its rows alike: the newest hour is a row as soon as its label is known.
"""

from __future__ import annotations

import bz2
import csv
import sys
from datetime import datetime, timedelta
from math import cos, log, pi, sin, sqrt
from pathlib import Path

AHEAD = 6  #: hours from a row's readings to its label
EVERY = 5  #: a station keeps a row each fifth hour: no reading is then in two rows, as readings or as a label
NORM = 1.0  #: R: longer rows are shortened to it
STEP, FINE = 0.02, 0.002  #: entries (pm25: FINE) are rounded towards zero to a multiple, so that no row becomes longer
THRESHOLD = 75.0  #: ug/m3 of PM2.5, the daily limit of GB 3095-2012; the label is above zero beyond it
FIRST, SPLIT, LAST = datetime(2015, 3, 1), datetime(2016, 3, 1), datetime(2017, 3, 1)
YOUNG_DAYS = 14  #: of rows that a young station has
YOUNG = "wanshouxigong"
TESTED = 1000  #: rows of each station in the last year, evenly spaced among those that lack nothing
POINTS = ("N", "NNE", "NE", "ENE", "E", "ESE", "SE", "SSE", "S", "SSW", "SW", "WSW", "W", "WNW", "NW", "NNW")
COLUMNS = ("one", "pm25", "no2", "o3", "temperature", "pressure", "dew_point", "wind", "north", "east", "noon", "dawn")
WIDTH = 2.5  #: entries are divided by it: a usual row has then a norm of about 1

Readings = dict[datetime, dict[str, str]]  #: the original's fields, by the hour


def read(path: Path) -> Readings:
    """The original table of a station."""
    packed = path.with_name(path.name + ".bz2")
    text = (bz2.decompress(packed.read_bytes()) if packed.exists() else path.read_bytes()).decode()
    rows = csv.DictReader(text.splitlines())
    return {datetime(int(row["year"]), int(row["month"]), int(row["day"]), int(row["hour"])): row for row in rows}


def number(reading: dict[str, str], key: str, low: float, high: float) -> float | None:
    """A reading, moved into its public range; None if it is missing."""
    return None if reading[key] == "NA" else min(max(float(reading[key]), low), high)


def features(hour: datetime, reading: dict[str, str]) -> list[float]:
    """The entries of a row, before it is shortened. What is missing counts as its public centre, and is 0."""

    def level(key: str, low: float, centre: float, high: float) -> float:
        found = number(reading, key, low, high)
        return 0.0 if found is None else log(found / centre) / 2

    def place(key: str, low: float, centre: float, high: float, width: float) -> float:
        found = number(reading, key, low, high)
        return 0.0 if found is None else (found - centre) / width

    wind = place("WSPM", 0, 0, 8, 4)
    angle = POINTS.index(reading["wd"]) * pi / 8 if reading["wd"] in POINTS else None
    clock = 2 * pi * (hour.hour - 12) / 24
    return [
        1.0,
        level("PM2.5", 1, THRESHOLD, 1000),
        level("NO2", 1, 50, 300),
        level("O3", 1, 50, 400),
        place("TEMP", -30, 15, 45, 25),
        place("PRES", 970, 1010, 1050, 20),
        place("DEWP", -40, 0, 35, 25),
        wind,
        wind * cos(angle) if angle is not None else 0.0,
        wind * sin(angle) if angle is not None else 0.0,
        cos(clock),
        -sin(clock),
    ]


def row(hour: datetime, readings: Readings) -> list[float] | None:
    """Entries and label ln(PM2.5/75)/2 of six hours later, rounded; None if PM2.5 is missing then or now."""
    now, later = readings.get(hour), readings.get(hour + timedelta(hours=AHEAD))
    if now is None or later is None or now["PM2.5"] == "NA":
        return None
    known = number(later, "PM2.5", 1, 1000)
    if known is None:
        return None
    a = [entry / WIDTH for entry in features(hour, now)]
    short = min(1.0, NORM / sqrt(sum(entry * entry for entry in a)))
    label = round(log(known / THRESHOLD) / 2, 2)
    label = max(label, 0.01) if known > THRESHOLD else min(label, 0.0)
    steps = [FINE if name == "pm25" else STEP for name in COLUMNS]
    return [int(entry * short / step) * step for entry, step in zip(a, steps, strict=True)] + [label]


def line(found: list[float]) -> str:
    return ",".join(
        f"{value:.3f}".rstrip("0").rstrip(".").replace("-0.", "-.").removeprefix("0") or "0" for value in found
    )


def hours(first: datetime, last: datetime, step: int) -> list[datetime]:
    """Hours of [first, last) whose labels are known before `last`."""
    count = int((last - first).total_seconds()) // 3600 - AHEAD
    return [first + timedelta(hours=k) for k in range(0, count, step)]


def kept(readings: Readings, at: list[datetime]) -> list[str]:
    """A line each hour, whatever is missing: the number of rows is public, and must not tell. A missing row is
    zeros.
    """
    return [line(row(hour, readings) or [0.0] * (len(COLUMNS) + 1)) for hour in at]


def write(path: Path, lines: list[str]) -> None:
    text = "\n".join([",".join([*COLUMNS, "label"]), *lines, ""])
    path.write_bytes(bz2.compress(text.encode(), 9))


def main(originals: Path, target: Path) -> None:
    names = sorted(path.name.partition(".")[0] for path in originals.glob("*.csv*"))
    test: list[str] = []
    for name in names:
        readings = read(originals / f"{name}.csv")
        year = hours(FIRST, SPLIT, EVERY)
        write(target / f"{name}.csv.bz2", kept(readings, year))
        if name == YOUNG:
            start = SPLIT - timedelta(days=YOUNG_DAYS)
            write(target / f"{name}-young.csv.bz2", kept(readings, [hour for hour in year if hour >= start]))
            write(target / f"{name}-young-hourly.csv.bz2", kept(readings, hours(start, SPLIT, 1)))
        whole = [found for hour in hours(SPLIT, LAST, 1) if (found := row(hour, readings)) is not None]
        test += [line(whole[round(k * (len(whole) - 1) / (TESTED - 1))]) for k in range(TESTED)]
    write(target / "last-year.csv.bz2", test)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
