"""A fleet runs by itself for a day: 96 intervals, each an answer, a held answer or a reason, within the window's budget.

The day is accelerated, in this process: the clocks are its own, everything else is what devices run.
"""

import csv
from functools import cache

import pytest

from hushgrid.kernels.privacy.limits import limit
from hushgrid.node.wire import COORDINATOR
from tests.support.runs.day import DELTA, EPSILON, INTERVALS, WINDOW_S, Day

TEN_YEARS_S = 3.2e8
DEAD = {10: (20, "z2"), 20: (31, COORDINATOR), 33: (7, "z2"), 81: (12, COORDINATOR)}  #: interval: (message, who dies)
BACKUP, REPLACED = 24, 48  #: z3 is backed up at six, and replaced at noon by a device with that backup
AWAY = range(56, 64)  #: z1, for two hours
BROKER = 70  #: away for ten minutes
CLOCK = {30: TEN_YEARS_S, 60: -TEN_YEARS_S, 90: 0.0}  #: what is wrong with the wall clock from then on, s


def lived(directory):
    day = Day(directory)
    for k in range(INTERVALS):
        day.jump = CLOCK.get(k, day.jump)
        if k == BACKUP:
            day.goes("z3")
            copy = day.copied("z3")
            day.comes("z3")
        if k == REPLACED:
            day.replaced("z3", copy)
        if k == AWAY.start:
            day.goes("z1")
        if k == AWAY.stop:
            day.comes("z1")
        if k == BROKER:
            day.time = max(day.time, day.intervals.schedule.due) + 600.0
        day.interval(again=DEAD.get(k))
    return day


@pytest.fixture(scope="module")
def day(tmp_path_factory):
    return lived(tmp_path_factory.mktemp("day"))


def test_every_interval_leaves_an_answer_a_held_answer_or_a_reason(day):
    with (day.folder / COORDINATOR / "intervals.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["interval"]) for row in rows] == list(range(1, INTERVALS + 1))
    assert {row["outcome"] for row in rows} <= {"answer", "held", "missed"}
    assert [row for row in rows if row["outcome"] == "missed" and not row["reason"]] == []
    assert [k for k, row in enumerate(rows) if row["outcome"] == "held"] == list(AWAY)
    assert [row for row in rows if row["outcome"] == "missed"] == []


def test_no_window_of_running_time_holds_more_than_its_epsilon(day):
    most = limit(EPSILON, DELTA)
    for z in day.zones:
        assert day.dearest_window(z) <= most.mu2 / 2**256
