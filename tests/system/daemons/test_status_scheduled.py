"""The status of a coordinator whose fleet runs by itself: when the next run is due, and by how much it is late."""

import calendar
import json
import subprocess
import time

import pytest
import yaml

from tests.support.daemons.deployed_fleet import HUSHGRID, PATIENCE, Daemon
from tests.support.daemons.small_daemons import Centre, on_zones, pair


@pytest.mark.mosquitto
def test_it_says_when_the_next_run_is_due_and_who_makes_it_late(tmp_path, url, stack):
    zones = pair(tmp_path, url, stack)
    for target in zones.values():
        target.start()
    file = Centre(tmp_path / "centre", url, stack).write(on_zones("input", 4))
    raw = yaml.safe_load(file.read_text()) | {"run": {"every": "20s"}}
    file.write_text(yaml.safe_dump(raw))
    coordinator = Daemon(tmp_path / "coordinator.log", [*HUSHGRID, "coordinator", str(file)], {})
    stack.callback(coordinator.kill)

    def until(what):
        deadline = time.monotonic() + PATIENCE
        while True:
            command = [*HUSHGRID, "status", "--json", "--broker", url, "--fleet", "small"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
            rows = {row["node"]: row for row in json.loads(done.stdout)["nodes"]} if done.returncode == 0 else {}
            if what(rows):
                return rows
            assert time.monotonic() < deadline, (rows, coordinator.said)

    rested = until(lambda rows: rows.get("coordinator", {}).get("due"))["coordinator"]
    assert rested["last"] == "done"
    due = calendar.timegm(time.strptime(rested["due"], "%Y-%m-%dT%H:%M:%SZ"))
    assert 0 < due - calendar.timegm(time.strptime(rested["at"], "%Y-%m-%dT%H:%M:%SZ")) <= 21
    zones["z2"].daemon.kill()
    late = until(
        lambda rows: rows["coordinator"]["state"] == "gathering" and rows["coordinator"]["waits_for"] == ["z2"]
    )
    assert late["coordinator"]["late_s"] >= 0
    assert late["z2"]["late_s"] is not None
    assert not late["z2"]["there"]
    assert coordinator.end() == 0
