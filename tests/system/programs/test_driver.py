"""A process that is killed between its commit and its publication."""

import subprocess
import sys

import msgspec

from hushgrid.broker.simulation.processes import Child, Outcome
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems.plan import encode_plan
from hushgrid.node.wire import COORDINATOR
from tests.support.devices.zone_fleet import World, setup

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
