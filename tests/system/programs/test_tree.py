"""The tree is what git tracks: tests declare its folders and pages, because a checkout holds other things too."""

import shutil
import subprocess

import pytest

from tests.support.paths import FOLDERS, PAGES, ROOT


def test_the_declared_folders_and_pages_are_those_that_git_tracks():
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("no checkout of git")
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, text=True)
    if listed.returncode:
        pytest.skip(listed.stderr)
    paths = [path for path in listed.stdout.split("\0") if path and not path.startswith(".")]
    assert {path.split("/")[0] for path in paths if "/" in path} == set(FOLDERS)
    assert {path for path in paths if "/" not in path and path.endswith(".md")} == set(PAGES)
