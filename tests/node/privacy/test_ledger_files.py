"""What is not a device's ledger: other databases, damaged files, copies without their log, older formats."""

import random
import shutil
import sqlite3
from contextlib import closing

import msgspec
import pytest

from hushgrid.kernels.errors import InputError
from hushgrid.node.privacy.ledger import TORN, Ledger
from hushgrid.node.privacy.ledger_rows import Spend, alone
from hushgrid.node.problems.plan import decode_plan, encode_plan
from hushgrid.node.wire import Mark
from tests.support import paths
from tests.support.devices.gated_device import WORDS
from tests.support.devices.ledgers import RUN, copied, fill, opening, reopened


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
    assert len(Ledger(shutil.copy(ledger.path, tmp_path / "copy.ledger"), "n0").spends()) == 3


# --- ledgers of the first format ---


FIRST = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE spend (no INTEGER PRIMARY KEY, run BLOB, answer INTEGER, kind TEXT NOT NULL, value REAL NOT NULL,
                    sensitivity REAL, scale REAL, grid REAL, adjacency TEXT NOT NULL, sampler TEXT NOT NULL,
                    mu2 REAL NOT NULL, at TEXT NOT NULL);
CREATE TABLE run (id BLOB PRIMARY KEY, plan BLOB NOT NULL, status TEXT NOT NULL, state BLOB, last BLOB,
                  started TEXT NOT NULL);
