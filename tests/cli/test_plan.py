"""`hushgrid plan` as a person meets it. What it finds is tested in tests/lab/planning."""

import json

import pytest
import yaml

from hushgrid.lab.planning import search, trial
from tests.support.scenarios.record_scenarios import scenario


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setattr(trial, "MADE", 1 << 12)
    monkeypatch.setattr(trial, "TESTED", 500)
    monkeypatch.setattr(search, "LONGEST", 32)
    monkeypatch.setattr(search, "SHOWN", 2)
    raw = scenario(
        {
            "problem.data": {"csv": "rows.csv", "rows": 800, "features": 3, "normalize": "unit-rows"},
            "problem.test": "test.csv",
            "algorithm": {"name": "dgd", "rounds": 4, "step_size": 0.1},
            "privacy.epsilon": 1.0,
        }
    )
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "s.yaml"
    path.write_text(yaml.safe_dump(raw))
    return path


@pytest.mark.runs
def test_a_table_is_printed_and_a_scenario_written_that_runs_nothing_else(file, hushgrid, tmp_path):
    ended = hushgrid("plan", file, "--workers", 1, "--seeds", 3, "--out", tmp_path / "planned.yaml", "--quiet")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith(
        "sensors: epsilon 1 of each node, replace-one-record; dgd on 4 nodes of 200 rows of 3 features\n"
    )
    for said in ("made-up data, no data file was opened", "step_size", "without privacy", "each alone", "quartiles"):
        assert said in ended.out
    made = yaml.safe_load((tmp_path / "planned.yaml").read_text())
    assert made["problem"]["data"]["csv"] == "in/rows.csv"
    assert made["problem"]["test"] == "in/test.csv"
    (chosen,) = (line.split() for line in ended.out.splitlines() if line.startswith("  * ") and "answers" not in line)
    assert made["algorithm"]["step_size"] == float(chosen[2])
    assert made["privacy"]["mechanism"] == chosen[4] == "laplace"
    assert hushgrid("check", tmp_path / "planned.yaml").err.startswith("hushgrid: ")  # there are no rows to look at
    (tmp_path / "in" / "rows.csv").write_text("\n".join(f"{k % 7},1,{k % 3},{k % 2}" for k in range(800)))
    assert hushgrid("check", tmp_path / "planned.yaml").code == 0


@pytest.mark.runs
def test_json_has_every_seed(file, hushgrid):
    said = json.loads(hushgrid("plan", file, "--workers", 1, "--seeds", 3, "--json", "--quiet", "--epsilon", 5).out)
    assert "epsilon 5 of each node" in said["about"]
    assert said["data"] == "made up"
    assert len(said["chosen"]["excess_loss"]) == said["seeds"] == 3
    assert said["chosen"] in said["choices"]
    assert [line["title"] for line in said["beside"]] == ["as the scenario is", "without privacy", "each alone"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rows", "0"], "--rows: found 0, expected at least 1"),
        (["--epsilon", "0"], "privacy.epsilon: found 0.0"),
        (["--out", "."], "--out .: found a file, expected a new file"),
        (["--out", "no/such/place.yaml"], "found no such directory, expected a new file"),
        (["--set", "problem.data.rows=2"], "problem.data.rows: found 2 for 4 nodes"),
        (
            ["--set", "algorithm.variant=none", "--set", "privacy=null"],
            "algorithm.variant: found none, expected guarded",
        ),
        (["--plugin", "no_such_module"], "--plugin"),
    ],
)
def test_what_is_wrong_is_one_line(arguments, said, file, hushgrid):
    ended = hushgrid("plan", file, "--quiet", "--workers", 1, *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
    assert len(ended.err.splitlines()) == 1


def test_zones_are_told_where_their_plan_is(hushgrid):
    ended = hushgrid("plan", "case14", "--quiet")
    assert ended.code == 2
    assert (
        "problem.kind: found zones, expected rows of data (a budget for loads: hushgrid budget plan DEVICE)"
        in ended.err
    )
