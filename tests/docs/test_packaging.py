"""What is built and installed is what stands in the tree: every package is listed, and nothing else."""

import ast
from pathlib import Path

from tests.support.paths import PROJECT, ROOT

SETUPTOOLS = PROJECT["tool"]["setuptools"]
MAPPED: dict[str, str] = SETUPTOOLS["package-dir"]


def folder_of(package: str) -> Path:
    """Where setuptools looks for a package: its own mapping, else inside the folder of the package above it."""
    if package in MAPPED:
        return ROOT / MAPPED[package]
    above, _, name = package.rpartition(".")
    return folder_of(above) / name


def test_every_folder_of_the_wings_with_code_is_a_listed_package_and_nothing_else_is():
    wings = {folder for name, folder in MAPPED.items() if name != "hushgrid"}
    code = {path.parent for wing in wings for path in (ROOT / wing).rglob("*.py")}
    listed = [folder_of(package) for package in SETUPTOOLS["packages"]]
    assert sorted(listed) == sorted(code)  # a list may name a package twice, a set would hide it
    assert set(MAPPED) <= set(SETUPTOOLS["packages"])


def test_every_listed_package_says_that_it_is_typed_and_every_pattern_of_its_data_matches():
    data = SETUPTOOLS["package-data"]
    for package in SETUPTOOLS["packages"]:
        patterns = data.get(package, [])
        assert "py.typed" in data.get(".".join(package.split(".")[:2]), []), package
        assert [p for p in patterns if not [*folder_of(package).glob(p)]] == []


def test_the_links_that_mypy_reads_are_the_wings():
    links = {
        f"hushgrid.{path.name}": path.resolve() for path in (ROOT / ".typing" / "hushgrid").iterdir() if path.is_dir()
    }
    assert links == {name: ROOT / folder for name, folder in MAPPED.items() if name != "hushgrid"}


def test_a_wing_cannot_be_imported_by_the_name_of_its_folder():
    banned = PROJECT["tool"]["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"]
    assert set(banned) == {name.removeprefix("hushgrid.") for name in MAPPED if name != "hushgrid"}


def test_the_command_is_there():
    module, _, function = PROJECT["project"]["scripts"]["hushgrid"].partition(":")
    package, _, name = module.rpartition(".")
    tree = ast.parse((folder_of(package) / f"{name}.py").read_text(encoding="utf-8"))
    assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
