"""What the files of devices and of coordinators have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.types import Document
from hushgrid.node.log import Warned
from hushgrid.node.schema.sections import Section, Tls


def unwrapped(raw: Document, key: str, path: Path) -> Document:
    """What stands under `node:` or `coordinator:`, which is then the file's only key; else the file itself.

    Raises InputError if another key stands beside it.
    """
    if not isinstance(raw.get(key), dict):
        return raw
    for other in raw:
        if other != key:
            raise InputError(f"{path}: {other}: found beside {key}, expected {key} alone")
    section: Document = raw[key]
    return section


def near_tls(tls: Tls | None, path: Path) -> Tls | None:
    """The section with its paths, which are relative to the file at `path`, made absolute."""
    if tls is None:
        return None
    paths = {k: str((path.parent / v).resolve()) for k in ("ca", "cert", "key") if (v := getattr(tls, k))}
    return Tls(**paths)


S = TypeVar("S", bound=Section)


def with_fixed(before: S, after: S, keys: Sequence[str], file: str, log: Callable[[str], None]) -> S:
    """`after`, with the values of `before` at these keys; one line to `log` if any of them differs."""
    values = {key: getattr(before, key) for key in keys if hasattr(before, key)}
    if changed := [key for key, value in values.items() if getattr(after, key) != value]:
        log(Warned(f"{file}: {', '.join(changed)}: changed, which holds from the next start on"))
    return replace(after, **values)
