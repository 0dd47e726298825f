"""A run directory that lacks something, or holds something else: the report is replaced whole, or one line says why
not.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from hushgrid.broker.report import build as report
from hushgrid.broker.report import run_directory as rundir
from hushgrid.kernels.errors import InputError
from tests.support.runs.report_pages import html, page, write_run

# The page as a file -------------------------------------------------------------------------------------------------


def test_the_report_replaces_an_older_one_and_leaves_nothing_else(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    before = {path.name for path in run.iterdir()}
    (run / "report.html").write_text("old")
    assert html(run) != "old"
    assert {path.name for path in run.iterdir()} == before | {"report.html"}


# Less than perfect input --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", rundir.FILES)
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    (write_run(tmp_path) / name).unlink()
    with pytest.raises(InputError, match=f"found no {re.escape(name)}, expected a complete run directory"):
        report.build(tmp_path)


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere: found no such directory"):
        report.build(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("result.json", "{", "result.json: found "),
        ("result.json", "[]", "result.json: found a list, expected a mapping"),
        ("result.json", '{"privacy": 5}', "result.json: privacy: found 5"),
        ("result.json", b"\xff\xfe", "result.json: found "),
        ("scenario.yaml", "a: [", "scenario.yaml: found "),
        ("scenario.yaml", "problem: 3", "scenario.yaml: problem: found 3"),
        ("history.csv", "", "history.csv:1: found no column round"),
        ("history.csv", "round,messages,bytes\n1,2,3\n", "found no column consensus_residual"),
        ("history.csv", "round,consensus_residual,messages,bytes\n1,x,2,3\n", "csv:2: consensus_residual: found 'x'"),
        ("history.csv", "round,consensus_residual,messages,bytes\n1,2\n", "csv:2: found a row of another length"),
        ("setpoints.csv", "node,value\n", "setpoints.csv:1: found no column quantity, element, unit"),
        ("solution.npz", "no zip", "solution.npz: found "),
    ],
)
def test_a_malformed_file_is_one_line_with_file_and_place(
    tmp_path: Path, name: str, content: str | bytes, message: str
) -> None:
    data = content if isinstance(content, bytes) else content.encode()
    (write_run(tmp_path) / name).write_bytes(data)
    with pytest.raises(InputError) as caught:
        report.build(tmp_path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "report.html").exists()


@pytest.mark.runs
@pytest.mark.parametrize("rounds", [0, 1, 2])
@pytest.mark.usefixtures("charts")
def test_a_run_of_hardly_any_rounds_has_a_report(tmp_path: Path, rounds: int) -> None:
    if rounds == 0:
        write_run(tmp_path, rounds=1)
        path = tmp_path / "history.csv"
        path.write_text(path.read_text().splitlines()[0] + "\n")
    else:
        write_run(tmp_path, rounds=rounds)
    assert ("No round was completed" in page(tmp_path).text) is (rounds == 0)


@pytest.mark.runs
@pytest.mark.parametrize("value", ["", "0.0", "inf", "nan", "-1.0"])
@pytest.mark.usefixtures("charts")
def test_a_column_without_a_drawable_value_does_no_harm(tmp_path: Path, value: str) -> None:
    write_run(tmp_path, rounds=3)
    columns = ("round", "consensus_residual", "max_violation", "messages", "bytes", "epsilon_z1")
    rows = [",".join(columns)] + [f"{t},{value},{value},{value},{value},{value}" for t in (1, 2, 3)]
    (tmp_path / "history.csv").write_text("\n".join(rows) + "\n")
    assert "Round by round" in page(tmp_path).text


def test_a_case_file_that_is_gone_costs_the_drawing_only(tmp_path: Path) -> None:
    write_run(tmp_path)
    path = tmp_path / "scenario.yaml"
    path.write_text(path.read_text().replace("case: case14", "case: gone.m"))
    shown = page(tmp_path)
    assert "The grid is not drawn" in shown.text
    assert "map" not in shown.all("class")
    assert "P from, p.u." in shown.text


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"hushgrid\[laptop\]"):
        report.build(tmp_path)
