"""What is built and installed is what stands in the tree, under one name: `hushgrid/` is a folder of links to it."""

import ast
import os

from setuptools import find_namespace_packages

from tests.support.paths import FOLDERS, PROJECT, ROOT

SETUPTOOLS = PROJECT["tool"]["setuptools"]
PACKAGES = find_namespace_packages(str(ROOT), include=SETUPTOOLS["packages"]["find"]["include"])
TOP = ROOT / "hushgrid"


def test_every_folder_with_code_is_a_package():
    code = {path.parent for link in TOP.iterdir() for path in link.rglob("*.py")} | {TOP}
    assert code <= {ROOT / package.replace(".", "/") for package in PACKAGES}


def test_the_package_says_that_it_is_typed_and_every_pattern_of_its_data_matches():
    data: dict[str, list[str]] = SETUPTOOLS["package-data"]
    assert "py.typed" in data["hushgrid"]
    assert set(data) <= set(PACKAGES)
    folders = {package: ROOT / package.replace(".", "/") for package in data}
    assert [(package, p) for package, folder in folders.items() for p in data[package] if not [*folder.glob(p)]] == []


def test_the_links_lead_to_the_folders_of_that_name_by_a_way_that_a_clone_keeps():
    links = {path.name: os.readlink(path) for path in TOP.iterdir() if path.is_symlink()}
    assert links == {name: f"../{name}" for name in set(FOLDERS) - {"hushgrid", "docs", "tests"}}


def test_a_wing_cannot_be_imported_by_the_name_of_its_folder():
    banned = PROJECT["tool"]["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"]
    assert set(banned) == {path.name for path in TOP.iterdir() if path.is_symlink()}


def test_the_command_is_there():
    module, _, function = PROJECT["project"]["scripts"]["hushgrid"].partition(":")
    tree = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
    assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
