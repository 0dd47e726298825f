"""The wings of the package, its modules, and what each of them needs."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.support.paths import ROOT

#: Each wing needs only itself and what stands before it.
WINGS = ("kernels", "grid_cases", "node", "scenarios", "deploy", "broker", "lab", "cli", "hushgrid")

#: `hushgrid/` links to the others: of itself it has only the files at its top.
ROOMS = sorted(path for wing in WINGS for path in (ROOT / wing).glob("*.py" if wing == "hushgrid" else "**/*.py"))


#: A module, or something in one, named in a string: what `-m` runs, a package of data, a place that a test patches.
NAMED = re.compile(r"(?<![\w/])hushgrid(?:\.[A-Za-z_]\w*)+")


class Import(NamedTuple):
    name: str  #: `from a import b` gives a and a.b
    at_once: bool  #: as soon as the room itself is imported: not in a function, nor for types only


@cache
def parsed(room: Path) -> ast.Module:
    return ast.parse(room.read_text(encoding="utf-8"))


@cache
def imports(tree: ast.AST) -> tuple[Import, ...]:
    """Every import, those for types only among them."""
    return tuple(_imports(tree, at_once=True))


def _imports(node: ast.AST, at_once: bool) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        yield from (Import(alias.name, at_once) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"line {node.lineno}: a relative import"
        names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        yield from (Import(name, at_once) for name in names)
    elif isinstance(node, ast.FunctionDef) or (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
        at_once = False
    for inner in ast.iter_child_nodes(node):
        if not isinstance(inner, ast.expr):  # an expression imports nothing
            yield from _imports(inner, at_once)


@cache
def named_in_strings(tree: ast.AST) -> set[str]:
    """The names of modules in every string but docstrings."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    texts = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and id(n) not in docstrings]
    return {name for text in texts if isinstance(text, str) for name in NAMED.findall(text)}


def wing(room: Path) -> str:
    return room.relative_to(ROOT).parts[0]


def _module(room: Path) -> str:
    parts = room.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts if parts[0] == "hushgrid" else ("hushgrid", *parts)).removesuffix(".__init__")


#: `-m hushgrid` in a string is the program, started as a person starts it: it needs no module.
MODULES = {_module(room): room for room in ROOMS}
PACKAGES = {name.rpartition(".")[0] for name in MODULES}  #: most of them say nothing of themselves


def module_of(name: str) -> str | None:
    """The module that `name` is or lies in; None of what is in no wing."""
    while name and name not in MODULES:
        name = name.rpartition(".")[0]
    return name or None


@cache
def needs(module: str) -> frozenset[str]:
    """The other modules of the wings that a module needs, now or later, by import or by a name in a string."""
    tree = parsed(MODULES[module])
    names = [name for name, _ in imports(tree)] + list(named_in_strings(tree))
    found = {found for name in names if (found := module_of(name))}
    # `from hushgrid.node import wire` names the package too, of which it needs nothing else.
    return frozenset(name for name in found - {module} if not any(other.startswith(f"{name}.") for other in found))


#: The sub-packages of a wing, in their order, which holds in the same way. "" are the files beside them.
INSIDE: dict[str, tuple[str, ...]] = dict.fromkeys(WINGS, ("",)) | {
    "kernels": ("", "problems", "privacy", "patterns", "algorithms"),
    "grid_cases": ("elements", "", "timeseries", "ac", "zone"),
    "node": (
        *(
            "",
            "schema",
            "privacy",
            "masks",
            "trust",
            "transport",
            "problems",
            "problems/power_flow",
            "problems/records",
            "problems/statistics",
        ),
        *("config", "site", "runtime"),
    ),
    "broker": (
        "servers",
        "standby",
        "coordinator",
        "sites",
        "report/drawings",
        "report",
        "watch",
        "enrolment/lists",
        "enrolment",
        "enrolment/verify",
        "simulation/recorders",
        "simulation/problems",
        "simulation",
        "",
    ),
    "lab": (
        *("", "rollout/compiled", "rollout", "inversion", "attacks", "comparison", "sweep", "planning", "audit"),
        *("simulate", "benchmarks/common", "benchmarks/scale", "benchmarks"),
        *("studies/common", "studies/baselines", "studies/problems", "studies/relay", "studies/papers", "studies"),
    ),
    "cli": ("drafts", "", "operator", "owner", "researcher"),
}

#: Every folder with modules, from the one that needs nothing to the one that nothing needs.
ORDER = tuple(f"{wing}/{folder}".rstrip("/") for wing in WINGS for folder in INSIDE[wing])


def folder(room: Path) -> str:
    """The folder of a module, from the root of the repository."""
    return room.relative_to(ROOT).parent.as_posix()


def arrows() -> dict[str, dict[str, int]]:
    """What each folder needs of the others: folder -> other folder -> how many of its modules need it."""
    found: dict[str, dict[str, int]] = {name: {} for name in ORDER}
    for module, room in MODULES.items():
        for other in {folder(MODULES[name]) for name in needs(module)} - {folder(room)}:
            found[folder(room)][other] = found[folder(room)].get(other, 0) + 1
    return {name: {other: others[other] for other in ORDER if other in others} for name, others in found.items()}


def circles(graph: dict[str, frozenset[str]]) -> list[set[str]]:
    """The groups of modules that reach each other."""
    reached = {name: set(others) for name, others in graph.items()}
    for through in graph:
        for name in graph:
            if through in reached[name]:
                reached[name] |= reached[through]
    groups = {frozenset(b for b in reached[a] if a in reached[b]) for a in graph if a in reached[a]}
    return sorted((set(group) for group in groups), key=sorted)


def listing() -> str:
    """`docs/imports.md`: every folder with what it needs, in Markdown."""
    out = [
        "# Imports",
        "",
        "Who needs whom, read from every import of the program, those for types only and names of modules in strings",
        "included. A folder needs only folders that stand above it in this table: no arrow leads down, and none leads "
        "back.",
        "No module needs itself through others. The page is written by `python -m tests.support.layers`, and a test",
        "compares it with the tree.",
        "",
        "| folder | modules | needs (how many of its modules do) |",
        "|---|---|---|",
    ]
    for name, others in arrows().items():
        modules = sum(folder(room) == name and room.name != "__init__.py" for room in ROOMS)
        needed = ", ".join(f"{other} ({count})" for other, count in others.items()) or "nothing"
        out.append(f"| {name}/ | {modules} | {needed} |")
    upward = [(a, b) for a, others in arrows().items() for b in others if ORDER.index(b) > ORDER.index(a)]
    loops = circles({module: needs(module) for module in MODULES})
    out += ["", f"Modules: {len(MODULES)}. Arrows down the table: {len(upward)}. Circles: {len(loops)}.", ""]
    return "\n".join(out)


LAPTOP = ("cvxpy", "numba", "matplotlib", "rich", "amqtt", "networkx", "casadi")
LAPTOP += ("dask", "distributed", "pandas", "pyarrow")


def reached(module: str) -> set[str]:
    """What a module needs, and what that needs, now or later."""
    found, new = set(), {module}
    while new:
        found |= new
        new = {other for name in new for other in needs(name)} - found
    return found


if __name__ == "__main__":
    (ROOT / "docs" / "imports.md").write_text(listing(), encoding="utf-8")
