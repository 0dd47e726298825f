"""The pages name what is there: files and symbols, links, commands, keys and output, each as it is today."""

import argparse
import ast
import os
import re
import shlex
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import yaml

from hushgrid.cli.main import COMMANDS, make_parser
from hushgrid.kernels.errors import InputError
from hushgrid.node.config.consent import consent
from hushgrid.node.config.device import load_device
from hushgrid.node.problems.records.device import Rows
from hushgrid.node.problems.records.files import Shard
from tests.support import paths
from tests.support.paths import ROOT

PAGES = sorted([*paths.PAGES, *(p.relative_to(ROOT).as_posix() for p in (ROOT / "docs").rglob("*.md"))])
PAGES += ["lab/benchmarks/README.md", "scenarios/data/README.md"]
#: Pages that speak of the code, by its files and what is in them: all but the studies,
#: whose tables are made by commands.
OF_CODE = tuple(p for p in PAGES if not p.startswith("docs/studies/") and p not in ("CHANGELOG.md", "docs/history.md"))
FOLDERS = tuple(
    f"{name}/" for name in paths.FOLDERS if name != "hushgrid"
)  #: `hushgrid/1/...` and `site/rows` are topics
#: `path` (`symbol`, `symbol`), `path (symbol)`, or a path alone; of other code spans the second group is empty.
SPAN = re.compile(r"`([^`\s]+)`(?: \(((?:`[^`]+`(?:, | and )?)+)\))?|`([^`\s]+) \(([^`()]+)\)`")
#: What the tutorials add.
PLACEHOLDERS = {
    "fading_dgd.py",
    "kernels/algorithms/exact_diffusion.py",
    "node/transport/loop.py",
    "node/problems/smooth_median/kind.py",
    "broker/simulation/problems/smooth_median.py",
}


def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def prose(page: str) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", text(page), flags=re.M | re.S)


# --- files and symbols ---


