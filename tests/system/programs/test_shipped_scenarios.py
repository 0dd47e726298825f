"""The scenarios that come with the program, away from its tree; what a shell completes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hushgrid import scenarios
from hushgrid.cli.main import COMMANDS
from tests.support.paths import FOLDERS, PAGES, ROOT


def completed(line: str, directory: Path) -> set[str]:
    """What a shell is told that may come after `line`, in `directory`."""
    pytest.importorskip("argcomplete")
    answers = directory / "answers"
    asked = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "COMP_LINE": line, "COMP_POINT": str(len(line))}
    ended = subprocess.run(
        [sys.executable, "-m", "hushgrid"],
        env=os.environ | asked | {"_ARGCOMPLETE_STDOUT_FILENAME": str(answers)},
        cwd=directory,
        check=False,
    )
    assert ended.returncode == 0
    return {word.strip() for word in answers.read_text().splitlines()}


def test_a_shell_completes_commands_options_names_and_files(tmp_path):
    (tmp_path / "casual.yaml").touch()
    assert set(COMMANDS) <= completed("hushgrid ", tmp_path)
    assert completed("hushgrid run case1", tmp_path) == {n for n in scenarios.names() if n.startswith("case1")}
    assert completed("hushgrid run casu", tmp_path) == {"casual.yaml"}
    assert completed("hushgrid run case14 --tr", tmp_path) == {"--transport"}
    assert completed("hushgrid ledger ver", tmp_path) == {"verify"}


def test_without_argcomplete_the_program_is_as_before(tmp_path):
    code = (
        "import sys; sys.modules['argcomplete'] = None; from hushgrid.cli.main import main; "
        "sys.exit(main(['--version']))"
    )
    ended = subprocess.run([sys.executable, "-c", code], env=os.environ | {"_ARGCOMPLETE": "1"}, check=False)
    assert ended.returncode == 0


# --- A process that draws no report pays nothing for one ---

# The drawing of the grid --------------------------------------------------------------------------------------------


def test_the_report_costs_nothing_until_it_is_drawn() -> None:
    code = "import sys, hushgrid.broker.report.build; sys.exit('matplotlib' in sys.modules or 'cvxpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- The tree is what git tracks: tests declare its folders and pages, because a checkout holds other things too ---


def test_the_declared_folders_and_pages_are_those_that_git_tracks():
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("no checkout of git")
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, text=True)
    if listed.returncode:
        pytest.skip(listed.stderr)
    paths = [path for path in listed.stdout.split("\0") if path and not path.startswith(".")]
    assert {path.split("/")[0] for path in paths if "/" in path} == set(FOLDERS)
    assert {path for path in paths if "/" not in path and path.endswith(".md")} == set(PAGES)
