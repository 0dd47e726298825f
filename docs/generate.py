"""Writes docs/reference/ and the last section of docs/papers/README.md: pages, JSON Schemas and a table made from what
the program itself declares (`make reference`).

The keys, types, units, defaults and ranges are those of the structs. The meaning of a key is the `#:` comment at its
field, and stands there only; a default that depends on the rest is the text in brackets at the comment's end. Commands
come from the argument parser, exit codes from `kernels/errors.py`, topics and messages from `node/wire.py`.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from itertools import groupby
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple, Union, get_args

import msgspec
from msgspec import inspect as mi

from hushgrid.broker.report import result
from hushgrid.broker.report.claims import claim_of
from hushgrid.cli.main import COMMANDS, make_parser
from hushgrid.kernels import errors
from hushgrid.kernels.algorithms.base import Algorithm, message_vectors
from hushgrid.kernels.algorithms.registry import ALGORITHMS
from hushgrid.lab.examples import examples
from hushgrid.lab.studies import coverage
from hushgrid.node import status, views, wire
from hushgrid.node.config.coordinator import CoordinatorConfig
from hushgrid.node.config.device import DeviceConfig
from hushgrid.node.config.scenario import Scenario
from hushgrid.node.problems.kind import Kind
from hushgrid.node.problems.registry import KINDS

PLACE = Path(__file__).parent / "reference"
PAPERS, COVERED = PLACE.parent / "papers" / "README.md", "## What of the papers is here\n"
GENERATED = "<!-- Written by docs/generate.py (`make reference`) from the program's own declarations. -->\n"


# --- what a field means: the comment that stands at it ---


@cache
def own_meanings(cls: type) -> dict[str, str]:
    """The `#:` comments of a class at its own fields: on the field's lines, else in the lines above it."""
    source, _ = inspect.getsourcelines(cls)
    tree = ast.parse(dedent("".join(source)))
    assert isinstance(tree.body[0], ast.ClassDef)
    found = {}
    for statement in tree.body[0].body:
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        start, end = statement.lineno - 1, statement.end_lineno or statement.lineno
        said = [line.split("#:", 1)[1].strip() for line in source[start:end] if "#:" in line]
        above = start
        while not said and source[above - 1].strip().startswith("#:"):
            above -= 1
        said = said or [line.strip().removeprefix("#:").strip() for line in source[above:start]]
        found[statement.target.id] = " ".join(said)
    return found


def meaning(cls: type, name: str) -> tuple[str, str]:
    """What a field means, and its default if that depends on the rest. Raises KeyError if it has no comment."""
    for base in (*getattr(cls, "described_by", ()), *cls.__mro__):
        if name in inspect.get_annotations(base) and (text := own_meanings(base)[name]):
            said, _, default = text.partition(" [") if text.endswith("]") else (text, "", "")
            return said, default.removesuffix("]")
    raise KeyError(f"{cls.__module__}.{cls.__qualname__}.{name} has no meaning: write a `#:` comment at it")


# --- types in words ---


class Field(NamedTuple):
    key: str
    type: str
    unit: str
    default: str
    range: str
    meaning: str


def plain(type_: mi.Type) -> tuple[mi.Type, dict[str, Any]]:
    """A type without its wrapper, and what the wrapper says of it (its unit)."""
    if not isinstance(type_, mi.Metadata):
        return type_, {}
    said = type_.extra_json_schema or {}
    if said.get("registry") == "algorithms":  # a section that is read by its name, so that plugins may add their own
        return mi.UnionType(tuple(map(mi.type_info, ALGORITHMS.values()))), {}
    return type_.type, said


def structs(type_: mi.Type) -> Iterator[mi.StructType | mi.DataclassType]:
    """The sections that a type may be."""
    type_, _ = plain(type_)
    if isinstance(type_, mi.StructType | mi.DataclassType):
        yield type_
    for inner in parts(type_):
        yield from structs(inner)


def parts(type_: mi.Type) -> tuple[mi.Type, ...]:
    match type_:
        case mi.UnionType():
            return tuple(type_.types)
        case mi.ListType() | mi.VarTupleType():
            return (type_.item_type,)
        case mi.TupleType():
            return tuple(type_.item_types)
        case mi.DictType():
            return (type_.value_type,)
    return ()


