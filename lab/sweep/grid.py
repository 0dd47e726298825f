"""The points of a sweep: a scenario under every combination of the values of some of its keys."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.types import Document, DocumentView
from hushgrid.node.config.scenario import Scenario, scenario_from
from hushgrid.node.schema.yaml_file import Unfit, lay, parse_values

MOST = 1_000_000  #: runs of a sweep
#: Keys that are no values of a grid: seeds have an option, and the format is what it is.
OWN = {"seed": "--seeds", "hushgrid": "no such axis"}


class Axis(NamedTuple):
    """A key of the scenario and the values it takes."""

    key: str  #: dotted
    values: tuple[Any, ...]
    labels: tuple[str, ...]  #: the values as they stand in a table, no two the same


class Point(NamedTuple):
    """A combination of values."""

    number: int  #: from 0, in the grid's order
    labels: dict[str, str]  #: of each axis, by key
    scenario: Scenario | None  #: without a seed; None if it is refused
    why: str = ""  #: it is refused


def axis(key: str, values: Iterable[object]) -> Axis:
    """An axis. Raises InputError."""
    choices = tuple(values) if isinstance(values, Iterable) and not isinstance(values, str | Mapping) else ()
    if not key or not choices:
        raise InputError(f"--over {key}: found no values, expected KEY=v1,v2,...")
    if key in OWN:
        raise InputError(f"--over {key}: found a key that every run has its own of, expected {OWN[key]}")
    names = _labels(choices)
    for k, name in enumerate(names):
        if name in names[:k]:
            raise InputError(f"--over {key}: found {name} twice, expected different values")
    return Axis(key, choices, names)


def axis_of(text: str) -> Axis:
    """`KEY=v1,v2,...`, the values as YAML. Raises InputError."""
    key, _, values = text.partition("=")
    try:
        return axis(key, parse_values(values))
    except InputError as error:
        raise error if str(error).startswith("--over") else InputError(f"--over {text}: {error}") from None


def axes_of(texts: Sequence[str]) -> dict[str, tuple[object, ...]]:
    """Several such, the values by key. Raises InputError."""
    by_key: dict[str, tuple[object, ...]] = {}
    for text in texts:
        read = axis_of(text)
        if read.key in by_key:
            raise InputError(f"--over {read.key}: found twice, expected all its values in one option")
        by_key[read.key] = read.values
    return by_key


def listed(points: Sequence[DocumentView]) -> tuple[list[Axis], list[tuple[int, ...]]]:
    """Points that are given one by one, all with the same keys: their axes, and where on these each point is.

    Raises InputError.
    """
    keys = list(points[0]) if points else []
    if not keys or any(list(point) != keys for point in points):
        raise InputError("over: found points of no keys or of different keys, expected the same keys in each")
    values: dict[str, list[object]] = {key: [] for key in keys}
    for key, point in product(keys, points):
        if point[key] not in values[key]:
            values[key].append(point[key])
    choices = [tuple(values[key].index(point[key]) for key in keys) for point in points]
    if len({*choices}) < len(choices):
        raise InputError("over: found a point twice, expected different points")
    return [axis(key, values[key]) for key in keys], choices


def _labels(values: Sequence[object]) -> tuple[str, ...]:
    """Sections go by their `name` or `kind`, and by what else tells them from others of that name."""
    sections = [v for v in values if isinstance(v, Mapping)]

    def label(value: object) -> str:
        if not isinstance(value, Mapping):
            return value if isinstance(value, str) else json.dumps(value)
        title = next((str(value[key]) for key in ("name", "kind") if key in value), "")
        others = [
            s for s in sections if s is not value and next((s[k] for k in ("name", "kind") if k in s), "") == title
        ]
        differing = [key for key in value if any(other.get(key) != value[key] for other in others)]
        if not title and not differing:
            differing = list(value)
        return ", ".join([title] * bool(title) + [f"{key} {_plain(value[key])}" for key in differing if key != title])

    return tuple(" ".join(label(value).split()) for value in values)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def points(
    raw: DocumentView,
    axes: Sequence[Axis],
    file: str,
    base: Path,
    seeds: int,
    choices: Sequence[tuple[int, ...]] | None = None,
) -> list[Point]:
    """The combinations in `choices` [every one, the last axis the quickest], each checked as `hushgrid check` would.

    A combination that is refused is a point that says why. Raises InputError if a value does not fit its key's type,
    or no combination is left.
    """
    if (runs := (prod(len(a.values) for a in axes) if choices is None else len(choices)) * seeds) > MOST:
        raise InputError(f"--over: found {runs} runs, expected at most {MOST}")
    grid = []
    for number, choice in enumerate(product(*(range(len(a.values)) for a in axes)) if choices is None else choices):
        laid: Document = deepcopy(dict(raw))
        laid.pop("seed", None)
        for a, k in zip(axes, choice, strict=True):
            try:
                lay(laid, a.key, deepcopy(a.values[k]))
            except InputError as error:
                raise InputError(f"--over {error}") from None
        labels = {a.key: a.labels[k] for a, k in zip(axes, choice, strict=True)}
        try:
            grid.append(Point(number, labels, scenario_from(laid, file, base)))
        except Unfit:
            raise
        except InputError as error:
            grid.append(Point(number, labels, None, str(error)))
    if all(point.scenario is None for point in grid):
        raise InputError(grid[0].why)
    return grid


def seeded(point: Point, seed: int) -> Scenario:
    """The run of a point that has this seed."""
    assert point.scenario is not None
    return msgspec.structs.replace(point.scenario, seed=seed)


def seeds_of(text: str) -> range:
    """`20`: 0 to 19; `100-119`: these. Raises InputError."""
    first, sign, last = text.partition("-")
    try:
        numbers = range(int(first), int(last) + 1) if sign else range(int(first))
    except ValueError:
        numbers = range(0)
    if not numbers:
        raise InputError(f"--seeds: found {text}, expected how many, or first-last")
    return numbers
