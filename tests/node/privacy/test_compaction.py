"""Years of runs: old ones are condensed to sums, and neither room, memory nor time grows with what was long ago."""

import sqlite3

import pytest

from hushgrid.kernels.errors import InputError
from hushgrid.lab.benchmarks.ledger import of_spends
from hushgrid.node.config.device import load_device
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.spend_table import HOUR_S
from hushgrid.node.wire import Mark
from tests.support.devices.gated_device import WORDS, spend
from tests.support.devices.windows import Clock

ROUNDS = 20
INTERVAL_S = 900.0
YEARS_RUNS = 5 * 365 * 96


def lived(path, clock, runs, keep=5, first=0, rounds=4):
    """A device of that many runs, one each interval, in one session; still open."""
    ledger = Ledger(path, "n0", durable=False, clock=clock, keep=keep)
    for k in range(first, first + runs):
        run = b"%16d" % k
        ledger.new_data()
        ledger.join(run, bytes(3000))
        for t in range(rounds):
            ledger.commit(run, spends=[spend(t + 1)], state=bytes(1500), history=(t, 0.5, t, t), status="running")
        ledger.commit(run, status="done", last=bytes(100))
        clock.pass_(INTERVAL_S)
    return ledger


def test_old_runs_are_counted_and_the_last_ones_kept_whole(tmp_path):
    ledger = lived(tmp_path / "n0.ledger", Clock(), 20)
    assert [run.id for run in ledger.runs()] == [b"%16d" % k for k in range(15, 20)]
    assert ledger.answers() == 80
    assert ledger.totals(WORDS).epsilon == 40.0
    assert [s.no for s in ledger.spends()] == list(range(61, 81))
    assert (ledger.history(b"%16d" % 3), len(ledger.history(b"%16d" % 17))) == ([], 4)
    assert ledger.verify() == []
    mark = ledger.mark
    ledger.close()
    again = Ledger(tmp_path / "n0.ledger", "n0", durable=False, keep=5)
    assert (again.mark, again.no, again.answered, again.totals(WORDS).epsilon) == (mark, 80, 80, 40.0)
    again.close()


def test_an_old_run_of_this_session_is_not_answered_afresh_and_one_of_an_earlier_session_is_forgotten(tmp_path):
    ledger = lived(tmp_path / "n0.ledger", Clock(), 20)
    old = ledger.run(b"%16d" % 3)
    assert (old.status, old.last, old.plan) == ("past", None, b"")
    assert not ledger.reopen(old.id)
    ledger.new_session()
    assert ledger.run(old.id) is None
    ledger.close()


def test_condensed_spends_are_as_late_as_the_last_of_their_hour_never_earlier(tmp_path):
    clock = Clock()
    ledger = lived(tmp_path / "n0.ledger", clock, 20)
    found = list(ledger.recent(0.0))
    assert sum(r.totals.laplace for r in found) == 80
    for since in (0.0, HOUR_S - 1, 2.5 * HOUR_S, 18 * INTERVAL_S):
        really = sum(4 for k in range(20) if k * INTERVAL_S >= since)
        seen = sum(r.totals.laplace for r in ledger.recent(since))
        assert really <= seen <= really + 12  # at most an hour too long
    ledger.close()


def test_a_gap_stays_a_row_until_runs_are_old(tmp_path):
    ledger = Ledger(tmp_path / "n0.ledger", "n0", durable=False)
    ledger.tell(Mark(ledger.id, 3, epsilon=1.0))
    ledger.accept()
    ledger.join(b"r" * 16, b"plan")
    ledger.commit(b"r" * 16, spends=[spend(1)])
    ledger.commit(b"r" * 16, status="done")
    assert [(s.no, s.kind) for s in ledger.spends()] == [(3, "gap"), (4, "laplace")]
    ledger.close()


def test_a_hole_in_what_is_condensed_is_found(tmp_path):
    ledger = lived(tmp_path / "n0.ledger", Clock(), 40)
    ledger.db.execute("DELETE FROM past WHERE no = (SELECT min(no) FROM past)")
    assert any("are missing" in line for line in ledger.verify())
    ledger.close()


def room(folder):
    return sum(p.stat().st_size for p in folder.iterdir())


@pytest.mark.runs
@pytest.mark.parametrize("runs", [300, pytest.param(4000, marks=pytest.mark.long)])
def test_five_years_of_runs_take_less_than_50_mb(tmp_path, runs):
    """What a device has grown by over its second half of runs, carried on for five years in one session."""
    clock = Clock()
    path = tmp_path / "n0.ledger"
    lived(path, clock, 200, keep=100, rounds=ROUNDS).close()
    before = room(tmp_path)
    lived(path, clock, runs, keep=100, first=200, rounds=ROUNDS).close()
    grown = room(tmp_path) - before
    assert before + grown / runs * YEARS_RUNS < 50e6


def steps(path, monkeypatch):
    """What SQLite has to do to open a ledger and to join a run, in hundreds of its instructions."""
    count = 0

    def one_more():
        nonlocal count
        count += 1

    def connected(*args, **options):
        db = real(*args, **options)
        db.set_progress_handler(one_more, 100)
        return db

    real = sqlite3.connect
    with monkeypatch.context() as patched:
        patched.setattr(sqlite3, "connect", connected)
        ledger = Ledger(path, "n0")
        ledger.join(b"next" * 4, b"plan")
    ledger.close()
    return count


@pytest.mark.runs
def test_a_ledger_of_many_spends_opens_and_joins_like_a_small_one(tmp_path, monkeypatch):
    found = {}
    for spends in (1_000, 100_000):
        of_spends(tmp_path / f"{spends}.ledger", spends)
        found[spends] = steps(tmp_path / f"{spends}.ledger", monkeypatch)
    assert found[100_000] <= found[1_000] + 5


DEVICE = (
    "node: n1\nfleet: f\nbroker: mqtt://localhost\nstate: .\ndata: {case: case14, zone: [1], loads: l.csv}\n"
    "budget: {epsilon: 9.0, adjacency: {bounded-change: 0.02}}\n"
)


def test_the_owner_says_how_many_runs_are_kept(tmp_path):
    (tmp_path / "n1.yaml").write_text(DEVICE)
    assert load_device(tmp_path / "n1.yaml").keep == 100
    (tmp_path / "n1.yaml").write_text(DEVICE + "keep: 7\n")
    assert load_device(tmp_path / "n1.yaml").keep == 7
    (tmp_path / "n1.yaml").write_text(DEVICE + "keep: 0\n")
    with pytest.raises(InputError, match=r"keep: found 0, expected"):
        load_device(tmp_path / "n1.yaml")
