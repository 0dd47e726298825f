"""The table of intervals keeps the last ones, whole, however the process ends."""

import csv

from hushgrid.broker.coordinator import interval_log


def rows(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def numbers(path):
    return [int(row["interval"]) for row in rows(path)]


def test_it_never_has_more_than_twice_what_is_kept_and_always_the_last(tmp_path):
    path = tmp_path / "intervals.csv"
    for k in range(1, 100):
        interval_log.note(path, {"interval": k, "reason": "two, words\nand a line"}, 10)
        found = numbers(path)
        assert found == list(range(found[0], k + 1))
        assert min(k, 10) <= len(found) <= 20
    assert rows(path)[-1]["reason"] == "two, words and a line"


def test_an_interval_that_is_ended_again_has_one_line(tmp_path):
    path = tmp_path / "intervals.csv"
    for k, outcome in ((1, "answer"), (2, "missed"), (2, "answer")):
        interval_log.note(path, {"interval": k, "outcome": outcome}, 10)
    assert [(row["interval"], row["outcome"]) for row in rows(path)] == [("1", "answer"), ("2", "answer")]


def test_a_line_that_a_power_cut_has_torn_goes(tmp_path):
    path = tmp_path / "intervals.csv"
    for k in (1, 2):
        interval_log.note(path, {"interval": k}, 10)
    path.write_text(path.read_text()[:-5])
    interval_log.note(path, {"interval": 3}, 10)
    assert numbers(path) == [1, 3]


def test_old_records_go_with_their_tables(tmp_path):
    for k in range(5):
        (tmp_path / f"run-{k}.json").write_text("{}")
        (tmp_path / f"run-{k}-buses.csv").write_text("")
    interval_log.prune(tmp_path, 2)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "run-3-buses.csv",
        "run-3.json",
        "run-4-buses.csv",
        "run-4.json",
    ]


def test_a_table_of_an_older_release_gets_the_columns_of_now(tmp_path):
    path = tmp_path / "intervals.csv"
    path.write_text('interval,began,outcome,reason\n1,x,missed,"z1, z2 not there"\n2,y,answer,\n')
    for k in (3, 4):
        interval_log.note(path, {"interval": k, "refused": "z2"}, 10)
    assert tuple(path.read_text().splitlines()[0].split(",")) == interval_log.COLUMNS
    assert numbers(path) == [1, 2, 3, 4]
    assert [(row["reason"], row["refused"]) for row in rows(path)] == [
        ("z1, z2 not there", ""), ("", ""), ("", "z2"), ("", "z2")
    ]  # fmt: skip
