"""The coordinator daemon: it waits for its devices, runs when asked, keeps what it saw, and ends when told."""

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hushgrid.node.config.coordinator import KEPT
from tests.support.daemons.deployed_fleet import ZONES, Fleet


@pytest.fixture
def fleet(embedded, tmp_path: Path) -> Iterator[Fleet]:
    with ExitStack() as stack:
        yield Fleet(tmp_path / "fleet", embedded.url, stack)


def kept(fleet: Fleet) -> list[dict]:
    return [json.loads(p.read_text()) for p in sorted((fleet.state("coordinator") / "runs").glob("*.json"))]


def test_it_waits_for_its_devices_runs_again_when_asked_and_ends_with_0_when_told(fleet):
    fleet.edit("coordinator.yaml", "wait_s: 60", "wait_s: 0.5")
    coordinator = fleet.coordinator()
    coordinator.wait_for("z1, z2, z3 not there after 0.5 s, expected a birth; still waiting")
    for z in ZONES:
        fleet.node(z)
    coordinator.wait_for("the next run:")
    coordinator.child.send_signal(signal.SIGUSR1)
    coordinator.wait_for("the next run:", 2)
    assert coordinator.end() == 0
    assert "stopped by SIGTERM" in coordinator.said

    first, second = kept(fleet)
    assert first["run"] != second["run"]
    for run in (first, second):
        assert (run["outcome"], run["exit_code"], run["stopped_because"]) == ("done", 0, "tolerance")
        assert run["members"] == list(ZONES)
        assert [row["round"] for row in run["history"]] == list(range(1, run["rounds_done"] + 1))
        last = run["history"][-1]
        assert all(run[key] == last[key] for key in ("consensus_residual", "messages", "bytes"))


def test_without_its_devices_one_run_ends_with_4_and_says_who_is_missing(fleet):
    fleet.edit("coordinator.yaml", "wait_s: 60", "wait_s: 0.5")
    fleet.node("z2")
    coordinator = fleet.coordinator("--once")
    assert coordinator.code() == 4
    assert "hushgrid: z1, z3 not there after 0.5 s, expected a birth" in coordinator.said
    assert not (fleet.state("coordinator") / "runs").exists()


def test_a_run_its_device_refuses_is_said_kept_and_not_tried_again(fleet):
    fleet.edit("nodes/z3.yaml", "algorithms: [consensus-admm]", "algorithms: []")
    for z in ZONES:
        fleet.node(z)
    coordinator = fleet.coordinator()
    coordinator.wait_for("the next run:")
    assert "stopped: z3: " in coordinator.said
    assert coordinator.end() == 0
    assert [(run["outcome"], run["exit_code"]) for run in kept(fleet)] == [("stopped", 3)]


def test_records_of_runs_do_not_grow_for_ever_without_a_schedule_either(fleet):
    runs = fleet.state("coordinator") / "runs"
    runs.mkdir(parents=True)
    for k in range(KEPT + 5):
        (runs / f"old-{k:04}.json").write_text("{}")
    for z in ZONES:
        fleet.node(z)
    assert fleet.coordinator("--once").code() == 0
    left = sorted(path.name for path in runs.glob("*.json"))
    assert len(left) == KEPT
    assert len([name for name in left if not name.startswith("old-")]) == 1
    assert left[-1] == f"old-{KEPT + 4:04}.json"
