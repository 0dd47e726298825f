"""`hushgrid check` says whether what a device reads from and writes to is there; it reads no value."""

import shutil

import pytest
import yaml

from tests.support.paths import DEPLOY


@pytest.fixture
def z1(tmp_path):
    """Writes z1's file with more sections; returns its path."""

    def made(**sections):
        raw = yaml.safe_load((DEPLOY / "nodes/z1.yaml").read_text())
        del raw["tls"]
        raw |= {"broker": "mqtt://x", "state": "state", "mark": "mark"} | sections
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
        ({"sink": {"mqtt": {"broker": "mqtt://x", "topic": "a/#"}}}, "sink.mqtt.topic: found 'a/#'"),
        ({"fresh": 4}, "fresh: found 4, expected one beside budget.window"),
    ],
)
def test_what_is_not_there_is_one_line(hushgrid, z1, sections, line):
    told = hushgrid("check", z1(**sections))
    assert told.code == 2
    assert line in told.err
    assert told.err.count("\n") == 1
