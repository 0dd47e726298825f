"""What a coordinator that asks window after window learns of one reading: a load that stands still, a row that a folder
keeps.

The promise: a reading counts for less than a window after it was read first, whatever is said of data versions. So all
that is ever told of it is within the budget of one window.
"""

import base64
import json
import subprocess

import numpy as np

from hushgrid.kernels.patterns.star import W, Z
from hushgrid.node.wire import Join, Refuse
from tests.support.daemons.attacked_device import SCENARIO, UNIT, Target, rows_config, zone_config
from tests.support.daemons.deployed_fleet import HUSHGRID
from tests.support.daemons.lying_coordinator import PATIENCE, Liar, honest_plan
from tests.support.devices.lives import counts

WINDOW, RETENTION = 0.5, 0.4  #: s of running time: the clock of a device cannot be set, so these are short
WINDOWS = 40
ROWS, EDGES = 20, [0.0, 1.0, 2.0]


class Recorder(Liar):
    """A liar that keeps all that travels, as a run directory does."""

    def __init__(self, url, victims, file):
        self.file = file
        super().__init__(url, victims)
        poll = self.link.poll

        def polled(timeout):
            messages = poll(timeout)
            for message in messages:
                self._keep(message.topic, message.payload)
            return messages

        self.link.poll = polled

    def publish(self, topic, payload, retain=False):
        self._keep(topic, payload)
        super().publish(topic, payload, retain)

    def _keep(self, topic, payload):
        with self.file.open("a") as file:
            file.write(json.dumps({"topic": topic, "bytes": base64.b64encode(payload).decode()}) + "\n")

    def answered(self, plan, victim, size):
        """One more answer, as soon as the window has room for it. It says what any schedule says: that data are new."""
        for _ in range(int(PATIENCE / 0.05)):
            run = self.announce(plan, every=900.0)
            if isinstance(self.reply(run, victim, Join, Refuse), Join):
                self.say(run, victim, W(np.zeros(size)), 1)
                answer = self.reply(run, victim, Z, Refuse)
                assert isinstance(answer, Z), answer
                self.farewell(run, victim, "stopped")
                return answer.z
            self.pump(0.05)
        raise AssertionError("the window never had room again")


def recounted(target, transcript):
    """`hushgrid audit --events --json` of a device that has ended, and its exit code."""
    command = [*HUSHGRID, "audit", "--events", str(target.state), str(transcript), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout), done.returncode


def test_forty_windows_about_a_file_that_nobody_touches_tell_of_a_load_what_one_may(tmp_path, url, stack, show):
    """Epsilon before: 39 about each load (the mean of the answers had bus 3 at 94.2 MW). Now: at most 1."""
    config = zone_config(tmp_path / "z1", budget=1.0, per_run=1.0)
    meter = tmp_path / "z1" / "loads.csv"
    typical = tmp_path / "z1" / "typical.csv"
    typical.write_text("bus,p_mw,q_mvar\n" + "".join(f"{bus},20.0,5.0\n" for bus in config["data"]["zone"]))
    config["data"]["loads"] = str(typical)
    config |= {"source": {"file": str(meter), "within": 0.05}, "retention": RETENTION}
    config["budget"] = {"epsilon": 1.0, "adjacency": UNIT, "window": WINDOW}
    target = Target(tmp_path / "z1", url, stack, "z1", config)
    target.start()
    plan = honest_plan(SCENARIO | {"privacy": SCENARIO["privacy"] | {"epsilon": 1.0}})
    with Recorder(url, ["z1"], tmp_path / "transcript.jsonl") as liar:
        size = liar.birth("z1").capabilities.dimension
        for _ in range(WINDOWS):
            liar.answered(plan, "z1", size)
    target.daemon.end()
    said, code = recounted(target, tmp_path / "transcript.jsonl")
    paid = target.account()
    show(f"{paid.answers} answers of epsilon {paid.epsilon:.3f} in all; of a reading at most {said['largest']}")
    assert paid.answers == WINDOWS
    assert paid.epsilon > 0.99 * WINDOWS  # all of it was spent: on loads that are public
    assert (said["claimed"], code) == (1.0, 0)
    assert said["largest"]["epsilon"] <= 1.0


def test_a_row_that_a_folder_keeps_among_its_newest_is_told_of_in_one_window_and_never_again(
    tmp_path, url, stack, show
):
    """The documented recipe: the newest m rows of a folder, one more each time. Epsilon before: 20 (m) about one row,
    where

    `check` says 1. Now: at most 1.
    """
    adjacency = {"replace-one-record": {"clip": 1.0}}
    config = rows_config(
        tmp_path / "n0", np.zeros((ROWS, 1)), np.ones(ROWS), adjacency, 1.0, labels={"classes": 2}, algorithms=["sum"]
    )
    folder = tmp_path / "n0" / "rows"
    folder.mkdir()
    config |= {"source": {"folder": str(folder), "within": 0.05}, "retention": RETENTION}
    config["budget"] = {"epsilon": 1.0, "adjacency": adjacency, "window": WINDOW}
    target = Target(tmp_path / "n0", url, stack, "n0", config)
    checked = subprocess.run([*HUSHGRID, "check", str(target.file)], capture_output=True, text=True, timeout=300)
    assert "budget epsilon 1 in any 0.5s of running time" in checked.stdout
    target.start()
    plan, counted = honest_plan(counts(1, ROWS, EDGES)), []
    with Recorder(url, ["n0"], tmp_path / "transcript.jsonl") as liar:
        liar.birth("n0")
        for k in range(ROWS + 5):
            (folder / f"{k:03}.jsonl").write_text("[1.5, 1]\n")
            counted.append(liar.answered(plan, "n0", len(EDGES) - 1)[1])
    target.daemon.end()
    said, code = recounted(target, tmp_path / "transcript.jsonl")
    show(
        f"{len(counted)} answers of epsilon 1; the last counts {np.round(counted[-5:])} rows; at most {said['largest']}"
    )
    assert target.account().answers == ROWS + 5
    assert (said["claimed"], code) == (1.0, 0)
    assert said["largest"]["epsilon"] <= 1.0
    # Each answer is about the row of its own window alone: 1, and not the 20 that the folder holds.
    assert abs(np.mean(counted[-10:]) - 1) < 5
