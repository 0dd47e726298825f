"""What is not a device's ledger: other databases, damaged files, copies without their log, older formats."""

import random
import shutil
import sqlite3
from contextlib import closing

import pytest

from hushgrid.kernels.errors import InputError
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.ledger_marks import TORN
from hushgrid.node.privacy.ledger_rows import Spend, alone
from hushgrid.node.privacy.ledger_schema import FORMAT, FORMATS, MODELS
from hushgrid.node.problems.plan import decode_plan, encode_plan
from hushgrid.node.wire import Mark
from tests.support import paths
from tests.support.devices.ledgers import copied, fill, opening, reopened


@pytest.fixture
def ledger(tmp_path):
    opened = Ledger(tmp_path / "n0.ledger", "n0")
    yield opened
    opened.close()


# --- what is not this node's ledger ---


def test_another_nodes_ledger_is_refused_and_left_alone(ledger):
    fill(ledger, 1)
    ledger.close()
    assert "found the ledger of 'n0', expected 'n1'" in opening(ledger.path, "n1")
    assert len(Ledger(ledger.path, "n0").spends.rows()) == 1


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
    assert "found no ledger's tables" in opening(tmp_path / "n0.ledger")
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


@pytest.mark.parametrize("content", ["empty", "no log"])
def test_a_file_without_its_tables_is_never_taken_for_a_new_ledger(tmp_path, content):
    """What is left of a ledger cut short by a full disk, or copied without the log that held its tables."""
    path = tmp_path / "n0.ledger"
    if content == "empty":
        path.touch()
    else:
        with sqlite3.connect(tmp_path / "old") as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value)")
            shutil.copy(tmp_path / "old", path)
        db.close()
    before = path.read_bytes()
    assert "found no ledger's tables" in opening(path)
    assert path.read_bytes() == before


def test_a_log_without_its_ledger_is_refused(tmp_path):
    (tmp_path / "n0.ledger-wal").write_bytes(b"what was spent")
    assert "found its log n0.ledger-wal without it" in opening(tmp_path / "n0.ledger")


def test_whatever_is_copied_of_a_new_ledger_has_its_identity(ledger, tmp_path):
    fill(ledger, 2)
    copy = Ledger(
        shutil.copy(ledger.path, tmp_path / "copy.ledger"), "n0"
    )  # without its log: as old as its last checkpoint
    assert copy.id == ledger.id
    copy.close()


def test_an_orderly_end_leaves_the_main_file_whole(ledger, tmp_path):
    fill(ledger, 3)
    ledger.close()
    assert [p.name for p in tmp_path.iterdir()] == ["n0.ledger"]
    assert len(Ledger(shutil.copy(ledger.path, tmp_path / "copy.ledger"), "n0").spends.rows()) == 3


# --- ledgers of release 0.1.0 (format 2) ---


def of_release_0_1_0(path, form=2):
    """As release 0.1.0 wrote it (tests/vectors/README.md): two runs, one of them under way, a gap, a mark ahead."""
    shutil.copy(paths.VECTORS / "ledger-0.1.0.ledger", path)
    if form != 2:
        with closing(sqlite3.connect(path)) as db:
            db.execute("UPDATE meta SET value = ? WHERE key = 'format'", (form,))
            db.commit()
    return Mark(bytes(range(16)), 9, epsilon=3.5, mu2=0.5)


