"""`hushgrid check` says whether what a device reads from and writes to is there; it reads no value."""

import shutil

import pytest
import yaml

from tests.support.daemons.site_fleet import SCENARIO
from tests.support.paths import DEPLOY


@pytest.fixture
def z1(tmp_path):
    """Writes z1's file with more sections; returns its path."""

    def made(**sections):
        raw = yaml.safe_load((DEPLOY / "nodes/z1.yaml").read_text())
        del raw["tls"]
        raw |= {"broker": "mqtt://localhost", "state": "state", "mark": "mark"} | sections
        shutil.copy(DEPLOY / "nodes/loads-z1.csv", tmp_path)
        (tmp_path / "z1.yaml").write_text(yaml.safe_dump(raw))
        return tmp_path / "z1.yaml"

    return made


def test_it_says_where_data_come_from_and_who_is_told_without_reading_a_value(hushgrid, z1, tmp_path):
    (tmp_path / "meter.csv").write_text("secret garbage")
    told = hushgrid("check", z1(source={"file": "meter.csv"}, sink={"exec": ["cat"], "file": {"path": "out.json"}}))
    assert told.code == 0, told.err
    assert f"source: {tmp_path}/meter.csv, read within 0.5 s before each run" in told.out
    assert f"sink: the outcome of each run goes to {tmp_path}/out.json (mode 600), cat; " in told.out
    assert "secret" not in told.out + told.err
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize(
    ("sections", "line"),
    [
        ({"source": {"file": "no.csv"}}, "source.file: "),
        ({"source": {"folder": "no"}}, "source.folder: "),
        ({"source": {"command": ["./no.py"]}}, "source.command: found './no.py', expected a program"),
        ({"sink": {"exec": ["no-such-program"]}}, "sink.exec: found 'no-such-program', expected a program"),
        ({"sink": {"file": {"path": "no/out.json"}}}, "sink.file.path: "),
        ({"sink": {"file": {"path": "out.json", "group": "no-such"}}}, "sink.file.group: found 'no-such'"),
        ({"sink": {"file": {"path": "out.json", "mode": "9"}}}, "sink.file.mode: found '9'"),
        ({"sink": {}}, "sink: found an empty section, expected file, mqtt or exec"),
        ({"sink": {"mqtt": {"broker": "mqtt://localhost:1884", "topic": "a/#"}}}, "sink.mqtt.topic: found 'a/#'"),
        ({"broker": "mqtt://10.0.0.7"}, "broker: found mqtt://10.0.0.7, unencrypted and not on this machine"),
        (
            {"source": {"mqtt": {"broker": "mqtt://[::1]", "topic": "loads"}}},
            "source.mqtt.broker: found mqtt://[::1], the",
        ),
        (
            {"sink": {"mqtt": {"broker": "mqtt://localhost", "topic": "z1"}}},
            "sink.mqtt.broker: found mqtt://localhost, the",
        ),
        (
            {"sink": {"mqtt": {"broker": "mqtt://localhost:1884", "topic": "hushgrid/1/demo/z1"}}},
            "sink.mqtt.topic: found 'hushgrid/1/demo/z1', a fleet's",
        ),
        ({"fresh": 4}, "fresh: found 4, expected one beside budget.window"),
    ],
)
def test_what_is_not_there_is_one_line(hushgrid, z1, sections, line):
    told = hushgrid("check", z1(**sections))
    assert told.code == 2
    assert line in told.err
    assert told.err.count("\n") == 1


def test_what_is_refused_for_the_promise_is_refused_by_the_daemon_in_the_same_words(hushgrid, z1):
    for sections in (
        {"broker": "mqtt://10.0.0.7"},
        {"source": {"mqtt": {"broker": "mqtt://localhost:1883", "topic": "loads"}}},
        {"sink": {"mqtt": {"broker": "mqtt://localhost:1884", "topic": "hushgrid/1/demo/z1"}}},
    ):
        file = z1(**sections)
        checked, begun = hushgrid("check", file), hushgrid("node", file)
        assert checked == begun
        assert (begun.code, begun.err.count("\n")) == (2, 1)
        assert not (file.parent / "state").exists()


def test_what_an_owner_takes_upon_himself_is_said(hushgrid, z1):
    owned = hushgrid("check", z1(broker="mqtt://10.0.0.7", broker_in_clear=True))
    assert owned.code == 0, owned.err
    assert "\n  mqtt://10.0.0.7: in clear, as the owner knows" in owned.out
    assert "in clear" not in hushgrid("check", z1()).out


def test_a_quorum_is_of_the_members(hushgrid, tmp_path):
    centre = yaml.safe_load((DEPLOY / "coordinator.yaml").read_text())
    del centre["tls"]
    centre |= {"broker": "mqtt://localhost", "scenario": str(DEPLOY / "scenario.yaml"), "quorum": 4}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(centre))
    refused = hushgrid("check", tmp_path / "c.yaml")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.endswith("c.yaml: quorum: found 4, expected at most 3, the members\n")


@pytest.mark.parametrize(
    ("quorum", "line"),
    [
        (4, "quorum: found 4, expected at most 3, the members"),
        (1, "quorum: found 1, expected at least 2, the fewest sites of a round"),
    ],
)
def test_a_quorum_of_sites_is_no_smaller_than_the_plans(hushgrid, tmp_path, quorum, line):
    how = "masked: {corrupt: 0, sites: {number: 3, contributors: 2}}"
    (tmp_path / "s.yaml").write_text(SCENARIO.replace("masked: {corrupt: 0, sites: {number: 2}}", how))
    centre = {"fleet": "taps", "broker": "mqtt://localhost", "scenario": "s.yaml", "state": "state"}
    schedule = {"run": {"every": "15min"}, "wait_s": 10, "quorum": quorum}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(centre | schedule))
    refused = hushgrid("check", tmp_path / "c.yaml")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.endswith(f"c.yaml: {line}\n")
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(centre | schedule | {"quorum": 2}))
    assert hushgrid("check", tmp_path / "c.yaml").code == 0


def test_zones_in_sites_run_by_a_schedule_but_without_a_quorum(hushgrid, tmp_path):
    scenario = (DEPLOY / "scenario.yaml").read_text().replace("problem:\n", "problem:\n  sites: [[z1, z2], [z3]]\n", 1)
    (tmp_path / "s.yaml").write_text(scenario)
    centre = {"fleet": "demo", "broker": "mqtt://localhost", "scenario": "s.yaml", "state": "state"}
    schedule = {"run": {"every": "15min"}, "wait_s": 10}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(centre | schedule))
    assert hushgrid("check", tmp_path / "c.yaml").code == 0
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(centre | schedule | {"quorum": 2}))
    refused = hushgrid("check", tmp_path / "c.yaml")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.endswith("c.yaml: quorum: found 2, expected none: no zone in sites is held\n")
