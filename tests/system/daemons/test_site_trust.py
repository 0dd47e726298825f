"""Two sites whose brokers nobody trusts, real processes on three mosquittos on which anybody says what he likes."""

import pytest

from tests.support.daemons.site_fleet import DEVICES, SITES, SiteFleet
from tests.support.devices.ledgers import copy_of
from tests.support.trust.daemons import Liar

pytestmark = pytest.mark.mosquitto


@pytest.mark.parametrize("where", ["above", "s1"])
def test_a_liar_at_either_level_plans_ends_and_alters_nothing(tmp_path, mosquitto_program, stack, where):
    """Every lie about every message, in everybody's name: two runs, and each device pays for two answers."""
    fleet = SiteFleet(tmp_path, mosquitto_program, stack, trust=True)
    sites = {name: fleet.site(name) for name in SITES}
    devices = {name: fleet.device(name) for name in DEVICES}
    fleet_name, names = ("taps", tuple(SITES)) if where == "above" else (f"taps-{where}", SITES[where])
    liar = Liar(fleet.everybody[where], fleet_name, names)
    stack.callback(liar.link.close)
    for _ in range(2):
        top = fleet.above.coordinator("--once")
        liar.until(lambda top=top: top.child.poll() is not None)
        assert top.code() == 0, top.said
    assert len(liar.lies) > 200
    hears = sites if where == "above" else {name: devices[name] for name in names}
    for daemon in hears.values():
        daemon.wait_for("dropped a message: forged")
    if where != "above":
        sites[where].wait_for("dropped a message: forged")
    for daemon in devices.values():
        daemon.wait_for(" done: ", 2)
        assert daemon.said.count("joined run") == 2
    assert [daemon.end() for daemon in (*sites.values(), *devices.values())] == [0] * 8
    for node in DEVICES:
        with copy_of(fleet.ledger(node)) as ledger:
            assert len(ledger.spends.rows()) == 2


def test_the_same_liar_ends_the_run_of_sites_that_trust_their_brokers(tmp_path, mosquitto_program, stack):
    fleet = SiteFleet(tmp_path, mosquitto_program, stack, trust=True)
    for fleet_of in (fleet.above, *fleet.sites.values()):
        for file in (fleet_of.directory / "coordinator.yaml", *(fleet_of.directory / "nodes").glob("*.yaml")):
            lines = file.read_text().splitlines(keepends=True)
            file.write_text("".join(line for line in lines if not line.strip().startswith("trust:")))
    for name in SITES:
        fleet.site(name)
    for name in DEVICES:
        fleet.device(name)
    liar = Liar(fleet.everybody["above"], "taps", tuple(SITES))
    stack.callback(liar.link.close)
    top = fleet.above.coordinator("--once")
    liar.until(lambda: top.child.poll() is not None)
    assert top.code() != 0