def test_a_ledger_of_release_0_1_0_is_brought_up_to_date_with_no_spend_lost(tmp_path):
    ahead = of_release_0_1_0(tmp_path / "n0.ledger")
    one, two = b"1" * 16, b"2" * 16
    for _ in range(2):
        ledger = Ledger(tmp_path / "n0.ledger", "n0")
        spends, runs = ledger.spends, ledger.runs
        assert ledger.mark == Mark(ahead.ledger, 5, epsilon=3.0, mu2=0.8125)
        rows = [("laplace", 0.5), ("laplace", 0.5), ("gap", 1.5), ("gaussian", 0.75), ("laplace", 0.25)]
        assert [(row.kind, row.value) for row in spends.rows()] == rows
        assert {(row.ran, row.version, row.honest) for row in spends.rows()} == {(0.0, 2, 0)}
        assert spends.totals("replace-one-record").epsilon == 2.5
        assert spends.totals("bounded-change 0.2").epsilon == 2.0  # the gap, and twice 0.25 by group privacy
        assert (spends.answers(one), spends.answers(two), spends.unit) == (2, 2, 0.2)
        assert (runs.session, ledger.data_version, runs.under_way().id, runs.find(one).last) == (3, 2, two, b"farewell")
        assert runs.history(two) == [(1, 0.5, 2, 200)]
        assert ledger.marks.peers.marks("z1") == (Mark(b"z" * 16, 3, 1.25),)
        assert not ledger.marks.behind(Mark(b"L" * 16, 5, 1.5, 0.25))  # it was accepted
        assert ledger.marks.behind(Mark(b"L" * 16, 5, 1.75, 0.25))
        assert ledger.marks.ahead() == ahead
        assert ledger.kinds_at_birth == MODELS
        ledger.close()
    ledger = Ledger(tmp_path / "n0.ledger", "n0")
    ledger.accept()
    assert ledger.mark == Mark(ahead.ledger, 9, epsilon=3.5, mu2=0.8125)
    assert ledger.runs.key(two, lambda: b"key") == b"key"
    share = Spend(3, "gaussian", 0.5, 1.0, 1.0, 0.1, "replace-one-record", "exact", honest=2)
    lost = ledger.spends.shares("replace-one-record")[1]
    ledger.commit(two, spends=[share, share])
    assert ledger.spends.shares("replace-one-record") == (2 * alone(0.5, 2), lost)
    assert ledger.verify() == []
    ledger.close()


def columns(path):
    with closing(sqlite3.connect(path)) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        return {table: db.execute(f"PRAGMA table_info({table})").fetchall() for table in tables}


def test_from_release_0_2_0_on_the_format_is_frozen(ledger, tmp_path):
    """If this fails: a new format needs a number, a migration, and a recorded ledger of format 4 in tests/vectors."""
    of_release_0_1_0(tmp_path / "old.ledger")
    Ledger(tmp_path / "old.ledger", "n0").close()
    assert columns(tmp_path / "old.ledger") == columns(ledger.path)
    names = {table: " ".join(row[1] for row in rows) for table, rows in columns(ledger.path).items()}
    assert (FORMAT, FORMATS, names) == (4, (2, 4), FROZEN)


FROZEN = {
    "answer": "key value",
    "history": "run round residual messages bytes",
    "known": "run session",
    "meta": "key value",
    "past": "no first ran version sums",
    "peer": "node mark",
    "run": "id plan status state last started spends session first keyed",
    "secret": "run key",
    "spend": "no run answer kind value sensitivity scale grid adjacency sampler mu2 at ran version honest",
    "total": "scope adjacency sums",
}


def test_what_it_was_stays_beside_it_for_a_release_that_reads_no_newer_format(tmp_path):
    of_release_0_1_0(tmp_path / "n0.ledger")

    def rows(path):
        with closing(sqlite3.connect(path)) as db:
            return [db.execute(f"SELECT * FROM {table}").fetchall() for table in ("meta", "spend", "run", "peer")]

    before = rows(tmp_path / "n0.ledger")
    Ledger(tmp_path / "n0.ledger", "n0").close()
    copy = tmp_path / "n0.ledger-before"
    assert rows(copy) == before != rows(tmp_path / "n0.ledger")
    assert copy.stat().st_mode & 0o777 == 0o600
    kept = copy.stat().st_mtime_ns
    Ledger(tmp_path / "n0.ledger", "n0").close()
    assert copy.stat().st_mtime_ns == kept
    assert sorted(p.name for p in tmp_path.iterdir()) == ["n0.ledger", "n0.ledger-before"]


