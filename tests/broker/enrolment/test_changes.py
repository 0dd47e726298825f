"""A member more or less in a fleet's files: what changes is written, and all other text stays."""

import re
import shutil
from pathlib import Path

import pytest

from hushgrid.broker.enrolment.authority import request
from hushgrid.broker.enrolment.changes import add_node, add_zone, edited, remove_node, remove_zone
from hushgrid.broker.enrolment.directory import FleetDirectory
from hushgrid.cli.main import main
from hushgrid.kernels.errors import InputError
from hushgrid.node.config.device import load_device
from tests.support.paths import DEPLOY

URL = "mqtts://broker.example:8883"


@pytest.fixture
def grid(tmp_path) -> Path:
    return Path(shutil.copy(DEPLOY / "scenario.yaml", tmp_path / "scenario.yaml"))


@pytest.fixture
def ring(tmp_path) -> Path:
    return Path(shutil.copy(DEPLOY / "ring" / "scenario.yaml", tmp_path / "ring.yaml"))


def other_lines(before: str, after: str) -> list[str]:
    pairs = zip(before.splitlines(), after.splitlines(), strict=True)
    return [new for old, new in pairs if old != new]


def test_a_zone_takes_its_buses_from_the_others_and_no_other_line_changes(grid):
    change = add_zone(grid, "z4", [9, 10, 14])
    assert change.nodes == ["z1", "z2", "z3", "z4"]
    assert change.moved == {"z2": (7, 8)}
    (line,) = other_lines(grid.read_text(), change.text)
    assert "[9, 10, 14]" in line


def test_the_last_zones_buses_go_where_most_of_its_lines_go(grid):
    grid.write_text(add_zone(grid, "z4", [14]).text)
    change = remove_zone(grid, "z4")
    assert change.nodes == ["z1", "z2", "z3"]
    assert [14 in buses for buses in change.moved.values()] == [True]


def test_a_node_more_is_one_number_and_one_with_other_rows_a_list(ring):
    (line,) = other_lines(ring.read_text(), add_node(ring, "n4").text)
    assert "nodes: 5}" in line
    assert "rows: [200, 200, 200, 200, 150]" in add_node(ring, "n4", 150).text
    ring.write_text(add_node(ring, "n4", 150).text)
    assert remove_node(ring, "n4").nodes == ["n0", "n1", "n2", "n3"]


@pytest.mark.parametrize(
    ("name", "buses", "message"),
    [
        ("z5", [14], r"NAME: found z5, expected z4, the next zone"),
        ("z4", [99], r"--zone: found 99, expected buses of the case"),
        ("z4", [6, 11, 12, 13], r"--zone: found all buses of z3"),
        ("z4", [1, 14], r"expected a connected zone"),
    ],
)
def test_a_zone_that_cannot_be_is_one_line(grid, name, buses, message):
    with pytest.raises(InputError, match=message):
        add_zone(grid, name, buses)


def test_a_block_of_yaml_is_replaced_without_the_comments_around_it():
    text = "a: # one\n  b:\n    - 1\n    - 2\n  # of c\n  c: 3\n"
    assert edited(text, ("a", "b"), [1, 2, 3]) == "a: # one\n  b:\n    [1, 2, 3]\n  # of c\n  c: 3\n"


# --- the commands ---


def test_a_zone_is_added_in_one_command_with_all_that_its_box_needs(fleet, tmp_path, capsys):
    request("z4", tmp_path / "box")
    arguments = ["add", fleet.path, "z4", "--zone", "9,10,14", "--request", tmp_path / "box" / "z4.csr"]
    assert main(["fleet", *map(str, arguments)]) == 0
    said = capsys.readouterr().out
    assert "z2: its zone is 7, 8 now" in said
    assert "members: [z1, z2, z3, z4]" in (fleet.path / "coordinator.yaml").read_text()
    assert "user z4\n" in (fleet.path / "broker" / "hushgrid.acl").read_text()
    box = fleet.path / "z4"
    assert {path.name for path in box.iterdir()} == {"z4.yaml", "z4.crt", "ca.crt", "loads-z4.csv"}
    shutil.copyfile(tmp_path / "box" / "z4.key", box / "z4.key")
    config = load_device(box / "z4.yaml")
    assert (config.node, config.data.zone) == ("z4", [9, 10, 14])
    assert main(["check", str(box / "z4.yaml")]) == 0


def test_a_member_is_removed_and_put_out(fleet, tmp_path, capsys):
    request("z4", tmp_path / "box")
    arguments = ["add", fleet.path, "z4", "--zone", "14", "--request", tmp_path / "box" / "z4.csr"]
    assert main(["fleet", *map(str, arguments)]) == 0
    assert main(["fleet", "remove", str(fleet.path), "z4"]) == 0
    assert FleetDirectory(fleet.path).is_out("z4")
    assert "members: [z1, z2, z3]" in (fleet.path / "coordinator.yaml").read_text()
    assert "user z4\n" not in (fleet.path / "broker" / "hushgrid.acl").read_text()


def test_nothing_is_written_if_the_request_is_for_another(fleet, tmp_path, capsys):
    request("z5", tmp_path / "box")
    before = (fleet.path / "scenario.yaml").read_text()
    arguments = ["add", fleet.path, "z4", "--zone", "14", "--request", tmp_path / "box" / "z5.csr"]
    assert main(["fleet", *map(str, arguments)]) == 2
    assert "found it for z5, expected one for z4" in capsys.readouterr().err
    assert (fleet.path / "scenario.yaml").read_text() == before
    assert not (fleet.path / "z4").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["add", "F", "z4", "--zone", "9;10"], r"--zone: found '9;10', expected bus numbers with commas"),
        (["add", "F", "z4", "--data", "rows.csv"], r"found --data, expected --zone BUSES"),
        (["add", "F", "z4"], r"--zone --data"),
        (["add", "F", "Z4", "--zone", "14"], r"lower-case"),
        (["remove", "F", "z2"], r"NAME: found z2, expected z3, the last zone"),
        (["remove", "F", "z3", "--ca-key", "none"], r"none: No such file"),
    ],
)
def test_what_is_wrong_is_one_line_and_changes_nothing(fleet, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(fleet.path.parent)
    before = {path: path.read_bytes() for path in fleet.path.rglob("*") if path.is_file()}
    assert main(["fleet", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(message, line)
    assert before == {path: path.read_bytes() for path in fleet.path.rglob("*") if path.is_file()}
