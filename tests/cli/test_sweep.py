"""`hushgrid sweep` and `hushgrid compare` as a person meets them. Sweeps with processes stand below tests/system."""

from pathlib import Path

import pytest
import yaml

from hushgrid import scenarios
from hushgrid.cli.main import main
from hushgrid.kernels.errors import InputError
from tests.support.paths import ROOT
from tests.support.scenarios.swept import SWEPT


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text(yaml.safe_dump(SWEPT))
    return path


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--over: found none, expected KEY=v1,v2,... at least once"),
        (["--over", "algorithm.rounds"], "--over algorithm.rounds: found '', expected values with commas between them"),
        (["--over", "algorithm.rounds=[1"], "--over algorithm.rounds=[1: found"),
        (
            ["--over", "algorithm.rounds=1", "--over", "algorithm.rounds=2"],
            "found twice, expected all its values in one option",
        ),
        (["--over", "algorithm.rounds=1,x"], "algorithm.rounds: found 'x', expected int"),
        (["--over", "algorithm.rundes=1"], "algorithm.rundes: unknown key"),
        (["--over", "algorithm.rounds=1", "--seeds", "many"], "--seeds: found many, expected how many, or first-last"),
        (["--over", "algorithm.rounds=1", "--workers", "0"], "--workers: found 0, expected at least 1"),
        (["--over", "algorithm.rounds=1", "--dask", "here"], "--dask here: found no address of a scheduler"),
        (["--over", "algorithm.rounds=1", "--resume"], "--resume: found no --out"),
        (["--over", "algorithm.rounds=1", "--workers", "1", "--dask", "tcp://h:1"], "not allowed with argument"),
    ],
)
def test_what_is_wrong_is_one_line(arguments, said, scenario, hushgrid):
    pytest.importorskip("distributed")
    ended = hushgrid("sweep", scenario, "--quiet", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
    assert len(ended.err.splitlines()) == 1


def test_values_are_read_as_yaml():
    from hushgrid.lab.sweep.grid import axis_of, seeds_of

    assert axis_of("privacy.epsilon=.1,1,1e1").values == (0.1, 1, 10.0)
    assert axis_of("algorithm={name: dgd, rounds: 2},{name: extra}").values == (
        {"name": "dgd", "rounds": 2},
        {"name": "extra"},
    )
    assert (seeds_of("3"), seeds_of("100-102")) == (range(3), range(100, 103))


@pytest.mark.runs
def test_runs_are_compared_and_what_is_no_run_is_one_line(scenario, hushgrid, tmp_path):
    for rounds in (2, 5):
        hushgrid("run", scenario, "--quiet", "--seed", 1, "--out", f"r{rounds}", "--set", f"algorithm.rounds={rounds}")
    said = hushgrid("compare", "r2", "r5", "--out", "c.html")
    assert said.code == 0
    assert "algorithm.rounds   2   5" in said.out
    assert (tmp_path / "c.html").read_text().startswith("<!DOCTYPE html>")
    for wrong, why in ((["r2"], "expected at least two"), (["r2", "gone"], "gone: found no such directory")):
        ended = hushgrid("compare", *wrong)
        assert (ended.code, len(ended.err.splitlines())) == (2, 1)
        assert why in ended.err


# --- The scenarios that come with the program are found by name, a user's own file before them; a shell completes b ---


def test_every_scenario_of_the_tree_is_shipped_by_its_name():
    assert {"case14", "adult-ring"} <= set(scenarios.names())
    for name in set(scenarios.names()) - set(scenarios.MADE):
        assert scenarios.find(name).resolve() == ROOT / "scenarios" / f"{name}.yaml"


def test_a_file_wins_over_a_shipped_scenario_of_its_name_a_folder_does_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "case14").write_text("mine")
    (tmp_path / "case118").mkdir()
    assert scenarios.find("case14") == Path("case14")
    assert scenarios.find("case118").parent == scenarios.FOLDER


@pytest.mark.parametrize("given", ["gone/case14", "case14.yaml", "./gone.yml"])
def test_what_is_written_as_a_path_is_never_a_name(given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert scenarios.find(given) == Path(given)


def test_an_unknown_name_is_refused_in_one_line_that_lists_the_known_ones():
    known = ", ".join(scenarios.names())
    with pytest.raises(InputError, match=rf"^case15: no such file or scenario, expected a file or one of {known}$"):
        scenarios.find("case15")


@pytest.mark.runs
def test_run_and_check_take_a_name_anywhere(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["check", "adult-ring"]) == 0
    assert capsys.readouterr().out.startswith("ok: scenario adult-ring: ")
    assert (
        main(["run", "case14", "--set", "algorithm.rounds=2", "--set", "problem.ac=none", "--out", "out", "--quiet"])
        == 0
    )
    assert (tmp_path / "out" / "result.json").exists()
    capsys.readouterr()
    for command in ("run", "check"):
        assert main([command, "case15"]) == 2
        assert capsys.readouterr().err.startswith("hushgrid: case15: no such file or scenario, expected ")


@pytest.mark.parametrize("given", ["substations", scenarios.FOLDER / "substations.yaml"])
def test_a_scenario_whose_data_may_not_be_shipped_says_what_makes_them(given, tmp_path, monkeypatch):
    case, command = scenarios.MADE["substations"]
    monkeypatch.setitem(scenarios.MADE, "substations", (tmp_path / "data" / "case.npz", command))
    with pytest.raises(InputError, match=rf"^substations: found no data, expected .*: {command} --out "):
        scenarios.find(given)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "case.npz").touch()
    assert scenarios.find(given).name == "substations.yaml"
    assert case.parent.name == "substations"
