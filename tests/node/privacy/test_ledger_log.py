"""The log in front of the tables: whatever is torn, dropped or put back, the ledger shows no less than what has
left.
"""

import errno
import fcntl
import os
import random
import shutil
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.node.privacy import ledger_log
from hushgrid.node.privacy.ledger import Ledger, LedgerFailed
from hushgrid.node.privacy.ledger_log import BLOCK, BLOCKS, Behind, LedgerLog, Record, encoded, records
from hushgrid.node.privacy.ledger_marks import TORN
from tests.support import examples
from tests.support.devices.gated_device import WORDS, spend
from tests.support.devices.ledgers import RUN, copied, fill, killed, reopened

SECTOR = 512
ID = b"this ledger's id"


@pytest.fixture
def ledger(tmp_path):
    opened = Ledger(tmp_path / "n0.ledger", "n0")
    yield opened
    opened.close()


def log_of(ledger):
    return ledger.path.with_name(ledger.path.name + "-log")


def record(k, size=10):
    return Record(RUN, b"s" * size, "running", k, [spend(k)], "2026-01-01T00:00:00Z", 1.0 * k, 1, None)


# --- the file ---


@examples.of(60)
@given(sizes=st.lists(st.integers(0, 3 * BLOCK), max_size=8), applied=st.integers(0, 1 << 40))
def test_what_is_appended_is_read_back_and_nothing_else(tmp_path_factory, sizes, applied):
    log = LedgerLog(tmp_path_factory.mktemp("log") / "log", ID, sync=False)
    log.create()
    rows = [record(k + 1, size) for k, size in enumerate(sizes)]
    for k, row in enumerate(rows):
        log.append(encoded(row), applied + k + 1)
    blob = log.path.read_bytes()
    assert len(blob) == BLOCKS * BLOCK
    assert records(blob, ID, applied) == rows
    assert records(blob, b"another ledger's", applied) == []
    assert records(blob, ID, applied + len(rows)) == []
    if rows and applied:
        with pytest.raises(Behind):
            records(blob, ID, applied - 1)
    log.close()


def test_a_record_begins_on_a_block_of_its_own(tmp_path):
    log = LedgerLog(tmp_path / "log", ID, sync=False)
    log.create()
    for k in (1, 2, 3):
        log.append(encoded(record(k, BLOCK)), k)
    blob = log.path.read_bytes()
    for k in (1, 2, 3):
        assert records(blob[2 * (k - 1) * BLOCK :], ID, k - 1)[0] == record(k, BLOCK)
    log.close()


def direct(log):
    """Whether its file is written past the system's cache."""
    return bool(fcntl.fcntl(log._file, fcntl.F_GETFL) & os.O_DIRECT)


def refusing(monkeypatch, smallest):
    """A file system that takes writes past the system's cache in multiples of `smallest` bytes; None: never."""
    opened, pwrite = os.open, os.pwrite

    def open_(path, flags, *mode, **more):
        if smallest is None and flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return opened(path, flags, *mode, **more)

    def write(fd, blob, at):
        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT and len(blob) % smallest:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return pwrite(fd, blob, at)

    monkeypatch.setattr(os, "open", open_)
    monkeypatch.setattr(os, "pwrite", write)


@pytest.mark.parametrize(("smallest", "past", "sector"), [(512, True, 512), (BLOCK, True, BLOCK), (None, False, BLOCK)])
def test_the_log_is_written_past_the_systems_cache_in_what_multiples_the_file_system_takes(
    tmp_path, monkeypatch, smallest, past, sector
):
    refusing(monkeypatch, smallest)
    log = LedgerLog(tmp_path / "log", ID, sync=True)
    log.create()
    assert (direct(log), log._sector) == (past, sector)
    sizes = [0, 600, 3 * BLOCK, 10]
    for k, size in enumerate(sizes, 1):
        log.append(encoded(record(k, size)), k)
    assert records(log.path.read_bytes(), ID, 0) == [record(k, size) for k, size in enumerate(sizes, 1)]
    log.restart()
    log.append(encoded(record(5, 0)), 5)
    assert records(log.path.read_bytes(), ID, 4) == [record(5, 0)]
    assert len(log.path.read_bytes()) == BLOCKS * BLOCK
    log.close()


# --- one write a step ---