@pytest.mark.parametrize("form", [0, 1, 3, 5, "two", None])
def test_a_ledger_of_an_unknown_format_is_refused_and_left_alone(tmp_path, form):
    of_release_0_1_0(tmp_path / "n0.ledger", form)
    before = (tmp_path / "n0.ledger").read_bytes()
    assert f"found format {form}, expected 2 or 4" in opening(tmp_path / "n0.ledger")
    assert (tmp_path / "n0.ledger").read_bytes() == before


# --- a main file without its log ---


def test_a_copy_without_its_log_lets_no_run_spend_until_its_owner_accepts(ledger, tmp_path):
    fill(ledger, 2)
    path = copied(ledger, tmp_path / "backup", log=False)
    for _ in range(2):  # a second start does not forget it
        copy = Ledger(path, "n0")
        assert len(copy.spends.rows()) < 2
        assert copy.refusal == (f"its ledger is {TORN}; its owner runs 'hushgrid ledger accept {path}'")
        assert copy.verify() == [TORN]
        copy.close()
    copy = Ledger(path, "n0")
    copy.accept()
    assert (copy.refusal, copy.verify()) == (None, [])
    copy.close()
    assert Ledger(path, "n0").refusal is None


def test_a_copy_with_its_log_is_whole(ledger, tmp_path):
    """As a killed process leaves its files, too."""
    fill(ledger, 2)
    copy = Ledger(copied(ledger, tmp_path / "backup", log=True), "n0")
    assert (len(copy.spends.rows()), copy.refusal) == (2, None)


@pytest.mark.parametrize("end", ["closed", "let go", "let go by another node's start"])
def test_an_end_that_moves_the_log_into_the_main_file_leaves_it_whole(ledger, tmp_path, end):
    """SQLite removes the log at any close in a living process, also that of a ledger nobody has closed."""
    fill(ledger, 2)
    path = copied(ledger, tmp_path / "state", log=True)
    if end == "let go by another node's start":
        with pytest.raises(InputError, match="expected 'n1'"):
            Ledger(path, "n1")
    else:
        held = Ledger(path, "n0")
        if end == "closed":
            held.close()
        del held
    again = Ledger(path, "n0")
    assert (len(again.spends.rows()), again.refusal) == (2, None)


def test_where_the_disk_does_not_take_the_last_word_the_ledger_is_whole_all_the_same(ledger, tmp_path):
    """The word that it is closed cannot be written, but its log is moved into the main file and removed."""
    fill(ledger, 2)

    def full(sql, *values, execute=ledger.tables.db.execute):
        if sql.startswith("DELETE"):
            raise sqlite3.OperationalError("database or disk is full")
        return execute(sql, *values)

    class Full:
        execute, executemany, close = staticmethod(full), ledger.tables.db.executemany, ledger.tables.db.close

    path, ledger.tables.file.db = ledger.path, Full()
    ledger.close()
    again = Ledger(path, "n0")
    assert (len(again.spends.rows()), again.refusal) == (2, None)


# --- a ledger that the program wrote before its algorithms declared themselves ---


def test_a_ledger_of_an_earlier_program_opens_as_it_was_with_its_spends_and_its_plan(tmp_path):
    shutil.copy(paths.VECTORS / "ledger-before-the-rooms.ledger", tmp_path / "n0.ledger")
    ledger = Ledger(tmp_path / "n0.ledger", "n0")
    run = ledger.runs.last()
    plan = decode_plan(run.plan)
    assert (ledger.mark.no, len(ledger.spends.rows()), run.status) == (5, 5, "done")
    assert ledger.spends.totals("replace-one-record").epsilon == 4.999695121951319
    assert (plan.algorithm.name, plan.terms.epsilon, plan.nodes) == ("nids", 5.0, ["n0", "n1", "n2", "n3"])
    assert encode_plan(plan) == run.plan
    ledger.close()
