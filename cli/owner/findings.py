"""What `hushgrid doctor` says of one step: one line, whether it is good, and if not what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

from hushgrid.kernels.errors import printable
from hushgrid.node.schema.sections import Tls

LIMIT = 300  #: characters of what is said


class Place(NamedTuple):
    """An installation: who it is, and where its things are."""

    path: Path
    name: str
    unit: str
    fleet: str
    broker: str
    tls: Tls | None
    state: Path
    mark: Path | None
    members: tuple[str, ...]  #: a coordinator's

    @property
    def ledger(self) -> Path:
        return self.state / f"{self.name}.ledger"


class Finding(NamedTuple):
    """One step. `code`: what the command ends with because of it."""

    grade: Literal["ok", "warn", "bad"]
    what: str
    text: str
    do: str = ""
    code: int = 0

    def __str__(self) -> str:
        advice = f": {self.do}" if self.do else ""
        return f"{self.grade:<4}  {self.what}: {printable(self.text, LIMIT)}{advice}"


def ok(what: str, text: str) -> Finding:
    """Nothing is to be done."""
    return Finding("ok", what, text)


def warn(what: str, text: str, do: str) -> Finding:
    """It works, or may, and its owner should know."""
    return Finding("warn", what, text, do)


def bad(what: str, text: str, do: str, code: int = 2) -> Finding:
    """It cannot work. `code` 4: it may pass by itself."""
    return Finding("bad", what, text, do, code)
