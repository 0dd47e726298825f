"""`hushgrid init`: what it writes passes `hushgrid check` and runs; what it cannot know it asks for."""

import io
import stat
from pathlib import Path

import numpy as np
import pytest

from hushgrid.broker.simulation import run
from hushgrid.cli.drafts.questions import QUESTIONS, Asked
from hushgrid.cli.main import main
from hushgrid.cli.owner.check import check
from hushgrid.cli.owner.init import write
from hushgrid.grid_cases.matpower import BUILT_IN
from hushgrid.kernels.errors import InputError
from hushgrid.node.config.device import load_device
from hushgrid.node.config.scenario import load_scenario
from tests.support.paths import ROOT

LOADS = ROOT / "deploy/nodes/loads-z1.csv"
WIRE = {"fleet": "f", "broker": "mqtt://localhost", "epsilon": "4"}


@pytest.fixture
def rows(tmp_path, monkeypatch) -> Path:
    """A CSV file of 60 rows, three features, and a label of each kind, in the directory in which commands run."""
    monkeypatch.chdir(tmp_path)
    A = np.random.default_rng(1).normal(size=(60, 3))
    lines = [f"{a:.3f},{b:.3f},{c:.3f},{a + b:.3f},{int(a > 0)},{int(a > 0) + int(b > 0)}" for a, b, c in A]
    path = tmp_path / "my rows.csv"
    path.write_text("\n".join(["x,y,z,sum,sign,class", *lines]) + "\n")
    return path


def asked(**given: str) -> Asked:
    """The answers by option; nobody sits at a terminal."""
    return Asked(dict.fromkeys(QUESTIONS) | {k.replace("_", "-"): v for k, v in given.items()}, terminal=False)


KINDS = {
    "least-squares": {"kind": "least-squares", "label": "sum"},
    "logistic": {"kind": "logistic", "label": "4"},
    "softmax": {"kind": "softmax", "label": "class", "classes": "3"},
}