CREATE TABLE answer (key BLOB PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE history (run BLOB, round INTEGER, residual REAL, messages INTEGER, bytes INTEGER, PRIMARY KEY (run, round));
CREATE TABLE peer (node TEXT PRIMARY KEY, mark BLOB NOT NULL);
"""


def of_the_first_format(path, form=1):
    """As the program of format 1 left it: two answers by their clips, a new card's gap accepted, another one told."""
    own, lost = b"this ledger's id", b"the lost one's.."
    told = Mark(own, 9, epsilon=4.0)
    meta = {
        "format": form, "ledger": own, "node": "n0", "session": 3, "accepted": lost.hex() + " ",
        "told": msgspec.msgpack.encode(told),
    }  # fmt: skip
    spends = [
        (1, RUN, 1, "laplace", 0.5, 2.0, 4.0, 2.0**-20, "replace-one-record clip 1.0", "exact", 0.0, "2026-01-01T00:00:00Z"),
        (2, RUN, 2, "laplace", 0.25, 2.0, 4.0, 2.0**-20, "replace-one-record clip 1.001", "exact", 0.0, "2026-01-01T00:00:00Z"),
        (7, None, None, "gap", 1.5, None, None, None, "", "", 0.0, "2026-01-02T00:00:00Z"),
    ]  # fmt: skip
    with sqlite3.connect(path) as db:
        db.executescript("PRAGMA journal_mode = WAL;" + FIRST)
        db.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
        db.executemany("INSERT INTO spend VALUES (?,?,?,?,?,?,?,?,?,?,?,?)", spends)
        db.execute("INSERT INTO run VALUES (?, x'01', 'running', x'02', NULL, '2026-01-01T00:00:00Z')", (RUN,))
    db.close()
    return Mark(lost, 5, epsilon=1.5), told


def test_a_ledger_of_the_first_format_is_brought_up_to_date_and_has_spent_what_it_had(tmp_path):
    lost, told = of_the_first_format(tmp_path / "n0.ledger")
    for _ in range(2):
        ledger = Ledger(tmp_path / "n0.ledger", "n0")
        assert ledger.totals("replace-one-record").epsilon == 0.5 + 0.25 + 1.5
        assert ledger.mark == Mark(ledger.id, 7, epsilon=2.25)
        assert (ledger.session, ledger.data_version, ledger.open_run().id) == (3, 1, RUN)
        assert not ledger.behind(lost)  # it was accepted
        assert ledger.behind(msgspec.structs.replace(lost, epsilon=1.75))
        assert ledger.told() == told
        ledger.close()
    ledger = Ledger(tmp_path / "n0.ledger", "n0")
    ledger.accept()
    assert ledger.totals("replace-one-record").epsilon == 4.0
    assert ledger.runs("WHERE spends = 2")


def test_what_it_was_stays_beside_it_for_a_release_that_reads_no_newer_format(tmp_path):
    of_the_first_format(tmp_path / "n0.ledger")

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


def test_a_ledger_of_the_third_format_gets_a_place_for_the_key_of_a_run_and_its_sums_have_no_shares(ledger):
    fill(ledger, 2)
    before = (ledger.spends(), ledger.mark, ledger.run(RUN), ledger.session)
    ledger.close()
    with closing(sqlite3.connect(ledger.path)) as db:  # as the program of format 3 left it
        db.executescript(
            "DROP TABLE secret; ALTER TABLE run DROP COLUMN keyed; ALTER TABLE spend DROP COLUMN honest; "
            "UPDATE meta SET value = 3 WHERE key = 'format'"
        )
        for scope, sums in db.execute("SELECT scope, sums FROM total").fetchall():
            *old, shares = msgspec.msgpack.decode(sums)
            assert (len(old), shares) == (8, b"")
            db.execute("UPDATE total SET sums = ? WHERE scope = ?", (msgspec.msgpack.encode(old), scope))
        db.commit()
    for _ in range(2):
        again = Ledger(ledger.path, "n0")
        assert (again.spends(), again.mark, again.run(RUN), again.session) == before
        assert again.run_key(RUN, lambda: b"key") == b"key"
        assert again.verify() == []
        assert again.shares(WORDS) == (0, 0)
        again.close()
    again = Ledger(ledger.path, "n0")
    again.join(b"next" * 4, b"plan")
    share = Spend(1, "gaussian", 0.5, 1.0, 1.0, 0.1, WORDS, "exact", honest=2)
    again.commit(b"next" * 4, spends=[share, share])
    assert again.shares(WORDS) == (2 * alone(0.5, 2), 0)
    assert again.verify() == []
    again.close()


@pytest.mark.parametrize("form", [0, 5, "two", None])
def test_a_ledger_of_an_unknown_format_is_refused_and_left_alone(tmp_path, form):
    of_the_first_format(tmp_path / "n0.ledger", form)
    before = (tmp_path / "n0.ledger").read_bytes()
    assert f"found format {form}, expected 4 or older" in opening(tmp_path / "n0.ledger")
    assert (tmp_path / "n0.ledger").read_bytes() == before


# --- a main file without its log ---


def test_a_copy_without_its_log_lets_no_run_spend_until_its_owner_accepts(ledger, tmp_path):
    fill(ledger, 2)
    path = copied(ledger, tmp_path / "backup", log=False)
    for _ in range(2):  # a second start does not forget it
        copy = Ledger(path, "n0")
        assert len(copy.spends()) < 2
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
    assert (len(copy.spends()), copy.refusal) == (2, None)


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
    assert (len(again.spends()), again.refusal) == (2, None)


def test_where_the_disk_does_not_take_the_last_word_the_ledger_is_whole_all_the_same(ledger, tmp_path):
    """The word that it is closed cannot be written, but its log is moved into the main file and removed."""
    fill(ledger, 2)

    def full(sql, *values, execute=ledger.db.execute):
        if sql.startswith("DELETE"):
            raise sqlite3.OperationalError("database or disk is full")
        return execute(sql, *values)

    class Full:
        execute, executemany, close = staticmethod(full), ledger.db.executemany, ledger.db.close

    path, ledger.db = ledger.path, Full()
    ledger.close()
    again = Ledger(path, "n0")
    assert (len(again.spends()), again.refusal) == (2, None)


# --- a ledger that the program wrote before its algorithms declared themselves ---


def test_a_ledger_of_an_earlier_program_opens_as_it_was_with_its_spends_and_its_plan(tmp_path):
    shutil.copy(paths.VECTORS / "ledger-before-the-rooms.ledger", tmp_path / "n0.ledger")
    ledger = Ledger(tmp_path / "n0.ledger", "n0")
    run = ledger.last_run()
    plan = decode_plan(run.plan)
    assert (ledger.mark.no, len(ledger.spends()), run.status) == (5, 5, "done")
    assert ledger.totals("replace-one-record").epsilon == 4.999695121951319
    assert (plan.algorithm.name, plan.terms.epsilon, plan.nodes) == ("nids", 5.0, ["n0", "n1", "n2", "n3"])
    assert encode_plan(plan) == run.plan
    ledger.close()