def named(page: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(path, symbols) of every file and folder of the tree that a page names."""
    yield from named_in(prose(page))


def named_in(words: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    for path, symbols, path_, symbols_ in SPAN.findall(words):
        path, found = path or path_, re.findall(r"[\w.]+", symbols or symbols_)
        if (path.startswith(FOLDERS) or path.endswith(".py")) and path not in PLACEHOLDERS:
            yield path, tuple(found)


@cache
def defined(path: Path) -> frozenset[str]:
    """What a file of Python defines at its top and within its classes: "name", "Class.name"."""

    def names(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                yield prefix + node.name
            if isinstance(node, ast.ClassDef):
                yield from names(node.body, f"{prefix}{node.name}.")
            targets = node.targets if isinstance(node, ast.Assign) else []
            targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
            yield from (prefix + t.id for t in targets if isinstance(t, ast.Name))

    return frozenset(names(ast.parse(path.read_text(encoding="utf-8")).body))


def missing(path: str, symbols: tuple[str, ...]) -> list[str]:
    """What of these is not there."""
    file = ROOT / path
    if not file.exists():
        return [path]
    if path.endswith(".py"):
        return [f"{path} ({s})" for s in symbols if s not in defined(file)]
    return [f"{path} ({s})" for s in symbols if not re.search(rf"\b{re.escape(s)}\b", file.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", OF_CODE)
def test_every_file_and_symbol_that_a_page_names_is_there(page):
    assert [gone for path, symbols in named(page) for gone in missing(path, symbols)] == []


def test_what_commands_write_into_a_checkout_is_no_file_of_the_tree():
    made = ("runs/methods", "site/rows", "wheelhouse/deploy/install.sh", "build/x", "dist/x", "out/x")
    assert list(named_in(" ".join(f"`{path}`" for path in (*made, "node/wire.py", "docs/x.md")))) == [
        ("node/wire.py", ()), ("docs/x.md", ())
    ]  # fmt: skip
    assert {file.relative_to(ROOT).parts[0] for file in _files()} == {*paths.FOLDERS, "pyproject.toml"}


def test_every_condition_of_the_attack_model_is_enforced_by_a_symbol_that_is_named():
    table = text("docs/attack-model.md").split("## The conditions")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 10
    for condition, enforced in rows:
        by_symbol = [path for path, symbols, *_ in SPAN.findall(enforced) if symbols]
        assert by_symbol or "not enforceable" in enforced, condition


def test_a_file_or_symbol_that_is_not_there_is_noticed():
    assert missing("node/gone.py", ()) == ["node/gone.py"]
    assert missing("node/runtime/driver.py", ("FAILED", "Driver._commit", "Driver.gone", "gone")) == [
        "node/runtime/driver.py (Driver.gone)", "node/runtime/driver.py (gone)"
    ]  # fmt: skip
    assert missing("deploy/mosquitto.conf", ("max_packet_size", "max_gone")) == ["deploy/mosquitto.conf (max_gone)"]
    assert sum(len(symbols) for page in OF_CODE for _, symbols in named(page)) > 100


def test_the_architecture_names_every_folder_of_the_program():
    wings = ("kernels", "grid_cases", "node", "broker", "lab", "cli")
    code = {file.parent.relative_to(ROOT).as_posix() for wing in wings for file in (ROOT / wing).rglob("*.py")}
    told = {path.rstrip("/") for path, _ in named("docs/architecture.md")}
    assert sorted(code - told) == []


# --- papers ---

PAPERS = {p.name: p for p in (ROOT / "docs/papers").glob("*.md")}
#: Notes that are not in the repository, by the names under which they were once cited.
NOT_HERE = re.compile(
    r"\b(?:READINGS|ZONES|MECHANISMS|CONTRACT|PERFORMANCE|POWERFLOW|HOUSE)\b|project's readings|by the readings"
)


def numbered(page: Path) -> dict[str, str]:
    """The sections of a page that have a number: number -> text."""
    parts = re.split(r"^### (\d\.\d) ", page.read_text(encoding="utf-8"), flags=re.M)
    return dict(zip(parts[1::2], (re.split(r"^## ", part, flags=re.M)[0] for part in parts[2::2]), strict=True))


FOUND = {number: text for page in PAPERS.values() for number, text in numbered(page).items()}


@cache
def written() -> tuple[tuple[str, str], ...]:
    """(file, text) of what is said in words: pages without code, files of settings,
    comments and docstrings of the code.
    """
    return tuple(_written())


def _files() -> Iterator[Path]:
    """Of the tree, all but what is hidden."""
    yield ROOT / "pyproject.toml"
    for top in paths.FOLDERS:
        for folder, inner, names in os.walk(ROOT / top):
            inner[:] = [name for name in inner if not name.startswith(".")]
            yield from (Path(folder, name) for name in names)


def _written() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        yield page, re.sub(r"`[^`]*`", "", prose(page))
    for file in _files():
        path = file.relative_to(ROOT).as_posix()
        if file.suffix in {".yaml", ".toml", ".sh", ".conf", ".service"}:
            yield path, file.read_text(encoding="utf-8")
        if file.suffix == ".py":
            with tokenize.open(file) as lines:
                for token in tokenize.generate_tokens(lines.readline):
                    if token.type == tokenize.COMMENT or token.string.startswith(('"""', 'r"""')):
                        yield path, token.string


def test_nothing_refers_to_notes_that_are_not_in_the_repository():
    assert [(path, found[0]) for path, words in written() if (found := NOT_HERE.search(words))] == []


def test_a_note_that_is_not_in_the_repository_is_noticed():
    assert NOT_HERE.search("numbers of the project's readings, section 1")
    assert NOT_HERE.search("(ZONES, eta)")
    assert not NOT_HERE.search("the zones of a case")


def test_every_finding_and_page_that_is_cited_is_there():
    gone = set()
    for path, words in written():
        gone |= {(path, n) for n in re.findall(r"[Ff]indings? (\d\.\d)", words) if n not in FOUND}
        for page, number in re.findall(r"docs/papers/([\w-]+\.md)(?:,? \(?(\d\.\d))?", words):
            if page not in PAPERS or (number and number not in numbered(PAPERS[page])):
                gone.add((path, f"{page} {number}"))
    assert gone == set()


def test_a_number_means_one_finding():
    assert len(FOUND) == sum(len(numbered(page)) for page in PAPERS.values()) > 20


@pytest.mark.parametrize("number", sorted(FOUND))
def test_every_finding_names_the_test_or_the_study_that_shows_it(number):
    assert re.search(r"`tests/[\w/]+\.py \(test_\w+|\]\(\.\./studies/", FOUND[number])


# --- links ---


def anchors(page: Path) -> set[str]:
    """Of a page's headings, as GitHub makes them."""
    found = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page):
    here = ROOT / page
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match("https?:|mailto:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (here.parent / path).resolve() if path else here
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


# --- commands ---


def shell(page: str) -> Iterator[str]:
    """What a page shows to be typed: its blocks of shell, and what is indented as code."""
    found = text(page)
    yield from re.findall(r"^```sh.*?\n(.*?)^```$", found, flags=re.M | re.S)
    yield from re.findall(r"(?:^    .*\n)+", re.sub(r"^```.*?^```$", "", found, flags=re.M | re.S), flags=re.M)


def commands(script: str) -> Iterator[list[str]]:
    """The arguments of each hushgrid in a script."""
    for line in script.splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        try:
            words = list(lexer)
        except ValueError:  # an apostrophe: no shell
            continue
        while words:
            end = next((k for k, w in enumerate(words) if set(w) <= set("();<>|&")), len(words))
            command, words = words[:end], words[end + 1 :]
            while command and (command[0] == "do" or re.match(r"\w+=", command[0])):
                command = command[1:]
            if command[:1] == ["runuser"]:
                command = command[command.index("--") + 1 :]
            if command and Path(command[0]).name == "hushgrid":
                yield command[1:]


def wrong(words: list[str]) -> str:
    """Why the program would not take a command; "" if it does. The name of a command alone may stand for it."""
    parser: argparse.ArgumentParser | None = make_parser(COMMANDS)
    for k, word in enumerate(words):
        actions = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)] if parser else []
        parser = actions[0].choices.get(word) if actions else None
        if parser is None:
            break
        if k == len(words) - 1:
            return ""
    try:
        make_parser(COMMANDS).parse_args(words)
    except InputError as error:
        return f"hushgrid {' '.join(words)}: {error}"
    except SystemExit:  # --help, --version
        pass
    return ""


