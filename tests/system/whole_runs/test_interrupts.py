"""Asked to end at any instant, `hushgrid run` ends in time, says so in one line, and leaves nothing behind."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.support.runs import background_run

END_S = 5.0  # what is promised
SLOW = 4.0  # a machine under the load of other tests may take so many times as long
NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def caught(pid: int) -> int:
    """The signals that a process catches, as a mask."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return int(next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt")), "0"), 16)


def begun(program: subprocess.Popen) -> None:
    """Until the command has taken the signals over: before, the interpreter is still starting, and nothing is begun."""
    until = time.monotonic() + 300
    while not caught(program.pid) >> (signal.SIGHUP - 1) & 1:
        assert program.poll() is None
        assert time.monotonic() < until
        time.sleep(0.001)


def traces(directory: Path) -> dict[str, object]:
    """What a run may leave behind: files in its working and its temporary directory."""
    return {str(p.relative_to(directory)): p.stat().st_ino for p in sorted(directory.rglob("*"))}


def interrupted(tmp_path, number, delay, broker, times=1):
    """One run, which is asked to end `delay` seconds after it has begun."""
    place, temporary = tmp_path / "work", tmp_path / "tmp"
    for directory in (place, temporary):
        directory.mkdir(parents=True)
    file = tmp_path / "endless.yaml"
    file.write_text(json.dumps(background_run.scenario(**{"algorithm.rounds": 100_000})))
    command = [sys.executable, "-m", "hushgrid", "run", str(file), "--transport", "mqtt", "--broker", broker]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    program = subprocess.Popen(
        [*command, "--out", str(place / "out"), "--quiet"], cwd=place, env=environment, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    with program:
        begun(program)
        time.sleep(delay)
        children = psutil.Process(program.pid).children(recursive=True)
        asked = time.monotonic()
        for _ in range(times):
            program.send_signal(number)
            time.sleep(0.02 if times > 1 else 0)
        out, said = program.communicate(timeout=300)
        took = time.monotonic() - asked
    assert (program.returncode, out) == (4, ""), said
    assert said == f"hushgrid: interrupted by {signal.Signals(number).name}\n"
    assert took <= SLOW * END_S
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not alive
    assert traces(place) == traces(temporary) == {}
    left = [p for p in psutil.process_iter(["environ"]) if (p.info["environ"] or {}).get("TMPDIR") == str(temporary)]
    assert left == []
    return took


INSTANTS = [k / 6 for k in range(30)]  # over five seconds: imports, preparation, broker, processes, rounds


@pytest.mark.long
def test_at_thirty_instants_of_the_first_five_seconds_it_ends_in_time_and_leaves_nothing(tmp_path):
    dice = random.Random(1)
    took = []
    for k, instant in enumerate(INSTANTS):
        number = NUMBERS[k % 3]
        took.append(interrupted(tmp_path / str(k), number, instant + dice.uniform(0, 1 / 6), "auto"))
    assert sorted(took)[len(took) // 2] <= END_S


@pytest.mark.parametrize("instant", [0.3, 1.2, 2.0, 2.6, 3.5])
def test_nothing_stays_on_a_broker_that_is_not_its_own(tmp_path, any_broker, instant):
    interrupted(tmp_path, signal.SIGTERM, instant, any_broker.url)
    assert background_run.retained(any_broker.url) == {}


@pytest.mark.parametrize("instant", [0.5, 2.5])
def test_who_is_asked_again_and_again_cleans_up_all_the_same(tmp_path, instant):
    interrupted(tmp_path, signal.SIGINT, instant, "auto", times=21)
