"""A real fleet whose z1 hears meters of a second broker and tells its set-points there: other programs read them."""

import calendar
import grp
import json
import os
import re
import shutil
import stat
import subprocess
import time
from contextlib import ExitStack

import pytest
import yaml

from hushgrid.broker.servers import choose as brokers
from hushgrid.grid_cases import load
from hushgrid.node.site.value_store import last_values
from hushgrid.node.transport.mqtt import MqttLink
from tests.support.daemons.deployed_fleet import HUSHGRID, PATIENCE, ZONES, Fleet
from tests.support.paths import DEPLOY
from tests.support.site.home_assistant import check

pytestmark = pytest.mark.mosquitto
TOPIC = "home/grid/z1"
BUSES = (1, 2, 3, 4, 5)


@pytest.fixture(autouse=True)
def _tools():
    for tool in ("mosquitto_sub", "jq"):
        if shutil.which(tool) is None:
            assert not os.environ.get("HUSHGRID_REQUIRE_MOSQUITTO"), f"{tool} is required here"
            pytest.skip(f"{tool} is not installed")


class Site:
    """The example fleet, one run every few seconds, and the local broker of z1's site."""

    def __init__(self, directory, fleet_url, local_url, stack, every="3s"):
        self.fleet, self.url = Fleet(directory, fleet_url, stack), local_url
        self.fleet.edit("coordinator.yaml", "wait_s: 60 ", "wait_s: 1 ")
        self.fleet.edit("coordinator.yaml", "silent_s: 10 ", "silent_s: 1.5 ")
        path = self.fleet.directory / "coordinator.yaml"
        path.write_text(path.read_text() + f"run: {{every: {every}}}\n")
        for z in ZONES:
            self.fleet.edit(f"nodes/{z}.yaml", "epsilon: 20.0", "epsilon: 1.0e+6")
        stack.callback(self.leave)
        self.meters = MqttLink(local_url, "meters", persistent=False)
        self.meters.connect(10)

    def leave(self):
        self.meters.close()

    def configure(self, **sections):
        path = self.fleet.directory / "nodes/z1.yaml"
        raw = yaml.safe_load(path.read_text())
        if "source" in sections:
            del raw["data"]["loads"]
        path.write_text(yaml.safe_dump(raw | sections))

    def measure(self, factor=1.0, buses=BUSES):
        """The meters' values: the case's loads times a factor."""
        case = load("case14")
        for k in case.index(list(buses)).tolist() if hasattr(case, "index") else ():
            number = int(case.buses.numbers[k])
            value = {"p": factor * float(case.buses.p_d[k]) * 100, "q": factor * float(case.buses.q_d[k]) * 100}
            self.tell(f"meters/{number}", json.dumps(value).encode())

    def tell(self, topic, payload):
        assert self.meters.publish(topic, payload, True)
        while self.meters.backlog:
            self.meters.poll(0.1)

    def heard(self, topic, *options):
        """What mosquitto_sub prints: by itself, of one message that is retained."""
        host, port = re.fullmatch(r"mqtt://(.*):(\d+)", self.url).groups()
        asked = ["mosquitto_sub", "-h", host, "-p", port, "-t", topic, *(options or ("-C", "1", "-W", "1"))]
        return subprocess.run(asked, capture_output=True, timeout=30).stdout

    def sub(self, topic, program, *options):
        """mosquitto_sub TOPIC | jq PROGRAM."""
        heard = self.heard(topic, "-W", "2", *options)
        made = subprocess.run(["jq", "-c", program], input=heard, capture_output=True, check=True)
        return [json.loads(line) for line in made.stdout.splitlines()]

    def until(self, happened, topic=TOPIC, program="."):
        deadline = time.monotonic() + PATIENCE
        while not (found := self.sub(topic, program, "-C", "1")) or not happened(found[0]):
            assert time.monotonic() < deadline, found
            time.sleep(0.2)
        return found[0]


@pytest.fixture
def site(tmp_path, mosquitto):
    with ExitStack() as stack:
        local = stack.enter_context(brokers.start("mosquitto", tmp_path / "local"))
        yield Site(tmp_path / "fleet", mosquitto.url, local.url, stack)


def section(site, **more):
    heard = {"broker": site.url, "topic": "meters/{bus}", "path": {"p_mw": "p", "q_mvar": "q"}}
    return {"mqtt": heard} | more