def words(type_: mi.Type, link: Callable[[type], str], null: str = "") -> str:
    """A type in words; `null` is the word for None, "" to leave it out (a key that may be None may be absent)."""
    type_, _ = plain(type_)
    match type_:
        case mi.IntType():
            return "whole number"
        case mi.FloatType():
            return "number"
        case mi.StrType():
            return "text"
        case mi.BoolType():
            return "true, false"
        case mi.LiteralType():
            return ", ".join(f"`{value}`" for value in type_.values)
        case mi.ListType() | mi.VarTupleType():
            return f"list: {words(type_.item_type, link)}"
        case mi.TupleType():
            return f"[{', '.join(words(t, link) for t in type_.item_types)}]"
        case mi.DictType():
            return f"mapping: {words(type_.value_type, link)}"
        case mi.StructType() | mi.DataclassType():
            return link(type_.cls)
        case mi.NoneType():
            return null
        case mi.UnionType():
            return " or ".join(dict.fromkeys(found for t in type_.types if (found := words(t, link, null))))
    return "any"


def span(type_: mi.Type) -> str:
    """The range of a type's numbers, or the form of its text."""
    type_, _ = plain(type_)
    if isinstance(type_, mi.IntType | mi.FloatType):
        low = figure(type_.ge) if type_.ge is not None else f"above {figure(type_.gt)}" if type_.gt is not None else ""
        high = "" if type_.le in (None, sys.float_info.max) else figure(type_.le)
        high = f"below {figure(type_.lt)}" if type_.lt is not None else high
        return f"{low} to {high}" if low and high else low + (" or more" if low[:1].isdigit() else "") or high
    if isinstance(type_, mi.StrType) and type_.pattern:
        return f"`{ended(type_.pattern)}`"
    return ", ".join(dict.fromkeys(found for t in parts(type_) if (found := span(t))))


