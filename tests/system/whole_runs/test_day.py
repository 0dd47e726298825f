"""A fleet runs by itself for a day: 96 intervals, each an answer, a held answer or a reason, within the window's budget.

The day is accelerated, in this process: the clocks are its own, everything else is what devices run.
"""

import csv

import pytest

from hushgrid.kernels.privacy.limits import limit
from hushgrid.node.wire import COORDINATOR
from tests.support.runs.continuous_fleet import Again
from tests.support.runs.day import DELTA, EPSILON, INTERVALS, Day

TEN_YEARS_S = 3.2e8
DEAD = {12: (40, "z2"), 20: (33, COORDINATOR), 36: (25, "z2"), 80: (12, COORDINATOR)}  #: interval: (message, who dies)
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
        if k == BROKER:  # nobody's clock counts the time without it but the schedule's
            day.now = max(day.now, day.intervals.schedule.due) + 600.0
        day.interval(Again(*DEAD.get(k, (0, ""))))
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


def test_all_that_was_to_go_wrong_did(day):
    assert sum("resumed" in line for line in day.logs["z2"]) == 2
    kinds = [kind for (kind,) in day.ledgers["z3"]._ask("SELECT kind FROM spend ORDER BY no")]
    assert kinds.count("gap") == 1
    assert set(kinds) == {"gaussian", "gap"}
    assert day.ledgers["z1"].spends.running == pytest.approx(day.now - 2 * 3600, abs=60)
    assert day.ledgers["z2"].spends.running == pytest.approx(day.now, abs=1)


def test_a_device_answers_afresh_as_often_as_its_window_lets_it(day):
    assert day.fresh - 2 <= len(day.spends("z2")) <= day.fresh
