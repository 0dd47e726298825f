"""The study of audits: its scenarios are those that it says, and its tables say what was measured."""

import numpy as np
import pytest

from hushgrid.kernels.algorithms.registry import ALGORITHMS
from hushgrid.lab.studies import auditing
from hushgrid.lab.studies.auditing import Game, Line, Run, played, ran, ran_at_the_gate, tables, tried


def test_every_algorithm_is_in_the_table_of_all():
    titles = [game.title for game in auditing.every()]
    assert len(set(titles)) == len(titles)
    assert {title.split(",")[0] for title in titles} == set(ALGORITHMS)
    assert len(titles) - 40 <= auditing.ROWS_OF_ALL, "at least forty are refused: the confidence of a row counts on it"


@pytest.mark.parametrize("title", ["dgd, gaussian, softmax, replace-one-record", "ladmm, laplace, zones, mode input"])
def test_a_row_shows_no_more_than_is_claimed(title):
    (game,) = [game for game in auditing.every() if game.title == title]
    row = tried(game._replace(games=500))
    assert isinstance(row, Line)
    assert 0 < row.measured <= row.claim
    assert row.moved > 0.99


def test_what_the_gate_refuses_is_told():
    (game,) = [game for game in auditing.every() if game.title == "admm, laplace, softmax, replace-one-record"]
    assert "expected logistic" in tried(game)


def test_what_is_wrong_is_put_right_again():
    """The honest row stands before the others and after them."""
    found = {}
    for title, made, raw in (*auditing.wrong(), auditing.wrong()[0]):
        with made():
            found.setdefault(title, []).append(played(Game(title, raw, 2000)))
    assert [line.measured <= line.claim for line in found.pop("nothing")] == [True, True]
    assert all(line.measured > line.claim for (line,) in found.values())


def test_published_recal_is_told_apart_by_whole_runs_beyond_its_claim():
    """Twelve games about either data set are too few for 95 % beyond 1 unless all are right."""
    line = auditing.whole_runs(games=12)
    assert line.measured == line.power > line.claim


def test_the_tables_have_a_row_for_each_thing_measured():
    game = played(Game("one answer", auditing.dgd(1, 1.0, auditing.LAPLACE), 1000))
    run = ran(Run(8.0, 100, (0, 1), "memory", 6))
    gate = ran_at_the_gate(Run(8.0, 100, (0, 1, 2), "memory", 6))
    made = tables([game], [run], [run], [gate], [game], 3, [game])
    assert [len(table.rows) for table in made] == [1, 1, 2, 1, 1]
    assert all(len(row) == len(table.columns) for table in made for row in table.rows)
    assert np.isfinite(made[1].rows[0][4])
    assert auditing.drawn([game]).startswith("<?xml")
