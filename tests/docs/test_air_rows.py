"""The rows of the air scenarios: what one hour's readings can change, and what is public of them."""

import math
from datetime import timedelta

import numpy as np
import pytest

from hushgrid.node.problems.records.files import read_csv
from hushgrid.scenarios.prepare_air import AHEAD, COLUMNS, EVERY, FIRST, YOUNG_DAYS, hours, kept, row
from tests.support.paths import SCENARIOS

AIR = SCENARIOS / "data" / "air"
STATIONS = sorted(path for path in AIR.glob("*.csv.bz2") if path.name.count("-") == 0)
DAYS = 30
METERS = {"NO2": "50", "O3": "60", "TEMP": "20", "PRES": "1012", "DEWP": "4", "wd": "NW", "WSPM": "2.5"}


def readings():
    """Thirty days in which everything is there, PM2.5 rising by 1 each hour."""
    return {FIRST + timedelta(hours=h): METERS | {"PM2.5": str(20 + h)} for h in range(24 * DAYS)}


def rows(table):
    return kept(table, hours(FIRST, FIRST + timedelta(days=DAYS), EVERY))


def changed(table):
    return sum(one != other for one, other in zip(rows(readings()), rows(table), strict=True))


def other(meters):
    return meters | {"PM2.5": "700", "NO2": "299", "TEMP": "-9", "WSPM": "0.1"}


@pytest.mark.parametrize("gone", [False, True])
def test_the_readings_of_one_hour_are_in_one_row_at_most(gone):
    for h in range(48):
        table, hour = readings(), FIRST + timedelta(hours=h)
        table[hour] = table[hour] | {"PM2.5": "NA"} if gone else other(table[hour])
        assert changed(table) <= 1, h


def test_the_readings_of_any_day_are_in_six_rows_at_most():
    found = []
    for start in range(24, 48):
        table = readings()
        for h in range(start, start + 24):
            table[FIRST + timedelta(hours=h)] = other(table[FIRST + timedelta(hours=h)])
        found.append(changed(table))
    assert set(found) == {6}


def test_a_row_is_within_its_norm_and_warns_of_what_is_above_the_limit_in_six_hours():
    for pm25, above in (("75", False), ("75.1", True), ("76", True), ("1000", True), ("3", False)):
        table = readings()
        table[FIRST + timedelta(hours=AHEAD)] = other(table[FIRST]) | {"PM2.5": pm25}
        *a, b = row(FIRST, table)
        assert (b > 0) is above
        assert np.linalg.norm(a) <= 1
        assert a[COLUMNS.index("pm25")] == pytest.approx(math.log(20 / 75) / 5, abs=0.002)


def test_what_is_missing_changes_no_number_of_rows():
    table = readings()
    for h in (0, 11):  # the readings of row 0, the label of row 1
        table[FIRST + timedelta(hours=h)] = table[FIRST + timedelta(hours=h)] | {"PM2.5": "NA"}
    assert rows(table)[:2] == [",".join(["0"] * 13)] * 2
    assert len(rows(table)) == len(rows(readings()))
    table[FIRST + timedelta(hours=10)] = dict.fromkeys(METERS, "NA") | {"PM2.5": "30"}
    a = row(FIRST + timedelta(hours=10), table)
    assert [name for name, entry in zip(COLUMNS, a, strict=False) if entry] == ["one", "pm25", "noon", "dawn"]


def test_the_shipped_stations_have_a_year_of_rows_and_the_young_one_its_end():
    assert len(STATIONS) == 12
    for path in STATIONS:
        A, b, names = read_csv(path, "least-squares")
        assert (A.shape, names) == ((1756, 12), COLUMNS)
        assert np.max(np.linalg.norm(A, axis=1)) <= 1
        assert 0 < np.mean(~A.any(axis=1)) < 0.1  # hours that lack PM2.5, now or then
        assert not b[~A.any(axis=1)].any()
    year = read_csv(AIR / "wanshouxigong.csv.bz2", "least-squares")
    young = read_csv(AIR / "wanshouxigong-young.csv.bz2", "least-squares")
    assert len(young.b) == (24 * YOUNG_DAYS - AHEAD) // EVERY == 66
    assert np.array_equal(year.A[-66:], young.A)
    assert np.array_equal(year.b[-66:], young.b)
    test = read_csv(AIR / "last-year.csv.bz2", "least-squares")
    assert (test.A.shape, test.A.any(axis=1).all()) == ((12_000, 12), True)
