"""Sweeps by processes: killed in the middle and gone on with, on this machine's workers and on those of a scheduler."""

import csv
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
import yaml

from tests.support.scenarios.swept import SWEPT

pandas = pytest.importorskip("pandas")
pytest.importorskip("distributed")
pytest.importorskip("pyarrow")

OVER = ("--over", "algorithm.rounds=2,4,8", "--over", "privacy.epsilon=1,10")
SEEDS = 7
RUNS = 3 * 2 * SEEDS
WAIT_S = 120.0


def command(place: Path, *more: object) -> list[str]:
    path = place / "s.yaml"
    path.write_text(yaml.safe_dump(SWEPT))
    words = ["sweep", path, *OVER, "--seeds", SEEDS, "--out", place / "out", *more]
    return [sys.executable, "-m", "hushgrid", *map(str, words)]


def rows(place: Path, header: bool = False) -> list[str]:
    """The lines after the header."""
    path = place / "out" / "runs.csv"
    return path.read_text().splitlines(keepends=True)[not header :] if path.exists() else []


def started(stack: ExitStack, words: list[str], place: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        words, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )

    @stack.callback
    def end() -> None:
        process.kill()
        process.communicate()

    return process


def until(so: object, process: subprocess.Popen[bytes]) -> None:
    began = time.monotonic()
    while not so():
        assert process.poll() is None, process.communicate()[0].decode()
        assert time.monotonic() - began < WAIT_S
        time.sleep(0.02)


def killed_and_gone_on_with(stack: ExitStack, place: Path, *more: object) -> pandas.DataFrame:
    """kill -9 once some rows are there, then --resume; the rows that were there are there still."""
    first = started(stack, command(place, *more), place)
    until(lambda: len(rows(place)) >= 10, first)
    children = psutil.Process(first.pid).children(recursive=True)
    first.kill()
    first.wait()
    before = [line for line in rows(place) if line.endswith("\n")]
    assert 10 <= len(before) < RUNS
    assert not (place / "out" / "comparison.html").exists()
    psutil.wait_procs(children, timeout=WAIT_S)
    assert [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE] == []
    ended = subprocess.run(command(place, *more, "--resume"), cwd=place, capture_output=True, text=True, timeout=WAIT_S)
    assert ended.returncode == 0, ended.stderr
    assert f"of {RUNS} runs were made before" in ended.stderr
    after = rows(place)
    assert len(after) == RUNS
    assert {*before} <= {*after}  # to the second that they took: none was made again
    assert (place / "out" / "comparison.html").exists()
    found = pandas.read_parquet(place / "out" / "runs.parquet")
    assert list(found["status"]) == ["done"] * RUNS
    return found


def test_a_sweep_that_is_killed_goes_on_and_ends_as_one_that_was_not(tmp_path, stack):
    """The workers of this machine end with it."""
    (tmp_path / "a").mkdir()
    found = killed_and_gone_on_with(stack, tmp_path / "a", "--workers", 2)
    from hushgrid.lab.sweep.sweeps import sweep

    alone = sweep(SWEPT, {"algorithm.rounds": [2, 4, 8], "privacy.epsilon": [1, 10]}, seeds=SEEDS)
    pandas.testing.assert_frame_equal(found.drop(columns="wall_s"), alone.drop(columns="wall_s"))


def test_a_sweep_is_asked_to_end_and_says_how_to_go_on(tmp_path, stack):
    process = started(stack, command(tmp_path, "--workers", 1), tmp_path)
    until(lambda: len(rows(tmp_path)) >= 3, process)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the workers hear it too
    said = process.communicate(timeout=WAIT_S)[0].decode()
    assert process.returncode == 4
    assert (
        f"hushgrid: interrupted by SIGINT; what has ended is in {tmp_path / 'out'}: --out {tmp_path / 'out'} --resume "
        "goes on" in said
    )
    assert "Traceback" not in said


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@pytest.mark.long
def test_a_sweep_on_a_cluster_is_killed_and_gone_on_with_and_a_worker_may_die(tmp_path, stack):
    """A scheduler and two workers as processes of their own on loopback."""
    url = f"tcp://127.0.0.1:{free_port()}"
    dask = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", url, "--no-dashboard"]
    scheduler = started(stack, dask, tmp_path)
    worker = [
        sys.executable,
        "-m",
        "distributed.cli.dask_worker",
        url,
        "--nthreads",
        "1",
        "--no-dashboard",
        "--host",
        "127.0.0.1",
    ]
    workers = [started(stack, [*worker, "--name", f"w{k}", "--no-nanny"], tmp_path) for k in range(2)]
    (tmp_path / "a").mkdir()
    killed_and_gone_on_with(stack, tmp_path / "a", "--dask", url)
    assert [process.poll() for process in (scheduler, *workers)] == [None] * 3
    (tmp_path / "b").mkdir()
    again = started(stack, command(tmp_path / "b", "--dask", url), tmp_path)
    until(lambda: len(rows(tmp_path / "b")) >= 5, again)
    workers[0].kill()
    assert again.wait(WAIT_S) == 0, again.communicate()[0].decode()
    one, other = (list(csv.reader(rows(tmp_path / name, header=True))) for name in ("a", "b"))
    wall = one[0].index("wall_s")
    assert [[*r[:wall], *r[wall + 1 :]] for r in one] == [[*r[:wall], *r[wall + 1 :]] for r in other]


def test_a_scheduler_that_dies_is_one_line(tmp_path, stack):
    url = f"tcp://127.0.0.1:{free_port()}"
    dask = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", url, "--no-dashboard"]
    scheduler = started(stack, dask, tmp_path)
    worker = [
        sys.executable,
        "-m",
        "distributed.cli.dask_worker",
        url,
        "--nthreads",
        "1",
        "--no-dashboard",
        "--no-nanny",
    ]
    started(stack, worker, tmp_path)
    process = started(stack, command(tmp_path, "--dask", url, "--quiet"), tmp_path)
    until(lambda: len(rows(tmp_path)) >= 3, process)
    scheduler.kill()
    said = process.communicate(timeout=WAIT_S)[0].decode()
    assert process.returncode == 4, said
    assert said.startswith(f"hushgrid: the scheduler at {url} is gone")
    assert len(said.splitlines()) == 1
