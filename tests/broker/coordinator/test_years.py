"""Five years of 96 runs a day: what a coordinator keeps of them has an end."""

import os

import pytest

from hushgrid.lab.benchmarks.continuous import Fleet, scenario
from hushgrid.node.config.coordinator import KEPT as RECORDS
from hushgrid.node.config.coordinator import Continuous
from hushgrid.node.privacy.ledger_log import BLOCK, BLOCKS
from hushgrid.node.privacy.run_table import KEPT as RUNS
from hushgrid.node.wire import COORDINATOR

pytestmark = pytest.mark.runs


ROOM = 50e6  # bytes
WAL = 1000 * 4096  # of SQLite, after which its pages move to the file
CLUSTER = 4096  # what a file takes at least


def size(ledger):
    """Of its file, with all that has been committed."""
    ledger.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return ledger.path.stat().st_size


def lives(ledger, count, first, rounds):
    """So many runs of so many rounds, else as the last one was, each of a start of its own."""
    last = ledger.last_run()
    *_, row = ledger.history(last.id)
    history = [(t, *row[1:]) for t in range(1, rounds + 1)]
    for k in range(first, first + count):
        run = b"%16d" % k
        ledger.new_session()
        ledger.join(run, last.plan)
        for row in history:
            ledger.commit(run, state=last.state, history=row, status="running")
        ledger.commit(run, last=last.last)
        ledger.commit(run, status="done")


def longest_of(path, rounds):
    """The size of a file if the run that it is about had had all its rounds."""
    rows = [line for line in path.read_text().splitlines() if '{"round"' in line]
    return path.stat().st_size + sum((rounds - len(rows)) * (len(row) + 8) for row in rows[-1:])


@pytest.mark.parametrize(("name", "rounds"), [("ladmm", 20), ("consensus-admm", 200)])
def test_a_coordinator_takes_less_than_50_mb_after_five_years(tmp_path, name, rounds):
    fleet = Fleet(tmp_path, scenario(name, rounds, 5.0), run=Continuous(every="15min", keep=4))
    for _ in range(10):
        assert fleet.interval()["outcome"] == "answer"
    ledger = fleet.ledgers[COORDINATOR]
    lives(ledger, RUNS + 10, 0, rounds)
    full = size(ledger)
    lives(ledger, RUNS, RUNS + 10, rounds)
    assert size(ledger) <= 1.02 * full  # it grows no more
    assert len(ledger.runs()) <= RUNS + 2

    files = list((tmp_path / "runs").iterdir())
    records = [path for path in files if path.suffix == ".json"]
    assert len(records) == 4
    clusters = sum(-(-longest_of(path, rounds) // CLUSTER) for path in files)
    longest = max(map(len, (tmp_path / "intervals.csv").read_bytes().splitlines()))
    kept = RECORDS * clusters * CLUSTER / len(records) + 2 * RECORDS * (longest + len(os.linesep))
    assert full + BLOCKS * BLOCK + WAL + kept < ROOM
    print(
        f"{name}: ledger {full / 1e6:.2f} MB, log and WAL {(BLOCKS * BLOCK + WAL) / 1e6:.1f}, records {kept / 1e6:.1f}"
    )
    fleet.close()
