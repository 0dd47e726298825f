"""A disk that fails is no wrong input: the device stops (exit 4), has published nothing, and goes on when it is
back.
"""

import os
import sqlite3
import zlib

import msgspec
import pytest

from hushgrid.kernels.errors import InputError
from hushgrid.node.privacy import marks
from hushgrid.node.privacy.ledger import Ledger, LedgerFailed
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
        lambda ledger: ledger.spends.rows(),
        lambda ledger: ledger.runs.find(RUN),
        lambda ledger: ledger.spends.answers(RUN),
        lambda ledger: ledger.runs.new_session(),
        lambda ledger: ledger.new_data(),
        lambda ledger: ledger.answer(b"key"),
        lambda ledger: ledger.commit(RUN, status="done"),
    ],
)
def test_a_disk_that_answers_nothing_stops_whatever_is_asked(tmp_path, does):
    ledger = Ledger(tmp_path / "n0.ledger", "n0")
    ledger.tables.file.db = Broken(ledger.tables.db)
    with pytest.raises(LedgerFailed, match=r"n0.ledger: disk I/O error"):
        does(ledger)
    ledger.close()


# --- a power cut ---


def test_a_mark_is_on_the_disk_before_its_name_is_and_its_name_before_the_step_counts(tmp_path, monkeypatch):
    """The first one; later ones are written in place."""
    seen, replace, fsync = [], os.replace, os.fsync
    monkeypatch.setattr(os, "replace", lambda a, b: (seen.append("rename"), replace(a, b)))
    monkeypatch.setattr(
        os, "fsync", lambda fd: (seen.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))), fsync(fd))
    )
    ledger = Ledger(tmp_path / "n0.ledger", "n0", tmp_path / "m" / "n0.mark")
    assert seen[-3:] == ["n0.mark.new", "rename", "m"]
    seen.clear()
    ledger.join(RUN, b"plan")
    assert seen == ["n0.ledger-log", tmp_path.name]  # the log's zeros and its name, before its first record
    seen.clear()
    for k in range(5):
        ledger.commit(RUN, spends=[spend(k + 2)])
    assert seen == []
    assert marks.MarkFile(tmp_path / "m" / "n0.mark", True).read() == ledger.mark
    ledger.close()


def marked_twice(tmp_path):
    """A ledger that has written two marks in place, the second of which is its last."""
    ledger = Ledger(tmp_path / "n0.ledger", "n0", tmp_path / "n0.mark")
    ledger.join(RUN, b"plan")
    for k in range(3):
        ledger.commit(RUN, spends=[spend(k + 1)])
    return ledger, tmp_path / "n0.mark"


@pytest.mark.parametrize("cut", [0, 1, 8, 12, 16, 17, 37])
def test_a_mark_cut_short_anywhere_is_the_one_before_it(tmp_path, cut):
    ledger, mark = marked_twice(tmp_path)
    before = mark.read_bytes()
    ledger.commit(RUN, spends=[spend(4)])
    after = bytearray(mark.read_bytes())
    assert before[512:] == after[512:]  # the slot of the mark before stays as it is
    ledger.close()
    mark.write_bytes(bytes(after[:cut]) + before[cut:])
    found = marks.MarkFile(mark, True).read()
    assert found.no == 3
    again = Ledger(tmp_path / "n0.ledger", "n0", mark)
    assert again.refusal is None
    assert (again.spends.no, marks.MarkFile(mark, True).read().no) == (4, 4)
    again.close()


def test_a_mark_whose_disk_fails_stops_the_step_before_it_is_published(tmp_path, monkeypatch):
    ledger, mark = marked_twice(tmp_path)
    pwrite = os.pwrite

    def fail(file, blob, at):
        if os.readlink(f"/proc/self/fd/{file}").endswith(".mark"):
            raise OSError(30, "Read-only file system")
        return pwrite(file, blob, at)

    with monkeypatch.context() as at:
        at.setattr(os, "pwrite", fail)
        with pytest.raises(LedgerFailed, match=r"n0.mark: Read-only file system, expected to write the mark"):
            ledger.commit(RUN, spends=[spend(4)])
    ledger.close()
    again = Ledger(tmp_path / "n0.ledger", "n0", mark)
    assert (again.refusal, again.spends.no, marks.MarkFile(mark, True).read().no) == (
        None,
        4,
        4,
    )  # paid, and told to nobody
    again.close()


def test_the_mark_of_an_earlier_program_is_understood_and_becomes_one_of_ours(tmp_path):
    ledger, mark = marked_twice(tmp_path)
    ledger.close()
    mark.write_bytes(msgspec.msgpack.encode(ledger.mark))
    again = Ledger(tmp_path / "n0.ledger", "n0", mark)
    assert again.refusal is None
    again.commit(RUN, spends=[spend(4)])
    assert (len(mark.read_bytes()), marks.MarkFile(mark, True).read().no) == (1024, 4)
    again.close()


def test_the_mark_of_a_later_program_is_refused_and_left_alone(tmp_path):
    ledger, mark = marked_twice(tmp_path)
    ledger.close()
    blob = bytearray(mark.read_bytes())
    for at in (0, 512):
        no, size, _ = marks._HEAD.unpack_from(blob, at)
        blob[at + 16] = 2
        check = zlib.crc32(no.to_bytes(8, "little") + blob[at + 16 : at + 16 + size])
        blob[at : at + 16] = marks._HEAD.pack(no, size, check)
    mark.write_bytes(blob)
    again = Ledger(tmp_path / "n0.ledger", "n0", mark)
    assert f"without its mark: {mark} was written by a later program (format 2, expected 1)" in again.refusal
    with pytest.raises(InputError, match=r"later program .*: accept with that program"):
        again.accept()  # its own mark would be lower
    again.close()
    assert mark.read_bytes() == blob


# --- a ledger that ends with the run ---


def test_a_ledger_that_is_thrown_away_is_not_synced(tmp_path, monkeypatch):
    ledger = Ledger(tmp_path / "n0.ledger", "n0", durable=False)
    assert ledger.tables.db.execute("PRAGMA synchronous").fetchone() == (0,)
    ledger.close()
    kept = Ledger(tmp_path / "n0.ledger", "n0")
    assert kept.tables.db.execute("PRAGMA synchronous").fetchone() == (2,)
    kept.close()


def test_a_folder_in_a_ledgers_place_is_wrong_input(tmp_path):
    (tmp_path / "n0.ledger").mkdir()
    with pytest.raises(InputError, match="found no file, expected a ledger"):
        Ledger(tmp_path / "n0.ledger", "n0")
