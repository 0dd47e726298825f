"""The study of the stations: who gains by learning together, what a day costs, and that nothing is tested on what was learned."""

import numpy as np
import pytest

from hushgrid.lab.studies import air
from hushgrid.lab.studies.air import Task, alone, beside, measure, persistence, pooled, shards, stations, tables

SEEDS = (0, 5, 11)


def test_each_seed_makes_another_station_young_and_the_others_keep_their_year():
    for young in (0, 11):
        rows = [len(b) for _, b in shards("warn", young)]
        assert rows[young] == 66
        assert set(rows) == {66, 1756}
    names, _, tested = stations()
    assert len(names) == len(tested) == 12
    assert {len(b) for _, b in tested} == {1000}


@pytest.mark.parametrize("goal", ["warn", "predict"])
def test_a_young_station_gains_by_learning_together_and_an_old_one_does_not(goal):
    by_all = measure(Task(goal, "rounds", "hour", 1.0, SEEDS))
    own = np.array([alone(goal, seed % 12) for seed in SEEDS])
    assert np.all(by_all.own[:, 1] < own[:, 1])
    assert np.mean(by_all.own[:, 1]) < 0.85 * np.mean(own[:, 1])
    assert np.mean(by_all.own[:, 0]) > np.mean(own[:, 0])  # by a little
    assert np.mean(by_all.own[:, 0]) < 1.05 * np.mean(own[:, 0])


def test_predicting_beats_persistence_and_warning_does_no_better_than_it():
    for goal, gains in (("predict", True), ("warn", False)):
        mean, stays = (np.mean([of(goal, young)[0] for young in SEEDS]) for of in (pooled, persistence))
        assert bool(mean < 0.95 * stays) is gains


@pytest.mark.parametrize("pattern", ["rounds", "token", "star", "curator"])
def test_hiding_a_day_costs_more_than_hiding_an_hour(pattern):
    hour, day = (measure(Task("warn", pattern, unit, 0.3, SEEDS)) for unit in ("hour", "day"))
    assert np.mean(day.common) > np.mean(hour.common)


def test_a_table_has_a_row_a_method_and_what_it_hides():
    lines = [*beside("warn", SEEDS[:1]), measure(Task("warn", "rounds", "day", 4.0, SEEDS[:1]))]
    (table,) = tables(lines)
    assert [row[:2] for row in table.rows] == [
        ["persistence", ""],
        ["each alone", ""],
        ["pooled, no privacy", ""],
        ["rounds", "day"],
    ]
    assert {len(row) for row in table.rows} == {len(table.columns)}
    alone_by_rows = air.of_one_station().rows
    assert [row[1] for row in alone_by_rows] == [66, 330, 1756]
