"""YAML in, typed and checked structs out; one line for whatever is wrong: file, key path, found, expected."""

from __future__ import annotations

import re
import reprlib
from pathlib import Path
from typing import TypeVar, get_args

import msgspec
import yaml

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.types import Document
from hushgrid.node.schema.durations import EXPECTED, PATTERN

#: PyYAML's constructors raise these too where a tag and its text do not match.
_NOT_YAML = (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, RecursionError)


class _Loader(yaml.SafeLoader):
    """YAML with 1e-6 a number, as every user means it, and a key given twice an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:
        keys = [self.construct_object(k, deep=True) for k, _ in node.value]
        for i, key in enumerate(keys):
            if not isinstance(key, str):
                raise yaml.constructor.ConstructorError(
                    None, None, f"found key {key!r}, expected text", node.start_mark
                )
            if key in keys[:i]:
                raise yaml.constructor.ConstructorError(None, None, f"found key {key!r} twice", node.start_mark)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {k: list(v) for k, v in yaml.SafeLoader.yaml_implicit_resolvers.items()}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def read_yaml(path: Path) -> Document:
    """The mapping in a YAML file; raises InputError on anything else."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}, expected a readable file") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: found bytes that are not UTF-8, expected YAML text") from None
    return parse_yaml(text, str(path))


def parse_yaml(text: str, file: str) -> Document:
    try:
        raw = yaml.load(text, Loader=_Loader)
    except _NOT_YAML as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{file}:{mark.line + 1}" if mark else file
        raise InputError(f"{where}: {getattr(error, 'problem', None) or error}, expected YAML") from None
    if not isinstance(raw, dict):
        raise InputError(f"{file}: found {type(raw).__name__}, expected a mapping of keys")
    return raw


T = TypeVar("T")


class Unfit(InputError):
    """A key that a section does not have, or a value that is not of its key's type, whatever else the file says."""


def convert(raw: object, type_: type[T], file: str, prefix: str = "") -> T:
    """`raw` as a struct. Raises InputError on the first thing that is wrong: file, key path, found, expected."""
    try:
        return msgspec.convert(raw, type_, strict=True)
    except msgspec.ValidationError as error:
        raise Unfit(f"{file}: {_explain(str(error), raw, prefix, type_)}") from None
    except InputError as error:  # of a struct whose keys contradict each other
        raise InputError(f"{file}: {error}") from None


def _explain(message: str, raw: object, prefix: str, type_: object) -> str:
    text, _, where = message.partition(" - at ")
    steps = re.findall(r"\.([^.\[\]`]+)|\[(\d+)\]|\[(\.\.\.)\]", where)
    value, path = raw, prefix
    for key, index, _ in steps:
        if key:
            path = f"{path}.{key}" if path else key
            value = value.get(key) if isinstance(value, dict) else None
        elif index:
            path += f"[{index}]"
            value = value[int(index)] if isinstance(value, list) and int(index) < len(value) else None
    if match := re.fullmatch("Object missing required field `(.+)`", text):
        return f"{path + '.' if path else ''}{match[1]}: missing, expected a value"
    if match := re.fullmatch("Object contains unknown field `(.+)`", text):
        keys = []
        for section in _sections(_type_at(type_, steps, raw), value):
            tag = section.__struct_config__.tag_field
            keys += ([] if tag is None else [tag]) + [f.encode_name for f in msgspec.structs.fields(section)]
        known = f", expected one of {', '.join(keys)}" if keys else ""
        return f"{path + '.' if path else ''}{match[1]}: unknown key{known}"
    expected = re.sub("`([^`]*)`", r"\1", text)
    expected = re.sub(r"^Expected ", "", expected).split(", got ")[0]
    if repr(PATTERN)[1:-1] in expected:
        expected = EXPECTED
    expected = re.sub(r"^Invalid (enum )?value.*", lambda _: _choices(type_, steps, raw), expected)
    return f"{path or 'file'}: found {_short(value)}, expected {expected}"


def _sections(type_: object, value: object = None) -> list[type[msgspec.Struct]]:
    """The structs a type may be: itself, or those of `Section | None`; of tagged ones that which `value` names."""
    sections = [t for t in (type_, *get_args(type_)) if hasattr(t, "__struct_fields__")]
    configs = [(t, t.__struct_config__) for t in sections]
    named = [t for t, c in configs if c.tag is not None and isinstance(value, dict) and value.get(c.tag_field) == c.tag]
    return named or sections


def _type_at(type_: object, steps: list[tuple[str, str, str]], raw: object) -> object:
    """The type of the field at a path of keys into `raw`; None where the path leaves the structs."""
    for key, _, _ in steps:
        hit = [f for section in _sections(type_, raw) for f in msgspec.structs.fields(section) if f.encode_name == key]
        if not hit:
            return None
        type_, raw = hit[0].type, raw.get(key) if isinstance(raw, dict) else None
    return type_


def _choices(type_: object, steps: list[tuple[str, str, str]], raw: object) -> str:
    literals = re.findall(r"Literal\[(.*?)\]", str(_type_at(type_, steps, raw)))
    return f"one of {literals[0]}" if literals else "another value"


def _short(value: object) -> str:
    text = reprlib.repr(value)  # bounded: a value of aliases in aliases would not fit into memory
    return text if len(text) <= 60 else text[:57] + "..."


def parse_values(text: str) -> list[object]:
    """`1,2,{a: 3}`: values as YAML, with commas between them. Raises InputError."""
    try:
        values = yaml.load(f"[{text}]", Loader=_Loader)
    except _NOT_YAML:
        values = None
    if not isinstance(values, list) or not values:
        raise InputError(f"found {_short(text)}, expected values with commas between them")
    return values


def assigned(assignment: str) -> tuple[str, object]:
    """`--set path.to.key=value`: the path, and the value as YAML. Raises InputError if it has no such form."""
    path, sign, value = assignment.partition("=")
    if not sign or not path:
        raise InputError(f"--set {assignment}: found no '=', expected path.to.key=value")
    try:
        return path, yaml.load(value, Loader=_Loader)
    except _NOT_YAML:
        raise InputError(f"--set {assignment}: found {_short(value)}, expected a YAML value") from None


def set_path(raw: Document, assignment: str) -> None:
    """Lays `--set path.to.key=value` over a mapping. Raises InputError if it has no such form, or does not fit."""
    try:
        lay(raw, *assigned(assignment))
    except InputError as error:
        raise InputError(str(error) if str(error).startswith("--set") else f"--set {error}") from None


def lay(raw: Document, path: str, value: object) -> None:
    """`value` at a dotted key path; raises InputError if the path leads below another value."""
    *parents, last = path.split(".")
    here = raw
    for key in parents:
        here = here.setdefault(key, {})
        if not isinstance(here, dict):
            raise InputError(f"{path}: found {_short(here)} at {key}, expected a section")
    here[last] = value
