"""The fleet of sites has a standby: its coordinator dies in the rounds of both levels, and nothing is paid twice."""

import re

import pytest

from tests.support.daemons.deployed_fleet import ZONES, Fleet
from tests.support.daemons.masked_fleet import ROUNDS, SCENARIO
from tests.support.daemons.site_fleet import DEVICES, SiteFleet
from tests.support.daemons.site_fleet import SITES as MASKED
from tests.support.daemons.standby_fleet import stopped
from tests.support.daemons.zone_sites import SITES, ZoneSites
from tests.support.devices.ledgers import copy_of

pytestmark = pytest.mark.mosquitto
TWICE = 2 * ROUNDS
MODEL = (
    SCENARIO.replace("nodes: 4", "nodes: 6")
    .replace(f"rounds: {ROUNDS}", f"rounds: {TWICE}")
    .replace("masked: {corrupt: 1, contributors: 3}", "masked: {corrupt: 0, sites: {number: 2}}")
)


def taken_over(fleet, sites, devices, waits):
    """All processes, once the standby has gone on with the run in whose rounds the coordinator above has died.

    The last device does not run meanwhile. waits: what each device says once the run is done.
    """
    first, second = (fleet.above.directory / f"{name}.yaml" for name in ("coordinator", "second"))
    first.write_text(first.read_text() + "standby: 2s\n")
    second.write_text(re.sub("^(state: .*)coordinator$", r"\1second", first.read_text(), flags=re.M))
    started = [*(fleet.site(name) for name in sites), *devices()]
    top = fleet.above.coordinator()
    standby = fleet.above.start("coordinator", "second.yaml", "", "--standby")
    standby.wait_for("the coordinator is there")
    top.wait_for(": round ")
    with stopped(started[-1]):
        top.kill()
        standby.wait_for("goes on with run")
    standby.wait_for("the next run:")
    for daemon in started[len(sites) :]:
        daemon.wait_for(waits)
    return standby, *started


def test_zones_in_sites_go_on_with_the_standby(tmp_path, mosquitto_program, stack):
    fleet = ZoneSites(tmp_path, mosquitto_program, stack)
    daemons = taken_over(fleet, SITES, lambda: [fleet.zone(name) for name in ZONES], " done: tolerance")
    for zone in ZONES:
        assert [kind for kind, _ in Fleet.spends_of(fleet.ledger(zone))] == ["laplace"]
    assert [daemon.end() for daemon in daemons] == [0] * 6


def test_masked_sums_of_sites_go_on_with_the_standby(tmp_path, mosquitto_program, stack):
    fleet = SiteFleet(tmp_path, mosquitto_program, stack, MODEL)
    for site, names in MASKED.items():
        for name in names:
            fleet.sites[site].edit(f"nodes/{name}.yaml", "[sum]\n  problems: [{kind: mean}]", "[fedavg]")
    daemons = taken_over(fleet, MASKED, lambda: [fleet.device(name) for name in DEVICES], " done: rounds")
    assert {name: answers(fleet, name) for name in DEVICES} == dict.fromkeys(DEVICES, TWICE)
    assert [daemon.end() for daemon in daemons] == [0] * 9


def answers(fleet, name):
    with copy_of(fleet.ledger(name)) as ledger:
        return len(ledger.spends.rows())
