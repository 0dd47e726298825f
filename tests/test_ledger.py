"""The ledger: durable before anything is published, never less than what left, and honest about what it cannot know."""

import os
import random
import shutil
import sqlite3
import stat
import subprocess
import sys
from math import inf
from pathlib import Path

import msgspec
import pytest
from device import WORDS, spend

from hushgrid.kernels.errors import InputError
from hushgrid.node.ledger import Ledger, LedgerFailed
from hushgrid.node.records import Spend
from hushgrid.node.wire import Mark

RUN = b"r" * 16


@pytest.fixture
def ledger(tmp_path):
    opened = Ledger(tmp_path / "n0.ledger", "n0", tmp_path / "mark" / "n0.mark")
    yield opened
    opened.close()


def reopened(ledger):
    ledger.close()
    return Ledger(ledger.path, "n0", ledger.mark_path)


def fill(ledger, answers, run=RUN, **over):
    ledger.join(run, b"plan")
    for k in range(answers):
        ledger.commit(run, spends=[spend(k + 1, **over)], state=b"state %d" % k)


# --- one durable transaction ---


def test_it_is_kept_by_a_write_ahead_log_with_full_sync_by_one_process_readable_by_its_owner(ledger):
    ask = ledger.db.execute
    assert ask("PRAGMA journal_mode").fetchone() == ("wal",)
    assert ask("PRAGMA synchronous").fetchone() == (2,)
    assert ask("PRAGMA locking_mode").fetchone() == ("exclusive",)
    assert stat.S_IMODE(ledger.path.stat().st_mode) == 0o600


def test_a_step_is_committed_whole_or_not_at_all(ledger):
    fill(ledger, 1)
    before = (ledger.spends(), ledger.run(RUN), ledger.mark, ledger.totals(WORDS))
    ledger.db.execute("DROP TABLE history")  # so that the last statement of the next transaction fails
    with pytest.raises(
        LedgerFailed, match="no such table: history, expected to write the ledger: nothing was released"
    ):
        ledger.commit(RUN, spends=[spend(2)], state=b"new", answers=[(b"key", b"value")], history=(1, 0.0, 1, 1))
    assert ledger.answer(b"key") is None
    assert (ledger.spends(), ledger.run(RUN), ledger.mark, ledger.totals(WORDS)) == before


WRITER = """
import os, random, signal, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from device import spend
from hushgrid.node.ledger import Ledger

path, chance = Path(sys.argv[1]), random.Random(int(sys.argv[3]))
for attempt in range(int(sys.argv[4])):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        ledger = Ledger(path, "n0", path.with_suffix(".mark"))
        ledger.join(b"r" * 16, b"plan")
        os.write(write, b"o")
        while True:
            ledger.commit(b"r" * 16, spends=[spend(ledger.no + 1)], state=b"%d" % (ledger.no + 1))
            os.write(write, b".")  # released
    os.close(write)
    seen = os.read(read, 1)
    for _ in range(chance.randrange(6)):  # let it release some, then end it at any instant of the next
        seen += os.read(read, 1)
    time.sleep(chance.random() * 0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    released = len(seen) - 1
    while part := os.read(read, 65536):
        released += len(part)
    os.close(read)
    ledger = Ledger(path, "n0", path.with_suffix(".mark"))
    print(released, ledger.no, len(ledger.spends()), int(ledger.run(b"r" * 16).state or 0), len(ledger.verify()), flush=True)
    ledger.close()
"""


