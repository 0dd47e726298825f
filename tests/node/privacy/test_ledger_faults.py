"""A disk that fails is no wrong input: the device stops (exit 4), has published nothing, and goes on when it is back."""

import os
import sqlite3

import msgspec
import pytest

from hushgrid.kernels.errors import InputError
from hushgrid.node.privacy import marks
from hushgrid.node.privacy.ledger import Ledger, LedgerFailed
from hushgrid.node.wire import Mark
from tests.support.devices.gated_device import spend

RUN = b"r" * 16


class Broken:
    """A database whose disk answers nothing any more."""

    def __init__(self, db):
        self.db = db

    def execute(self, *args):
        raise sqlite3.OperationalError("disk I/O error")

    def close(self):
        self.db.close()


@pytest.mark.parametrize(
    "does",
    [
        lambda ledger: ledger.spends(),
        lambda ledger: ledger.run(RUN),
        lambda ledger: ledger.answers(RUN),
        lambda ledger: ledger.new_session(),
        lambda ledger: ledger.data_version,
        lambda ledger: ledger.answer(b"key"),
        lambda ledger: ledger.commit(RUN, status="done"),
    ],
)
def test_a_disk_that_answers_nothing_stops_whatever_is_asked(tmp_path, does):
    ledger = Ledger(tmp_path / "n0.ledger", "n0")
    ledger.db = Broken(ledger.db)
    with pytest.raises(LedgerFailed, match=r"n0.ledger: disk I/O error"):
        does(ledger)
    ledger.close()


# --- a power cut ---


def test_a_mark_is_on_the_disk_before_its_name_is_and_its_name_before_the_step_counts(tmp_path, monkeypatch):
    ledger = Ledger(tmp_path / "n0.ledger", "n0", tmp_path / "m" / "n0.mark")
    ledger.join(RUN, b"plan")
    seen, replace, fsync = [], os.replace, os.fsync
    monkeypatch.setattr(os, "replace", lambda a, b: (seen.append("rename"), replace(a, b)))
    monkeypatch.setattr(
        os, "fsync", lambda fd: (seen.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))), fsync(fd))
    )
    ledger.commit(RUN, spends=[spend(1)])
    assert seen == ["n0.mark.new", "rename", "m"]
    ledger.close()


@pytest.mark.parametrize("cut", ["write", "rename", "folder"])
def test_a_mark_cut_short_anywhere_is_the_old_one_or_the_new_one(tmp_path, monkeypatch, cut):
    mark = tmp_path / "n0.mark"
    ledger = Ledger(tmp_path / "n0.ledger", "n0", mark)
    ledger.join(RUN, b"plan")
    ledger.commit(RUN, spends=[spend(1)])
    old = ledger.mark

    def fail(*_):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as at:
        if cut == "write":
            at.setattr(os, "fsync", fail)
        elif cut == "rename":
            at.setattr(os, "replace", fail)
        else:
            at.setattr("hushgrid.node.durable.sync_folder", fail)
        with pytest.raises(LedgerFailed):
            ledger.commit(RUN, spends=[spend(2)])
    ledger.close()
    assert msgspec.msgpack.decode(mark.read_bytes(), type=Mark) in (old, ledger.mark)
    again = Ledger(tmp_path / "n0.ledger", "n0", mark)
    assert again.refusal is None
    assert (again.no, marks.MarkFile(mark, True).read().no) == (2, 2)
    again.close()


# --- a ledger that ends with the run ---


def test_a_ledger_that_is_thrown_away_is_not_synced(tmp_path, monkeypatch):
    ledger = Ledger(tmp_path / "n0.ledger", "n0", durable=False)
    assert ledger.db.execute("PRAGMA synchronous").fetchone() == (0,)
    ledger.close()
    kept = Ledger(tmp_path / "n0.ledger", "n0")
    assert kept.db.execute("PRAGMA synchronous").fetchone() == (2,)
    kept.close()


def test_a_folder_in_a_ledgers_place_is_wrong_input(tmp_path):
    (tmp_path / "n0.ledger").mkdir()
    with pytest.raises(InputError, match="found no file, expected a ledger"):
        Ledger(tmp_path / "n0.ledger", "n0")
