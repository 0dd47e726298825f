"""The end of a run: a device killed as it ends, and a liar who says `done` before anything was done.

The promise: what was paid for is on disk at last, and nothing but a complete run leaves an outcome.
"""

import csv
import os
import signal
import time

import numpy as np
import pytest

from hushgrid.kernels.patterns.star import W, Z
from hushgrid.node.wire import Finished, Refuse
from tests.support.daemons.attacked_device import SCENARIO, Target, zone_config
from tests.support.daemons.lying_coordinator import Liar, altered, honest_plan

#: Run by Python before the program: kill -9 at the moment before a file of that name is put into its place.
FAILPOINT = """
import os, signal
def replace(source, target, *rest, _replace=os.replace, **more):
    if str(target).endswith(os.environ["HUSHGRID_TEST_DIES_AT"]):
        os.kill(os.getpid(), signal.SIGKILL)
    return _replace(source, target, *rest, **more)
os.replace = os.rename = replace
"""
PLAN = altered(honest_plan(SCENARIO), {"privacy.mode": "input"})


@pytest.fixture
def target(tmp_path, url, stack):
    return Target(tmp_path / "z1", url, stack, "z1", zone_config(tmp_path / "z1"))


def outcome(target):
    """The set-points on disk, values by (quantity, element); None where there is no file."""
    try:
        with open(target.state / "z1.setpoints.csv", newline="") as file:
            return {(r["quantity"], r["element"]): float(r["value"]) for r in csv.DictReader(file)}
    except FileNotFoundError:
        return None


def one_round(liar):
    """A run of one round, answered, not ended."""
    run = liar.announce(PLAN)
    assert liar.joined(run, "z1")
    liar.say(run, "z1", W(np.zeros(liar.birth("z1").capabilities.dimension)), 1)
    assert isinstance(liar.reply(run, "z1", Z, Refuse), Z)
    return run


def test_a_device_killed_as_its_run_ends_writes_its_outcome_when_it_is_back(tmp_path, target, url, stack, show):
    (tmp_path / "sitecustomize.py").write_text(FAILPOINT)
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    daemon = target.start(PYTHONPATH=paths, HUSHGRID_TEST_DIES_AT="setpoints.csv")
    liar = stack.enter_context(Liar(url, ["z1"]))
    run = one_round(liar)
    liar.finish(run, "z1")
    assert daemon.code() == -signal.SIGKILL
    back = target.start()
    deadline = time.monotonic() + 3.0
    while outcome(target) is None and time.monotonic() < deadline:
        liar.finish(run, "z1")  # as an honest coordinator would, until it hears the farewell
        liar.pump(0.2)
    written = outcome(target)
    back.end()
    paid = target.account()
    show(f"{paid.answers} answer paid; set-points after the kill and a start: "
         f"{'none' if written is None else len(written)}; "
         f"it says {back.said.strip()!r}")  # fmt: skip
    assert paid.answers == 1
    assert written


@pytest.mark.parametrize("how", ["a farewell", "the coordinator's state"])
def test_a_run_that_was_not_made_leaves_no_set_points(target, url, stack, show, how):
    target.start()
    liar = stack.enter_context(Liar(url, ["z1"]))
    liar.farewell(one_round(liar), "z1")
    before = outcome(target)
    assert before
    run = liar.announce(PLAN)
    assert liar.joined(run, "z1")
    if how == "a farewell":
        liar.finish(run, "z1")
    else:
        liar.progress(run, "done")
    liar.finish(run, "z1", "stopped", "never mind")
    liar.reply(run, "z1", Finished)
    after = outcome(target)
    target.daemon.end()
    assert after is not None
    changed = [key for key in before if after[key] != before[key]]
    zeros = sum(after[key] == 0 for key in changed)
    show(f"{len(changed)} of {len(before)} set-points are others, {zeros} of them zero")
    assert changed == []
