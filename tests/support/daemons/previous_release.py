"""The release before, as it really runs: its tree out of the history, started beside the program of today."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.support.paths import ROOT

COMMIT, VERSION = "07f913d", "0.1.0"  #: the last commit of the release before


def previous_release(directory: Path) -> dict[str, str]:
    """The environment in which `python -m hushgrid` is the release before. Skips where the history does not reach
    it.
    """
    directory.mkdir(parents=True)
    archive = directory / "tree.tar"
    made = subprocess.run(
        ["git", "-C", str(ROOT), "archive", "--output", str(archive), COMMIT], capture_output=True, text=True
    )
    if made.returncode:
        pytest.skip(f"the history has no {COMMIT}: {made.stderr.strip()}")
    with tarfile.open(archive) as tree:
        tree.extractall(directory, filter="data")
    archive.unlink()
    top = directory / ".typing"  # where that release has the packages by their installed names, as links
    facts = top / f"hushgrid-{VERSION}.dist-info" / "METADATA"
    facts.parent.mkdir()
    facts.write_text(f"Metadata-Version: 2.1\nName: hushgrid\nVersion: {VERSION}\n")
    environment = {"PYTHONPATH": str(top), "PYTHONSAFEPATH": "1"}  # what is installed here says another version
    code = "import hushgrid.node.wire as w, importlib.metadata as m; print(w.__file__, m.version('hushgrid'))"
    said = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    assert said.stdout.split() == [str(top / "hushgrid" / "node" / "wire.py"), VERSION]
    return environment
