"""Real daemons whose broker, coordinator or member is away for far longer than the coordinator is patient.

The ten minutes of the promise are shown by a virtual clock in test_silence.py; here a coordinator that is patient for
two seconds is away, or without its broker, for six (`make test-long`: twelve). The mechanism is the same, and nothing
in it counts.
"""

import os
import re
import signal
import time
from contextlib import ExitStack

import pytest

from tests.support import examples
from tests.support.daemons.deployed_fleet import PATIENCE, ZONES, Fleet
from tests.support.daemons.deployed_ring import SENSORS, ring

AWAY_S = 12.0 if examples.THOROUGH else 6.0
ROUNDS = {"star": 900, "token": 3000, "neighbours": 1500}  #: more than half a second's
DPP2 = "  name: dpp2\n  alpha: 1.0\n  beta: 0.25\n  rho: 0.1\n"
WALK = (
    "  name: recal\n  rounds: 200                                 # activations: 50 of each sensor\n  walk: "
    "hamiltonian\n"
)


def made(pattern, directory, url, stack):
    """A fleet in a long run of this pattern, whose coordinator is impatient: (fleet, daemons by name, coordinator)."""
    rounds = ROUNDS[pattern]
    if pattern == "star":
        fleet, names = Fleet(directory, url, stack), ZONES
        fleet.gradients(rounds)
    else:
        fleet, names = ring(directory, url, stack), SENSORS
        if pattern == "token":
            fleet.edit("scenario.yaml", "rounds: 200 ", f"rounds: {rounds} ")
        else:
            fleet.edit("scenario.yaml", WALK, f"{DPP2}  rounds: {rounds}\n")
            for name in names:
                fleet.edit(f"nodes/{name}.yaml", "algorithms: [recal]", "algorithms: [recal, dpp2]")
    fleet.edit("coordinator.yaml", "silent_s: 10 ", "silent_s: 2 ")
    nodes = {name: fleet.node(name) for name in names}
    coordinator = fleet.coordinator("--once")
    coordinator.wait_for(" begin")
    time.sleep(0.5)
    return fleet, nodes, coordinator


def moving(fleet, names):
    """Until a node commits again."""
    logs = [fleet.state(name) / f"{name}.ledger-log" for name in names]
    before = [log.stat().st_mtime_ns for log in logs]
    deadline = time.monotonic() + PATIENCE
    while before == [log.stat().st_mtime_ns for log in logs]:
        assert time.monotonic() < deadline, "nothing moves"
        time.sleep(0.02)


EVERY = [(p, a) for a in ("the broker is killed", "the broker hangs", "the coordinator is stopped") for p in ROUNDS]
#: Each absence, and each pattern.
FEW = [("star", "the coordinator is stopped"), ("token", "the broker is killed"), ("neighbours", "the broker hangs")]


@pytest.mark.mosquitto
@pytest.mark.parametrize(("pattern", "absent"), examples.few(EVERY, FEW))
def test_an_absence_ends_no_run(pattern, absent, tmp_path, mosquitto):
    with ExitStack() as stack:
        fleet, nodes, coordinator = made(pattern, tmp_path / "fleet", mosquitto.url, stack)
        if absent == "the broker is killed":
            mosquitto.kill()
            time.sleep(AWAY_S)
            mosquitto.start(mosquitto.port)
        else:
            pid = mosquitto.pid if absent == "the broker hangs" else coordinator.child.pid
            os.kill(pid, signal.SIGSTOP)
            time.sleep(AWAY_S)
            os.kill(pid, signal.SIGCONT)
        if pattern == "star" or "broker" in absent:  # else the nodes have gone on without it, and may be at the end
            moving(fleet, nodes)
        assert coordinator.child.wait(10 * PATIENCE) == 0, coordinator.said
        assert "resumes" not in coordinator.said
        for daemon in nodes.values():
            daemon.wait_for(" done: rounds")


@pytest.mark.mosquitto
def test_a_run_that_a_members_silence_has_ended_is_gone_on_with_and_no_answer_is_paid_twice(tmp_path, mosquitto):
    with ExitStack() as stack:
        fleet, nodes, coordinator = made("star", tmp_path / "fleet", mosquitto.url, stack)
        os.kill(nodes["z2"].child.pid, signal.SIGSTOP)
        assert coordinator.code() == 4
        assert "z2 silent since" in coordinator.said
        os.kill(nodes["z2"].child.pid, signal.SIGCONT)
        again = fleet.coordinator("--once")
        assert again.child.wait(10 * PATIENCE) == 0, again.said
        (run, rounds) = re.search(r"resumes run (\w{8}) at round (\d+): what was paid for is kept", again.said).groups()
        assert f"run {run}: {ROUNDS['star']} rounds begin" in coordinator.said
        assert int(rounds) > 0
        for name, daemon in nodes.items():
            daemon.wait_for(" done: rounds")
            assert daemon.end() == 0
            assert len(fleet.spends(name)) == ROUNDS["star"]
