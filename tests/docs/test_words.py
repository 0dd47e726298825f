"""The words of the code: few names of the kind that say nothing, no class name twice over,
`Any` only where it must be.
"""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.support.layers import ROOMS, parsed
from tests.support.paths import ROOT

#: Words that name no thing. Prose may use them; a name says what it holds.
BANNED = frozenset(
    [
        "found",
        "told",
        "said",
        "shown",
        "asked",
        "about",
        "of",
        "at",
        "own",
        "given",
        "kept",
        "heard",
        "left",
        "near",
        "words",
        "whole",
    ]
)

#: Names that stand outside of the code, by file and scope. Each is what a person or another program reads or writes.
EXCEPTIONS = {
    ("node/schema/sections.py", "Change", "of"): "the scenario's key `bounded-change.of`",
    ("node/schema/sections.py", "Privacy", "at"): "the scenario's key `privacy.at`",
}

#: Bindings of banned words, at most. It only goes down.
LIMIT = 160

#: Class names that may stand in more files than four, and why.
REPEATED = {
    "Params": "an algorithm's section: one a file of kernels/algorithms",
    "Agent": "the machine of a node around a coordinator or a token: one a file of kernels/algorithms",
    "AgentState": "its state",
    "Node": "the machine of a node among neighbours: one a file of kernels/algorithms",
    "NodeState": "its state",
    "Server": "the machine of a coordinator: one a file of kernels/algorithms",
    "ServerState": "its state",
}

#: `Any` in annotations and casts, at most. It only goes down.
ANY_LIMIT = 321


def test_few_names_are_words_that_name_no_thing():
    rooms = Counter(
        file.rpartition("/")[0] for file, scope, name in bindings() if (file, scope, name) not in EXCEPTIONS
    )
    assert sum(rooms.values()) <= LIMIT, rooms.most_common(8)


def test_every_exception_is_there():
    assert EXCEPTIONS.keys() <= set(bindings())


def test_a_class_name_stands_in_at_most_four_files():
    files = defaultdict(set)
    for room in ROOMS:
        for node in ast.walk(parsed(room)):
            if isinstance(node, ast.ClassDef):
                files[node.name].add(room.relative_to(ROOT).as_posix())
    assert {name: sorted(where) for name, where in files.items() if len(where) > 4 and name not in REPEATED} == {}


def test_any_is_rare():
    rooms: Counter[str] = Counter()
    for room in ROOMS:
        uses = sum(isinstance(node, ast.Name) and node.id == "Any" for node in ast.walk(parsed(room)))
        rooms[room.relative_to(ROOT).parent.as_posix()] += uses
    assert sum(rooms.values()) <= ANY_LIMIT, rooms.most_common(8)


def bindings() -> Iterator[tuple[str, str, str]]:
    """(file, scope, name) of every name, parameter, attribute, function or import that is a banned word."""
    for room in ROOMS:
        file = room.relative_to(ROOT).as_posix()
        yield from ((file, scope, name) for scope, name in bound(parsed(room), "") if name in BANNED)


def bound(node: ast.AST, scope: str) -> Iterator[tuple[str, str]]:
    """(scope, name) of everything that is bound below a node of the syntax tree."""
    for inner in ast.iter_child_nodes(node):
        below = scope
        match inner:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield scope, name
                below = f"{scope}.{name}".lstrip(".")
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield scope, name
            case ast.alias(name=name, asname=alias):
                yield scope, alias or name.rpartition(".")[2]
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.ExceptHandler(name=str(name)):
                yield scope, name
        yield from bound(inner, below)


def test_the_count_sees_every_way_to_bind_a_name():
    source = "\n".join(
        [
            "def told(of, *, at=1, **kept): left = 1",
            "for said in (): pass",
            "x.heard = (near := 1)",
            "import a.found",
            "from a import b as shown",
            "try: pass",
            "except E as words: pass",
            "match x:",
            "    case [given, *own]: pass",
        ]
    )
    expected = ["told", "of", "at", "kept", "left", "said", "heard", "near", "found", "shown", "words", "given", "own"]
    assert Counter(name for _, name in bound(ast.parse(source), "") if name in BANNED) == Counter(expected)
