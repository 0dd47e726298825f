"""Wrong input to `hushgrid`: one line that names file, key, found and expected."""

import re
from typing import Any

import pytest

from tests.support.command_line import tree, write


def matpower(buses: list[int], lines: list[tuple[int, int]]) -> str:
    """A small case file."""
    bus = "\n".join(f"{b} {3 if b == buses[0] else 1} 10 5 0 0 1 1 0 230 1 1.1 0.9;" for b in buses)
    branch = "\n".join(f"{a} {b} 0.01 0.1 0 100 100 100 0 0 1;" for a, b in lines)
    return (
        f"function mpc = small\nmpc.version = '2';\nmpc.baseMVA = 100;\nmpc.bus = [\n{bus}\n];\n"
        f"mpc.gen = [\n{buses[0]} 0 0 50 -50 1 100 1 100 0;\n];\nmpc.branch = [\n{branch}\n];\n"
        "mpc.gencost = [\n2 0 0 3 0 1 0;\n];\n"
    )


# --- bad input ---


WRONG: dict[str, tuple[dict[str, Any], list[str]]] = {
    "unknown key": ({"colour": "red"}, ["colour: unknown key", "expected one of hushgrid, name"]),
    "unknown nested key": ({"run.stop": {"tolerance": 1, "foo": 1}}, ["run.stop.foo: unknown key", "patience"]),
    "unknown key beside a tag": ({"problem.foo": 1}, ["problem.foo: unknown key", "kind, case, zones"]),
    "wrong type": ({"algorithm.rounds": "many"}, ["algorithm.rounds: found 'many', expected int"]),
    "missing key": ({"algorithm.rounds": None}, ["algorithm.rounds: missing"]),
    "zero rounds": ({"algorithm.rounds": 0}, ["algorithm.rounds: found 0, expected int >= 1"]),
    "foreign bus": ({"problem.zones": [[1, 99]]}, ["problem.zones.z1: found bus 99", "case14"]),
    "overlapping zones": ({"problem.zones": [[1, 2], [2, 3]]}, ["problem.zones.z2: found bus 2, already in z1"]),
    "forgotten bus": ({"problem.zones": [list(range(1, 14))]}, ["problem.zones", "bus 14", "in no zone"]),
    "zone in two pieces": (
        {"problem.zones": [[1, 14], list(range(2, 14))]}, ["problem.zones.z1: bus 14 is not connected to bus 1"],
    ),
    "more zones than buses": ({"problem.zones": 15}, ["problem.zones: found 15", "1 to 14"]),
    "unknown case": ({"problem.case": "case15"}, ["problem.case: found 'case15'", "case14"]),
    "case file not there": ({"problem.case": "no.m"}, ["problem.case: 'no.m'", "expected a readable MATPOWER"]),
    "malformed case file": ({"problem.case": "malformed.m"}, ["problem.case", "malformed.m:1: found"]),
    "disconnected case": (
        {"problem.case": "islands.m", "problem.zones": 1}, ["islands: bus 3: not connected to bus 1"],
    ),
    "unknown problem": ({"problem.kind": "chess"}, ["problem.kind: found 'chess', expected one of zones, "
                                                    "least-squares, logistic, softmax"]),
    "unknown algorithm": ({"algorithm.name": "magic"}, ["algorithm.name: found 'magic', expected one of admm"]),
    "unknown variant": ({"algorithm.variant": "best"}, ["algorithm.variant: found 'best'", "guarded"]),
    "negative epsilon": ({"privacy.epsilon": -1.0}, ["privacy.epsilon: found -1.0, expected float >= 1e-09"]),
    "no delta": ({"privacy.mechanism": "gaussian"}, ["privacy.delta: found nothing", "gaussian"]),
    "no adjacency": ({"privacy.adjacency": None}, ["privacy.adjacency: missing"]),
    "no privacy": ({"privacy": None}, ["privacy: found nothing", "variant: none"]),
    "too few answers": ({"privacy.answers": 1, "algorithm.local_updates": 2}, ["privacy.answers: found 1"]),
    "other format": ({"hushgrid": 2}, ["hushgrid: found 2, expected one of 1"]),
}  # fmt: skip


@pytest.mark.parametrize(("over", "fragments"), WRONG.values(), ids=WRONG)
def test_a_wrong_scenario_is_one_line_that_names_file_key_found_and_expected(over, fragments, hushgrid, tmp_path):
    (tmp_path / "malformed.m").write_text("the dog ate it\n")
    (tmp_path / "islands.m").write_text(matpower([1, 2, 3, 4], [(1, 2), (3, 4)]))
    file = write(tmp_path / "s.yaml", over)
    before = tree(tmp_path)
    checked, ran = hushgrid("check", file), hushgrid("run", file)
    assert checked == ran
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.startswith(f"hushgrid: {file}: ")
    assert ran.err.count("\n") == 1
    assert [f for f in fragments if f not in ran.err] == []
    assert tree(tmp_path) == before


TEXTS = {
    "no YAML": ("a: [1,", "s.yaml:1"),
    "a list": ("- 1\n- 2\n", "found list, expected a mapping"),
    "a key twice": ("hushgrid: 1\nhushgrid: 1\n", "twice"),
    "no text": ("\udcff", "not UTF-8"),
}