def test_a_ledger_killed_at_any_instant_never_shows_less_than_it_released(tmp_path):
    attempts = 40
    done = subprocess.run(
        [sys.executable, "-c", WRITER, tmp_path / "n0.ledger", Path(__file__).parent, "11", str(attempts)],
        capture_output=True, text=True, check=True, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    lines = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert len(lines) == attempts
    before = total = 0
    for released, no, rows, state, wrong in lines:
        assert no >= before + released
        assert no <= before + released + 1  # at most the one that was committed and not yet released
        assert rows == state == no  # spends and state are from the same transaction
        assert wrong == 0
        before, total = no, total + released
    assert total > attempts  # it did write


def test_what_was_committed_is_there_after_a_restart(ledger):
    fill(ledger, 3)
    ledger.commit(RUN, answers=[(b"key", b"value")], history=(2, 0.25, 10, 999), last=b"bye", status="done")
    ledger.remember_peers({"n1": Mark(b"x", 4, 1.0)})
    kept = (ledger.spends(), ledger.mark, ledger.run(RUN), ledger.totals(WORDS), ledger.id)
    again = reopened(ledger)
    assert (again.spends(), again.mark, again.run(RUN), again.totals(WORDS), again.id) == kept
    assert again.answer(b"key") == b"value"
    assert again.history(RUN) == [(2, 0.25, 10, 999)]
    assert again.peers() == {"n1": Mark(b"x", 4, 1.0)}
    assert again.verify() == []


def test_a_session_number_is_never_given_twice(ledger):
    assert [ledger.new_session(), ledger.new_session()] == [1, 2]
    assert reopened(ledger).new_session() == 3


def test_one_run_at_a_time_is_under_way(ledger):
    fill(ledger, 1)
    ledger.join(b"second", b"plan 2")
    assert ledger.run(RUN).status == "stopped"
    assert ledger.open_run().id == b"second"
    ledger.join(b"second", b"another plan")
    assert ledger.run(b"second").plan == b"plan 2"  # a stored plan is never replaced
    ledger.abandon()
    assert ledger.open_run() is None
    assert ledger.last_run().id == b"second"


def test_two_runs_events_are_kept_apart_and_counted_together(ledger):
    fill(ledger, 2, RUN)
    fill(ledger, 3, b"second", epsilon=0.25)
    assert len(ledger.spends(RUN)) == 2
    assert len(ledger.events(WORDS, but=RUN)) == 3
    assert ledger.totals(WORDS).epsilon == 2 * 0.5 + 3 * 0.25
    assert ledger.totals("bounded-change 7").epsilon == 0.0
    assert ledger.adjacencies == [WORDS]


def test_the_mark_after_some_spends_is_the_mark_once_they_are_committed(ledger):
    fill(ledger, 1)
    more = [
        spend(2),
        Spend(3, "gaussian", 0.3, 0.1, 0.2, 0.1, WORDS, "x"),
        Spend(4, "nonprivate", inf, inf, 0, 0, "", "none"),
    ]
    promised = ledger.mark_after(more)
    ledger.commit(RUN, spends=more)
    assert promised == ledger.mark == reopened(ledger).mark
    assert promised.no == 4
    assert promised.nonprivate


# --- what is not this node's ledger ---


def opening(path, node="n0"):
    with pytest.raises(InputError) as caught:
        Ledger(path, node)
    line = str(caught.value)
    assert line.startswith(f"{path}: ")
    assert "expected" in line
    assert "\n" not in line
    return line


def test_a_second_process_is_refused(ledger):
    code = (
        "import sys; from pathlib import Path; from hushgrid.node.ledger import Ledger; Ledger(Path(sys.argv[1]), 'n0')"
    )
    second = subprocess.run([sys.executable, "-c", code, ledger.path], capture_output=True, text=True)
    assert f"InputError: {ledger.path}: held by another process, expected one process per ledger" in second.stderr
    assert "held by another process" in opening(ledger.path)  # nor a second time in this one
    fill(ledger, 1)  # and the first goes on


def test_another_nodes_ledger_is_refused_and_left_alone(ledger):
    fill(ledger, 1)
    ledger.close()
    assert "found the ledger of 'n0' (format 1), expected 'n1' (format 1)" in opening(ledger.path, "n1")
    assert len(Ledger(ledger.path, "n0").spends()) == 1


@pytest.mark.parametrize(
    "content", [b"not a database at all, but long enough to hold a header" * 50, b"SQLite format 3\0" + bytes(200)]
)
def test_what_is_not_a_database_is_refused(tmp_path, content):
    (tmp_path / "n0.ledger").write_bytes(content)
    opening(tmp_path / "n0.ledger")
    assert (tmp_path / "n0.ledger").read_bytes() == content


def test_another_programs_database_is_refused_and_left_alone(tmp_path):
    with sqlite3.connect(tmp_path / "n0.ledger") as db:
        db.execute("CREATE TABLE holiday (day)")
    db.close()
    assert "no such table: meta" in opening(tmp_path / "n0.ledger")
    db = sqlite3.connect(tmp_path / "n0.ledger")
    assert db.execute("SELECT name FROM sqlite_master").fetchall() == [("holiday",)]
    db.close()


def test_a_directory_and_a_file_in_the_way_are_refused(tmp_path):
    opening(tmp_path)
    (tmp_path / "file").write_text("")
    opening(tmp_path / "file" / "n0.ledger")


def test_a_damaged_ledger_is_refused_or_found_out_and_never_a_crash(ledger, tmp_path):
    fill(ledger, 60)
    path = reopened(ledger).path  # everything is in the main file once the last connection closes
    chance, found = random.Random(4), 0
    whole = path.read_bytes()
    for k in range(40):
        damaged = tmp_path / f"d{k}" / "n0.ledger"
        damaged.parent.mkdir()
        blob = bytearray(whole)
        if k % 2:
            blob = blob[: chance.randrange(1, len(blob))]
        else:
            at = chance.randrange(0, len(blob) - 200)
            blob[at : at + 200] = chance.randbytes(200)
        damaged.write_bytes(blob)
        try:
            opened = Ledger(damaged, "n0")
        except InputError:
            found += 1
            continue
        found += bool(opened.verify())
        opened.close()
    assert found > 20  # the rest lies in free pages, or in a value no check can know


# --- the mark ---


def test_the_mark_file_follows_every_spend(ledger):
    fill(ledger, 2)
    assert msgspec.msgpack.decode(ledger.mark_path.read_bytes(), type=Mark) == ledger.mark
    assert ledger.mark == Mark(ledger.id, 2, epsilon=1.0)


def restored(ledger, spends_lost):
    """An older copy of the ledger in its place, its mark file being ahead."""
    fill(ledger, 2)
    ledger.close()
    old = ledger.path.with_name("old")
    shutil.copy(ledger.path, old)
    newer = Ledger(ledger.path, "n0", ledger.mark_path)
    fill(newer, spends_lost, b"later", epsilon=0.75)
    newer.close()
    for leftover in ledger.path.parent.glob("n0.ledger*"):
        leftover.unlink()
    shutil.copy(old, ledger.path)
    return Ledger(ledger.path, "n0", ledger.mark_path)


def test_a_restored_old_ledger_is_behind_its_mark_file(ledger):
    old = restored(ledger, 3)
    assert old.told() == Mark(old.id, 5, epsilon=1.0 + 3 * 0.75)
    assert old.verify() == ["behind its mark: spend 2, the mark says 5"]
    old.close()
    assert Ledger(ledger.path, "n0", ledger.mark_path).told() is not None  # opening it changes nothing


def test_accept_records_the_gap_at_the_marks_price(ledger):
    old = restored(ledger, 3)
    assert old.accept().no == 5
    assert old.totals(WORDS).epsilon == 1.0 + 3 * 0.75
    assert old.told() is None
    assert old.verify() == []
    assert old.accept() is None  # there is no gap any more
    fill(old, 1, b"next")
    assert [row[0] for row in old.spends()] == [1, 2, 5, 6]
    assert reopened(old).told() is None


def test_a_gap_of_gaussian_answers_is_priced_by_mu_squared_and_of_bare_ones_by_infinity(ledger):
    ledger.tell(Mark(ledger.id, 4, epsilon=0.0, mu2=0.25))
    ledger.accept()
    assert ledger.totals(WORDS).mu == 0.5
    assert not ledger.totals(WORDS).nonprivate
    ledger.tell(Mark(ledger.id, 5, epsilon=0.0, mu2=0.25, nonprivate=True))
    ledger.accept()
    assert ledger.totals(WORDS).nonprivate
    ledger.tell(Mark(ledger.id, 6, epsilon=inf, mu2=inf, nonprivate=True))
    ledger.accept()
    assert reopened(ledger).totals(WORDS).nonprivate


def test_told_by_a_peer_it_is_behind_until_its_owner_accepts(ledger):
    fill(ledger, 2)
    assert not ledger.tell(Mark(ledger.id, 2, epsilon=9.0))  # not ahead: nothing to tell
    assert ledger.tell(Mark(ledger.id, 7, epsilon=2.0))
    again = reopened(ledger)
    assert again.told().no == 7
    assert again.accept().no == 7
    assert (again.no, again.totals(WORDS).epsilon) == (7, 2.0)


def test_a_lower_mark_told_later_does_not_hide_a_higher_one(ledger):
    ledger.tell(Mark(ledger.id, 7, epsilon=2.0))
    assert ledger.tell(Mark(ledger.id, 3, epsilon=1.0))
    assert ledger.told().no == 7


def test_another_ledgers_mark_is_told_once_accepted_once(ledger):
    lost = Mark(b"another card id!", 9, epsilon=3.0)
    fill(ledger, 2)
    assert ledger.tell(lost)
    assert ledger.accept() == lost
    assert (ledger.no, ledger.totals(WORDS).epsilon) == (11, 1.0 + 3.0)
    assert not ledger.tell(lost)
    assert reopened(ledger).told() is None


def test_a_foreign_mark_file_is_noticed(ledger, tmp_path):
    ledger.mark_path.write_bytes(msgspec.msgpack.encode(Mark(b"foreign", 3, epsilon=1.0)))
    again = reopened(ledger)
    assert again.told().ledger == b"foreign"
    fill(again, 1)
    assert again.told().no == 3  # a ledger behind its mark does not overwrite it


@pytest.mark.parametrize("content", [b"", b"\xc1", b"\x93\x01", msgspec.msgpack.encode({"no": 3})])
def test_an_unreadable_mark_file_is_an_error(tmp_path, content):
    (tmp_path / "m").write_bytes(content)
    with pytest.raises(InputError, match=rf"m: found {len(content)} unreadable bytes, expected a mark of a ledger"):
        Ledger(tmp_path / "n0.ledger", "n0", tmp_path / "m")
    Ledger(tmp_path / "n0.ledger", "n0").close()  # and it holds no lock


def test_a_mark_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"expected a (readable|writable) mark"):
        Ledger(tmp_path / "n0.ledger", "n0", tmp_path / "file" / "m")


# --- verify and copies ---


def test_verify_finds_a_deleted_row(ledger):
    fill(ledger, 5)
    ledger.db.execute("DELETE FROM spend WHERE no IN (2, 3)")
    assert ledger.verify() == ["spends 2 to 3 are missing"]


def test_only_the_mark_finds_deleted_last_rows(ledger):
    fill(ledger, 5)
    ledger.db.execute("DELETE FROM spend WHERE no > 3")
    again = reopened(ledger)
    assert again.verify() == ["behind its mark: spend 3, the mark says 5"]
    assert Ledger(shutil.copy(again.path, again.path.with_name("c")), "n0").verify() == []


def test_a_copy_is_whole_and_leaves_the_ledger_as_it_was(ledger, tmp_path):
    fill(ledger, 3)
    ledger.copy_to(tmp_path / "copy.ledger")
    copied = Ledger(tmp_path / "copy.ledger", "n0")
    assert (copied.spends(), copied.id, copied.verify()) == (ledger.spends(), ledger.id, [])
    fill(ledger, 1, b"next")
    assert ledger.no == 4