def figure(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def unit(type_: mi.Type) -> str:
    type_, said = plain(type_)
    return said.get("unit", "") or next((found for t in parts(type_) if (found := unit(t))), "")


def ended(pattern: str) -> str:
    """A pattern as JSON Schema writes it."""
    return pattern.replace(r"\Z", "$")


def fields(type_: mi.StructType | mi.DataclassType, link: Callable[[type], str], read: bool) -> Iterator[Field]:
    """The keys of a section, in their order. `read`: of a file that is read by people, not written: no defaults."""
    if isinstance(type_, mi.StructType) and type_.tag_field is not None:
        yield Field(type_.tag_field, f"`{type_.tag}`", "", "required", "", "which section it is")
    for field in type_.fields:
        said, default = meaning(type_.cls, field.name)
        if read:
            default = ""
        elif field.required:
            default = "required"
        elif (value := field.default) is msgspec.NODEFAULT or isinstance(value, msgspec.Struct):
            default = default or "its own defaults"
        elif value is not None:
            default = f"`{json.dumps(value) if isinstance(value, bool) else value}`"
        else:
            default = default or "none"
        value = words(field.type, link, "null" if read else "")
        yield Field(field.encode_name, value, unit(field.type), default, span(field.type), said)


# --- pages ---


def cell(text: str) -> str:
    return text.replace("|", r"\|")


def table(header: tuple[str, ...], rows: Iterator[tuple[str, ...]] | list[tuple[str, ...]]) -> str:
    """A Markdown table; a column that is empty throughout is left out."""
    body = [tuple(map(cell, row)) for row in rows]
    shown = [k for k in range(len(header)) if k == 0 or any(row[k] for row in body)]
    lines = [[header[k] for k in shown], ["---"] * len(shown), *([row[k] for k in shown] for row in body)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def slug(heading: str) -> str:
    """The anchor that Markdown gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def sections(root: type, name: str) -> Iterator[tuple[str, mi.StructType | mi.DataclassType]]:
    """(heading, section) of everything below `root`, each section once, at the first path that leads to it."""
    seen: set[type] = set()

    def walk(type_: mi.StructType | mi.DataclassType, path: str) -> Iterator[tuple[str, Any]]:
        if type_.cls in seen:
            return
        seen.add(type_.cls)
        tagged = isinstance(type_, mi.StructType) and type_.tag_field is not None
        yield (f"{path}, {type_.tag_field} {type_.tag}" if tagged else path or name), type_
        for field in type_.fields:
            for inner in structs(field.type):
                yield from walk(inner, f"{path}.{field.encode_name}" if path else field.encode_name)

    made = mi.type_info(root)
    assert isinstance(made, mi.StructType | mi.DataclassType)
    yield from walk(made, "")


def described(cls: type) -> str:
    """A section's own words; of an algorithm its paper."""
    if issubclass(cls, Algorithm):
        return f"{cls.title}: {cls.paper}."
    return " ".join((cls.__dict__.get("__doc__") or "").split())


def keys(root: type, name: str, title: str, intro: str, read: bool = False) -> str:
    """A page with a table for each section."""
    headings = {type_.cls: heading for heading, type_ in sections(root, name)}

    def link(cls: type) -> str:
        return f"[{headings[cls]}](#{slug(headings[cls])})"

    text = f"{GENERATED}\n# {title}\n\n{intro}\n"
    for heading, type_ in sections(root, name):
        about = "" if type_.cls is root else described(type_.cls)
        text += f"\n## {heading}\n\n" + (f"{about}\n\n" if about else "")
        text += table(
            ("key", "value", "unit", "default", "range", "meaning"),
            [(f"`{f[0]}`", *f[1:]) for f in fields(type_, link, read)],
        )
    return text


def schema(root: type, title: str) -> str:
    """The JSON Schema of a file for editors: msgspec's own, with the meaning of each key."""
    known = [type_.cls for _, type_ in sections(root, "")]
    refs, components = msgspec.json.schema_components(known)
    for cls, ref in zip(known, refs, strict=True):
        found = components[ref["$ref"].rpartition("/")[2]]
        found.pop("description", None)
        if about := described(cls):
            found["description"] = about
        for field in msgspec.structs.fields(cls):
            said, default = meaning(cls, field.name)
            entry = found["properties"][field.encode_name]
            entry["description"] = said + (f" [{default}]" if default else "")
            if entry.pop("registry", None) == "algorithms":
                every = Union[tuple(ALGORITHMS.values())]  # noqa: UP007
                entry |= msgspec.json.schema_components([every])[0][0]
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **refs[0], "$defs": components}
    return json.dumps(whole, indent=1).replace(r"\\Z", "$") + "\n"


def result_page() -> str:
    text = keys(
        result.Summary, "result.json", "What a run leaves",
        "`hushgrid run SCENARIO --out DIR` leaves these files; `Result` in Python has the same fields as attributes, "
        "and\n"
        "`Result.load(DIR)` reads a directory. What does not apply, and what a private run does not reveal, is null.",
        read=True,
    )  # fmt: skip
    rows = [(f"`{name}`", said) for name, said in result.HISTORY.items()]
    return f"{text}\n## history.csv\n\nA row for each round, or for each block of n activations.\n\n" + table(
        ("column", "meaning"), rows
    )


def commands_page() -> str:
    text = f"{GENERATED}\n# Commands\n\nEach command says the same with `--help`.\n"
    return text + "".join(command(make_parser(COMMANDS), "hushgrid"))


def command(parser: argparse.ArgumentParser, name: str) -> Iterator[str]:
    """A section for each command, its own commands after it."""
    nested = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    rows = []
    for action in parser._actions:
        if action in nested or isinstance(action, argparse._HelpAction):
            continue
        value = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
        if action.choices is not None:
            value = " or ".join(map(str, action.choices))
        shown = ", ".join(action.option_strings) + (f" {value}" if action.nargs != 0 else "")
        optional = action.nargs in ("?", "*") and not action.option_strings
        rows.append((f"`{shown.strip()}`", (action.help or "") + (" (optional)" if optional else "")))
    about = " ".join((parser.description or "").split())
    if name != "hushgrid":
        yield f"\n## {name}\n\n{about}\n"
    if rows:
        yield "\n" + table(("argument", "meaning"), rows)
    for action in nested:
        for word, inner in action.choices.items():
            yield from command(inner, f"{name} {word}")


def topics_page() -> str:
    topics = wire.Topics("<fleet>")
    rows = [
        (f"`{topics.edge('<src>', '<dst>')}`", *spoken(wire.Topics.edge)),
        (f"`{topics.all('<src>')}`", *spoken(wire.Topics.all)),
        (f"`{topics.state('<node>')}`", *spoken(wire.Topics.state)),
        (f"`{topics.status('<node>')}`", *spoken(wire.Topics.status)),
        (f"`{topics.run()}`", *spoken(wire.Topics.run)),
        (f"`{topics.answer()}`", *spoken(wire.Topics.answer)),
    ]
    text = f"{GENERATED}\n# Topics and messages\n\n"
    text += (
        "A message is MessagePack: [run, epoch, seq, mark, body] on an edge or to all, a body alone on a state topic.\n"
    )
    text += "A vector is the bytes of its little-endian float64 entries. The names on a topic are those of the sender\n"
    text += (
        "and the receiver; the coordinator's is `coordinator`. Access lists allow a client the topics of its own "
        "name.\n\n"
    )
    text += table(("topic", "what is said on it"), rows)
    for title, group in (
        ("The run", wire.Control),
        ("Custody and pace", wire.Custody),
        ("Iterates", wire.Iterate),
        ("State topics", wire.Presence),
    ):
        listed = [(f"`{cls.__struct_config__.tag}`", *spoken(cls)) for cls in get_args(group)]
        text += f"\n## {title}\n\n" + table(("message", "what it says"), listed)
    for title, kind in (
        ("The status", status.Status),
        ("The interval in a status", status.Interval),
        ("The view of a run", views.RunView),
        ("The view of an answer", views.AnswerView),
    ):
        listed = [(f"`{field.encode_name}`", meaning(kind, field.name)[0]) for field in msgspec.structs.fields(kind)]
        text += f"\n## {title}\n\n{spoken(kind)[0]}\n\n" + table(("key", "meaning"), listed)
    return text


def spoken(of: Any) -> tuple[str]:
    return (" ".join((of.__doc__ or "").split()),)


def exits_page() -> str:
    """By code: what a script may rely on."""
    found: dict[int, list[str]] = {0: ["Done."], 1: ["A defect of this program; HUSHGRID_DEBUG=1 shows the trace."]}
    for _, cls in inspect.getmembers(errors, inspect.isclass):
        if issubclass(cls, errors.HushgridError) and cls is not errors.HushgridError:
            found.setdefault(cls.exit_code, []).extend(spoken(cls))
    rows = [(f"`{code}`", " ".join(said)) for code, said in sorted(found.items())]
    text = f"{GENERATED}\n# Exit codes\n\n"
    text += "Whatever goes wrong is one line on stderr: what was found, where, what was expected.\n\n"
    return text + table(("code", "meaning"), rows)


# --- algorithms ---

ROOT = PLACE.parent.parent
PATTERNS = {"star": "rounds around a coordinator", "token": "a token walks", "neighbours": "rounds among neighbours"}


ABOUT_ALGORITHMS = """\
What each file of `kernels/algorithms/` declares. The **pattern** says who speaks when: in a `star` a coordinator
averages; in `token` one vector walks from node to node; in `neighbours` every node sends to all its neighbours in each
round. Every algorithm runs as `guarded` (the gate adds noise to each answer about data, the default) or `none` (no
noise). Those with a privacy claim of their own also run as `published`, in simulation. If a claim does not hold, the
last column says why, by the number of the finding in [papers](../papers/README.md). "At the gate's price" means that
[the gate](../gate.md) makes the published noise and counts its total epsilon.
"""


class Declared(NamedTuple):
    """An algorithm with the kind of problem that it solves, and its section as its first guarded example has it."""

    kind: Kind
    section: Algorithm


def algorithms() -> list[Declared]:
    """All that are registered, by pattern and name."""
    found = []
    for kind in KINDS.values():
        for name in kind.algorithms:
            keys = {"name": name, "rounds": 1} | dict(examples(ALGORITHMS[name])["guarded"][0])
            found.append(Declared(kind, msgspec.convert(keys, ALGORITHMS[name])))
    return sorted(found, key=lambda one: (list(PATTERNS).index(one.section.pattern), one.section.name))


def algorithm_table() -> str:
    header = ("`algorithm.name`", "paper", "pattern", "problem", "privacy unit", "does the published claim hold?")
    rows = []
    for _, group in groupby(algorithms(), lambda one: one.section.name):
        same = list(group)
        s = same[0].section
        solved, unit = ("; ".join(found) for found in zip(*((k.solved(s), k.unit(s)) for k, s in same), strict=True))
        rows.append((f"`{s.name}`", f"{s.title}. {s.paper}", s.pattern, solved, unit, claim_of(s).holds))
    return table(header, rows)


def algorithms_page() -> str:
    """The table of all, then a section for each: what it says and keeps, and a short run of each variant."""
    text = f"{GENERATED}\n# Algorithms\n\n{ABOUT_ALGORITHMS}\n{algorithm_table()}\n"
    text += "The keys of a section are in [the scenario](scenario.md). d is the length of the iterate.\n"
    for kind, s in algorithms():
        asked = {
            "gradient": "gradients",
            "minimiser": "minimisers",
            "data": "data",
            "statistic": "their part of a sum",
        }[s.asks()]
        said = {
            "star": "one, of the entries that are shared",
            "token": f"{message_vectors(s)} of length d ({', '.join(getattr(s, 'token', ()))})",
            "neighbours": f"{message_vectors(s)} of length d; messages in a round: {getattr(s, 'messages', 1)}",
        }[s.pattern]
        facts = [
            ("paper", s.paper),
            ("pattern", PATTERNS[s.pattern]),
            ("problem", kind.solved(s)),
            ("guarded gates answer with", asked),
            ("privacy unit", kind.unit(s)),
            ("does the published claim hold?", claim_of(s).holds),
            ("vectors of a message", said),
            ("recorded of a node", ", ".join(s.recorded)),
        ]
        text += f"\n## {s.name}\n\n{s.title}\n\n" + table(("what", "as declared"), facts)
        for variant, runs in examples(type(s)).items():
            for keys in runs:
                text += f"\n    algorithm: {yaml({'name': s.name, 'variant': variant, 'rounds': 20} | dict(keys))}\n"
    return text


def yaml(value: Any) -> str:
    """In one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {yaml(item)}" for key, item in value.items()) + "}"
    return str(list(value) if isinstance(value, tuple) else value)


def pages() -> dict[str, str]:
    """Every file of docs/reference/ by its name."""
    editors = (
        "An editor that reads JSON Schema completes and checks the file: `# yaml-language-server: $schema=PATH/{}`."
    )
    files = (
        (Scenario, "scenario", "The scenario", "What `hushgrid run SCENARIO` takes. Unknown keys are refused."),
        (DeviceConfig, "device", "The device's file", "What `hushgrid node CONFIG` takes. Relative paths are relative "
                                                      "to the file."),
        (CoordinatorConfig, "coordinator", "The coordinator's file", "What `hushgrid coordinator CONFIG` takes. "
                                                                     "Relative paths are relative to the file."),
    )  # fmt: skip
    made = {}
    for root, name, title, intro in files:
        made[f"{name}.md"] = keys(root, "the file", title, f"{intro}\n{editors.format(name + '.schema.json')}")
        made[f"{name}.schema.json"] = schema(root, f"hushgrid: {title[0].lower()}{title[1:]}")
    made |= {"result.md": result_page(), "commands.md": commands_page(), "topics.md": topics_page()}
    made |= {"exit-codes.md": exits_page(), "algorithms.md": algorithms_page()}
    titles = {name: re.search("^# (.*)", text, re.M) for name, text in made.items() if name.endswith(".md")}
    listed = "".join(f"- [{found[1]}]({name})\n" for name, found in titles.items() if found)
    return made | {"README.md": f"{GENERATED}\n# Reference\n\n{listed}"}


def main() -> None:
    PLACE.mkdir(exist_ok=True)
    made = pages()
    for old in PLACE.iterdir():
        if old.name not in made:
            old.unlink()
    for name, text in made.items():
        (PLACE / name).write_text(text, encoding="utf-8")
    before, _, _ = PAPERS.read_text(encoding="utf-8").partition(COVERED)
    PAPERS.write_text(f"{before}{COVERED}{covered()}", encoding="utf-8")


def covered() -> str:
    return (
        "Written by docs/generate.py; `hushgrid study --list` prints it too. *works*: it can be repeated here,\n"
        "whatever comes out; *partly*: some of it; *not*: nothing shows it. Numbers in brackets are findings of the\n"
        f"paper's page. Lemmas serve proofs and have no line.\n\n{coverage.table()}\n"
    )


if __name__ == "__main__":
    main()
