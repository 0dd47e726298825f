"""A real device whose disk is full as its run ends: it ends with 4, and the start after there is room again writes the
rest.

The disk is a small tmpfs of its own, which takes root to mount.
"""

import os
import subprocess
from contextlib import ExitStack

import numpy as np
import pytest

from hushgrid.kernels.patterns.star import W, Z
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.wire import Finished, Refuse
from tests.support.daemons.attacked_device import SCENARIO, Target, zone_config
from tests.support.daemons.lying_coordinator import Liar, altered, honest_plan
from tests.support.daemons.small_daemons import outcome, outcome_file, spends_by_run

PLAN = altered(honest_plan(SCENARIO), {"privacy.mode": "input"})
ROUND = 1


@pytest.fixture
def disk(tmp_path):
    """A file system of 1 MB, empty."""
    place = tmp_path / "disk"
    place.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")
    with ExitStack() as stack:
        stack.callback(subprocess.run, ["umount", "-l", str(place)], check=True)
        yield place


def fill(disk):
    """Not a byte is left."""
    with (disk / "filler").open("ab", buffering=0) as file:
        size = 1 << 16
        while size:
            try:
                file.write(bytes(size))
            except OSError:
                size //= 2
    assert os.statvfs(disk).f_bavail == 0


def free(disk):
    (disk / "filler").unlink()


@pytest.fixture
def target(tmp_path, disk, url, stack):
    made = Target(tmp_path / "z1", url, stack, "z1", zone_config(tmp_path / "z1"))
    made.state, made.ledger = disk, disk / "z1.ledger"
    made.config["state"] = str(disk)
    made.write()
    return made


def answered(liar):
    """A run of one round whose answer is given, and whose end is not said."""
    run = liar.announce(PLAN)
    assert liar.joined(run, "z1")
    liar.say(run, "z1", W(np.zeros(liar.birth("z1").capabilities.dimension)), ROUND)
    assert isinstance(liar.reply(run, "z1", Z, Refuse), Z)
    return run


def status(target):
    with_mark = Ledger(target.ledger, "z1", target.mark)
    try:
        assert with_mark.verify() == []
        (run,) = with_mark.runs.all()
        return run.status
    finally:
        with_mark.close()


def ends_with_4(daemon):
    assert daemon.code() == 4, daemon.said
    last = daemon.said.splitlines()[-1]
    assert last.startswith("hushgrid: ")
    assert any(words in last for words in ("No space left on device", "database or disk is full", "disk I/O error"))
    return last


def test_an_outcome_that_the_disk_does_not_take_is_owed_and_written_once_there_is_room(target, disk, url, stack):
    daemon = target.start()
    liar = stack.enter_context(Liar(url, ["z1"]))
    run = answered(liar)
    fill(disk)
    liar.finish(run, "z1")
    last = ends_with_4(daemon)
    assert "expected to write" in last
    assert not liar.replies(run, "z1", Finished)  # it has not said that it is over
    assert not outcome_file(target).exists()

    for _ in range(2):  # and again for as long as there is no room, asked for it or by itself
        again = target.start(ready=False)
        fill(disk)
        liar.finish(run, "z1")
        ends_with_4(again)
        assert not outcome_file(target).exists()

    free(disk)
    back = target.start()
    liar.finish(run, "z1")
    liar.reply(run, "z1", Finished)
    found = outcome(target)["z"]
    assert np.all(np.isfinite(found))
    assert np.any(found)
    assert back.end() == 0
    assert not list(disk.glob("*.new"))
    assert status(target) == "done"
    assert spends_by_run(target.ledger) == {run: 1}


def test_an_owed_outcome_needs_nobody_to_be_written(target, disk, url, stack):
    """The coordinator has gone for good: what is owed is written at the start, before the device is ready."""
    daemon = target.start()
    liar = stack.enter_context(Liar(url, ["z1"]))
    run = answered(liar)
    # Room for the ledger, none for the outcome.
    (disk / "z1.setpoints.csv.new").mkdir()
    liar.finish(run, "z1")
    assert daemon.code() == 4, daemon.said
    assert "it is owed, the next start writes it" in daemon.said.splitlines()[-1]
    assert status(target) == "owed"
    (disk / "z1.setpoints.csv.new").rmdir()
    back = target.start()
    assert "its outcome was owed, and is written" in back.said
    assert np.any(outcome(target)["z"])
    assert back.end() == 0
    assert status(target) == "done"


def test_a_disk_that_is_full_in_the_rounds_ends_the_device_with_4_and_the_run_goes_on_with_the_same_answer(
    target, disk, url, stack
):
    daemon = target.start()
    liar = stack.enter_context(Liar(url, ["z1"]))
    run = liar.announce(altered(PLAN, {"algorithm.rounds": 400}))
    assert liar.joined(run, "z1")
    w = W(np.zeros(liar.birth("z1").capabilities.dimension))
    fill(disk)
    t = 0
    while daemon.child.poll() is None and t < 400:  # the log of the ledger has room for some rounds
        t += 1
        liar.say(run, "z1", w, t)
        liar.wait(lambda t=t: len(seqs(liar, run)) >= t or daemon.child.poll() is not None or None, "an answer")
    ends_with_4(daemon)
    said = len(seqs(liar, run))
    free(disk)
    back = target.start()
    for k in range(said + 1, 401):
        liar.say(run, "z1", w, k)
        liar.wait(lambda k=k: len(seqs(liar, run)) >= k or None, f"answer {k}")
    liar.farewell(run, "z1")
    assert np.any(outcome(target)["z"])
    assert back.end() == 0
    assert spends_by_run(target.ledger) == {run: 1}
    assert status(target) == "done"


def seqs(liar, run):
    return {h.envelope.seq for h in liar.heard[run] if isinstance(h.envelope.body, Z)}
