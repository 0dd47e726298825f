"""A file to be written, and what the user's own files are."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from hushgrid.kernels.errors import InputError

LOADS = b"bus,p_mw,q_mvar"  #: the first line of a zone's loads


class Draft(NamedTuple):
    """A file to be written, and what goes with it."""

    name: str  #: of the file, without its ending
    text: Callable[[Path], str]  #: from the folder that it is written to
    command: str  #: what takes it
    rows: tuple[Any, Any] | None = None  #: A (m, q), b (m,) of a device with rows, written beside it


def quoted(value: object) -> str:
    """A value as YAML."""
    import yaml

    return str(yaml.safe_dump(value, default_flow_style=True, width=1000)).removesuffix("...\n").strip()


def relative(path: str, folder: Path) -> str:
    return quoted(os.path.relpath(path, folder))


def title(name: str) -> str:
    """A file's name as the name of a run."""
    return re.sub("[^A-Za-z0-9._-]+", "-", name)[:64].strip("-") or "run"


def is_case(data: str) -> bool:
    """Whether it names a power-system case; raises InputError if it is no file either."""
    from hushgrid.grid_cases.matpower import BUILT_IN

    if Path(data).is_file():
        return data.endswith(".m")
    if data in BUILT_IN:
        return True
    raise InputError(
        f"{data}: found no such file, expected a CSV file, a MATPOWER .m file or one of {', '.join(BUILT_IN)}"
    )


def has_loads(data: str) -> bool:
    with open(data, "rb") as file:
        return file.readline(200).replace(b" ", b"").strip() == LOADS
