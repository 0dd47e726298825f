"""What SIGHUP makes a device and a coordinator read again, what of it holds when, and what a wrong file changes:
nothing.
"""

import json
import signal
import time

import pytest
import yaml

from hushgrid.broker.servers import choose as brokers
from hushgrid.node.site.value_store import last_values
from hushgrid.node.transport.mqtt import MqttLink
from tests.support.daemons.deployed_fleet import HUSHGRID, PATIENCE, Daemon
from tests.support.daemons.small_daemons import Centre, on_zones, pair, spends_by_run, write_loads
from tests.support.devices.ledgers import copy_of

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


def test_a_source_and_a_sink_come_move_and_go_while_the_device_runs(zones, centre, stack, tmp_path):
    url = stack.enter_context(brokers.start("embedded", tmp_path / "site")).url
    target, heard = zones["z1"], Transcript(url)
    for other in zones.values():
        other.start()
    sources, told = target.directory / "meter.csv", target.directory / "told.json"
    write_loads(sources, "z1", 0.5)
    owner(target, source={"file": str(sources), "within": 0.1}, sink={"mqtt": {"broker": url, "topic": "home/z1"}})
    said = hup(target, "source, sink: as its file says from now on")
    assert [line for line in said if "the data come from elsewhere from now on: data version 2" in line]
    centre.finish(on_zones("input", 12, epsilon=1000.0))
    first = heard.until("home/z1", lambda document: document["state"] == "fresh")
    assert first["data_version"] == 3  # what the source says is taken when a run begins
    heard.link.publish("meters/z1", json.dumps({bus: {"p_mw": 7.5, "q_mvar": 2.5} for bus in (1, 2)}).encode(), True)
    meter = {"mqtt": {"broker": url, "topic": "meters/z1"}}
    owner(target, source=meter, sink={"mqtt": {"broker": url, "topic": "home/other"}, "file": {"path": str(told)}})
    hup(target, "source, sink: as its file says from now on")
    assert heard.until("home/other", lambda document: True)["run"] == first["run"]
    assert heard.until("home/z1/available", lambda said: said == "offline")
    assert json.loads(told.read_text())["run"] == first["run"]
    centre.finish(on_zones("input", 12, epsilon=1000.0))
    second = heard.until("home/other", lambda document: document["run"] != first["run"])
    assert (second["data_version"], second["state"]) == (4, "fresh")
    assert last_values(target.state / "z1.intake").good["d"].tolist() == [0.075, 0.075, 0.025, 0.025]
    target.config.pop("source"), target.config.pop("sink")
    owner(target)
    hup(target, "source, sink: as its file says from now on")
    assert heard.until("home/other/available", lambda said: said == "offline")
    centre.finish(on_zones("input", 12, epsilon=1000.0))
    assert json.loads(told.read_text())["run"] == second["run"]
    assert "dropped" not in target.daemon.said
    assert target.daemon.said.count("ready on") == 1
    assert target.daemon.end() == 0
    with copy_of(target.ledger) as ledger:
        assert [spend.version for spend in ledger.spends.rows()] == [3, 4, 5]
    heard.link.close()


class Transcript:
    """What stands on the site's topics."""

    def __init__(self, url):
        self.link = MqttLink(url, "site", subscriptions=["home/#"], persistent=False)
        self.link.connect(PATIENCE)
        self.last = {}

    def until(self, topic, what):
        deadline = time.monotonic() + PATIENCE
        while topic not in self.last or not what(self.last[topic]):
            assert time.monotonic() < deadline, self.last
            for message in self.link.poll(0.2):
                text = message.payload.decode()
                self.last[message.topic] = json.loads(text) if text.startswith("{") else text
        return self.last[topic]


def test_a_source_that_is_wrong_or_a_sink_changes_neither(zones, centre, url):
    target = zones["z1"]
    for other in zones.values():
        other.start()
    told = target.directory / "told.json"
    owner(target, sink={"file": {"path": str(told)}})
    hup(target, "sink: as its file says")
    sink, source = {"file": {"path": str(told), "group": "no-such-group"}}, {"file": "x", "folder": "y"}
    for wrong, why in (({"sink": sink}, "sink.file.group"), ({"sink": {}}, "sink: "), ({"source": source}, "source: ")):
        before = dict(target.config)
        owner(target, budget=budget(7.0), **wrong)
        (line,) = hup(target, "its configuration stays as it was: ")
        assert why in line
        target.config = before
    owner(target)
    centre.finish(on_zones("input", 4, epsilon=20.0))  # above the budget of the wrong files
    assert json.loads(told.read_text())["state"] == "fresh"
    assert target.daemon.end() == 0


def test_how_many_runs_are_kept_counts_from_the_next_run_on_and_the_keepalive_from_the_next_start(zones, centre):
    target = zones["z1"]
    for other in zones.values():
        other.start()
    for _ in range(4):
        centre.finish(on_zones("objective", 2))
    owner(target, keep=1, keepalive=30)
    said = hup(target, "keep: as its file says from now on")
    assert len([line for line in said if "keepalive: changed, which holds from the next start on" in line]) == 1
    for _ in range(2):
        centre.finish(on_zones("objective", 2))
    assert target.daemon.end() == 0
    with copy_of(target.ledger) as ledger:
        assert len(ledger.runs.all()) <= 2  # the last one and what the next join has not taken yet
        assert ledger.spends.answers() == 12


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


def test_a_coordinator_of_intervals_reads_when_they_are_due_and_who_must_be_there_between_two(zones, centre, stack):
    """An hour between two runs becomes two seconds, and one of the zones may be away."""
    for target in zones.values():
        target.start()
    file = centre.write(on_zones("input", 4))
    raw = yaml.safe_load(file.read_text()) | {"wait_s": 1}
    file.write_text(yaml.safe_dump(raw | {"run": {"every": "1h"}}))
    coordinator = Daemon(centre.directory / "daemon.log", [*HUSHGRID, "coordinator", str(file)], {})
    stack.callback(coordinator.kill)
    coordinator.wait_for("interval 1: answer")
    zones["z2"].daemon.kill()
    wrong = ({"run": {"every": "0s"}}, {"run": {"every": "2s", "jitter": "3s"}}, {"quorum": 0})
    for count, section in enumerate(wrong, 1):
        file.write_text(yaml.safe_dump(raw | {"run": {"every": "1h"}} | section))
        coordinator.child.send_signal(signal.SIGHUP)
        coordinator.wait_for("its configuration stays as it was: ", count)
    assert "interval 2" not in coordinator.said
    file.write_text(yaml.safe_dump(raw | {"run": {"every": "2s"}, "quorum": 1, "hold": "2h"}))
    coordinator.child.send_signal(signal.SIGHUP)
    coordinator.wait_for("was read again")
    coordinator.wait_for(": held (")  # once the broker has seen that it is away
    file.write_text(yaml.safe_dump(raw))  # no schedule at all
    coordinator.child.send_signal(signal.SIGHUP)
    coordinator.wait_for("run: changed, which holds from the next start on")
    coordinator.wait_for(": missed, z2 not there after 1 s")  # the schedule goes on, the quorum is gone
    assert coordinator.end() == 0