@pytest.mark.parametrize("page", PAGES)
def test_every_command_that_is_shown_is_one(page):
    shown = [words for script in shell(page) for words in commands(script)]
    spans = re.findall(r"`hushgrid ([^`]+)`", prose(page))
    assert [why for words in [*shown, *map(shlex.split, spans)] if (why := wrong(words))] == []


def test_a_command_that_is_none_is_noticed():
    assert [w for script in shell("docs/two-machines.md") for w in commands(script)][:2] == [
        ["node", "nodes/$z.yaml"], ["coordinator", "coordinator.yaml", "--once"]
    ]  # fmt: skip
    assert len([w for script in shell("docs/research.md") for w in commands(script)]) > 4
    for words in (["ledger", "new"], ["nod", "x.yaml"], ["run", "x.yaml", "--transpot", "mqtt"], ["check", "a", "b"]):
        assert wrong(words), words


def test_every_target_of_make_that_is_shown_is_one():
    targets = re.findall(r"^([\w-]+):", text("Makefile"), flags=re.M)
    shown = {name for page in PAGES for name in re.findall(r"(?:^    |`)make ([\w-]+)", text(page), flags=re.M)}
    assert shown >= {"demo", "test", "test-system"}
    assert shown <= set(targets)


# --- configurations and output ---


def test_the_sections_of_a_device_file_that_are_shown_are_ones(tmp_path):
    shown = [
        yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```$", text("docs/privacy.md"), re.M | re.S)
    ]
    assert len(shown) == 5
    for sections in shown:
        whole = {
            "node": "n0",
            "fleet": "f",
            "broker": "mqtt://localhost",
            "state": ".",
            "data": "n0.npz",
            "labels": {"classes": 2},
        }
        change = {"adjacency": {"bounded-change": 0.01}, "epsilon": 1.0}
        whole |= {"problem": {"kind": "logistic", "scale": 1.0, "row_bound": 1.0}, "budget": change} | sections
        if "problems" in sections.get("allow", {}):  # a list of questions of several kinds, none of which is declared
            del whole["problem"]
            whole["budget"] = {"adjacency": {"replace-one-record": {"clip": 1.0}}, "epsilon": 1.0}
        file = tmp_path / "n0.yaml"
        file.write_text(yaml.safe_dump(whole))
        load_device(file)


def test_the_table_of_ones_own_is_solved_as_shown(tmp_path, monkeypatch, capsys):
    page = text("docs/getting-started.md")
    (scenario,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.M | re.S)
    table, program = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.yaml").write_text(scenario)
    exec(compile(table, "getting-started.md", "exec"), {})
    exec(compile(program, "getting-started.md", "exec"), {})
    assert (
        capsys.readouterr().out.strip() == program.split("  # ")[1].strip() == "solved Bound(epsilon=2.0, delta=1e-05)"
    )


def test_what_check_says_of_the_examples_is_what_is_shown():
    z1, n0 = load_device(ROOT / "deploy/nodes/z1.yaml"), load_device(ROOT / "deploy/ring/nodes/n0.yaml")
    rows = Rows("n0", Shard(np.zeros((200, 8)), np.zeros(200)), n0.labels)
    lines = {line.strip() for line in text("docs/privacy.md").splitlines()}
    for said in (consent(z1, z1.kind.device(z1, "z1.yaml")), consent(n0, rows)):
        assert [line for line in said if line not in lines] == []