def test_mosquitto_sub_and_jq_read_the_set_points_of_a_fleet_that_hears_meters(site):
    folder = site.fleet.directory / "out"
    folder.mkdir()
    group = grp.getgrgid(os.getgid()).gr_name
    site.configure(
        source=section(site),
        sink={
            "file": {"path": str(folder / "z1.json"), "mode": "640", "group": group},
            "mqtt": {"broker": site.url, "topic": TOPIC, "discovery": "home-assistant"},
            "exec": ["sh", "-c", f"cat > {folder}/hook.new && mv {folder}/hook.new {folder}/hook.json"],
        },
    )
    site.measure()
    nodes = {z: site.fleet.node(z) for z in ZONES}
    coordinator = site.fleet.coordinator()
    first = site.until(lambda d: d["state"] == "fresh")
    later = site.until(lambda d: d["run"] != first["run"] and d["state"] == "fresh")
    assert later["data_version"] > first["data_version"]  # each run of the schedule, although no value has come
    site.measure(1.5, (3,))
    high = site.until(lambda d: d["state"] == "fresh" and d["data_version"] > later["data_version"] + 1)
    # other programs read it
    (rows,) = site.sub(TOPIC, "[.setpoints[] | {bus, mw, mvar}]", "-C", "1")
    assert {row["bus"] for row in rows} <= set(BUSES)
    assert all(isinstance(row[key], int | float) for row in rows for key in ("mw", "mvar"))
    (valid,) = site.sub(TOPIC, "(.valid_until | fromdate) - (.time | fromdate)", "-C", "1")
    assert valid == 6.0
    assert (high["node"], high["quality"] is None or isinstance(high["quality"], str)) == ("z1", True)
    kept = folder / "z1.json"
    assert json.loads(kept.read_text())["node"] == "z1"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o640
    assert json.loads((folder / "hook.json").read_text())["fleet"] == "demo"
    # Home Assistant
    entities = site.sub("homeassistant/+/+/+/config", ".unique_id")
    assert len(entities) == len(set(entities)) == 2 * len(rows) + 4  # described once, not with each answer
    described = site.sub("homeassistant/#", "{topic: .topic, payload: .payload}", "-F", "%j")
    for message in described:
        check(message["topic"], json.loads(message["payload"]))
    assert site.sub(f"{TOPIC}/source", ".problem", "-C", "1") == [False]
    # an interval that is missed: the last answer stays, and is old once it is due
    assert coordinator.end() == 0
    old = site.until(lambda d: d["state"] == "old")
    assert old["setpoints"]
    assert old["reason"].startswith("no answer since")
    assert json.loads(kept.read_text())["state"] == "old"
    for daemon in nodes.values():
        assert daemon.end() == 0
    assert site.heard(f"{TOPIC}/available") == b"offline\n"


def test_nobody_takes_the_set_points_of_a_killed_device_for_fresh(site):
    """Its broker says that it is away and forgets the document once it counts no more; the unit's command marks the
    file.
    """
    kept = site.fleet.directory / "z1.json"
    site.configure(sink={"file": {"path": str(kept)}, "mqtt": {"broker": site.url, "topic": TOPIC}})
    nodes = {z: site.fleet.node(z) for z in ZONES}
    site.fleet.coordinator()
    site.until(lambda d: d["state"] == "fresh")
    (words,) = re.findall(r"^ExecStopPost=-(.*)$", (DEPLOY / "hushgrid-node@.service").read_text(), re.M)
    mark = words.replace("/etc/hushgrid/nodes/%i.yaml", str(site.fleet.directory / "nodes/z1.yaml")).split()
    command = [*HUSHGRID, *mark[1:]]
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode == 2
    assert "expected that the device has ended" in refused.stderr
    nodes["z1"].kill()
    last = json.loads(kept.read_text())
    assert last["state"] in ("fresh", "held")
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    marked = json.loads(kept.read_text())
    assert (marked["state"], marked["run"]) == ("old", last["run"])
    assert marked["reason"].startswith("the device has stopped")
    deadline = time.monotonic() + PATIENCE
    while site.heard(TOPIC):  # whoever asks for it now
        assert time.monotonic() < deadline
    assert time.time() >= calendar.timegm(time.strptime(last["valid_until"], "%Y-%m-%dT%H:%M:%SZ"))
    assert site.heard(f"{TOPIC}/available") == b"offline\n"
    again = site.fleet.node("z1")
    fresh = site.until(lambda d: d["run"] != last["run"] and d["state"] == "fresh")
    assert json.loads(kept.read_text())["time"] >= fresh["time"]
    assert again.end() == 0
    assert site.until(lambda d: d["state"] == "old")["reason"].startswith("the device has stopped")