def test_a_step_is_one_write_and_one_sync_and_the_tables_follow_when_the_log_is_full(ledger, monkeypatch):
    ledger.join(RUN, b"plan")
    ledger.commit(RUN, spends=[spend(1)], state=b"state")  # makes the log
    said, pwrite, fdatasync = [], os.pwrite, os.fdatasync
    monkeypatch.setattr(os, "pwrite", lambda fd, blob, at: (said.append("write"), pwrite(fd, blob, at))[1])
    monkeypatch.setattr(os, "fdatasync", lambda fd: (said.append("sync"), fdatasync(fd)))
    asked = []
    ledger.tables.db.set_trace_callback(asked.append)
    for k in range(BLOCKS - 1):
        ledger.commit(RUN, spends=[spend(k + 2)], state=b"state", status="running", history=(k, 0.5, k, k))
    assert said == ["write", "sync"] * (BLOCKS - 1)
    assert asked == []
    ledger.commit(RUN, spends=[spend(BLOCKS + 1)], state=b"last")
    assert [sql for sql in asked if sql.startswith("BEGIN")] == ["BEGIN IMMEDIATE"]
    ledger.tables.db.set_trace_callback(None)
    assert (ledger.spends.no, len(ledger.spends.rows()), ledger.runs.find(RUN).state, ledger.runs.find(RUN).spends) == (
        BLOCKS + 1,
        BLOCKS + 1,
        b"last",
        BLOCKS + 1,
    )
    assert [row[0] for row in ledger.runs.history(RUN)] == list(range(BLOCKS - 1))


def test_a_step_too_large_for_the_log_goes_straight_into_the_tables_and_the_next_log_is_larger(ledger):
    fill(ledger, 2)
    large = bytes(30 * BLOCK)
    ledger.commit(RUN, spends=[spend(3)], state=large)
    assert (ledger.runs.find(RUN).state, ledger.spends.no, ledger.verify()) == (large, 3, [])
    again = reopened(ledger)
    assert (again.runs.find(RUN).state, again.spends.no, again.verify()) == (large, 3, [])
    again.close()


def test_an_orderly_end_leaves_no_log(ledger):
    fill(ledger, 3)
    assert log_of(ledger).exists()
    ledger.close()
    assert not log_of(ledger).exists()
    assert Ledger(ledger.path, "n0").spends.no == 3


def test_what_only_the_log_has_is_there_after_a_crash(ledger, tmp_path):
    fill(ledger, 5)
    with sqlite3.connect(f"file:{ledger.path}?mode=ro", uri=True) as db:
        assert db.execute("SELECT count(*) FROM spend").fetchone() == (0,)
    db.close()
    before = (ledger.mark, ledger.spends.totals(WORDS))
    again = Ledger(copied(ledger, tmp_path / "crash", log=True), "n0")
    assert (again.mark, again.spends.totals(WORDS)) == before
    assert (again.runs.find(RUN).state, again.spends.answers(RUN), again.verify()) == (b"state 4", 5, [])
    again.close()


def test_the_first_answer_of_a_run_stays_in_the_log_while_another_record_waits_before_it(ledger, tmp_path):
    fill(ledger, 1)
    second = b"s" * 16
    ledger.runs.join(second, b"plan", "done")  # so that its sums are not known yet
    ledger.commit(RUN, state=b"waits")
    ledger.commit(second, spends=[spend(1)], state=b"first")
    ledger.commit(second, spends=[spend(2)], state=b"written where that stood, if the log had begun anew after it")
    again = Ledger(copied(ledger, tmp_path / "crash", log=True), "n0")
    assert (again.spends.no, again.verify()) == (3, [])
    again.close()


# --- what is missing, or put back ---


def test_a_ledger_without_its_log_lets_no_run_spend_until_its_owner_accepts(ledger, tmp_path):
    fill(ledger, 5)
    path = copied(ledger, tmp_path / "backup", log=True)
    path.with_name("n0.ledger-log").unlink()
    for _ in range(2):
        copy = Ledger(path, "n0")
        assert TORN in copy.refusal
        copy.close()
    copy = Ledger(path, "n0")
    copy.accept()
    assert copy.refusal is None
    fill(copy, 2, b"next")
    assert copy.verify() == []
    copy.close()


def test_older_tables_beside_a_newer_log_are_behind_it_and_it_is_kept(ledger, tmp_path):
    fill(ledger, 2)
    ledger.checkpoint()
    old = copied(ledger, tmp_path / "old", log=False)
    fill(ledger, 70, b"next")
    shutil.copy(log_of(ledger), old.with_name("n0.ledger-log"))
    shutil.copy(ledger.path.with_name("n0.ledger-wal"), tmp_path / "newer-wal")
    old.with_name("n0.ledger-wal").touch()
    log = old.with_name("n0.ledger-log").read_bytes()
    copy = Ledger(old, "n0")
    assert TORN in copy.refusal
    copy.close()
    assert old.with_name("n0.ledger-log").read_bytes() == log  # the right tables may come back
    copy = Ledger(old, "n0")
    copy.accept()
    assert copy.refusal is None
    assert not old.with_name("n0.ledger-log").exists()
    fill(copy, 3, b"third")
    again = Ledger(copied(copy, tmp_path / "crash", log=True), "n0")
    assert (again.spends.no, again.refusal, again.verify()) == (copy.spends.no, None, [])
    again.close()
    copy.close()


