"""`hushgrid check` and `hushgrid run` as a person meets them: what they say, return and leave behind."""

import json
import shutil
import socket
from pathlib import Path

import pytest
import yaml

from hushgrid.broker.servers import choose as brokers
from hushgrid.broker.simulation import results
from tests.support.command_line import SCENARIO, assert_a_private_run_leaves_what_the_contract_says, tree, write

# --- check ---


def test_a_good_file_is_one_line_that_says_what_it_is(hushgrid):
    assert hushgrid("check", SCENARIO) == (
        0,
        "ok: scenario case14-three-zones: case14 in 3 zones, consensus-admm (guarded), 200 rounds, laplace, "
        "epsilon 5 in 1 answers\n",
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


@pytest.mark.runs
def test_a_private_run_leaves_what_the_contract_says_and_no_figure_of_raw_data(hushgrid, tmp_path):
    assert_a_private_run_leaves_what_the_contract_says(hushgrid, tmp_path, "memory")


@pytest.mark.runs
def test_a_run_says_on_stdout_what_it_reached_and_on_stderr_what_it_does(hushgrid, tmp_path):
    said = hushgrid("run", write(tmp_path / "s.yaml"), "--set", "algorithm.rounds=2")
    assert said.code == 0
    assert len(said.err.splitlines()) == 3
    (run,) = (tmp_path / "runs").iterdir()
    assert run.name.startswith("small-")
    for fragment in (
        "small: ladmm, 3 nodes in one process", "2 of 2", "withheld", "upheld: claimed epsilon 5 per node over the run",
        "adjacency bounded-change "
        "0.01", "budget counted for this run only", str(run.relative_to(tmp_path) / "report.html"),
    ):  # fmt: skip
        assert fragment in said.out
    assert hushgrid("run", tmp_path / "s.yaml", "--quiet", "--out", "quiet").err == ""


@pytest.mark.runs
def test_a_seeded_run_shows_its_objective_and_is_not_private(hushgrid, tmp_path):
    said = hushgrid("run", write(tmp_path / "s.yaml"), "--seed", 7, "--out", "run", "--quiet")
    assert "not private (seed or truth)" in said.out
    assert "above the optimum" in said.out
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["privacy"]["upheld"] == "not private"
    assert result["objective"] > 0


@pytest.mark.runs
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
    assert "defect: RuntimeError: two lines (test_run.py:" in said.err
    monkeypatch.setenv("HUSHGRID_DEBUG", "1")
    assert "Traceback" in hushgrid("run", tmp_path / "s.yaml").err
