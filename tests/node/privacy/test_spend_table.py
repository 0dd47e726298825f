"""What was spent, and when: running time that no clock's setting moves, and sums that stand for rows nobody reads."""

import sqlite3
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.kernels.privacy.accounting import Totals, grouped
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.ledger_rows import Counted, Spend, empty, events_of, steps
from hushgrid.node.wire import Mark
from tests.support import examples
from tests.support.devices.gated_device import WORDS, spend
from tests.support.devices.ledgers import RUN, fill, killed


class Watch:
    """A clock that a test sets."""

    def __init__(self):
        self.now = 1e6

    def __call__(self):
        return self.now


@pytest.fixture
def watch():
    return Watch()


@pytest.fixture
def opened(tmp_path, watch):
    """Opens the ledger of n0, as a new process does; the one that was open before ends in order."""
    ledgers = []

    def open_it(*, orderly=True, **options):
        if ledgers:
            before = ledgers.pop()
            before.close() if orderly else killed(before)
        ledgers.append(Ledger(tmp_path / "n0.ledger", "n0", durable=False, clock=watch, **options))
        return ledgers[-1]

    yield open_it
    ledgers.pop().close()


# --- running time ---


def test_running_time_is_summed_over_sessions_and_the_time_off_counts_nothing(opened, watch):
    ledger = opened()
    assert ledger.spends.running == 0.0
    watch.now += 10
    assert ledger.spends.running == 10.0
    opened()
    watch.now += 1e9  # off, or started again by a machine whose clock began anew
    again = opened()
    assert again.spends.running == pytest.approx(1e9 + 10)
    again.close()
    watch.now = 5.0
    again = opened()
    assert again.spends.running == pytest.approx(1e9 + 10)
    watch.now += 3
    assert again.spends.running == pytest.approx(1e9 + 13)


def test_after_a_crash_running_time_goes_on_from_the_last_spend(opened, watch):
    ledger = opened()
    watch.now += 60
    fill(ledger, 1)
    watch.now += 60
    again = opened(orderly=False)
    assert again.spends.running == 60.0
    assert [s.ran for s in again.spends.rows()] == [60.0]


def test_a_clock_that_goes_back_takes_nothing_off(opened, watch):
    ledger = opened()
    watch.now += 60
    assert ledger.spends.running == 60.0
    watch.now -= 1000
    assert ledger.spends.running == 60.0
    watch.now += 1
    assert ledger.spends.running == 61.0


def test_a_spend_has_the_running_time_and_the_data_version_at_which_it_was_committed(opened, watch):
    ledger = opened()
    fill(ledger, 1)
    watch.now += 7
    ledger.new_data()
    fill(ledger, 2, b"next")
    assert [(s.ran, s.version) for s in ledger.spends.rows()] == [(0.0, 1), (7.0, 2), (7.0, 2)]
    assert ledger.spends.version_totals(WORDS).epsilon == 2 * 0.5
    assert opened().spends.version_totals(WORDS).epsilon == 2 * 0.5
    opened().new_data()
    assert empty(opened().spends.version_totals(WORDS))


def test_the_clock_of_a_device_counts_the_time_in_which_it_sleeps(tmp_path):
    import time

    ledger = Ledger(tmp_path / "n0.ledger", "n0", durable=False)
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    ran = ledger.spends.running
    time.sleep(0.02)
    assert 0.02 <= ledger.spends.running - ran <= time.clock_gettime(time.CLOCK_BOOTTIME) - before
    ledger.close()


def test_recent_spends_are_those_of_a_running_time_or_later_the_last_first(opened, watch):
    ledger = opened()
    for k in range(5):
        fill(ledger, 1, b"run %d" % k, epsilon=0.5 + k)
        watch.now += 10
    found = list(ledger.spends.recent(20.0))
    assert [(r.ran, r.adjacency, r.totals.epsilon) for r in found] == [
        (40.0, WORDS, 4.5), (30.0, WORDS, 3.5), (20.0, WORDS, 2.5)
    ]  # fmt: skip
    assert len(list(ledger.spends.recent(0.0))) == 5


# --- sums stand for rows ---


UNITS = ["bounded-change 0.01", "bounded-change 0.002", "replace-one-record"]
rows = st.lists(
    st.tuples(st.sampled_from(["laplace", "gaussian", "nonprivate"]), st.floats(1e-9, 10.0), st.sampled_from(UNITS)),
    max_size=12,
)


def of_rows(spends, adjacency, but=None):
    """The totals as every row gives them."""
    totals = Totals()
    for s in spends:
        if s.run != but and (s.adjacency == "" or s.adjacency.split()[0] == adjacency.split()[0]):
            for event in events_of(s.kind, s.value, s.value * s.value if s.kind == "gaussian" else 0.0):
                totals.add(grouped(event, steps(s.adjacency, adjacency) if s.adjacency else 1))
    return totals