# --- a disk that fails ---


def test_after_a_sync_that_failed_nothing_is_appended_any_more(ledger, monkeypatch):
    fill(ledger, 2)

    def fail(_):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as at:
        at.setattr(os, "fdatasync", fail)
        with pytest.raises(LedgerFailed, match=r"n0.ledger-log: Input/output error, .*: nothing was released"):
            ledger.commit(RUN, spends=[spend(3)])
    with pytest.raises(LedgerFailed, match="its disk has failed before"):
        ledger.commit(RUN, spends=[spend(3)])
    assert ledger.spends.no == 2


# --- torn and dropped writes ---


class Power:
    """A log whose unsynced writes a power cut may take: of each sector what stood there, or what was written."""

    def __init__(self, held, chance):
        self.chance, self.before = chance, {}
        pwrite, fdatasync = os.pwrite, os.fdatasync

        def write(fd, blob, at):
            if (path := os.readlink(f"/proc/self/fd/{fd}")).endswith("-log"):
                self.before.setdefault(at, Path(path).read_bytes()[at : at + len(blob)])
            return pwrite(fd, blob, at)

        def sync(fd):
            fdatasync(fd)
            if os.readlink(f"/proc/self/fd/{fd}").endswith("-log"):
                self.before = {}

        held.setattr(os, "pwrite", write)
        held.setattr(os, "fdatasync", sync)

    def cut(self, log):
        """Of what was not synced a random subset, or a prefix, of sectors is kept."""
        blob = bytearray(log.read_bytes())
        for at, old in self.before.items():
            sectors = len(old) // SECTOR
            if self.chance.random() < 0.3:
                kept = set(range(self.chance.randrange(sectors + 1)))
            else:
                kept = {k for k in range(sectors) if self.chance.random() < 0.5}
            for k in range(sectors):
                if k not in kept:
                    blob[at + k * SECTOR : at + (k + 1) * SECTOR] = old[k * SECTOR : (k + 1) * SECTOR]
        log.write_bytes(blob)


class Cut(BaseException):
    """The power is gone."""


@pytest.mark.runs
@pytest.mark.parametrize("cuts", [120, pytest.param(1000, marks=pytest.mark.long)])
def test_a_power_cut_that_tears_or_drops_a_write_takes_nothing_that_was_released(tmp_path, monkeypatch, cuts):
    """Each time: some steps are released, the power fails within the next one's write or after it, and it starts
    again.
    """
    chance = random.Random(20)
    path, folder = tmp_path / "now" / "n0.ledger", tmp_path / "now"
    ledger = Ledger(path, "n0")
    ledger.join(RUN, b"plan")
    released = 0
    sync = os.fdatasync
    for cut in range(cuts):
        with monkeypatch.context() as held:
            power = Power(held, chance)
            for _ in range(chance.randrange(1, 90)):
                ledger.commit(
                    RUN, spends=[spend(released + 1)], state=b"%d" % (released + 1) * chance.randrange(1, 3000)
                )
                released += 1

            def dies(fd):
                raise Cut

            held.setattr(os, "fdatasync", dies)
            try:
                ledger.commit(RUN, spends=[spend(released + 1)], state=b"%d" % (released + 1) * 2000)
            except Cut:
                pass
            else:  # straight into the tables
                released += 1
            after = tmp_path / f"after{cut % 2}"
            shutil.rmtree(after, ignore_errors=True)
            shutil.copytree(folder, after)
            power.cut(after / "n0.ledger-log")
        killed(ledger)
        shutil.rmtree(folder)
        shutil.move(after, folder)
        ledger = Ledger(path, "n0")
        assert ledger.refusal is None
        assert released <= ledger.spends.no <= released + 1
        assert ledger.spends.totals(WORDS).epsilon == ledger.spends.no * 0.5
        state = ledger.runs.find(RUN).state
        assert state[: len(b"%d" % ledger.spends.no)] == b"%d" % ledger.spends.no
        assert ledger.spends.answers(RUN) == ledger.runs.find(RUN).spends == ledger.spends.no
        released = ledger.spends.no
    assert os.fdatasync is sync
    assert ledger.verify() == []
    assert [s.no for s in ledger.spends.rows()] == list(range(1, released + 1))
    ledger.close()


def test_the_notes_of_how_a_log_is_laid_out_are_those_of_the_code():
    assert f"{BLOCKS} blocks of {BLOCK} bytes" in ledger_log.__doc__
