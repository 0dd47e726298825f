"""What SIGHUP makes a device and a coordinator read again, what of it holds when, and what a wrong file changes: nothing."""

import signal
import time

import pytest
import yaml

from tests.support.daemons.deployed_fleet import HUSHGRID, PATIENCE, Daemon
from tests.support.daemons.small_daemons import Centre, on_zones, pair, spends_by_run

CHANGE = {"bounded-change": 0.01}


@pytest.fixture
def zones(tmp_path, url, stack):
    return pair(tmp_path, url, stack)


@pytest.fixture
def centre(tmp_path, url, stack):
    return Centre(tmp_path / "centre", url, stack)


def hup(target, said):
    """SIGHUP, until the device has said this; the lines it has said of it."""
    before = len(target.daemon.said.splitlines())
    target.daemon.child.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + PATIENCE
    while not [line for line in target.daemon.said.splitlines()[before:] if said in line]:
        assert time.monotonic() < deadline, target.daemon.said
        time.sleep(0.02)
    time.sleep(0.3)  # for a line too many
    return target.daemon.said.splitlines()[before:]


def owner(target, **keys):
    """The owner's file with other keys."""
    target.config |= keys
    target.write()


def budget(epsilon):
    return {"epsilon": epsilon, "adjacency": CHANGE}


def test_a_smaller_budget_holds_at_once_in_a_run_under_way(zones, centre):
    owner(zones["z1"], budget=budget(1000.0))
    for target in zones.values():
        target.start()
    coordinator = centre.command(on_zones("objective", 4000, epsilon=1000.0))  # 0.25 an answer
    zones["z1"].daemon.wait_for("joined run")
    coordinator.wait_for("round 400 of 4000")
    owner(zones["z1"], budget=budget(50.0))
    hup(zones["z1"], "the budget is epsilon 50 from now on")
    assert coordinator.code() == 3, coordinator.said
    assert "z1: spent epsilon" in coordinator.said
    assert "budget 50 " in coordinator.said
    assert zones["z1"].daemon.end() == 0
    (answers,) = spends_by_run(zones["z1"].ledger).values()
    assert answers < 4000


def test_a_larger_budget_and_another_consent_hold_from_the_next_run_on(zones, centre):
    scenario = on_zones("objective", 4, epsilon=20.0)
    owner(zones["z1"], budget=budget(5.0))
    for target in zones.values():
        target.start()
    assert centre.command(scenario).code() == 3
    owner(zones["z1"], budget=budget(50.0))
    hup(zones["z1"], "the budget is epsilon 50 from now on")
    centre.finish(scenario)
    owner(zones["z1"], allow={"algorithms": ["consensus-admm"]})
    hup(zones["z1"], "the budget is epsilon 50 from now on")
    refused = centre.command(scenario)
    assert refused.code() == 3
    assert "z1: algorithm ladmm, its owner allows consensus-admm" in refused.said
    assert zones["z1"].daemon.end() == 0


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("budget: {epsilon: -1}", "budget.epsilon: found -1"),
        ("nothing: at all", "nothing: unknown key"),
        ("node: [", "expected YAML"),
        ("data: {case: case5, zone: [1, 2], loads: nowhere.csv}", "nowhere.csv: "),
        ("data: {case: case5, zone: [1, 2, 3], loads: loads.csv}", "loads.csv: found no bus 3"),
    ],
)
def test_a_file_that_is_wrong_changes_nothing_and_is_said_in_one_line(wrong, why, zones, centre):
    for target in zones.values():
        target.start()
    target = zones["z1"]
    written = target.file.read_text()
    key = wrong.split(":")[0]
    kept = {k: v for k, v in yaml.safe_load(written).items() if k != key}
    target.file.write_text(yaml.safe_dump(kept) + wrong + "\n")
    new = hup(target, "its configuration stays as it was: ")
    assert len(new) == 1
    assert why in new[0]
    target.file.write_text(written)
    centre.finish(on_zones("input", 4))
    assert "data version" not in target.daemon.said
    assert target.daemon.end() == 0


def test_what_cannot_change_while_it_runs_is_said_in_one_line_and_the_rest_is_taken(zones, centre):
    for target in zones.values():
        target.start()
    owner(zones["z1"], fleet="other", broker="mqtt://127.0.0.1:1", budget=budget(7.0))
    new = hup(zones["z1"], "the budget is epsilon 7 from now on")
    assert [line for line in new if "fleet, broker: changed, which holds from the next start on" in line] == new[:1]
    assert len(new) == 2
    centre.finish(on_zones("input", 4, epsilon=5.0))
    assert zones["z1"].daemon.end() == 0


def test_loads_in_another_file_are_taken_and_are_new_data(zones, centre):
    for target in zones.values():
        target.start()
    target = zones["z1"]
    centre.finish(on_zones("input", 4))
    (target.directory / "loads.csv").rename(target.directory / "others.csv")  # the same file by another name
    owner(target, data=target.config["data"] | {"loads": str(target.directory / "others.csv")})
    hup(target, "the data are declared anew: data version 2")
    centre.finish(on_zones("input", 4))
    assert target.daemon.end() == 0
    assert sum(spends_by_run(target.ledger).values()) == 2


def test_a_coordinator_reads_its_scenario_again_between_runs_and_keeps_the_old_where_it_is_wrong(zones, centre, stack):
    for target in zones.values():
        target.start()
    file = centre.write(on_zones("input", 4))
    coordinator = Daemon(centre.directory / "daemon.log", [*HUSHGRID, "coordinator", str(file)], {})
    stack.callback(coordinator.kill)
    coordinator.wait_for("the next run:")
    scenario = centre.directory / "scenario.yaml"
    good = scenario.read_text()

    scenario.write_text(good.replace("rounds: 4", "rounds: none"))
    coordinator.child.send_signal(signal.SIGHUP)
    coordinator.wait_for("its configuration stays as it was: ")
    assert "algorithm.rounds: found 'none'" in coordinator.said
    coordinator.child.send_signal(signal.SIGUSR1)
    coordinator.wait_for("the next run:", 2)
    assert coordinator.said.count(" 4 rounds begin") == 2

    scenario.write_text(good.replace("rounds: 4", "rounds: 5"))
    coordinator.child.send_signal(signal.SIGHUP)
    coordinator.wait_for("coordinator.yaml was read again: ladmm, ladmm")
    coordinator.child.send_signal(signal.SIGUSR1)
    coordinator.wait_for("the next run:", 3)
    assert " 5 rounds begin" in coordinator.said
    assert coordinator.end() == 0
