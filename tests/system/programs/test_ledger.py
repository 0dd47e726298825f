"""A ledger between processes: killed at any instant, held by another, begun by two at once."""

import os
import subprocess
import sys

import pytest

from hushgrid.lab.benchmarks.ledger import of_spends
from hushgrid.node.privacy.ledger import Ledger
from tests.support.devices.ledgers import fill, opening
from tests.support.paths import ROOT


@pytest.fixture
def ledger(tmp_path):
    opened = Ledger(tmp_path / "n0.ledger", "n0")
    yield opened
    opened.close()


# --- one durable transaction ---


WRITER = """
import os, random, signal, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.support.devices.gated_device import spend
from hushgrid.node.privacy.ledger import Ledger

path, chance = Path(sys.argv[1]), random.Random(int(sys.argv[3]))
for attempt in range(int(sys.argv[4])):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        ledger = Ledger(path, "n0", path.with_suffix(".mark"))
        ledger.join(b"r" * 16, b"plan")
        os.write(write, b"o")
        while True:
            ledger.commit(b"r" * 16, spends=[spend(ledger.spends.no + 1)], state=b"%d" % (ledger.spends.no + 1))
            os.write(write, b".")  # released
    os.close(write)
    seen = os.read(read, 1)
    for _ in range(chance.choice((0, 1, 2, 5, 70))):  # let it release some, then end it at any instant of the next
        seen += os.read(read, 1)
    time.sleep(chance.random() * 0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    released = len(seen) - 1
    while part := os.read(read, 65536):
        released += len(part)
    os.close(read)
    ledger = Ledger(path, "n0", path.with_suffix(".mark"))
    state = int(ledger.runs.find(b"r" * 16).state or 0)
    print(released, ledger.spends.no, len(ledger.spends.rows()), state, len(ledger.verify()), flush=True)
    ledger.close()
"""


@pytest.mark.parametrize("attempts", [40, pytest.param(1000, marks=pytest.mark.long)])
def test_a_ledger_killed_at_any_instant_never_shows_less_than_it_released(tmp_path, attempts):
    done = subprocess.run(
        [sys.executable, "-c", WRITER, tmp_path / "n0.ledger", ROOT, "11", str(attempts)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
    )
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


# --- what is not this node's ledger ---


def test_a_second_process_is_refused(ledger):
    code = (
        "import sys; from pathlib import Path; from hushgrid.node.privacy.ledger import Ledger; "
        "Ledger(Path(sys.argv[1]), 'n0')"
    )
    second = subprocess.run([sys.executable, "-c", code, ledger.path], capture_output=True, text=True)
    assert f"InputError: {ledger.path}: held by another process, expected one process per ledger" in second.stderr
    assert "held by another process" in opening(ledger.path)  # nor a second time in this one
    fill(ledger, 1)  # and the first goes on


BEGINNER = """
import os, sys, time
from pathlib import Path
from hushgrid.kernels.errors import InputError
from hushgrid.node.privacy.ledger import Ledger
os.read(0, 1)
try:
    print(Ledger(Path(sys.argv[1]), "n0").id.hex(), flush=True)
    os.read(0, 1)
except InputError as error:
    print("held" if "held by another process" in str(error) else error)
"""


def test_two_first_starts_at_once_make_one_ledger(tmp_path):
    command = [sys.executable, "-c", BEGINNER, tmp_path / "n0.ledger"]
    both = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)]
    for one in both:
        one.stdin.write(b"g")
        one.stdin.flush()
    said = [one.communicate(b"e")[0].decode().strip() for one in both]
    ids = [line for line in said if line != "held"]
    assert ids
    assert set(ids) == {Ledger(tmp_path / "n0.ledger", "n0").id.hex()}


# --- what was long ago ---


OPENS = """
import re, sys, time
from pathlib import Path
from hushgrid.node.privacy.ledger import Ledger
began = time.perf_counter()
ledger = Ledger(Path(sys.argv[1]), "n0")
opened = time.perf_counter()
ledger.join(b"next" * 4, b"plan")
joined = time.perf_counter()
most_kb = int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
print(ledger.spends.no, opened - began, joined - opened, most_kb / 1e3)
ledger.close()
"""


@pytest.mark.parametrize("spends", [100_000, pytest.param(5_000_000, marks=pytest.mark.long)])
def test_a_ledger_of_millions_of_spends_opens_and_joins_as_fast_as_a_small_one(tmp_path, spends):
    of_spends(tmp_path / "n0.ledger", spends)
    done = subprocess.run(
        [sys.executable, "-c", OPENS, tmp_path / "n0.ledger"], capture_output=True, text=True, check=True
    )
    no, opened_s, joined_s, memory_mb = map(float, done.stdout.split())
    assert no == spends
    assert opened_s < 1.0
    assert joined_s < 0.2  # 0.05 on a machine that does nothing else
    assert memory_mb < 50  # the whole process
