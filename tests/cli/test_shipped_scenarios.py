"""The scenarios that come with the program are found by name, a user's own file before them; a shell completes both."""

from pathlib import Path

import pytest

from hushgrid import scenarios
from hushgrid.cli.main import main
from hushgrid.kernels.errors import InputError
from tests.support.paths import ROOT


def test_every_scenario_of_the_tree_is_shipped_by_its_name():
    assert {"case14", "adult-ring"} <= set(scenarios.names())
    for name in scenarios.names():
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
