"""Contracted capacities: public, a CSV file of bus, p_mw, q_mvar, and what a relative change is relative to.

The owner of a device has the file, and a plan names it by the digest of its rows: under another file the same share
would hide other changes, so that a plan with another digest is refused.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hushgrid.grid_cases.case import Case
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.types import Vector

HEADER = ["bus", "p_mw", "q_mvar"]
#: MW, MVAr; of an entry that may carry load. Within them no beta_i of any share leaves the range of a bounded change.
LEAST, MOST = 1e-6, 1e6


class Capacities(NamedTuple):
    """The rows of a file of capacities, bus by bus."""

    path: Path
    rows: dict[int, tuple[float, float]]  #: p in MW and q in MVAr of each bus
    lines: dict[int, int]  #: where in the file each bus stands

    @property
    def digest(self) -> str:
        """SHA-256 of the rows `bus,p_mw,q_mvar`, by bus, each number as Python writes a float."""
        text = "".join(f"{bus},{p!r},{q!r}\n" for bus, (p, q) in sorted(self.rows.items()))
        return hashlib.sha256(text.encode()).hexdigest()

    def of_buses(self, case: Case, buses: Sequence[int]) -> Vector:
        """(2 nb,): the capacities of these buses in order, p then q, p.u. Raises InputError if one has no row.

        So it does if a row is of no bus of the case.
        """
        known = set(case.buses.numbers.tolist())
        for bus, line in self.lines.items():
            if bus not in known:
                raise InputError(f"{self.path}:{line}: found bus {bus}, expected a bus of {case.name}")
        if missing := [bus for bus in buses if bus not in self.rows]:
            raise InputError(f"{self.path}: found no bus {missing[0]}, expected a row bus,p_mw,q_mvar for each bus")
        capacity: Vector = np.array([self.rows[bus] for bus in buses], float).reshape(-1, 2).T.ravel() / case.base_mva
        return capacity


def read_capacities(path: Path) -> Capacities:
    """The capacities in a file. Raises InputError, which names the line."""
    read = Capacities(path, {}, {})
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.reader(file)
            if [cell.strip() for cell in next(reader, [])] != HEADER:
                raise InputError(f"{path}:1: found another header, expected bus,p_mw,q_mvar")
            for row in reader:
                if row:
                    _add(read, row, reader.line_num)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or 'not CSV text'}, expected capacities") from None
    return read


def _add(read: Capacities, row: list[str], line: int) -> None:
    where = f"{read.path}:{line}"
    try:
        bus, *values = int(row[0]), *map(float, row[1:])
    except ValueError:
        values = []
    if len(values) != 2:
        text = ",".join(row)[:60]
        raise InputError(f"{where}: found {text!r}, expected bus,p_mw,q_mvar: a bus number and two capacities")
    for value in values:
        if not (value == 0 or LEAST <= value <= MOST):
            raise InputError(f"{where}: found a capacity of {value:g}, expected 0 or {LEAST:g} to {MOST:g} MW or MVAr")
    if bus in read.rows:
        raise InputError(f"{where}: found bus {bus} again, expected one row a bus (line {read.lines[bus]})")
    p, q = values
    read.rows[bus], read.lines[bus] = (p + 0.0, q + 0.0), line  # -0.0 is 0.0