def test_with_fresh_a_fleets_runs_repeat_the_stored_answer_at_no_cost_and_say_its_age(site):
    """Two answers in ten minutes: the three runs of this test have one."""
    budget = {"epsilon": 20.0, "window": "10min", "adjacency": {"bounded-change": 0.01}}
    sink = {"mqtt": {"broker": site.url, "topic": TOPIC}}
    site.configure(source=section(site), fresh=2, budget=budget, retention="9min", sink=sink)
    site.measure()
    nodes = {z: site.fleet.node(z) for z in ZONES}
    coordinator = site.fleet.coordinator()
    first = site.until(lambda d: d["state"] == "fresh")
    site.measure(2.0)
    second = site.until(lambda d: d["run"] != first["run"])
    third = site.until(lambda d: d["run"] not in (first["run"], second["run"]))
    assert first["data_version"] == second["data_version"] == third["data_version"]
    assert first["age"] < second["age"] < third["age"]
    assert "counts on" in nodes["z1"].said
    assert coordinator.end() == 0
    for daemon in nodes.values():
        assert daemon.end() == 0
    assert len(site.fleet.spends("z1")) == 1


def test_a_device_that_never_had_a_value_ends_with_4_in_a_line_and_goes_on_once_there_is_one(site):
    site.configure(source={"file": str(site.fleet.directory / "meter.csv")})
    daemon = site.fleet.start("node", "z1.yaml", "z1")
    assert daemon.code() == 4
    assert daemon.said.count("\n") == 1
    assert "no value yet" in daemon.said
    shutil.copy(site.fleet.directory / "nodes/loads-z1.csv", site.fleet.directory / "meter.csv")
    assert site.fleet.node("z1").end() == 0
    os.unlink(site.fleet.directory / "meter.csv")
    assert site.fleet.node("z1").end() == 0  # the last good value counts


def test_a_device_killed_in_a_run_goes_on_with_the_values_of_its_data_version(site):
    """It dies once it has joined; what its file says meanwhile is for the next run."""
    file = site.fleet.directory / "meter.csv"
    shutil.copy(site.fleet.directory / "nodes/loads-z1.csv", file)
    site.fleet.gradients(4000)
    site.fleet.edit("coordinator.yaml", "silent_s: 1.5 ", "silent_s: 20 ")
    site.configure(source={"file": str(file)})
    nodes = {z: site.fleet.node(z) for z in ZONES}
    site.fleet.coordinator()
    nodes["z1"].wait_for("joined run")
    before = kept(site.fleet)
    nodes["z1"].kill()
    file.write_text(file.read_text().replace("21.7", "1.5"))
    again = site.fleet.node("z1")
    again.wait_for("resumed run")
    assert kept(site.fleet) == before
    again.kill()


def kept(fleet):
    """(data version, values) that z1 holds."""
    found = last_values(fleet.state("z1") / "z1.intake")
    return found.version, found.values


@pytest.mark.long
def test_a_local_broker_that_floods_and_dies_does_not_disturb_the_run(tmp_path, mosquitto):
    with ExitStack() as stack:
        local = stack.enter_context(ExitStack())
        broker = local.enter_context(brokers.start("mosquitto", tmp_path / "local"))
        site = Site(tmp_path / "fleet", mosquitto.url, broker.url, stack)
        site.configure(source=section(site), sink={"mqtt": {"broker": site.url, "topic": TOPIC}})
        site.measure()
        for z in ZONES:
            site.fleet.node(z)
        coordinator = site.fleet.coordinator()
        site.until(lambda d: d["state"] == "fresh")
        for _ in range(20):
            site.meters.send([("meters/3", b'{"p": "nonsense"}', False)] * 200)
            site.meters.turn(True)
            site.tell("meters/2", b"x" * 300_000)
        before = runs(site.fleet)
        until_runs(site.fleet, before + 2)
        site.meters.close()
        local.close()
        before = runs(site.fleet)
        until_runs(site.fleet, before + 3)
        assert coordinator.end() == 0
        outcomes = [row["outcome"] for row in rows_of(site.fleet)]
        assert outcomes == ["answer"] * len(outcomes)


def rows_of(fleet):
    import csv

    path = fleet.state("coordinator") / "intervals.csv"
    return list(csv.DictReader(path.read_text().splitlines())) if path.exists() else []


def runs(fleet):
    return len(rows_of(fleet))


def until_runs(fleet, count):
    deadline = time.monotonic() + PATIENCE
    while runs(fleet) < count:
        assert time.monotonic() < deadline, rows_of(fleet)
        time.sleep(0.05)