@pytest.mark.parametrize("command", ["run", "check", "node", "coordinator"])
@pytest.mark.parametrize(("text", "fragment"), TEXTS.values(), ids=TEXTS)
def test_a_file_that_is_no_mapping_is_one_line(command, text, fragment, hushgrid, tmp_path):
    file = tmp_path / "s.yaml"
    file.write_text(text, errors="surrogateescape")
    said = hushgrid(command, file)
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert str(file) in said.err
    assert fragment in said.err


ARGUMENTS: dict[str, tuple[list[str], str]] = {
    "no command": ([], "COMMAND"),
    "unknown command": (["fly"], "'fly'"),
    "no scenario": (["run"], "SCENARIO"),
    "unknown option": (["run", "s.yaml", "--fast"], "--fast"),
    "abbreviated option": (["run", "s.yaml", "--trans", "mqtt"], "--trans"),
    "unknown transport": (["run", "s.yaml", "--transport", "pigeon"], "'pigeon'"),
    "unknown broker": (["run", "s.yaml", "--transport", "mqtt", "--broker", "pigeon"], "--broker: found 'pigeon'"),
    "broker without mqtt": (["run", "s.yaml", "--broker", "embedded"], "expected --transport mqtt"),
    "missing file": (["run", "no.yaml"], "no.yaml: No such file or directory, expected a readable file"),
    "a directory": (["check", "."], ".: Is a directory"),
    "seed of letters": (["run", "s.yaml", "--seed", "x"], "--seed: invalid int value: 'x'"),
    "negative seed": (["run", "s.yaml", "--seed", "-1"], "seed: found -1, expected int >= 0"),
    "set without value": (["run", "s.yaml", "--set", "seed"], "--set seed: found no '='"),
    "set without path": (["run", "s.yaml", "--set", "=1"], "--set =1: found no '='"),
    "set no YAML": (["run", "s.yaml", "--set", "seed=["], "expected a YAML value"),
    "set below a value": (["run", "s.yaml", "--set", "name.x=1"], "--set name.x: found 'small' at name"),
    "set unknown path": (["run", "s.yaml", "--set", "algorithm.speed=9"], "algorithm.speed: unknown key"),
    "out exists": (["run", "s.yaml", "--out", "."], ".: found an existing path"),
    "out below a file": (["run", "s.yaml", "--out", "s.yaml/x"], "s.yaml is not a directory"),
    "state is a file": (["run", "s.yaml", "--state", "s.yaml"], "--state s.yaml: found that s.yaml is not"),
    "faults over mqtt": (
        ["run", "s.yaml", "--transport", "mqtt", "--set", "run.faults.loss=0.1"],
        "s.yaml: run.faults: found with transport mqtt, expected memory",
    ),
    "report of nothing": (["report", "no"], "no"),
    "a scenario as a device": (["node", "s.yaml"], "s.yaml: algorithm: unknown key"),
    "a scenario as a coordinator": (["coordinator", "s.yaml"], "s.yaml: algorithm: unknown key"),
    "neither of the three": (["check", "other.yaml"], "other.yaml: found x, expected a scenario"),
    "no ledger": (["ledger", "show", "s.yaml"], "s.yaml: "),
    "ledger of text": (["ledger", "verify", "text.ledger"], "text.ledger: found no SQLite file, expected a ledger"),
    "ledger not there": (["ledger", "accept", "no.ledger"], "no.ledger: No such file or directory"),
    "unknown case": (["case", "show", "case15"], "case: found 'case15'"),
    "zones of words": (["case", "zones", "case14", "--zones", "three"], "--zones: found 'three'"),
    "too many zones": (["case", "zones", "case14", "--zones", "15"], "zones: found 15"),
    "unknown objective": (["case", "solve", "case14", "--objective", "fame"], "'fame'"),
    "unknown benchmark": (["bench", "fame"], "bench: found 'fame'"),
    "broker without a port number": (
        ["run", "s.yaml", "--transport", "mqtt", "--broker", "mqtt://h:x"],
        "broker: found 'mqtt://h:x'",
    ),
    "port beyond all": (["broker", "--port", "99999"], "--port: found 99999"),
}


@pytest.mark.parametrize(("arguments", "fragment"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_wrong_arguments_are_one_line_and_leave_nothing(arguments, fragment, hushgrid, tmp_path):
    write(tmp_path / "s.yaml")
    (tmp_path / "other.yaml").write_text("x: 1\n")
    (tmp_path / "text.ledger").write_text("not a database, but longer than its header\n")
    before = tree(tmp_path)
    said = hushgrid(*arguments)
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert fragment in said.err
    assert tree(tmp_path) == before


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["ledger", "show", "--help"], ["--version"]])
def test_help_is_on_stdout_and_ends_with_0(arguments, hushgrid):
    said = hushgrid(*arguments)
    assert said.code == 0
    assert "hushgrid" in said.out
    assert said.err == ""


@pytest.mark.parametrize("later", ["standby"])
def test_what_does_not_exist_yet_is_not_offered(later, hushgrid):
    assert hushgrid(later, "x").code == 2
    assert not re.search(f"^ {{4}}{later} ", hushgrid("--help").out, re.MULTILINE)
