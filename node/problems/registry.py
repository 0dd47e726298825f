"""Every kind of problem there is: the folders of this one whose `kind.py` declares one."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from hushgrid.node import problems
from hushgrid.node.problems.kind import Kind


def _found() -> dict[str, Kind]:
    folders = sorted(file.parent.name for place in problems.__path__ for file in Path(place).glob("*/kind.py"))
    every = [import_module(f"{problems.__name__}.{folder}.kind").KIND for folder in folders]
    return {kind.name: kind for kind in every}


KINDS: dict[str, Kind] = _found()
TAGS: dict[str, Kind] = {tag: kind for kind in KINDS.values() for tag in kind.tags}  #: by `problem.kind`


def algorithms_of(device: str) -> tuple[str, ...]:
    """The names of the algorithms that devices of a kind take part in."""
    return tuple(sorted({name for kind in KINDS.values() if kind.devices == device for name in kind.algorithms}))


if TYPE_CHECKING:
    AnyProblem = Any
    AnyPublic = Any
else:  # tagged unions
    AnyProblem = Union[tuple(section for kind in KINDS.values() for section in kind.sections)]  # noqa: UP007
    AnyPublic = Union[tuple(kind.public_type for kind in KINDS.values())]  # noqa: UP007


def kind_of(problem: Any) -> Kind:
    """The kind of a scenario's problem section."""
    return TAGS[problem.__struct_config__.tag]
