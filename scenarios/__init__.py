"""The scenarios that come with the program, by their names: `hushgrid run case14` works anywhere."""

from __future__ import annotations

from pathlib import Path

from hushgrid.kernels.errors import InputError

FOLDER = Path(__file__).parent


def names() -> list[str]:
    """Of every scenario that comes with the program, its file's name without the ending."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def find(given: str | Path) -> Path:
    """The file that `given` names: a path if there is such a file, else a scenario that comes with the program.

    What is written as a path (with a folder or an ending) is taken as it is. Raises InputError for a name that is none.
    """
    path = Path(given)
    if path.is_file() or len(path.parts) != 1 or path.suffix:
        return path
    if path.name in names():
        return FOLDER / f"{path.name}.yaml"
    raise InputError(f"{given}: no such file or scenario, expected a file or one of {', '.join(names())}")
