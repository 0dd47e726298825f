"""What is wrong with a data problem's files, network, walk or numbers: one line, exit 2, and nothing is written."""

import numpy as np
import pytest
import yaml

from hushgrid.cli.main import main
from tests.support.scenarios.record_scenarios import GAUSSIAN, NOT_PRIVATE, scenario

GOOD = [f"n{i}.npz" for i in range(4)]


@pytest.fixture
def place(tmp_path):
    """A directory with every node's rows, and some that are wrong."""
    rng = np.random.default_rng(0)
    A, b = rng.normal(size=(4, 5, 3)), np.sign(rng.normal(size=(4, 5)))
    A /= np.linalg.norm(A, axis=2)[..., None]
    for i in range(4):
        np.savez(tmp_path / f"n{i}.npz", A=A[i], b=b[i])
    np.savez(tmp_path / "labels.npz", A=A[0], b=[1, -1, 2, 1, 1])
    np.savez(tmp_path / "wide.npz", A=np.full((5, 4), 0.1), b=b[0])
    np.savez(tmp_path / "long.npz", A=A[0] * [[1], [1], [1.5], [1], [1]], b=b[0])
    np.savez(tmp_path / "nan.npz", A=np.full((5, 3), np.nan), b=b[0])
    (tmp_path / "text.npz").write_text("no archive")
    (tmp_path / "rows.txt").write_text("1 1:0.5\n-1 1:x\n")
    (tmp_path / "rows.csv").write_text("a,b,label\n0.1,0.2,1\n0.1,-1\n")
    (tmp_path / "few.csv").write_text("0.1,1\n0.2,-1\n")
    return tmp_path


def files(*names):
    return {"problem.data": {"files": list(names)}}


def edges(*pairs):
    return {"network": {"kind": "edges", "nodes": 4, "edges": list(pairs)}}


