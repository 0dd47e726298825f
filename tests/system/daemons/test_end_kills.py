"""SIGKILL around the end of a run: from its last rounds until shortly after the coordinator has called it done.

What must hold, whenever it strikes: each device of a run that is called done has its outcome on the disk once it is
back; its ledger is whole, its mark can be read, and what it has said is paid for.

Three ways: `hushgrid node` as a command on a real broker, the same function in a process forked from one that has its
imports done (a start takes a hundredth of a command's, so that there can be hundreds), and a whole fleet with its
coordinator in one forked process over memory, where all die at once.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushgrid.broker.coordinator.base import Coordinator
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.transport.mqtt import MqttLink
from tests.support.daemons.attacked_device import Target
from tests.support.daemons.deployed_fleet import PATIENCE
from tests.support.daemons.small_daemons import (
    Centre,
    Raw,
    on_rows,
    on_zones,
    outcome,
    outcome_file,
    pair,
    ring,
    spends_by_run,
)
from tests.support.paths import ROOT
from tests.support.runs.recount import Recount

AFTER_S = 0.05  #: of the window, behind "done"
QUIET = 3  #: undisturbed runs, by which the window is measured
RUNS = {
    "mode input": on_zones("input", 12),
    "mode objective": on_zones("objective", 12),
    "rows": on_rows("dgd", 20, 50.0, step_size=1.0),
}


class Zygote:
    """Forks devices and whole fleets."""

    def __init__(self, stack: ExitStack) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-m", "tests.support.daemons.device_forker"], cwd=ROOT,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.forked: set[int] = set()
        stack.callback(self.end)

    def fork(self, what: Path, log: Path) -> int:
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write(f"{what}\t{log}\n")
        self.child.stdin.flush()
        self.forked.add(pid := int(self.child.stdout.readline()))
        return pid

    def kill(self, pid: int) -> bool:
        """Whether it was there to be killed. It is gone when this returns."""
        struck = False
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            struck = True
            deadline = time.monotonic() + PATIENCE
            while time.monotonic() < deadline:
                os.kill(pid, 0)
                time.sleep(0.0005)
        self.forked.discard(pid)
        return struck

    def wait(self, pid: int) -> None:
        """Until it has ended by itself."""
        deadline = time.monotonic() + PATIENCE
        with suppress(ProcessLookupError):
            while True:
                os.kill(pid, 0)
                assert time.monotonic() < deadline, "it does not end"
                time.sleep(0.001)
        self.forked.discard(pid)

    def end(self) -> None:
        for pid in list(self.forked):
            self.kill(pid)
        self.child.kill()
        self.child.wait()
        for pipe in (self.child.stdin, self.child.stdout):
            assert pipe is not None
            pipe.close()


class Storm:
    """One fleet, run after run; in each one a device is killed near the end and started again at once."""

    def __init__(self, directory: Path, url: str, stack: ExitStack, raw: Raw, seed: int, zygote: Zygote | None) -> None:
        self.raw, self.dice, self.zygote = raw, random.Random(seed), zygote
        make = pair if raw["problem"]["kind"] == "zones" else ring
        self.targets = make(directory, url, stack)
        self.centre = Centre(directory / "centre", url, stack)
        self.recount, self.spy = Recount(), MqttLink(url, "spy", subscriptions=["hushgrid/1/small/#"], persistent=False)
        self.spy.connect(PATIENCE)
        stack.callback(self.spy.close)
        self.pids: dict[str, int] = {}
        self.struck: Counter[str] = Counter()  #: kills by the run's phase
        self.lost: list[str] = []
        self.first: dict[str, np.ndarray] = {}
        for target in self.targets.values():
            self.start(target)
        for target in self.targets.values():
            self.wait_for(target, "ready on")

    # --- devices ---

    def log(self, target: Target) -> Path:
        return target.directory / "1.log" if self.zygote else target.daemon.log

    def start(self, target: Target) -> None:
        if self.zygote:
            self.pids[target.name] = self.zygote.fork(target.file, target.directory / "1.log")
        else:
            self.pids[target.name] = target.start(ready=False).child.pid

    def kill(self, target: Target) -> bool:
        if self.zygote:
            return self.zygote.kill(self.pids[target.name])
        alive = target.daemon.child.poll() is None
        target.daemon.kill()
        return alive

    def wait_for(self, target: Target, text: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not self.log(target).exists() or text not in self.log(target).read_text():
            assert time.monotonic() < deadline, f"{target.name}: no {text!r}"
            time.sleep(0.005)

    # --- runs ---

    def near(self, centre: Coordinator) -> bool:
        """The last third of the rounds."""
        rounds = 2 * self.raw["algorithm"]["rounds"] // 3
        if centre.driver is None:
            return False
        state: Any = centre.driver.machine.state
        if isinstance(getattr(state, "reached", None), dict):  # told of every eighth message
            return min((state.reached.get(m, 0) for m in centre.members), default=0) >= min(rounds, 16)
        return bool(state.t >= rounds)

    def run(self, before: float | None) -> float:
        """One run; `before`: somebody dies in it, up to so long before "done", or shortly behind it. Seconds from the
        last third to "done".
        """
        for target in self.targets.values():
            outcome_file(target).unlink(missing_ok=True)
        victim = self.targets[self.dice.choice(sorted(self.targets))]
        at: dict[str, float] = {}
        strike: list[threading.Thread] = []

        def watch(centre: Coordinator) -> None:
            for message in self.spy.poll(0.0):
                if message.payload:
                    self.recount.hear(message.topic, message.payload)
            if "near" not in at and self.near(centre):
                at["near"] = time.monotonic()
                if before is not None:  # as often before "done" as behind it
                    early = self.dice.random() < 0.5
                    at_s = self.dice.uniform(0.0, before) if early else before + self.dice.uniform(0.0, AFTER_S)
                    timer = threading.Timer(at_s, self.strike, (centre, victim))
                    strike.append(timer)
                    timer.start()
            if "done" not in at and centre.ending:
                at["done"] = time.monotonic()

        centre = self.centre.here(self.raw, watch)
        for timer in strike:
            timer.join()
        assert centre.error is None, centre.error
        self.all_kept()
        return at["done"] - at["near"]

    def strike(self, centre: Coordinator, victim: Target) -> None:
        phase = centre.phase
        if self.kill(victim):
            self.struck[phase] += 1
            self.start(victim)

    def all_kept(self) -> None:
        """Every device has its outcome, at the latest when it is back."""
        deadline = time.monotonic() + PATIENCE
        for name, target in self.targets.items():
            while not outcome_file(target).exists() and time.monotonic() < deadline:
                time.sleep(0.005)
            if not outcome_file(target).exists():
                self.lost.append(name)
                continue
            found = outcome(target)
            kept = found["z"] if "z" in found else found["x"]
            assert np.all(np.isfinite(kept))
            assert np.any(kept), "an outcome of zeros"
            if self.raw["privacy"].get("mode") == "input":  # one answer, repeated in every run: the same set-points
                assert self.first.setdefault(name, kept).tolist() == kept.tolist()

    def kills(self, count: int) -> None:
        before = max(self.run(None) for _ in range(QUIET))
        deadline = time.monotonic() + count * PATIENCE
        while self.struck.total() < count:
            assert time.monotonic() < deadline
            self.run(before)

    def end(self) -> None:
        """Whole ledgers, marks that can be read, and no answer on the wire that is not paid for."""
        for message in self.spy.poll(0.2):
            if message.payload:
                self.recount.hear(message.topic, message.payload)
        time.sleep(0.1)
        for name, target in self.targets.items():
            assert self.kill(target), self.log(target).read_text()[-500:]
            logs = "".join(log.read_text() for log in target.directory.glob("*.log"))
            assert "refuses every run" not in logs
            assert "hushgrid: " not in logs  # no start has failed
            with closing(Ledger(target.ledger, name, target.mark)) as ledger:
                assert ledger.verify() == []
                assert ledger.refusal is None
                assert ledger.runs.owed() == []
            paid, heard = spends_by_run(target.ledger), 0
            assert self.recount.plans
            for run, plan in self.recount.plans.items():
                answers = self.recount.answers(run, plan, name)
                heard += answers
                if plan["privacy"]["mode"] != "input":
                    assert paid.get(run, 0) >= answers
            assert heard >= len(self.recount.plans)
            if self.raw["privacy"].get("mode") == "input":
                assert sum(paid.values()) == 1


def survives(directory: Path, url: str, which: str, seed: int, count: int, *, command: bool) -> None:
    with ExitStack() as stack:
        storm = Storm(directory, url, stack, RUNS[which], seed, None if command else Zygote(stack))
        storm.kills(count)
        print(f"{which}: {storm.struck.total()} kills {dict(storm.struck)}, {len(storm.lost)} lost")
        assert storm.lost == []
        storm.end()


@pytest.mark.parametrize("which", RUNS)
def test_a_device_killed_around_the_end_loses_no_outcome(which, tmp_path, url):
    survives(tmp_path, url, which, 1, 8, command=False)


@pytest.mark.parametrize("which", RUNS)
def test_a_device_of_the_command_killed_around_the_end_loses_no_outcome(which, tmp_path, url):
    survives(tmp_path, url, which, 2, 2, command=True)


@pytest.mark.long
@pytest.mark.parametrize("which", RUNS)
def test_hundreds_of_kills_around_the_end_lose_no_outcome(which, tmp_path, url):
    survives(tmp_path, url, which, 3, 250, command=False)


@pytest.mark.long
@pytest.mark.parametrize("which", RUNS)
def test_dozens_of_kills_of_the_command_around_the_end_lose_no_outcome(which, tmp_path, url):
    survives(tmp_path, url, which, 4, 20, command=True)


# --- all at once ---


def all_die(directory: Path, which: str, seed: int, count: int) -> None:
    """A whole fleet in one process, over memory, killed at any instant between the first join and the end."""
    dice, raw = random.Random(seed), RUNS[which]
    with ExitStack() as stack:
        zygote, url = Zygote(stack), "mqtt://127.0.0.1:1"
        targets = (pair if raw["problem"]["kind"] == "zones" else ring)(directory, url, stack)
        Centre(directory / "centre", url, stack).write(raw)
        (directory / "centre" / "state").mkdir()
        log, lost, struck, runs, last = directory / "log", 0, 0, 0, 0.0
        log.touch()
        deadline = time.monotonic() + (count + QUIET) * PATIENCE
        while struck < count:
            assert time.monotonic() < deadline
            for target in targets.values():
                outcome_file(target).unlink(missing_ok=True)
            size = log.stat().st_size
            pid = zygote.fork(directory, log)
            while log.stat().st_size == size:  # until the first has joined
                time.sleep(0.0005)
            began, runs = time.monotonic(), runs + 1
            if runs <= QUIET:
                zygote.wait(pid)
                last = time.monotonic() - began
            else:
                time.sleep(dice.uniform(0.0, last))
                struck += (killed := zygote.kill(pid))
                # Also where all outcomes are there: a run whose end only the coordinator has yet to hear of goes on at
                # the next start, and writes none again.
                if killed or not all(outcome_file(target).exists() for target in targets.values()):
                    zygote.wait(zygote.fork(directory, log))
            for target in targets.values():
                if outcome_file(target).exists():
                    found = outcome(target)
                    assert np.any(found["z"] if "z" in found else found["x"])
                else:
                    lost += 1
        print(f"{which}: all at once, {struck} kills, {lost} lost")
        said = log.read_text()
        assert {line for line in said.splitlines() if line.startswith("ended with")} == {"ended with 0"}
        assert lost == 0
        for name, target in targets.items():
            with closing(Ledger(target.ledger, name, target.mark)) as ledger:
                assert ledger.verify() == []
                assert ledger.refusal is None


@pytest.mark.parametrize("which", RUNS)
def test_a_fleet_that_dies_at_once_loses_no_outcome(which, tmp_path):
    all_die(tmp_path, which, 5, 4)


@pytest.mark.long
@pytest.mark.parametrize("which", RUNS)
def test_a_fleet_that_dies_at_once_hundreds_of_times_loses_no_outcome(which, tmp_path):
    all_die(tmp_path, which, 6, 100)
