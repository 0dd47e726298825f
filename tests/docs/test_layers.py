"""The house stands as it was drawn: who imports whom, and what a device needs."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.support.layers import (
    LAPTOP,
    MODULES,
    ORDER,
    PACKAGES,
    ROOMS,
    WINGS,
    Import,
    circles,
    folder,
    imports,
    listing,
    module_of,
    named_in_strings,
    needs,
    parsed,
    reached,
    wing,
)
from tests.support.paths import ROOT

#: What reads files, clocks, sockets, other processes or global randomness.
WORLD = {
    "asyncio", "builtins", "concurrent", "ctypes", "datetime", "fcntl", "glob", "http", "importlib", "io", "logging",
    "mmap", "multiprocessing", "os", "paho", "pathlib", "pickle", "random", "secrets", "select", "selectors", "shutil",
    "signal", "socket", "sqlite3", "ssl", "subprocess", "tempfile", "threading", "time", "urllib", "uuid", "yaml",
}  # fmt: skip


#: In the mathematics: one thread of BLAS; the operating system's entropy, the default of the noise; and the compiler,
#: which is asked for by the environment and keeps its code in a directory named by the sources; and the registry, which
#: imports every algorithm of its folder.
ALLOWED = {
    ("__init__.py", "os"),
    ("noise.py", "os"),
    ("jit.py", "os"),
    ("jit.py", "pathlib"),
    ("registry.py", "importlib"),
    ("registry.py", "pkgutil"),
}


MODELLING = {"centralised.py", "variables.py", "build.py", "backends.py"}


def named(room: Path) -> str:
    return room.relative_to(ROOT).as_posix()


def test_the_folders_are_found():
    assert {folder(room) for room in ROOMS} == set(ORDER)


def test_a_folder_needs_only_what_stands_before_it():
    rank = {module: ORDER.index(folder(room)) for module, room in MODULES.items()}
    assert [f"{m} -> {other}" for m in MODULES for other in needs(m) if rank[other] > rank[m]] == []


def test_no_module_needs_itself_through_others():
    assert circles({module: needs(module) for module in MODULES}) == []


def test_the_page_of_imports_is_current():
    page = (ROOT / "docs" / "imports.md").read_text(encoding="utf-8")
    assert page == listing(), "python -m tests.support.layers"


def test_a_coordinator_names_no_kind_of_problem():
    kinds = tuple(f"hushgrid.node.problems.{file.parent.name}." for file in (ROOT / "node/problems").glob("*/kind.py"))
    own = [module for module in MODULES if module.startswith("hushgrid.broker.coordinator.")]
    assert kinds
    assert own
    assert [f"{m} -> {other}" for m in own for other in needs(m) if other.startswith(kinds)] == []


#: One file an algorithm: as many as there are.
ONE_FILE_EACH = ("kernels/algorithms",)


@pytest.mark.parametrize("name", [name for name in ORDER if name not in ONE_FILE_EACH])
def test_a_folder_has_at_most_fifteen_modules(name):
    assert len([room for room in ROOMS if folder(room) == name and room.name != "__init__.py"]) <= 15


def test_a_module_has_at_most_500_lines():
    lines = {named(room): len(room.read_text(encoding="utf-8").splitlines()) for room in ROOMS}
    assert {name: n for name, n in lines.items() if n > 500} == {}


def test_a_function_has_at_most_70_lines():
    functions = (
        (f"{named(room)}: {node.name}", (node.end_lineno or 0) - node.lineno + 1)
        for room in ROOMS
        for node in ast.walk(parsed(room))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    assert {name: n for name, n in functions if n > 70} == {}


def test_a_coordinator_of_real_devices_needs_no_simulation_and_no_report():
    found = {folder(MODULES[name]) for name in reached("hushgrid.broker.coordinator.daemon")}
    assert {name for name in found if name.startswith("broker")} == {"broker/coordinator", "broker/standby"}


def test_an_import_for_types_a_name_in_a_string_and_a_circle_are_noticed():
    tree = ast.parse(
        "if TYPE_CHECKING:\n    import hushgrid.node.wire\n"
        "def f():\n    'hushgrid.node.privacy.gate'\n    run(['-m', 'hushgrid.broker.simulation.processes'])"
    )
    assert imports(tree) == (Import("hushgrid.node.wire", at_once=False),)
    assert named_in_strings(tree) == {"hushgrid.broker.simulation.processes"}
    graph = {"a": frozenset("b"), "b": frozenset("c"), "c": frozenset("b"), "d": frozenset("a")}
    assert circles(graph) == [{"b", "c"}]


@cache
def bound(tree: ast.Module) -> set[str]:
    """What a module defines or imports at its top."""
    found = {alias.asname or alias.name for n in tree.body if isinstance(n, ast.ImportFrom) for alias in n.names}
    found |= {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    return found | {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


NO_MODULES = {"hushgrid.algorithms", "hushgrid.acl"}  #: a group of entry points, an access list's file


def test_what_a_string_names_is_there():
    gone = []
    for file in [*ROOMS, *(ROOT / "tests").rglob("*.py")]:
        for name in named_in_strings(parsed(file)) - PACKAGES - NO_MODULES:
            module = module_of(name)
            rest = name.removeprefix(f"{module}.").split(".")[0] if module != name else None
            if module is None or (rest is not None and rest not in bound(parsed(MODULES[module]))):
                gone.append(f"{named(file)}: {name}")
    assert gone == []


def test_a_room_is_imported_by_its_full_name_only():
    assert [
        f"{named(room)}: {i.name}"
        for room in ROOMS
        for i in imports(parsed(room))
        if i.name.split(".")[0] in {*WINGS} - {"hushgrid"}
    ] == []


@pytest.mark.parametrize("room", [room for room in ROOMS if wing(room) == "kernels"], ids=named)
def test_the_mathematics_touches_no_file_clock_socket_or_global_randomness(room):
    tree = parsed(room)
    found = {name.split(".")[0] for name, _ in imports(tree)} & WORLD
    assert {(room.name, name) for name in found} <= ALLOWED
    drawn = {
        n.attr
        for n in ast.walk(tree)
        if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Attribute) and ast.unparse(n.value) == "np.random"
    }
    assert drawn <= {"Generator", "Philox"}  # keyed generators, never numpy's global one
    calls = {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    assert calls & {"open", "print", "input", "exec", "eval"} == set()


def test_cvxpy_is_imported_where_models_are_made_and_only_when_one_is():
    found = [
        (room, at_once) for room in ROOMS for name, at_once in imports(parsed(room)) if name.split(".")[0] == "cvxpy"
    ]
    assert {room.name for room, _ in found} <= MODELLING
    assert [named(room) for room, at_once in found if at_once] == []  # it takes a second: in the function that needs it


@pytest.mark.parametrize("heavy", ["matplotlib", "rich", "amqtt"])
def test_what_only_a_laptop_has_is_imported_only_when_it_is_used(heavy):
    found = [
        named(room) for room in ROOMS for name, now in imports(parsed(room)) if now and name.split(".")[0] == heavy
    ]
    assert found == []


def test_cryptography_is_imported_by_masks_trust_and_enrolment_and_by_a_device_only_when_its_owner_asks_for_it():
    found = {named(room) for room in ROOMS for name, _ in imports(parsed(room)) if name.split(".")[0] == "cryptography"}
    assert {name.rpartition("/")[0] for name in found} == {
        "node/masks",
        "node/trust",
        "broker/enrolment",
        "cli/operator",
    }
    for daemon in ("hushgrid.cli.owner.node", "hushgrid.cli.operator.coordinator"):
        assert not [name for name in reached(daemon) if name.startswith("hushgrid.broker.enrolment")]
    inside = ("hushgrid.node.masks", "hushgrid.node.trust")
    outside = [room for room in ROOMS if folder(room) not in ("node/masks", "node/trust")]
    needed = {named(room): i.at_once for room in outside for i in imports(parsed(room)) if i.name.startswith(inside)}
    assert {name for name, at_once in needed.items() if at_once} == set()


def test_a_device_needs_no_broker_benchmark_study_or_other_command_ever():
    device = reached("hushgrid.cli.owner.node")
    assert {name for name in device if wing(MODULES[name]) == "cli"} == {"hushgrid.cli.owner.node"}
    assert {wing(MODULES[name]) for name in device} == {"kernels", "grid_cases", "node", "cli"}
    at_once = {i.name.split(".")[0] for name in device for i in imports(parsed(MODULES[name])) if i.at_once}
    assert at_once & set(LAPTOP) == set()
    assert {wing(MODULES[name]) for name in reached("hushgrid.cli.main")} == {"kernels", "cli", "scenarios"}


# --- the tests ---


TESTS = sorted((ROOT / "tests").rglob("*.py"))


def test_tests_share_what_stands_in_support_and_no_test_imports_a_test():
    found = {
        (file, i.name) for file in TESTS for i in imports(parsed(file)) if re.match(r"tests\.|(.*\.)?test_\w", i.name)
    }
    shared = ("tests.support", "tests.mutations")
    assert [f"{named(file)}: {name}" for file, name in found if not name.startswith(shared)] == []
