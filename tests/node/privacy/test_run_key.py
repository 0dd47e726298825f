"""The key of a masked run: on the disk before it is used, and in no file of the ledger once the run is over."""

import shutil
import sqlite3
from contextlib import closing

import pytest

from hushgrid.kernels.errors import Refused
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.noise_journal import NoiseJournal
from tests.support.devices.gated_device import spend
from tests.support.devices.ledgers import RUN, copied, copy_of, fill, killed, reopened

NEXT = b"next" * 4
KEY = bytes(range(7, 39)) + b"beside it what is public" * 60


def made():
    return KEY


def never():
    raise AssertionError("made a second time")


@pytest.fixture
def ledger(tmp_path):
    opened = Ledger(tmp_path / "n0.ledger", "n0", tmp_path / "n0.mark")
    yield opened
    opened.close()


def holding(folder):
    """The files in which the first bytes of the key stand."""
    return sorted(path.name for path in folder.iterdir() if KEY[:32] in path.read_bytes())


def begin(ledger, run=RUN):
    """A run with a key, and a few steps, noted, in the log and in the tables."""
    fill(ledger, 3, run)
    drawn = NoiseJournal(ledger.path.with_name("n0.drawn"), ledger)
    assert ledger.runs.key(run, made) == KEY
    drawn.draw(run, spend(4), b"question", tuple)
    ledger.commit(run, spends=[spend(4)], state=b"state")
    return drawn


def test_it_is_made_once_and_on_the_disk_before_it_is_used(ledger, tmp_path):
    ledger.join(RUN, b"plan")
    assert ledger.runs.key(RUN, made) == KEY
    copy = Ledger(copied(ledger, tmp_path / "power cut", log=True), "n0")
    assert copy.runs.key(RUN, never) == KEY
    copy.close()
    killed(ledger)
    again = Ledger(ledger.path, "n0", tmp_path / "n0.mark")
    assert again.runs.key(RUN, never) == KEY
    again = reopened(again)
    assert again.runs.key(RUN, never) == KEY
    again.close()


def test_a_key_that_was_not_stored_was_not_used(ledger):
    ledger.join(RUN, b"plan")
    ledger.tables.db.execute("PRAGMA query_only = ON")  # the disk takes nothing
    with pytest.raises(Exception, match="expected to write the ledger: nothing was released"):
        ledger.runs.key(RUN, made)
    ledger.tables.db.execute("PRAGMA query_only = OFF")
    assert ledger.runs.key(RUN, lambda: b"another") == b"another"


def test_only_a_run_under_way_has_a_key(ledger):
    with pytest.raises(Refused, match="n0: found no key of run 72727272, expected a new run: the key is erased"):
        ledger.runs.key(RUN, made)
    fill(ledger, 1)
    ledger.commit(RUN, status="done", last=b"bye")
    with pytest.raises(Refused, match="found no key"):
        ledger.runs.key(RUN, made)
    assert not ledger.runs.lacks_key(RUN)  # it is over, and needs none


#: Each way in which a run ends for good, or in which it could be resumed and another one comes first.
ENDS = {
    "done": lambda ledger: ledger.commit(RUN, status="done", last=b"bye"),
    "done, its outcome owed": lambda ledger: ledger.commit(RUN, status="owed", last=b"bye"),
    "refused": lambda ledger: ledger.commit(RUN, status="refused", last=b"no"),
    "failed": lambda ledger: ledger.commit(
        RUN, spends=[spend(9)], answers=[(b"q", b"a")], status="refused", last=b"no"
    ),
    "abandoned": lambda ledger: ledger.runs.abandon(),
    "another one joined": lambda ledger: ledger.join(NEXT, b"plan"),
    "stopped, then another one joined": lambda ledger: (
        ledger.commit(RUN, status="stopped"),
        ledger.join(NEXT, b"plan"),
    ),
    "an older copy accepted": lambda ledger: ledger.accept(),
}


@pytest.mark.parametrize("end", ENDS)
def test_it_is_in_no_file_once_its_run_is_over(ledger, tmp_path, end):
    drawn = begin(ledger)
    assert {"n0.ledger", "n0.ledger-wal"} & {*holding(tmp_path)}
    ENDS[end](ledger)
    assert {"n0.ledger", "n0.ledger-wal", "n0.ledger-shm", "n0.ledger-log", "n0.drawn", "n0.mark"} == {
        path.name for path in tmp_path.iterdir()
    }
    assert holding(tmp_path) == []
    assert ledger.verify() == []
    drawn.close()
    ledger.close()
    assert holding(tmp_path) == []


