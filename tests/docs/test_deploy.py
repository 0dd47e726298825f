"""deploy/ as a person would use it: the units, the broker under its access list, and the real daemons on it.

Nothing here is simulated: `hushgrid node` and `hushgrid coordinator` are processes of their own, with deploy's example
configurations, in which only the broker's address and the directories are changed.
"""

import csv

import pytest

from hushgrid.grid_cases import load
from hushgrid.grid_cases.case import loads
from hushgrid.node.config.coordinator import load_coordinator
from hushgrid.node.config.device import load_device
from hushgrid.node.config.scenario import load_scenario
from tests.support.daemons.deployed_fleet import UNITS, ZONES
from tests.support.paths import DEPLOY

# --- the units ---


def settings(unit):
    """Every value of every key of a unit, in order."""
    found = {}
    for line in (DEPLOY / unit).read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            key, value = line.split("=", 1)
            found.setdefault(key, []).append(value)
    return found


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_is_not_restarted_when_its_owner_is_needed_and_watched_by_its_own_loop(unit):
    s = settings(unit)
    assert s["Type"] == ["notify"]
    assert s["Restart"] == ["on-failure"]
    assert s["RestartPreventExitStatus"] == ["2 3"]
    assert s["StartLimitIntervalSec"] == ["0"]
    assert int(s["WatchdogSec"][0]) > 0
    assert "DynamicUser" not in s
    assert s["User"] == ["hushgrid"]
    assert s["CacheDirectory"] == ["hushgrid"]
    assert all(d.startswith("hushgrid") for d in s["StateDirectory"][0].split())


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_gives_its_process_nothing_it_does_not_need(unit):
    s = settings(unit)
    for key in (
        "MemoryDenyWriteExecute",
        "NoNewPrivileges",
        "ProtectHome",
        "PrivateTmp",
        "PrivateDevices",
        "LockPersonality",
    ):
        assert s[key] == ["yes"], key
    assert s["ProtectSystem"] == ["strict"]
    assert s["CapabilityBoundingSet"] == [""]
    assert s["RestrictAddressFamilies"] == ["AF_INET AF_INET6 AF_UNIX"]
    assert s["SystemCallFilter"][0] == "@system-service"
    assert s["SystemCallArchitectures"] == ["native"]
    assert s["UMask"] == ["0077"]


def test_the_state_and_the_mark_of_the_examples_are_where_the_units_may_write():
    node, coordinator = (settings(u)["StateDirectory"][0].split() for u in UNITS)
    for z in ZONES:
        config = load_device(DEPLOY / "nodes" / f"{z}.yaml")
        state, marks = (f"/var/lib/{d.replace('%i', z)}" for d in node)
        assert config.state == state
        assert config.mark == f"{marks}/{z}.mark"
    assert load_coordinator(DEPLOY / "coordinator.yaml").state == f"/var/lib/{coordinator[0]}"


def test_the_note_of_drawn_noise_is_in_memory_outlives_a_crash_and_is_in_no_core_dump():
    s = settings("hushgrid-node@.service")
    assert (s["RuntimeDirectory"], s["RuntimeDirectoryMode"]) == (["hushgrid/%i"], ["0700"])
    assert s["RuntimeDirectoryPreserve"] == ["restart"]


@pytest.mark.parametrize("unit", UNITS)
def test_no_memory_of_a_unit_is_written_to_a_disk(unit):
    s = settings(unit)
    assert (s["LimitCORE"], s["MemorySwapMax"]) == (["0"], ["0"])


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_reads_its_files_again_by_systemctl_reload(unit):
    assert settings(unit)["ExecReload"] == ["/bin/kill -HUP $MAINPID"]


# --- the example ---


def test_the_examples_are_one_fleet_on_the_loads_of_the_case():
    scenario = load_scenario(DEPLOY / "scenario.yaml")
    coordinator = load_coordinator(DEPLOY / "coordinator.yaml")
    assert scenario.seed is None
    assert scenario.algorithm.variant == "guarded"
    assert coordinator.members == list(ZONES)
    case = load(scenario.problem.case)
    for z, buses in zip(ZONES, scenario.problem.zones, strict=True):
        config = load_device(DEPLOY / "nodes" / f"{z}.yaml")
        assert (config.node, config.fleet, config.broker) == (z, coordinator.fleet, coordinator.broker)
        assert config.data.zone == buses
        with open(config.data.loads, newline="") as file:
            rows = {int(r["bus"]): (float(r["p_mw"]), float(r["q_mvar"])) for r in csv.DictReader(file)}
        d = loads(case, tuple(buses)) * case.base_mva
        assert [rows[b][0] for b in buses] == pytest.approx(d[: len(buses)], abs=1e-9)
        assert [rows[b][1] for b in buses] == pytest.approx(d[len(buses) :], abs=1e-9)