@pytest.mark.runs
@examples.of(60)
@given(runs=st.lists(rows, min_size=1, max_size=4), unit=st.sampled_from([None, "bounded-change 0.05"]))
def test_sums_are_those_of_the_rows_whatever_was_spent_by_whom(tmp_path_factory, runs, unit):
    path = tmp_path_factory.mktemp("ledger") / "n0.ledger"
    ledger = Ledger(path, "n0", durable=False)
    for k, spends in enumerate(runs):
        run = b"run %d" % k
        ledger.join(run, b"plan")
        for a, (kind, value, adjacency) in enumerate(spends):
            value = inf if kind == "nonprivate" else value
            ledger.commit(run, spends=[Spend(a + 1, kind, value, 0.01, 0.02, 0.1, adjacency, "x")])
        if unit:
            ledger.spends.count_at(unit)
    for _ in range(2):  # in memory, and as a new process reads them
        found = ledger.spends.rows()
        for adjacency in UNITS:
            sums, rows = ledger.spends.totals(adjacency), of_rows(found, adjacency)
            assert (sums.laplace, sums.gaussian, sums.nonprivate) == (rows.laplace, rows.gaussian, rows.nonprivate)
            assert sums.epsilon == pytest.approx(rows.epsilon, rel=1e-12)
            assert sums.rho == pytest.approx(rows.rho, rel=1e-12)
            last = b"run %d" % (len(runs) - 1)
            others, rows = ledger.spends.totals(adjacency, but=last), of_rows(found, adjacency, but=last)
            assert (others.laplace, others.gaussian) == (rows.laplace, rows.gaussian)
            assert others.epsilon == pytest.approx(rows.epsilon, rel=1e-12)
            assert others.nonprivate >= rows.nonprivate
            assert empty(others) <= (rows.laplace + rows.gaussian == 0)
        assert ledger.verify() == []
        mark = ledger.mark
        ledger.close()
        ledger = Ledger(path, "n0", durable=False)
        assert ledger.mark == mark
    ledger.close()


def test_sums_of_any_size_are_stored_to_the_last_unit():
    counted = Counted()
    for kind, value in (("laplace", 2.0**63), ("gaussian", 1e-30), ("laplace", 0.1), ("gap", 2.0)):
        counted = counted.plus(kind, value, 0.5 if kind == "gap" else value * value, 3)
    assert Counted.unpacked(counted.packed()) == counted
    assert counted.rows == 12


def test_a_larger_unit_never_lowers_the_price_that_others_remember(opened):
    """Sums that run in another order may be a rounding apart."""
    ledger = opened()
    ledger.join(RUN, b"plan")
    for k in range(200):
        ledger.commit(RUN, spends=[spend(k + 1, epsilon=0.1, adjacency="replace-one-record")])
    told = ledger.mark
    ledger.spends.count_at("bounded-change 0.02")
    assert not ledger.marks.tell(told)
    assert ledger.mark.epsilon >= told.epsilon


def test_neither_opening_nor_joining_reads_the_rows(opened):
    ledger = opened()
    fill(ledger, 20)
    asked = []
    again = opened()
    again.tables.db.set_trace_callback(asked.append)
    again.join(b"next", b"plan")
    assert again.spends.totals(WORDS, but=b"next").epsilon == 10.0
    assert again.spends.answers(b"next") == 0
    plans = [again.tables.db.execute(f"EXPLAIN QUERY PLAN {sql}").fetchall() for sql in asked if "spend" in sql.lower()]
    assert [row for plan in plans for row in plan if row[-1] == "SCAN spend"] == []


# --- earlier formats ---


def test_a_ledger_of_the_second_format_counts_its_spends_as_made_now_in_the_version_of_now(tmp_path, watch):
    """Its tables, as the program of format 2 made them."""
    second = """
    CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
    CREATE TABLE spend (no INTEGER PRIMARY KEY, run BLOB, answer INTEGER, kind TEXT NOT NULL, value REAL NOT NULL,
                        sensitivity REAL, scale REAL, grid REAL, adjacency TEXT NOT NULL, sampler TEXT NOT NULL,
                        mu2 REAL NOT NULL, at TEXT NOT NULL);
    CREATE TABLE run (id BLOB PRIMARY KEY, plan BLOB NOT NULL, status TEXT NOT NULL, state BLOB, last BLOB,
                      started TEXT NOT NULL, spends INTEGER NOT NULL DEFAULT 0);
    CREATE TABLE answer (key BLOB PRIMARY KEY, value BLOB NOT NULL);
    CREATE TABLE history (run BLOB, round INTEGER, residual REAL, messages INTEGER, bytes INTEGER,
                          PRIMARY KEY (run, round));
    CREATE TABLE peer (node TEXT PRIMARY KEY, mark BLOB NOT NULL);
    """
    own = b"this ledger's id"
    values = [0.1] * 10  # their sum in the order of the spends is not the rounded sum
    with sqlite3.connect(tmp_path / "n0.ledger") as db:
        db.executescript("PRAGMA journal_mode = WAL;" + second)
        meta = {"format": 2, "ledger": own, "node": "n0", "session": 4, "data_version": 3, "unit": 0.02}
        db.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
        for k, value in enumerate(values, 1):
            db.execute(
                "INSERT INTO spend VALUES (?, ?, ?, 'laplace', ?, 1.0, 1.0, 1.0, ?, 'exact', 0.0, "
                "'2026-01-01T00:00:00Z')",
                (k, RUN, k, value, "bounded-change 0.01"),
            )
        db.execute("INSERT INTO run VALUES (?, x'01', 'running', x'02', NULL, '2026-01-01T00:00:00Z', 10)", (RUN,))
    db.close()
    price = 0.0
    for value in values:
        price += 2 * value
    for _ in range(2):
        ledger = Ledger(tmp_path / "n0.ledger", "n0", clock=watch)
        assert [(s.ran, s.version) for s in ledger.spends.rows()] == [(0.0, 3)] * 10
        assert ledger.mark == Mark(own, 10, epsilon=price)
        assert (
            ledger.spends.answers(RUN),
            empty(ledger.spends.totals(WORDS, but=RUN)),
            ledger.runs.under_way().spends,
        ) == (10, True, 10)
        assert ledger.spends.version_totals(WORDS).epsilon == ledger.spends.totals(WORDS).epsilon
        assert (ledger.spends.running, ledger.runs.session, ledger.data_version, ledger.verify()) == (0.0, 4, 3, [])
        assert next(ledger.spends.recent(0.0)).version == 3
        ledger.close()