def test_a_run_that_has_never_begun_and_is_dropped_leaves_none(ledger, tmp_path):
    ledger.join(RUN, b"plan")
    ledger.runs.key(RUN, made)
    assert holding(tmp_path) == ["n0.ledger-wal"]
    ledger.runs.drop(RUN)
    assert holding(tmp_path) == []


@pytest.mark.parametrize("more", [0, 9000], ids=["on one page", "on several"])
def test_it_goes_from_the_main_file_too_once_it_has_been_moved_there(ledger, tmp_path, more):
    fill(ledger, 3)
    ledger.runs.key(RUN, lambda: KEY + bytes(more))
    ledger.close()
    assert holding(tmp_path) == ["n0.ledger"]
    ledger = Ledger(ledger.path, "n0", tmp_path / "n0.mark")
    ledger.commit(RUN, status="done", last=b"bye")
    assert holding(tmp_path) == []
    ledger.close()


def test_a_device_that_dies_as_it_ends_a_run_has_erased_it_at_its_next_start(ledger, tmp_path, monkeypatch):
    begin(ledger)
    with monkeypatch.context() as patched:
        patched.setattr(
            ledger.tables.file, "_scrub", lambda: None
        )  # what follows the transaction does not come to pass
        ledger.commit(RUN, status="done", last=b"bye")
    assert "n0.ledger-wal" in holding(tmp_path)
    place = copied(ledger, tmp_path / "n0 as it died", log=True)
    Ledger(place, "n0").close()
    assert holding(place.parent) == []


def test_a_reader_beside_it_delays_the_end_of_it_until_the_next_transaction(ledger, tmp_path):
    begin(ledger)
    with closing(sqlite3.connect(ledger.path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM meta").fetchall()
        ledger.commit(RUN, status="done", last=b"bye")
        assert holding(tmp_path) != []
    ledger.runs.new_session()
    assert holding(tmp_path) == []


def test_a_stopped_run_keeps_it_and_can_be_resumed_with_it(ledger):
    begin(ledger)
    ledger.commit(RUN, status="stopped", last=b"bye")
    ledger = reopened(ledger)
    ledger.runs.new_session()
    assert not ledger.runs.lacks_key(RUN)
    assert ledger.runs.reopen(RUN)
    assert ledger.runs.key(RUN, never) == KEY
    ledger.close()


def test_a_run_that_another_one_has_followed_gets_no_second_key(ledger):
    begin(ledger)
    ledger.join(NEXT, b"plan")
    ledger.runs.key(NEXT, lambda: b"another")
    assert ledger.runs.lacks_key(RUN)
    assert not ledger.runs.lacks_key(NEXT)
    assert ledger.runs.reopen(RUN)
    with pytest.raises(Refused, match="the key is erased"):
        ledger.runs.key(RUN, never)
    assert ledger.runs.lacks_key(NEXT)  # one key at most, and none that is not the last run's


def test_a_refusal_of_an_older_run_leaves_the_key_of_the_one_under_way(ledger):
    fill(ledger, 1)
    ledger.join(NEXT, b"plan")
    ledger.runs.key(NEXT, made)
    ledger.commit(RUN, status="refused", last=b"no")
    assert ledger.runs.key(NEXT, never) == KEY


def test_a_copy_that_stays_has_none_and_a_backup_has(ledger, tmp_path):
    begin(ledger)
    (away := tmp_path / "away").mkdir()
    ledger.copy_to(away / "n0.ledger")
    assert holding(away) == []
    with copy_of(away / "n0.ledger") as copy:
        assert copy.verify() == []
        assert copy.runs.lacks_key(RUN)
    with copy_of(ledger.path) as copy:
        assert copy.runs.key(RUN, never) == KEY
    backup = tmp_path / "backup"
    ledger.close()
    backup.mkdir()
    shutil.copy(ledger.path, backup)
    assert holding(backup) == ["n0.ledger"]


def test_what_stays_beside_a_ledger_that_gets_a_newer_format_has_none(ledger, tmp_path, monkeypatch):
    begin(ledger)
    ledger.close()
    newer = {
        "FORMAT": 5,
        "FORMATS": (4, 5),
        "migrate": lambda db: db.execute("UPDATE meta SET value = 5 WHERE key = 'format'"),
    }
    for name, value in newer.items():
        monkeypatch.setattr(f"hushgrid.node.privacy.ledger_file.{name}", value)
    later = Ledger(ledger.path, "n0", tmp_path / "n0.mark")
    assert later.runs.key(RUN, never) == KEY
    assert not {name for name in holding(tmp_path) if "before" in name}
    assert (tmp_path / "n0.ledger-before").exists()
    later.close()