@pytest.mark.parametrize("network", ["ring", "star"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_scenario_of_rows_passes_check_and_runs(kind, network, rows):
    said = write("my rows.csv", False, None, asked(nodes="3", network=network, epsilon="2", rounds="12", **KINDS[kind]))
    assert said == f"my-rows.yaml: {check(Path('my-rows.yaml'))}\nnext: hushgrid run my-rows.yaml"
    result = run("my-rows.yaml")
    assert (result.nodes, result.rounds_done, result.privacy.upheld) == (3, 12, True)
    assert result.privacy.claimed.epsilon == 2.0
    assert load_scenario(Path("my-rows.yaml")).problem.kind == kind


@pytest.mark.runs
@pytest.mark.parametrize("own", [False, True], ids=["built-in", "own file"])
def test_a_scenario_of_a_case_passes_check_and_runs(own, rows, tmp_path):
    case = "case14"
    if own:
        [source] = (ROOT / "grid_cases").glob("*case14_*.m")
        case = str(tmp_path / "mine.m")
        Path(case).write_text(source.read_text())
    write(case, False, tmp_path / "out/s.yaml", asked(zones="3", epsilon="5", rounds="2"))
    result = run(tmp_path / "out/s.yaml")
    assert (result.nodes, result.privacy.upheld, result.name) == (3, True, Path(case).stem)
    assert "case14" in BUILT_IN


@pytest.mark.parametrize("kind", KINDS)
def test_a_device_with_rows_passes_check_and_keeps_them_to_its_owner(kind, rows):
    more = {"low": "-9", "high": "9"} if kind == "least-squares" else {}
    said = write("my rows.csv", True, None, asked(node="n0", **KINDS[kind], **WIRE, **more))
    assert said == f"n0.yaml: {check(Path('n0.yaml'))}\nnext: hushgrid node n0.yaml"
    config = load_device(Path("n0.yaml"))
    assert (config.budget.epsilon, config.allow.per_run.epsilon) == (4.0, 4.0)
    assert stat.S_IMODE(Path("n0.npz").stat().st_mode) == 0o600
    with np.load("n0.npz") as saved:
        assert saved["A"].shape == (60, 5)
        assert np.allclose(np.linalg.norm(saved["A"], axis=1), 1)


def test_a_zone_of_loads_passes_check(rows):
    write(str(LOADS), True, None, asked(node="z1", case="case14", change="0.02", per_run="1", **WIRE))
    config = load_device(Path("z1.yaml"))
    assert config.data.zone == [1, 2, 3, 4, 5]
    assert config.budget.adjacency.bounded_change == 0.02
    assert config.allow.per_run.epsilon == 1.0


def test_over_tls_it_wants_the_certificates(rows):
    with pytest.raises(
        InputError, match=r"^z1\.yaml: tls: .*/keys/ca\.crt: No such file|^tls: .*/keys/ca\.crt: No such file"
    ):
        write(str(LOADS), True, None, asked(node="z1", case="case14", certs="keys", **WIRE | {"broker": "mqtts://h"}))
    assert not Path("z1.yaml").exists()


def test_every_line_that_is_not_plain_has_a_comment(rows):
    """Each section of what is written says what it is for."""
    write("my rows.csv", False, None, asked(nodes="3", epsilon="2", **KINDS["logistic"]))
    for section in Path("my-rows.yaml").read_text().split("\n\n"):
        assert "#" in section


def test_on_a_terminal_it_asks_and_asks_again(rows, capsys):
    answers = iter(["", "logical", "logistic", "4", "", "three", "3", "", "12", "2", ""])
    questions = []

    def read(prompt: str) -> str:
        questions.append(prompt)
        return next(answers)

    write("my rows.csv", False, None, Asked(dict.fromkeys(QUESTIONS), terminal=True, read=read))
    assert questions[0].startswith("what the labels are: least-squares, logistic, softmax: ")
    assert questions[4] == "name of the run [my-rows]: "
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "found 'logical', expected one of least-squares, logistic, softmax",
        "found 'three', expected a whole number, at least 1",
    ]
    scenario = load_scenario(Path("my-rows.yaml"))
    assert (scenario.algorithm.rounds, scenario.privacy.epsilon, scenario.privacy.delta) == (12, 2.0, 1e-5)


def test_an_end_of_input_is_one_line(rows):
    def read(prompt: str) -> str:
        raise EOFError

    with pytest.raises(InputError, match="init: found no answer, expected --kind KIND"):
        write("my rows.csv", False, None, Asked(dict.fromkeys(QUESTIONS), terminal=True, read=read))


GOOD = ["init", "my rows.csv", "--kind", "logistic", "--label", "sign", "--nodes", "3", "--epsilon", "2"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (GOOD[:2], "init: found no --kind and no terminal to ask, expected --kind KIND: what the labels are"),
        (GOOD[:6], "init: found no --nodes and no terminal to ask, expected --nodes N: number of nodes"),
        (GOOD[:8], "init: found no --epsilon and no terminal to ask, expected --epsilon E: total epsilon"),
        ([*GOOD, "--nodes", "x"], "--nodes: found 'x', expected a whole number, at least 1"),
        ([*GOOD, "--epsilon", "nan"], "--epsilon: found 'nan', expected a number"),
        ([*GOOD, "--epsilon", "-1"], "my-rows.yaml: privacy.epsilon: found -1.0, expected float >= 1e-09"),
        ([*GOOD, "--network", "web"], "--network: found 'web', expected one of ring, path"),
        ([*GOOD, "--label", "sum"], "my rows.csv:2: found label"),
        ([*GOOD, "--label", "who"], "my rows.csv: found x, y, z, sum, sign, class, expected one column named 'who'"),
        ([*GOOD, "--out", "my rows.csv"], "my rows.csv: found an existing path, expected a new file (--out)"),
        (["init", "no.csv"], "no.csv: found no such file, expected a CSV file"),
        (["init", "case14", "--device"], "case14: found no such file, expected a CSV file"),
        (["init", str(LOADS)], f"{LOADS}: found the loads of a zone, expected rows of data or a case"),
    ],
)
def test_what_is_missing_or_wrong_is_one_line_and_leaves_nothing(arguments, said, rows, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"hushgrid: {said}")
    assert error.count("\n") == 1
    assert [path.name for path in Path().iterdir()] == ["my rows.csv"]


def test_it_is_a_command(rows, capsys):
    assert main(GOOD) == 0
    assert capsys.readouterr().out.endswith("\nnext: hushgrid run my-rows.yaml\n")
    assert main(["check", "my-rows.yaml"]) == 0
