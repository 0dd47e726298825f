"""What a machine of a fleet needs beside the program: units, the broker's files, the installer, example fleets."""

from __future__ import annotations

import shutil
from pathlib import Path

from hushgrid.kernels.errors import InputError

FOLDER = Path(__file__).parent
OWN = ("__init__.py", "py.typed", "__pycache__")  #: of the package, not of a machine


def write(directory: Path) -> list[Path]:
    """Copies everything into a new directory, and returns the files. Raises InputError if it exists, or
    cannot be made.
    """
    if directory.exists():
        raise InputError(f"{directory}: found an existing path, expected a new directory")
    try:
        shutil.copytree(FOLDER, directory, ignore=shutil.ignore_patterns(*OWN))
        made = sorted(path for path in directory.rglob("*") if path.is_file())
        for path in made:
            path.chmod(0o755 if path.suffix == ".sh" else 0o644)  # an installed package keeps no bits
    except OSError as error:
        raise InputError(f"{error.filename or directory}: {error.strerror}, expected a writable place") from None
    return made
