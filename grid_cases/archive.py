"""A case as a NumPy archive: every table of `Case` with the same bits, so that a case made in Python can be a file."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from hushgrid.grid_cases import case as cases
from hushgrid.grid_cases.case import Case
from hushgrid.grid_cases.elements.table import Table
from hushgrid.kernels.errors import InputError

VERSION = 1  #: of the format
WORDS = ("constraints", "omitted")  #: fields of a case that are lists of words
LATER = ("coordinates", "omitted")  #: what files of 0.2.0 have not


def write(case: Case, path: Path) -> None:
    """A `.npz` file of the case: `TABLE.column` for each column. Raises OSError."""
    arrays: dict[str, Any] = {"hushgrid_case": VERSION, "name": case.name, "base_mva": case.base_mva}
    arrays |= {name: np.array(getattr(case, name), np.str_) for name in WORDS}
    for name, table in _tables(case).items():
        arrays |= {f"{name}.{column.name}": getattr(table, column.name) for column in fields(table)}
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def read(path: Path) -> Case:
    """The case in a file that `write` made; nothing in it is executed. Raises InputError."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as saved:
            arrays = {name: saved[name] for name in saved.files}
        if arrays["hushgrid_case"] != VERSION:
            raise InputError(f"case: {path}: found format {arrays['hushgrid_case']}, expected {VERSION}")
        tables = {
            name: kind(**{column.name: arrays[f"{name}.{column.name}"] for column in fields(kind)})
            for name, kind in _kinds().items()
            if name not in LATER or f"{name}.{fields(kind)[0].name}" in arrays
        }
        constraints, omitted = (tuple(arrays[name].tolist()) if name in arrays else () for name in WORDS)
        head = str(arrays["name"]), float(arrays["base_mva"])
        return Case(*head, **tables, constraints=constraints, omitted=omitted)
    except InputError:
        raise
    except Exception as error:  # zipfile, zlib, numpy and struct each raise their own kind
        line = " ".join(str(error).split())[:120] or type(error).__name__
        raise InputError(f"case: {path}: {line}, expected a case that hushgrid wrote") from None


def _tables(case: Case) -> dict[str, Table]:
    return {column.name: table for column in fields(case) if isinstance(table := getattr(case, column.name), Table)}


def _kinds() -> dict[str, type[Any]]:
    """The type of every table of a case."""
    kinds: dict[str, type[Any]] = {"buses": cases.Buses, "generators": cases.Generators, "lines": cases.Lines}
    return kinds | {f.name: type(f.default) for f in fields(Case) if isinstance(f.default, Table)}
