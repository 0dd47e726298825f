"""The scenarios that come with the program, by their names: `hushgrid run case14` works anywhere."""

from __future__ import annotations

from pathlib import Path

from hushgrid.kernels.errors import InputError

FOLDER = Path(__file__).parent
#: Scenarios whose data are made on the user's machine, from what may not be shipped: the case, and the command.
MADE = {
    "substations": (
        FOLDER / "data" / "substations" / "case.npz",
        "hushgrid case day simbench:1-MV-rural--0-sw --day 27 --storage 3,0.5,1.5 --voltage 0.94,1.06 --cost 50,2",
    )
}


def names() -> list[str]:
    """Of every scenario that comes with the program, its file's name without the ending."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def find(given: str | Path) -> Path:
    """The file that `given` names: a path if there is such a file, else a scenario that comes with the program.

    What is written as a path (with a folder or an ending) is taken as it is. Raises InputError for a name that is none,
    and for a scenario whose data are not made yet.
    """
    path = Path(given)
    if path.is_file() or len(path.parts) != 1 or path.suffix:
        return _with_data(path)
    if path.name in names():
        return _with_data(FOLDER / f"{path.name}.yaml")
    raise InputError(f"{given}: no such file or scenario, expected a file or one of {', '.join(names())}")


def _with_data(path: Path) -> Path:
    case, command = MADE.get(path.stem, (FOLDER, ""))
    if path.resolve().parent == FOLDER.resolve() and not case.exists():
        raise InputError(f"{path.stem}: found no data, expected those that this makes: {command} --out {case.parent}")
    return path
