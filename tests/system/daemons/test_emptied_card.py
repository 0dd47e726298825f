"""Real devices, one of which is killed in the middle of a run and comes back with an empty card, its mark gone too.

It refuses until its owner accepts, and then counts all that it had told. Every step of a run, and a masked one, is
tried in this way in memory: tests/broker/coordinator/test_emptied_card.py.
"""

import shutil
from contextlib import closing

import pytest

from hushgrid.kernels.errors import Refused
from tests.support import examples
from tests.support.daemons.deployed_ring import SENSORS
from tests.support.daemons.masked_fleet import masked_fleet
from tests.support.daemons.small_daemons import Centre, copied, on_rows, on_zones, pair, ring

RUNS = {
    "zones": (pair, on_zones("objective", 60), "z1"),
    "star": (ring, on_rows("ladmm", 60, 50.0), "n1"),
    "token": (ring, on_rows("recal", 400, 50.0), "n1"),
    "neighbours": (ring, on_rows("dgd", 100, 50.0, step_size=1.0), "n1"),
}
CASES = [(pattern, spent) for pattern in RUNS for spent in (1, 20)]


def emptied(target, place):
    """kill -9, and an empty card in its place. How far its ledger had come."""
    target.daemon.kill()
    with closing(copied(target, place)) as ledger:
        mark = ledger.mark
    shutil.rmtree(target.state)
    shutil.rmtree(target.mark.parent)
    target.start(ready=False)
    return mark


@pytest.mark.parametrize(("pattern", "spent"), examples.few(CASES, [("zones", 20), ("token", 20)]))
def test_an_emptied_card_in_a_run_is_refused_in_the_next_until_its_owner_accepts(tmp_path, url, stack, pattern, spent):
    make, scenario, name = RUNS[pattern]
    targets, centre, lost = make(tmp_path, url, stack), Centre(tmp_path / "centre", url, stack), []
    for target in targets.values():
        target.start()

    def watch(coordinator):
        mark = coordinator.membership.marks.peers.get(name)
        if not lost and coordinator.phase == "running" and mark and mark.no >= spent:
            lost.append(emptied(targets[name], tmp_path / "lost"))

    centre.here(scenario, watch, silent_s=1.0)
    (mark,) = lost
    again = centre.here(scenario, lambda _: None, silent_s=1.0)
    assert isinstance(again.error, Refused)
    assert f"{name}: its ledger is behind its mark of another ledger ({mark.ledger.hex()[:8]})" in str(again.error)
    targets[name].daemon.end()
    assert targets[name].ledger_command("accept").returncode == 0
    with closing(copied(targets[name], tmp_path / "accepted")) as ledger:
        counted = ledger.mark
    # Its last answer may have been committed and not sent.
    assert counted.epsilon >= mark.epsilon * (mark.no - 1) / mark.no * (1 - 1e-9)
    targets[name].start()
    assert centre.here(scenario, lambda _: None).error is None


@pytest.mark.mosquitto
def test_an_emptied_card_in_a_masked_run_is_refused_in_the_next_until_its_owner_accepts(
    tmp_path, mosquitto_program, stack
):
    fleet = masked_fleet(tmp_path / "fleet", mosquitto_program, stack)
    nodes = {name: fleet.node(name) for name in SENSORS}
    coordinator = fleet.coordinator("--once")
    coordinator.wait_for("round ", 3)
    nodes["n1"].kill()
    spent = len(fleet.spends("n1"))
    for place in (fleet.state("n1"), fleet.directory / "lib" / "hushgrid-marks" / "n1"):
        shutil.rmtree(place, ignore_errors=True)
    nodes["n1"] = fleet.node("n1")
    coordinator.code()
    second = fleet.coordinator("--once")
    assert second.code() == 3, second.said
    assert "n1: its ledger is behind its mark of another ledger" in second.said
    assert spent
    assert fleet.spends("n1") == []