WRONG = {
    "a file not there": (files("none.npz", *GOOD[1:]), "{at}/none.npz: No such file or directory, expected"),
    "no archive": (files("text.npz", *GOOD[1:]), "{at}/text.npz: File is not a zip file, expected a NumPy archive"),
    "a label that is none": (files("labels.npz", *GOOD[1:]), "{at}/labels.npz: b[2]: found label 2, expected -1 or 1"),
    "another width": (files(*GOOD[:3], "wide.npz"), "{at}/wide.npz: A: found 4 columns, expected 3 as the first file"),
    "a number that is none": (files(*GOOD[:3], "nan.npz"), "{at}/nan.npz: A[0, 0]: found nan, expected a finite"),
    "a row beyond the bound": (
        files(*GOOD[:3], "long.npz"),
        "problem.data: node n3: row 3: found norm 1.5, expected at most row_bound 1",
    ),
    "fewer files than nodes": (files(*GOOD[:3]), "problem.data: found 3 nodes, expected 4 (network.nodes)"),
    "another number of nodes": ({"problem.data.nodes": 5}, "problem.data: found 5 nodes, expected 4 (network.nodes)"),
    "two sources": ({"problem.data.libsvm": "rows.txt"}, "problem.data: found libsvm, synthetic, expected one of"),
    "no source": (
        {"problem.data": {}},
        "problem.data: found no source, expected one of files, libsvm, csv, idx, leaf, synthetic",
    ),
    "a bad LIBSVM line": ({"problem.data": {"libsvm": "rows.txt"}}, "{at}/rows.txt:2: found value 'x', expected"),
    "a bad CSV line": ({"problem.data": {"csv": "rows.csv"}}, "{at}/rows.csv:3: found 2 fields, expected 3"),
    "fewer rows than nodes": ({"problem.data": {"csv": "few.csv"}}, "{at}/few.csv: found 2 rows for 4 nodes, expected"),
    "rows on devices": (
        {"problem.data": {"devices": {"features": 3, "rows": 5}}},
        "problem.data.devices: found rows that are on devices",
    ),
    "a class too many": (
        {"problem.kind": "softmax", "problem.classes": 2},
        "problem.data: node n0: row 4: found label 2, expected 0..1 (softmax)",
    ),
    "a network in parts": (
        edges([0, 1], [2, 3]),
        "network: found 2 parts, [0, 1] one of them, expected a connected graph",
    ),
    "an edge to nowhere": (edges([0, 4]), "network: found edge [0, 4], expected two different nodes of 0..3"),
    "no radius": ({"network.kind": "geometric"}, "network.radius: missing, expected a value (kind geometric)"),
    "a radius of a ring": ({"network.radius": 0.3}, "network.radius: found 0.3, expected none (kind ring)"),
    "a walk too short": (
        {"algorithm.walk": [0, 1]},
        "algorithm.walk: found 2 nodes, expected one for each of 20 activations",
    ),
    "a walk off the edges": (
        {"algorithm.walk": [0, 2] * 10},
        "algorithm.walk[1]: found a hop from 0 to 2, expected one along an edge",
    ),
    "a walk off the network": (
        {"algorithm.walk": [0, 4] * 10},
        "algorithm.walk[1]: found node 4, expected one of 0..3",
    ),
    "too few stepsizes": (
        {"algorithm.alpha": [0.1] * 3},
        "algorithm.alpha: found 3 numbers, expected one for each of 4 nodes",
    ),
    "too many stepsizes": (
        {"algorithm.alpha": [0.1] * 5},
        "algorithm.alpha: found 5 numbers, expected one for each of 4 nodes",
    ),
    # L_i = 1/4 + .1, for rows of norm 1
    "a stepsize too large": (
        {"algorithm.alpha": 1.5},
        "algorithm.alpha: found 1.5 for n0, expected less than 2/(L_i + 1) = 1.48148",
    ),
    "no noise so large": ({"privacy.epsilon": 1e-6, "algorithm.rounds": 10**6}, "privacy: noise: epsilon 3.98"),
    "too few caps": ({"privacy.answers": [5, 5]}, "privacy.answers: found 2 numbers, expected one for each of 4 nodes"),
    "a decay too fast": (
        GAUSSIAN | {"algorithm.variant": "published", "algorithm.decay": 1e9, "algorithm.rounds": 2000},
        "n0: decay: found R = 1e+09 over 561 answers, expected R >= 1",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_one_line_and_nothing_is_written(wrong, place, monkeypatch, capfd):
    over, line = WRONG[wrong]
    (place / "s.yaml").write_text(yaml.safe_dump(scenario(over)))
    monkeypatch.chdir(place)
    before = sorted(place.iterdir())
    assert main(["run", "s.yaml", "--out", "out"]) == 2
    out, err = capfd.readouterr()
    last = err.splitlines()[-1]
    prefix = "" if wrong == "a decay too fast" else "s.yaml: "  # a gate's own, decided at its node
    assert line.format(at=place) in last
    assert last.removeprefix("hushgrid: ").startswith(prefix + line.format(at=place))
    assert "Traceback" not in err
    assert out == ""
    assert sorted(place.iterdir()) == before


@pytest.mark.parametrize(
    "wrong", [name for name in WRONG if name not in ("rows on devices", "no noise so large", "a decay too fast")]
)
def test_check_says_the_same(wrong, place, monkeypatch, capfd):
    over, line = WRONG[wrong]
    (place / "s.yaml").write_text(yaml.safe_dump(scenario(over)))
    monkeypatch.chdir(place)
    assert main(["check", "s.yaml"]) == 2
    assert "s.yaml: " + line.format(at=place) in capfd.readouterr().err


def test_faults_are_for_the_memory_transport(place, monkeypatch, capfd):
    (place / "s.yaml").write_text(yaml.safe_dump(scenario(NOT_PRIVATE | {"run.faults": {"loss": 0.1}})))
    monkeypatch.chdir(place)
    assert main(["run", "s.yaml", "--transport", "mqtt", "--out", "out"]) == 2
    assert "s.yaml: run.faults: found with transport mqtt, expected memory" in capfd.readouterr().err
    assert not (place / "out").exists()
