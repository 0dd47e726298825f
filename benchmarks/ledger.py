"""`hushgrid bench ledger`: a step's commit beside one bare write and sync, and the bytes that answers write to the disk."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from hushgrid.benchmarks.hop import file_system
from hushgrid.benchmarks.measure import Row, Table, against, row
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.ledger_log import BLOCK, BLOCKS
from hushgrid.node.privacy.ledger_rows import Spend

ANSWER_KB, RUN_KB = 5.0, 200.0  #: the most that may be written
ROUNDS = 20  #: of a run
SECTOR = 512
SIZE = 48 << 20  #: bytes of a disk of one's own
STATE = 1500  #: bytes of a machine's state: a zone of case14


def ledger(commits: int = 1500, runs: int = 15) -> Table:
    """What a commit costs with a mark, and what answers write, as the disk itself counts it: other programs' writes too."""
    with tempfile.TemporaryDirectory(prefix="hushgrid-bench-", dir=os.environ.get("HUSHGRID_BENCH_DIR")) as scratch:
        place = Path(scratch)
        bare = row("one bare pwrite and fdatasync in place", "ms", _bare(place, commits))
        rows: list[Row] = []
        with closing(Ledger(place / "n0.ledger", "n0", place / "n0.mark")) as one:
            one.join(b"r" * 16, b"plan")
            one.commit(b"r" * 16, spends=[_spend(0)])  # makes the log, once a start
            before = written(place)
            rows.append(row("a commit of spend, state and mark", "ms", _commits(one, b"r" * 16, commits), rival=bare))
            after = written(place)
            if before is not None and after is not None:
                rows.append(against(_figure("written an answer", (after - before) / commits, commits), ANSWER_KB))
                before = written(place)
                for k in range(runs):
                    _run(one, b"%16d" % k)
                after = written(place)
                assert after is not None
                assert before is not None
                rows.append(
                    against(_figure(f"written a run of {ROUNDS} rounds", (after - before) / runs, runs), RUN_KB)
                )
        about = f"states of {STATE} bytes, ledger and mark on {file_system(scratch)}"
    return Table(name="ledger", about=about, rows=[*rows, bare])


def _figure(what: str, size: float, samples: int) -> Row:
    return Row(what=what, unit="kB", value=size / 1e3, samples=samples)


def _spend(k: int) -> Spend:
    return Spend(k, "laplace", 0.25, 0.01, 0.04, 2.0**-20, "bounded-change 0.01", "exact")


def _commits(one: Ledger, run: bytes, commits: int) -> list[float]:
    """Milliseconds of each commit."""
    taken = []
    for k in range(commits):
        state = os.urandom(STATE)
        began = time.perf_counter()
        one.commit(run, spends=[_spend(k + 1)], state=state, status="running", history=(k, 0.5, 2 * k, 800 * k))
        taken.append(1e3 * (time.perf_counter() - began))
    return taken


def _run(one: Ledger, run: bytes) -> None:
    """A run from its plan to its end, an answer a round."""
    one.join(run, os.urandom(3000))
    _commits(one, run, ROUNDS)
    one.commit(run, status="owed", last=bytes(100))
    one.commit(run, status="done")


def _bare(place: Path, count: int) -> list[float]:
    """Milliseconds of a write of one block into a file of zeros, and its sync."""
    file = os.open(place / "bare", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.pwrite(file, bytes(BLOCKS * BLOCK), 0)
        os.fsync(file)
        taken = []
        for k in range(count):
            block = os.urandom(BLOCK)
            began = time.perf_counter()
            os.pwrite(file, block, k % BLOCKS * BLOCK)
            os.fdatasync(file)
            taken.append(1e3 * (time.perf_counter() - began))
    finally:
        os.close(file)
    return taken


# --- disks ---


def written(place: Path) -> int | None:
    """Bytes that the disk of a folder has written so far, all of them synced; None if it is no disk that says so."""
    os.sync()
    number = os.stat(place).st_dev
    try:
        stat = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/stat").read_text()
    except OSError:
        return None
    return int(stat.split()[6]) * SECTOR


@contextmanager
def disk_of_its_own(image: Path, place: Path) -> Iterator[bool]:
    """An ext4 in a file, mounted at `place` while it is entered. False, and a plain folder, where that is not allowed."""
    place.mkdir(parents=True, exist_ok=True)
    mounted = os.geteuid() == 0 and _mounted(image, place)
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", place], check=False, stderr=subprocess.DEVNULL)
        image.unlink(missing_ok=True)


def _mounted(image: Path, place: Path) -> bool:
    with image.open("wb") as file:
        file.truncate(SIZE)
    # Tables are written when it is made: else the system does so later, whenever it has time.
    lazy = "lazy_itable_init=0,lazy_journal_init=0"
    commands: list[list[str | Path]] = [
        ["mkfs.ext4", "-q", "-F", "-E", lazy, image],
        ["mount", "-o", "loop,noatime", image, place],
    ]
    try:
        return all(subprocess.run(c, check=False, capture_output=True).returncode == 0 for c in commands)
    except OSError:
        return False
