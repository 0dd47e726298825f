"""The largest plans take little memory and end."""

from __future__ import annotations

import json
import subprocess
import sys

import msgspec

from hushgrid.broker.simulation.processes import Child, Outcome
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems.plan import encode_plan
from hushgrid.node.wire import COORDINATOR
from tests.support.devices.zone_fleet import World, setup
from tests.support.paths import ROOT

# --- crafted ones ---


def test_large_plans_take_little_memory_and_end():
    """The largest walks, networks and lists a message of PLAN_LIMIT holds, in a process of its own."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.support.scenarios.largest_plans"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ran.stderr == ""
    *answers, peak = map(json.loads, ran.stdout.splitlines())
    assert peak["MB"] < 200
    assert {a["plan"]: a["said"] for a in answers} == {
        "a walk between a hub and a leaf": None,
        "a star": None,
        "a complete graph": None,
        "an edge a thousand times": "plan: Expected `array` of length <= 262144 - at `$.problem.edges`, expected a "
                                    "plan of format 1",
        "a cycle through ten thousand": None,
        "a cycle too long": "plan: Expected `array` of length <= 20000 - at `$.problem.route`, expected a plan of "
                            "format 1",
        "five thousand parts": "network: found 5000 parts, [0, 1] one of them, expected a connected graph",
        "private minimisers of 10^9 rows each": None,
        "twenty thousand zones": "plan: Expected `object` of length <= 10000 - at `$.problem.zones`, expected a plan "
                                 "of format 1",
        "a zone of two million buses": "plan: Expected `array` of length <= 100000 - at `$.problem.zones[...]`, "
                                       "expected a plan of format 1",
    }  # fmt: skip


# --- A process that is killed between its commit and its publication ---

# --- the whole fleet: crashes in place of messages ---


def test_a_coordinator_killed_after_its_farewell_begins_no_other_run(tmp_path, embedded):
    """Its parent starts it again: how the run ended was told, and no run is under way."""
    world = World(tmp_path, setup(2))
    world.run()
    world.close()
    outcome = tmp_path / "outcome.json"
    outcome.write_bytes(msgspec.json.encode(Outcome("done", "rounds")))
    child = Child(
        role="coordinator", name=COORDINATOR, client_id="again", fleet="world", broker=embedded.url, source="case5",
        state=str(tmp_path), trace=str(tmp_path), outcome=str(outcome), plan=encode_plan(setup(2).plan).decode(),
    )  # fmt: skip
    (tmp_path / "child.json").write_bytes(msgspec.json.encode([child]))
    command = [sys.executable, "-m", "hushgrid.broker.simulation.processes", tmp_path / "child.json"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as again:
        code = again.wait(300)
    assert code == 0
    ledger = Ledger(tmp_path / "coordinator.ledger", COORDINATOR)
    assert (ledger.runs.last().id, ledger.runs.last().status) == (world.centre.run, "done")
    assert msgspec.json.decode(outcome.read_bytes()) == {"kind": "done", "reason": "rounds"}
    ledger.close()
