"""The study of averaging after the last answer: every node comes to the mean model, and one answer is for alike shards."""

from itertools import pairwise

import numpy as np

from hushgrid.lab.studies import finishing
from hushgrid.lab.studies.finishing import Task, measure, rows, tables

SEEDS = (0, 1, 2)


def test_after_the_rounds_every_node_is_within_five_percent_of_the_mean_model():
    for epsilon, most in ((1.0, 0.05), (10.0, 0.006)):
        line = measure(Task("alike", "ADMM, one answer", epsilon, SEEDS))
        assert np.median(line.mean) <= most
        assert np.all(line.worst[:, -1] <= 1.05 * line.mean)
        assert np.median(line.own[:, 0] / line.own[:, -1]) >= 2.5


def test_on_unlike_shards_one_answer_ends_where_iterating_does_not():
    once, often = (measure(Task("unlike", method, 10.0, SEEDS)) for method in ("ADMM, one answer", "DGD, 10 answers"))
    assert np.all(once.mean > 1.5 * often.mean)


def test_unlike_shards_are_the_same_rows():
    alike, unlike = rows("alike"), rows("unlike")
    assert [len(b) for _, b in unlike] == [len(b) for _, b in alike]
    total, again = (np.sort(np.concatenate([A for A, _ in found]), axis=0) for found in (alike, unlike))
    assert np.array_equal(total, again)
    assert all(one[0][:, 0].max() <= two[0][:, 0].min() for one, two in pairwise(unlike))


def test_a_table_has_a_row_a_method_and_total():
    lines = [measure(Task("alike", method, 1.0, SEEDS[:1])) for method in finishing.METHODS]
    (table,) = tables(lines)
    assert [row[0] for row in table.rows] == list(finishing.METHODS)
    assert {len(row) for row in table.rows} == {len(table.columns)}
