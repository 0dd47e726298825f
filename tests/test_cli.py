"""`hushgrid` as a person meets it: what it says, what it returns, what it leaves behind."""

import csv
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import yaml

from hushgrid.broker import brokers, results
from hushgrid.broker.cli import main
from hushgrid.node.ledger import Ledger
from hushgrid.node.records import Spend

SCENARIO = Path(__file__).parents[1] / "scenarios" / "case14.yaml"
PATIENCE = 60  #: seconds after which a process that hangs fails its test


class Said(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def hushgrid(capfd, tmp_path, monkeypatch) -> Callable[..., Said]:
    """hushgrid(*arguments), in this process and an empty directory of its own."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> Said:
        capfd.readouterr()
        code = main([str(a) for a in arguments])
        return Said(code, *capfd.readouterr())

    return call


def good() -> dict[str, Any]:
    return {
        "hushgrid": 1, "name": "small",
        "problem": {"kind": "zones", "case": "case14", "zones": 3},
        "algorithm": {"name": "ladmm", "rounds": 3},
        "privacy": {"adjacency": {"bounded-change": 0.01}, "epsilon": 5.0},
    }  # fmt: skip


def write(path: Path, over: dict[str, Any] | None = None) -> Path:
    """A scenario; over: dotted key paths to values, None takes the key away."""
    raw = good()
    for key, value in (over or {}).items():
        *parents, last = key.split(".")
        here = raw
        for parent in parents:
            here = here.setdefault(parent, {})
        here.update({last: value}) if value is not None else here.pop(last)
    path.write_text(yaml.safe_dump(raw))
    return path


def matpower(buses: list[int], lines: list[tuple[int, int]]) -> str:
    """A small case file."""
    bus = "\n".join(f"{b} {3 if b == buses[0] else 1} 10 5 0 0 1 1 0 230 1 1.1 0.9;" for b in buses)
    branch = "\n".join(f"{a} {b} 0.01 0.1 0 100 100 100 0 0 1;" for a, b in lines)
    return (
        f"function mpc = small\nmpc.version = '2';\nmpc.baseMVA = 100;\nmpc.bus = [\n{bus}\n];\n"
        f"mpc.gen = [\n{buses[0]} 0 0 50 -50 1 100 1 100 0;\n];\nmpc.branch = [\n{branch}\n];\n"
        "mpc.gencost = [\n2 0 0 3 0 1 0;\n];\n"
    )


def tree(directory: Path) -> list[str]:
    return sorted(str(p.relative_to(directory)) for p in directory.rglob("*"))


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
    "unknown problem": ({"problem.kind": "chess"}, ["problem.kind: found 'chess', expected one of zones, least-squares, logistic, softmax"]),
    "unknown algorithm": ({"algorithm.name": "magic"}, ["algorithm.name: found 'magic', expected one of ladmm"]),
    "unknown variant": ({"algorithm.variant": "best"}, ["algorithm.variant: found 'best'", "guarded"]),
    "negative epsilon": ({"privacy.epsilon": -1.0}, ["privacy.epsilon: found -1.0, expected float > 0.0"]),
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


@pytest.mark.parametrize("later", ["fleet", "attack", "audit"])
def test_what_does_not_exist_yet_is_not_offered(later, hushgrid):
    assert hushgrid(later, "x").code == 2
    assert not re.search(f"^ {{4}}{later} ", hushgrid("--help").out, re.MULTILINE)


# --- check ---


def test_a_good_file_is_one_line_that_says_what_it_is(hushgrid):
    assert hushgrid("check", SCENARIO) == (
        0,
        "ok: scenario case14-three-zones: case14 in 3 zones, ladmm (guarded), 100 rounds, laplace, epsilon 5 in 1 answers\n",
        "",
    )


@pytest.mark.parametrize("file", ["nodes/z1.yaml", "coordinator.yaml"])
def test_a_device_and_a_coordinator_are_told_by_their_keys(file, hushgrid, tmp_path):
    shutil.copytree(SCENARIO.parents[1] / "deploy", tmp_path / "deploy")
    place = tmp_path / "deploy" / file
    raw = yaml.safe_load(place.read_text()) | {"broker": "mqtt://127.0.0.1"}
    del raw["tls"]
    place.write_text(yaml.safe_dump(raw))
    before = tree(tmp_path)
    said = hushgrid("check", place)
    assert said.code == 0, said.err
    assert said.out.startswith(f"ok: {place.stem if place.stem == 'coordinator' else 'node z1'} of fleet demo")
    assert tree(tmp_path) == before


def test_the_members_of_a_coordinator_are_the_zones_of_its_scenario(hushgrid, tmp_path):
    write(tmp_path / "s.yaml")
    configuration = {"fleet": "f", "broker": "mqtt://127.0.0.1", "scenario": "s.yaml", "members": ["z1"], "state": "st"}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(configuration))
    for command in ("check", "coordinator"):
        said = hushgrid(command, tmp_path / "c.yaml")
        assert (said.code, said.out) == (2, "")
        assert "c.yaml: members: found z1, expected z1, z2, z3" in said.err


# --- run ---

RESULT = [
    "name",
    "algorithm",
    "variant",
    "transport",
    "broker",
    "nodes",
    "lost",
    "walk",
    "rounds_done",
    "stopped_because",
    "objective",
    "optimality_gap",
    "relative_error",
    "consensus_residual",
    "max_violation",
    "messages",
    "bytes",
    "wall_s",
    "privacy",
    "versions",
]
PRIVACY = ["claimed", "spent", "per_node", "adjacency", "mechanism", "accountant", "sampler", "answers", "capped", "upheld", "findings", "ledgers"]  # fmt: skip
HISTORY = [
    "round",
    "objective",
    "consensus_residual",
    "max_violation",
    "noise_l1",
    "noise_l1_expected",
    "messages",
    "bytes",
    "epsilon_z1",
    "epsilon_z2",
    "epsilon_z3",
]
FILES = ["history.csv", "ledger", "report.html", "result.json", "scenario.yaml", "setpoints.csv", "solution.npz"]


@pytest.mark.parametrize("transport", ["memory", pytest.param("mqtt", marks=pytest.mark.mosquitto)])
def test_a_private_run_leaves_what_the_contract_says_and_no_figure_of_raw_data(transport, hushgrid, tmp_path, request):
    options = []
    if transport == "mqtt":
        options = ["--transport", "mqtt", "--broker", request.getfixturevalue("mosquitto").url]
    said = hushgrid("run", write(tmp_path / "s.yaml"), *options, "--out", "run", "--json")
    assert (said.code, said.err) == (0, "")
    run = tmp_path / "run"
    assert said.out == (run / "result.json").read_text()
    assert sorted(p.name for p in run.iterdir()) == FILES
    assert sorted(p.name for p in (run / "ledger").iterdir()) == [
        f"{n}.ledger" for n in ("coordinator", "z1", "z2", "z3")
    ]

    result = json.loads(said.out)
    assert list(result) == RESULT
    assert sorted(result["privacy"]) == sorted(PRIVACY)
    assert (result["transport"], result["nodes"], result["rounds_done"]) == (transport, 3, 3)
    assert result["privacy"]["upheld"] is True
    assert result["privacy"]["claimed"] == {"epsilon": 5.0, "delta": 0.0}
    assert [result[k] for k in ("objective", "optimality_gap", "relative_error")] == [None] * 3

    with (run / "history.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == HISTORY
    assert [row[0] for row in rows] == ["1", "2", "3"]
    assert {row[header.index(name)] for row in rows for name in ("objective", "noise_l1")} == {""}
    assert sum(int(row[header.index("messages")]) for row in rows) == result["messages"]
    assert float(rows[-1][header.index("epsilon_z1")]) == pytest.approx(5.0)

    with np.load(run / "solution.npz", allow_pickle=False) as solution:
        assert sorted(solution) == sorted(["w", "keys_w", *(f"{k}_z{i}" for k in ("z", "keys") for i in (1, 2, 3))])
        assert solution["w"].shape == solution["keys_w"].shape
        assert solution["z_z1"].shape == solution["keys_z1"].shape
    with (run / "setpoints.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["node", "quantity", "element", "value", "unit"]
    assert {row[0] for row in rows} == {"z1", "z2", "z3"}
    assert {row[4] for row in rows} == {"MW", "MVAr", "p.u."}
    assert hushgrid("check", run / "scenario.yaml").code == 0

    page = (run / "report.html").read_bytes()
    (run / "report.html").unlink()
    assert hushgrid("report", run).out == f"{run / 'report.html'}\n"
    assert (run / "report.html").read_bytes() == page


def test_a_run_says_on_stdout_what_it_reached_and_on_stderr_what_it_does(hushgrid, tmp_path):
    said = hushgrid("run", write(tmp_path / "s.yaml"), "--set", "algorithm.rounds=2")
    assert said.code == 0
    assert len(said.err.splitlines()) == 3
    (run,) = (tmp_path / "runs").iterdir()
    assert run.name.startswith("small-")
    for fragment in (
        "small: ladmm, 3 nodes in one process", "2 of 2", "withheld", "upheld: claimed epsilon 5 per node over the run",
        "adjacency bounded-change 0.01", "budget counted for this run only", str(run.relative_to(tmp_path) / "report.html"),
    ):  # fmt: skip
        assert fragment in said.out
    assert hushgrid("run", tmp_path / "s.yaml", "--quiet", "--out", "quiet").err == ""


def test_a_seeded_run_shows_its_objective_and_is_not_private(hushgrid, tmp_path):
    said = hushgrid("run", write(tmp_path / "s.yaml"), "--seed", 7, "--out", "run", "--quiet")
    assert "not private (seed or truth)" in said.out
    assert "above the optimum" in said.out
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["privacy"]["upheld"] == "not private"
    assert result["objective"] > 0


def test_ledgers_under_state_count_over_runs_until_the_budget_refuses(hushgrid, tmp_path):
    file = write(tmp_path / "s.yaml", {"privacy.budget": {"epsilon": 8.0}})
    options = ["--state", "st", "--quiet"]
    assert hushgrid("run", file, *options, "--out", "first").code == 0
    said = hushgrid("run", file, *options, "--out", "second")
    assert (said.code, said.out, said.err.count("\n")) == (3, "", 1)
    for fragment in ("z1: spent epsilon ", "asked 5 more", "budget 8"):
        assert fragment in said.err
    assert (tmp_path / "first").is_dir()
    assert not (tmp_path / "second").exists()
    seen = json.loads(hushgrid("ledger", "show", "st/z1.ledger", "--json").out)
    (total,) = seen["totals"]
    assert total["answers"] == 3
    assert 3.0 < total["epsilon"] <= 5.0  # at most what was claimed; 3 and 5 again would not have been refused
    assert [run["answers"] for run in seen["runs"] if run["status"] == "done"] == [3]


def test_a_plan_beyond_the_budget_is_refused_before_the_first_answer(hushgrid, tmp_path):
    file = write(tmp_path / "s.yaml", {"privacy.budget": {"epsilon": 3.0}})
    said = hushgrid("run", file, "--state", "st", "--quiet")
    assert (said.code, said.out, said.err.count("\n")) == (3, "", 1)
    assert "z1: spent epsilon 0, asked 5 more, budget 3" in said.err
    assert not (tmp_path / "runs").exists()
    assert json.loads(hushgrid("ledger", "show", "st/z1.ledger", "--json").out)["spends"] == 0


def test_a_broker_that_is_not_there_ends_with_4_and_leaves_nothing(hushgrid, tmp_path, monkeypatch):
    monkeypatch.setattr(brokers, "REACH_S", 0.2)
    with socket.socket() as taken:  # bound, so nobody else gets it; not listening, so nobody answers
        taken.bind(("127.0.0.1", 0))
        url = f"mqtt://127.0.0.1:{taken.getsockname()[1]}"
        file = write(tmp_path / "s.yaml")
        said = hushgrid("run", file, "--transport", "mqtt", "--broker", url, "--quiet")
    assert (said.code, said.out, said.err.count("\n")) == (4, "", 1)
    assert url in said.err
    assert tree(tmp_path) == ["s.yaml"]


# --- what is nobody's input ---


def test_a_defect_is_one_line_and_its_trace_is_there_for_who_asks(hushgrid, tmp_path, monkeypatch):
    def broken(name: str) -> Path:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr(results, "default_out", broken)
    said = hushgrid("run", write(tmp_path / "s.yaml"))
    assert (said.code, said.err.count("\n")) == (1, 1)
    assert "defect: RuntimeError: two lines (test_cli.py:" in said.err
    monkeypatch.setenv("HUSHGRID_DEBUG", "1")
    assert "Traceback" in hushgrid("run", tmp_path / "s.yaml").err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_ends_with_4_in_one_line_and_leaves_no_run_directory(number, tmp_path):
    file = write(tmp_path / "s.yaml", {"algorithm.rounds": 100_000})
    with subprocess.Popen(
        [Path(sys.executable).with_name("hushgrid"), "run", file], cwd=tmp_path, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        while "nodes in this process" not in (line := process.stderr.readline()):
            assert line
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err.count("\n")) == (4, "", 1)
    assert "interrupted" in err
    assert tree(tmp_path) == ["s.yaml"]


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path):
    gone, end = os.pipe()
    os.close(gone)
    with os.fdopen(end, "wb") as pipe:
        ended = subprocess.run(
            [sys.executable, "-m", "hushgrid.broker.cli", "case", "list"],
            stdout=pipe,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (0, b"")


# --- ledgers ---

ADJACENCY = "bounded-change 0.01"


def spend(ledger: Ledger, run: bytes, answers: int) -> None:
    first = len(ledger.spends(run))
    rows = [Spend(first + k, "laplace", 0.5, 0.02, 0.04, 2.0**-20, ADJACENCY, "test") for k in range(answers)]
    ledger.commit(run, spends=rows)


@pytest.fixture
def restored(tmp_path) -> Path:
    """A ledger with 2 spends, put back from a copy after a third and a fourth were made; beside it, its mark."""
    path, mark = tmp_path / "n1.ledger", tmp_path / "n1.mark"
    ledger = Ledger(path, "n1", mark)
    ledger.join(b"r" * 16, b"no plan of ours")
    spend(ledger, b"r" * 16, 2)
    ledger.close()
    shutil.copy(path, tmp_path / "old")
    ledger = Ledger(path, "n1", mark)
    spend(ledger, b"r" * 16, 2)
    ledger.close()
    (tmp_path / "old").replace(path)
    return path


def test_a_ledger_shows_what_was_spent_on_what_and_reading_it_changes_nothing(hushgrid, restored, tmp_path):
    state = {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in tmp_path.iterdir()}, tmp_path.stat().st_mtime_ns
    said = hushgrid("ledger", "show", restored)
    assert said.code == 0
    for fragment in ("of n1", "2 spends, mark 2", f"adjacency {ADJACENCY}: spent epsilon 1 in 2 laplace answers"):
        assert fragment in said.out
    seen = json.loads(hushgrid("ledger", "show", restored, "--mark", tmp_path / "n1.mark", "--json").out)
    assert (seen["node"], seen["mark"], seen["behind"]) == ("n1", 2, 4)
    hushgrid("ledger", "verify", restored, "--mark", tmp_path / "n1.mark")
    assert state == (
        {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in tmp_path.iterdir()}, tmp_path.stat().st_mtime_ns
    )  # fmt: skip


def test_what_is_committed_but_still_in_the_log_is_shown(hushgrid, tmp_path):
    crash = (
        "import os; from pathlib import Path; from hushgrid.node.ledger import Ledger; import tests_spend\n"
        "l = Ledger(Path('n1.ledger'), 'n1'); l.join(b'r' * 16, b''); tests_spend.spend(l, b'r' * 16, 3); os._exit(0)"
    ).replace("tests_spend", "test_cli")
    subprocess.run(
        [sys.executable, "-c", crash],
        cwd=tmp_path,
        check=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent)},
    )
    assert (tmp_path / "n1.ledger-wal").stat().st_size > 0
    assert json.loads(hushgrid("ledger", "show", "n1.ledger", "--json").out)["spends"] == 3


def test_what_is_left_is_told_to_who_names_the_devices_configuration(hushgrid, restored, tmp_path):
    (tmp_path / "n1.yaml").write_text(
        "node: n1\nfleet: f\nbroker: mqtt://h\nstate: .\nmark: n1.mark\ndata: {case: case14, zone: [1], loads: l.csv}\n"
        "budget: {epsilon: 4.0, adjacency: {bounded-change: 0.01}}\n"
    )
    (total,) = json.loads(hushgrid("ledger", "show", "n1.yaml", "--json").out)["totals"]
    assert (total["epsilon"], total["budget"], total["left"]) == (1.0, 4.0, 3.0)
    assert hushgrid("ledger", "verify", "n1.yaml").code == 2


def test_an_accepted_gap_is_recorded_and_counts(hushgrid, restored, tmp_path):
    mark = ["--mark", tmp_path / "n1.mark"]
    said = hushgrid("ledger", "verify", restored, *mark)
    assert said.code == 2
    assert said.out == "behind its mark: spend 2, the mark says 4\n"
    assert said.err == f"hushgrid: {restored}: found 1 problem, expected a whole ledger\n"
    said = hushgrid("ledger", "accept", restored, *mark)
    assert said.code == 0
    assert "spends 3 to 4 recorded as lost and spent: epsilon 1" in said.out
    assert hushgrid("ledger", "verify", restored, *mark).code == 0
    (total,) = json.loads(hushgrid("ledger", "show", restored, "--json").out)["totals"]
    assert (total["epsilon"], total["gaps"]) == (2.0, 1)
    assert "nothing to accept" in hushgrid("ledger", "accept", restored, *mark).out


def test_a_ledger_with_a_hole_is_found_out(hushgrid, restored):
    with sqlite3.connect(restored) as db:
        db.execute("DELETE FROM spend WHERE no = 1")
    db.close()
    said = hushgrid("ledger", "verify", restored)
    assert (said.code, said.out) == (2, "spends 1 to 1 are missing\n")


@pytest.mark.parametrize("what", ["show", "verify", "accept"])
def test_a_ledger_held_by_its_device_is_not_read(what, hushgrid, tmp_path):
    hold = (
        "from pathlib import Path; from hushgrid.node.ledger import Ledger; import sys\n"
        "l = Ledger(Path('n1.ledger'), 'n1'); print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as device:
        assert device.stdout is not None
        assert device.stdout.readline() == b"held\n"
        said = hushgrid("ledger", what, "n1.ledger")
        assert device.stdin is not None
        device.stdin.close()
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert "n1.ledger: held by another process, expected one process per ledger" in said.err


def test_another_database_is_no_ledger(hushgrid, tmp_path):
    with sqlite3.connect(tmp_path / "x.ledger") as db:
        db.execute("CREATE TABLE cats (name TEXT)")
    db.close()
    said = hushgrid("ledger", "show", "x.ledger")
    assert (said.code, said.out) == (2, "")
    assert said.err == "hushgrid: x.ledger: found no such table: meta, expected a ledger\n"


# --- cases ---


def test_the_cases_are_listed_with_their_sizes(hushgrid):
    lines = hushgrid("case", "list").out.splitlines()
    assert lines[0].split()[:4] == ["case", "buses", "lines", "generators"]
    sizes = {line.split()[0]: line.split()[1:5] for line in lines[1:]}
    assert sizes["case14"] == ["14", "20", "5", "259.0"]
    assert sizes["case118"] == ["118", "186", "54", "4242.0"]


def test_a_case_is_shown_in_figures(hushgrid):
    seen = json.loads(hushgrid("case", "show", "case14", "--json").out)
    assert (seen["buses"], seen["loaded_buses"], seen["load_mw"]) == (14, 11, pytest.approx(259.0))
    assert "259.0 MW, 73.5 MVAr" in hushgrid("case", "show", "case14").out


def test_the_zones_of_a_case_their_tie_lines_and_their_models(hushgrid, tmp_path):
    lists = "[[1, 2, 3, 4, 5], [7, 8, 9, 10, 14], [6, 11, 12, 13]]"
    seen = json.loads(hushgrid("case", "zones", "case14", "--zones", lists, "--export", "models", "--json").out)
    assert seen["zones"]["z2"] == [7, 8, 9, 10, 14]
    assert {(t["from"], t["to"]) for t in seen["tie_lines"]} == {(4, 7), (4, 9), (5, 6), (10, 11), (13, 14)}
    assert sorted(p.name for p in (tmp_path / "models").iterdir()) == ["z1.npz", "z2.npz", "z3.npz"]
    from hushgrid.grid_cases.zone import load_model

    assert load_model(tmp_path / "models" / "z3.npz").buses == (6, 11, 12, 13)
    assert "case14: 3 zones, 5 tie lines" in hushgrid("case", "zones", "case14", "--zones", lists).out


def test_the_central_solution_serves_every_load_at_the_published_cost(hushgrid):
    """PGLib-OPF v23.07, BASELINE.md: case14_ieee, AC 2178.1 $/h, gap of the SOC relaxation 0.11 %."""
    seen = json.loads(hushgrid("case", "solve", "case14", "--objective", "cost", "--json").out)
    assert seen["status"] == "optimal"
    assert seen["value"] == pytest.approx(2178.1 * (1 - 0.0011), abs=0.05 + 2178.1 * 0.00005)
    assert seen["generation_mw"] > seen["load_mw"]
    assert "shedding" in hushgrid("case", "solve", "case14").out
