"""Two sites of three devices, real processes on three mosquittos: what is summed, what each has paid, who is killed."""

import csv
from contextlib import ExitStack

import numpy as np
import pytest

from hushgrid.node.privacy.ledger_rows import honest_of
from tests.support.daemons.site_fleet import DEVICES, SITES, SiteFleet
from tests.support.devices.ledgers import copy_of

pytestmark = pytest.mark.mosquitto


@pytest.fixture
def stack():
    with ExitStack() as stack:
        yield stack


def told(fleet):
    """value and sd of the coordinator's table above."""
    (table,) = fleet.above.directory.rglob("masked-*-sum.csv")
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return (np.array([float(row[key]) for row in rows]) for key in ("value", "sd"))


def mean_of(fleet, nodes):
    A = np.concatenate([fleet.rows(node)[0] for node in nodes])
    return (A * np.minimum(1.0, 1.0 / np.linalg.norm(A, axis=1))[:, None]).mean(axis=0)


def spends(fleet, node):
    with copy_of(fleet.ledger(node)) as ledger:
        return [(spend.kind, *honest_of(spend.honest)) for spend in ledger.spends.rows()]


def test_two_sites_of_three_devices_add_up_over_three_brokers(tmp_path, mosquitto_program, stack):
    """Each device counts its share as one of its owner's four honest ones, two of them in its own site."""
    fleet = SiteFleet(tmp_path, mosquitto_program, stack)
    sites = [fleet.site(name) for name in SITES]
    devices = [fleet.device(name) for name in DEVICES]
    top = fleet.above.coordinator("--once")
    assert top.code() == 0, top.said
    value, sd = told(fleet)
    assert np.abs(value - mean_of(fleet, DEVICES)).max() < 5 * sd.max()
    for daemon in devices:
        daemon.wait_for(" done: rounds")
        assert daemon.end() == 0
    for daemon in sites:
        daemon.wait_for("its devices' run")
        assert daemon.end() == 0, daemon.said
    for node in DEVICES:
        assert spends(fleet, node) == [("gaussian", 4, 2)]
    for site in SITES:
        with copy_of(fleet.site_ledger(site)) as ledger:
            assert ledger.spends.rows() == []
            assert ledger.tables.ask("SELECT count(*) FROM secret") == [(0,)]


def test_a_site_that_is_killed_in_the_middle_goes_on_and_no_device_pays_twice(tmp_path, mosquitto_program, stack):
    fleet = SiteFleet(tmp_path, mosquitto_program, stack)
    killed = fleet.site("s1")
    other = fleet.site("s2")
    devices = [fleet.device(name) for name in DEVICES if name != "n2"]
    top = fleet.above.coordinator("--once")
    killed.wait_for("joined run")
    killed.kill()
    again = fleet.site("s1")
    devices.append(fleet.device("n2"))
    assert top.code() == 0, top.said
    for node in DEVICES:
        assert spends(fleet, node) == [("gaussian", 4, 2)]
    assert [daemon.end() for daemon in (again, other, *devices)] == [0] * 8


def test_a_site_waits_for_a_device_that_starts_late(tmp_path, mosquitto_program, stack):
    fleet = SiteFleet(tmp_path, mosquitto_program, stack)
    sites = [fleet.site(name) for name in SITES]
    for name in DEVICES[:-1]:
        fleet.device(name)
    top = fleet.above.coordinator("--once")
    sites[1].wait_for("joined run")
    late = fleet.device(DEVICES[-1])
    assert top.code() == 0, top.said
    late.wait_for(" done: ")
    value, sd = told(fleet)
    assert np.abs(value - mean_of(fleet, DEVICES)).max() < 5 * sd.max()


def test_whoever_watches_a_fleet_of_sites_sees_what_each_level_does(tmp_path, mosquitto_program, stack):
    """Above the sites, which say of no budget; in a site its devices and its coordinator; when it ends, that too."""
    fleet = SiteFleet(tmp_path, mosquitto_program, stack)
    sites = [fleet.site(name) for name in SITES]
    devices = [fleet.device(name) for name in DEVICES]
    top = fleet.above.coordinator("--once")
    assert top.code() == 0, top.said
    for daemon in devices:
        daemon.wait_for(" done: rounds")
    for daemon in sites:
        daemon.wait_for("its devices' run")
    above, below = fleet.seen(), fleet.seen("s1")
    assert {*above} == {"coordinator", *SITES}
    for site in SITES:
        status = above[site].status
        assert (status.state, status.last, status.round, status.rounds) == ("idle", "done", 1, 1)
        assert status.epsilon is status.epsilon_left is status.data_age_s is None
        assert status.certificate_days > 0
    assert {*below} == {"coordinator", *SITES["s1"]}
    assert below["coordinator"].there
    status = below["coordinator"].status
    assert (status.state, status.last, status.round, status.waits_for) == ("idle", "done", 1, ())
    assert {*status.entries} == {*SITES["s1"]}
    assert [daemon.end() for daemon in (*sites, *devices)] == [0] * 8
    assert {fleet.seen(site)["coordinator"].status.state for site in SITES} == {"off"}
    assert {fleet.seen()[site].status.state for site in SITES} == {"off"}
