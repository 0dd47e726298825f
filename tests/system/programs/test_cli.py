"""`hushgrid` as a process: interrupted, read by halves, over a broker."""

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.command_line import assert_a_private_run_leaves_what_the_contract_says, tree, write

PATIENCE = 60  #: seconds after which a process that hangs fails its test


# --- run ---


@pytest.mark.mosquitto
def test_a_private_run_over_a_broker_leaves_what_the_contract_says_and_no_figure_of_raw_data(
    hushgrid, tmp_path, mosquitto
):
    options = ("--transport", "mqtt", "--broker", mosquitto.url)
    assert_a_private_run_leaves_what_the_contract_says(hushgrid, tmp_path, "mqtt", *options)


# --- what is nobody's input ---


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_ends_with_4_in_one_line_and_leaves_no_run_directory(number, tmp_path):
    file = write(tmp_path / "s.yaml", {"algorithm.rounds": 100_000})
    with subprocess.Popen(
        [Path(sys.executable).with_name("hushgrid"), "run", file], cwd=tmp_path, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        while "nodes in this process" not in (line := process.stderr.readline()):
            assert line
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err.count("\n")) == (4, "", 1)
    assert "interrupted" in err
    assert tree(tmp_path) == ["s.yaml"]


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path):
    gone, end = os.pipe()
    os.close(gone)
    with os.fdopen(end, "wb") as pipe:
        ended = subprocess.run(
            [sys.executable, "-m", "hushgrid", "case", "list"],
            stdout=pipe,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (0, b"")


# --- ledgers ---


def test_what_is_committed_but_still_in_the_log_is_shown(hushgrid, tmp_path):
    crash = (
        "import os; from pathlib import Path; from hushgrid.node.privacy.ledger import Ledger\n"
        "from tests.support.devices.gated_device import spend\n"
        "l = Ledger(Path('n1.ledger'), 'n1'); l.join(b'r' * 16, b'')\n"
        "l.commit(b'r' * 16, spends=[spend(k) for k in (1, 2, 3)]); os._exit(0)"
    )
    subprocess.run(
        [sys.executable, "-c", crash],
        cwd=tmp_path,
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (tmp_path / "n1.ledger-log").stat().st_size > 0
    assert json.loads(hushgrid("ledger", "show", "n1.ledger", "--json").out)["spends"] == 3


HOLD = """
import sys
from contextlib import contextmanager
from pathlib import Path
from hushgrid.node.privacy.ledger import Ledger
from tests.support.devices.gated_device import spend
ledger = Ledger(Path('n1.ledger'), 'n1', Path('n1.mark'))
ledger.join(b'r' * 16, b'')
for k in range(int(sys.argv[1])):
    ledger.commit(b'r' * 16, spends=[spend(k + 1)], state=b'x' * 100)
print('held', flush=True)
sys.stdin.read()
"""


@contextmanager
def a_device(tmp_path, answers):
    """A process that holds a ledger in which the last answers are in the log alone; it is killed at the end."""
    command, env = [sys.executable, "-c", HOLD, str(answers)], os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as device:
        assert device.stdout is not None
        assert device.stdout.readline() == b"held\n"
        yield device
        device.kill()


@pytest.mark.parametrize("answers", [3, 200])
def test_a_ledger_is_shown_and_verified_beside_its_running_device_and_nothing_of_it_changes(
    answers, hushgrid, tmp_path
):
    with a_device(tmp_path, answers):
        before = {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in tmp_path.iterdir() if "-shm" not in p.name}
        seen = json.loads(hushgrid("ledger", "show", "n1.ledger", "--mark", "n1.mark", "--json").out)
        assert (seen["spends"], seen["mark"], seen["refuses"]) == (answers, answers, None)
        assert seen["totals"][0]["epsilon"] == answers * 0.5
        said = hushgrid("ledger", "verify", "n1.ledger", "--mark", "n1.mark")
        assert (said.code, said.err) == (0, "")
        after = {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in tmp_path.iterdir() if "-shm" not in p.name}
        assert after == before
    assert hushgrid("ledger", "verify", "n1.ledger", "--mark", "n1.mark").code == 0  # and of one that was killed


@pytest.mark.parametrize("what", ["accept", "new-data"])
def test_an_owner_says_nothing_about_a_ledger_that_its_device_holds(what, hushgrid, tmp_path):
    with a_device(tmp_path, 1):
        said = hushgrid("ledger", what, "n1.ledger")
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert "n1.ledger: held by another process, expected one process per ledger" in said.err
