"""`hushgrid deploy`: what stands in deploy/, out of the program."""

import pytest

from hushgrid.cli.main import main
from tests.support.paths import DEPLOY

OWN = {"__init__.py", "py.typed"}


def files(directory):
    found = {p.relative_to(directory).as_posix(): p for p in directory.rglob("*") if p.is_file()}
    return {name: path for name, path in found.items() if "__pycache__" not in name and name not in OWN}


def test_every_file_is_written_as_it_stands_and_scripts_can_be_run(tmp_path, capsys):
    assert main(["deploy", str(tmp_path / "deploy")]) == 0
    written, there = files(tmp_path / "deploy"), files(DEPLOY)
    assert written.keys() == there.keys()
    for name, path in written.items():
        assert path.read_bytes() == there[name].read_bytes()
        assert path.stat().st_mode & 0o777 == (0o755 if name.endswith(".sh") else 0o644), name


def test_every_file_is_in_the_package():
    import tomllib

    from tests.support.paths import ROOT

    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    packed = {path.relative_to(DEPLOY).as_posix() for p in patterns["hushgrid.deploy"] for path in DEPLOY.glob(p)}
    assert files(DEPLOY).keys() <= packed


@pytest.mark.parametrize("there", ["directory", "file"])
def test_what_is_there_is_not_touched(tmp_path, capsys, there):
    path = tmp_path / "deploy"
    path.mkdir() if there == "directory" else path.write_text("mine")
    assert main(["deploy", str(path)]) == 2
    assert capsys.readouterr().err.strip() == f"hushgrid: {path}: found an existing path, expected a new directory"
    assert [*path.iterdir()] == [] if there == "directory" else path.read_text() == "mine"
