"""`hushgrid bench ledger`: a step's commit beside one bare write and sync, the bytes that answers write to the disk,
and a ledger with a long past.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from hushgrid.lab.benchmarks.common.measure import Row, Table, against, row
from hushgrid.lab.benchmarks.hop import file_system
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.ledger_log import BLOCK, BLOCKS
from hushgrid.node.privacy.ledger_rows import Spend

ANSWER_KB, RUN_KB = 5.0, 200.0  #: the most that may be written
OPEN_S, JOIN_MS, MEMORY_MB = 1.0, 50.0, 50.0  #: at most, with SPENDS in it
ROUNDS = 20  #: of a run
SPENDS = 5_000_000
SECTOR = 512
SIZE = 48 << 20  #: bytes of a disk of one's own
STATE = 1500  #: bytes of a machine's state: a zone of case14


def ledger(commits: int = 1500, runs: int = 15, spends: int = SPENDS) -> Table:
    """What a commit costs with a mark, what answers write, as a disk counts it, and what a long past costs."""
    with tempfile.TemporaryDirectory(prefix="hushgrid-bench-", dir=os.environ.get("HUSHGRID_BENCH_DIR")) as scratch:
        place = Path(scratch)
        bare = row("one bare pwrite and fdatasync in place", "ms", _bare(place, commits))
        with _running(place) as one:
            rows = [row("a commit of spend, state and mark", "ms", _commits(one, b"r" * 16, commits), rival=bare)]
        with disk_of_its_own(place / "disk.img", place / "disk") as alone:
            rows += _bytes(place / "disk", commits, runs)
        of_spends(place / "past.ledger", spends)
        rows += _past(place / "past.ledger", spends)
        summary = f"states of {STATE} bytes, ledger and mark on {file_system(scratch)}, bytes on " + (
            "a disk of its own" if alone else "it, other programs' too"
        )
    return Table(name="ledger", summary=summary, rows=[*rows, bare])


@contextmanager
def _running(place: Path) -> Iterator[Ledger]:
    """A ledger of a run under way."""
    with closing(Ledger(place / "n0.ledger", "n0", place / "n0.mark")) as one:
        one.join(b"r" * 16, b"plan")
        one.commit(b"r" * 16, spends=[_spend(0)])  # makes the log, once a start
        yield one


def _bytes(place: Path, commits: int, runs: int) -> list[Row]:
    """What answers and runs write; nothing if the disk does not say."""
    with _running(place) as one:
        counts = [written(place)]
        _commits(one, b"r" * 16, commits)
        counts.append(written(place))
        for k in range(runs):
            _run(one, b"%16d" % k)
        counts.append(written(place))
    before, after, end = (count or 0 for count in counts)
    return [] if None in counts else [
        against(_figure("written an answer", (after - before) / commits, commits), ANSWER_KB),
        against(_figure(f"written a run of {ROUNDS} rounds", (end - after) / runs, runs), RUN_KB),
    ]  # fmt: skip


def _figure(what: str, size: float, samples: int) -> Row:
    return Row(what=what, unit="kB", value=size / 1e3, samples=samples)


def _spend(k: int) -> Spend:
    return Spend(k, "laplace", 0.25, 0.01, 0.04, 2.0**-20, "bounded-change 0.01", "exact")


def _past(path: Path, spends: int) -> list[Row]:
    """A ledger with so many spends, opened by a process that has just started, its file not in the system's cache."""
    rows, what = [], f"a ledger of {spends:,} spends"
    for _ in range(5):
        file = os.open(path, os.O_RDONLY)
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)
        rows.append(opened(path))
    return [
        against(row(f"{what}: opens", "s", [one.opens for one in rows]), OPEN_S),
        against(row(f"{what}: joins a run", "ms", [1e3 * one.joins for one in rows]), JOIN_MS),
        against(row(f"{what}: memory", "MB", [one.memory / 1e6 for one in rows]), MEMORY_MB),
    ]


class Opened(NamedTuple):
    """What a process needs for a ledger: seconds to open it, to join a run, and bytes that it has grown by."""

    opens: float
    joins: float
    memory: float


OPENS = """
import re, sys, time
from pathlib import Path
from hushgrid.node.privacy.ledger import Ledger
def most():
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
before = most()
began = time.perf_counter()
ledger = Ledger(Path(sys.argv[1]), "n0")
opened = time.perf_counter()
ledger.join(time.perf_counter_ns().to_bytes(16), b"plan")
joined = time.perf_counter()
print(opened - began, joined - opened, most() - before)
ledger.close()
"""


def opened(path: Path) -> Opened:
    """A ledger of n0, opened and joined by a process of its own."""
    done = subprocess.run([sys.executable, "-c", OPENS, str(path)], capture_output=True, check=True)
    return Opened(*map(float, done.stdout.split()))


def of_spends(path: Path, spends: int) -> None:
    """A ledger of n0 with so many spends in rows, as a program that condenses none would have left it."""
    run = b"r" * 16
    with closing(Ledger(path, "n0", durable=False)) as one:
        one.join(run, b"plan")
        one.commit(run, spends=[_spend(1)])
        one.tables.db.execute(
            "WITH RECURSIVE n(k) AS (SELECT 2 UNION ALL SELECT k + 1 FROM n WHERE k < ?) INSERT INTO spend SELECT "
            "k, spend.run, k, kind, value, sensitivity, scale, grid, adjacency, sampler, mu2, at, k * 1.0, version, "
            "honest FROM n, spend WHERE spend.no = 1",
            (spends,),
        )
        one.tables.db.execute("UPDATE run SET spends = ?, status = 'done'", (spends,))


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
    """An ext4 in a file, mounted at `place` while it is entered. False, and a plain folder, where that is not
    allowed.
    """
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
