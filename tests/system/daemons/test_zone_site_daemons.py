"""Three zones in two sites, real processes on three mosquittos: who agrees, who is killed, who is silent."""

import re
from contextlib import ExitStack

import pytest

from tests.support.daemons.deployed_fleet import ZONES, Fleet, intervals
from tests.support.daemons.zone_sites import SITES, ZoneSites

pytestmark = pytest.mark.mosquitto


@pytest.fixture
def stack():
    with ExitStack() as stack:
        yield stack


def test_zones_in_two_sites_agree_over_three_brokers_and_a_second_run_costs_nothing(tmp_path, mosquitto_program, stack):
    fleet = ZoneSites(tmp_path, mosquitto_program, stack)
    sites = [fleet.site(name) for name in SITES]
    zones = [fleet.zone(name) for name in ZONES]
    for count in (1, 2):
        top = fleet.above.coordinator("--once")
        assert top.code() == 0, top.said
        for daemon in zones:
            daemon.wait_for(" done: tolerance", count)
        for daemon in sites:
            daemon.wait_for("its devices' run", count)
        for zone in ZONES:
            assert [kind for kind, _ in Fleet.spends_of(fleet.ledger(zone))] == ["laplace"]
            assert (fleet.ledger(zone).parent / f"{zone}.setpoints.csv").exists()
    assert [daemon.end() for daemon in (*sites, *zones)] == [0] * 5


def test_a_site_that_is_killed_in_the_rounds_goes_on_and_no_zone_pays_twice(tmp_path, mosquitto_program, stack):
    fleet = ZoneSites(tmp_path, mosquitto_program, stack)
    killed, other = fleet.site("s1"), fleet.site("s2")
    zones = [fleet.zone(name) for name in ZONES]
    top = fleet.above.coordinator("--once")
    killed.wait_for("rounds begin")
    killed.kill()
    again = fleet.site("s1")
    assert top.code() == 0, top.said
    for daemon in zones:
        daemon.wait_for(" done: tolerance")
    for zone in ZONES:
        assert [kind for kind, _ in Fleet.spends_of(fleet.ledger(zone))] == ["laplace"]
    assert [daemon.end() for daemon in (again, other, *zones)] == [0] * 5


def test_intervals_begin_where_the_last_has_ended_and_one_without_a_site_is_missed(tmp_path, mosquitto_program, stack):
    fleet = ZoneSites(tmp_path, mosquitto_program, stack)
    file = fleet.above.directory / "coordinator.yaml"
    text = re.sub("^wait_s: .*$", "wait_s: 3", file.read_text(), flags=re.M)
    file.write_text(text + "run: {every: 6s}\n")
    sites = {name: fleet.site(name) for name in SITES}
    zones = [fleet.zone(name) for name in ZONES]
    top = fleet.above.coordinator()
    top.wait_for(": answer", 2)
    sites["s1"].kill()
    top.wait_for(": missed")
    sites["s1"] = fleet.site("s1")
    top.wait_for(": answer", 3)
    assert top.end() == 0
    answers = [row for row in intervals(fleet.above) if row["outcome"] == "answer"]
    assert [row["start"] for row in answers[:3]] == ["cold", "warm", "warm"]
    first, *later = (int(row["rounds"]) for row in answers)
    assert max(later) < first / 2
    assert next(row["absent"] for row in intervals(fleet.above) if row["outcome"] == "missed") == "s1"
    for zone in ZONES:
        assert [kind for kind, _ in Fleet.spends_of(fleet.ledger(zone))] == ["laplace"]
    assert [daemon.end() for daemon in (*sites.values(), *zones)] == [0] * 5


def test_a_zone_that_falls_silent_ends_the_run_of_all_in_one_line_and_the_next_run_is_whole(
    tmp_path, mosquitto_program, stack
):
    fleet = ZoneSites(tmp_path, mosquitto_program, stack, silent_s=2.0)
    sites = [fleet.site(name) for name in SITES]
    zones = {name: fleet.zone(name) for name in ZONES}
    top = fleet.above.coordinator("--once")
    sites[0].wait_for("rounds begin")
    zones["z2"].kill()
    assert top.code() == 4, top.said
    assert re.search("^hushgrid: s1: z2 (is gone|silent) since .*$", top.said, re.M), top.said
    zones["z2"] = fleet.zone("z2")
    top = fleet.above.coordinator("--once")
    assert top.code() == 0, top.said
    for daemon in zones.values():
        daemon.wait_for(" done: tolerance")
    for zone in ZONES:
        assert [kind for kind, _ in Fleet.spends_of(fleet.ledger(zone))] == ["laplace"]
    assert [daemon.end() for daemon in (*sites, *zones.values())] == [0] * 5
